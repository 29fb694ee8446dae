"""Runs the ZB-V heuristic by the authors of zero bubble, as included in ColossalAI.

    python3 orders.py v_schedule.py <settings >orders

Each input line is a JSON object with the ranks, the microbatches, the times f, i and w of one of a
rank's two stages, the latency of a hop, and the cap in microbatches. For each, it prints a JSON list
of the orders of the heuristic's four variants, or null for a variant that fails. An order has a list
for each rank, whose elements are [kind, stage, microbatch], with the kinds F, I and W.
"""

import importlib.util
import json
import sys

spec = importlib.util.spec_from_file_location("v_schedule", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["v_schedule"] = module
spec.loader.exec_module(module)


def order(s, fill_f, fill_b):
    graph = module.PipelineGraph(
        s["ranks"], s["microbatches"], s["f"], s["i"], s["w"], s["latency"], 1, 0, -1, max_mem=2 * s["cap"]
    )
    try:
        schedule, _, _ = graph.try_v_schedule(fill_f=fill_f, fill_b=fill_b)
    except AssertionError:
        return None
    last = 2 * s["ranks"] - 1
    # The heuristic numbers the chunks of a rank in the order of the pass, so those of a backward are reversed.
    return [
        [["FIW"[kind], rank if (chunk == 0) == (kind == 0) else last - rank, mb] for kind, chunk, mb in actions]
        for rank, actions in enumerate(schedule)
    ]


for line in sys.stdin:
    setting = json.loads(line)
    print(json.dumps([order(setting, f, b) for b in (True, False) for f in (True, False)]))
