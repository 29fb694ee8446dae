"""Measures the CPU time of a pipeline's actions whose stages multiply one number, in PyTorch's runtime and in weir.Runner.

    WEIR=weir python3 tests/pytorch/overhead.py [--ranks 2] [--microbatches 64] [--steps 21]

Every rank is a process over gloo that computes on one thread. The CPU time is that of all threads of the process in a
step, divided by the number of the rank's actions in the plan: computations, sends, receives and waits. The figure is the
median over the steps, for the rank with the largest median. PyTorch's runtime runs the same plan (weir.schedule), and its
own schedule, whose time is divided by the plan's number of actions too.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *path) for path in (("..", "..", "python"), ("..", "..", "python", "tests"))]

import torch
from ranks import on_ranks
from torch.distributed import pipelining

import weir

CLASSES = {"1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B", "zb-v": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV"}


class Nothing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


def loss_fn(output, target):
    return output.sum()


def measure(rank, plan, column, steps):
    modules = {s: Nothing() for s in plan.on(rank)}
    one = torch.ones(1)
    if column == "runner":
        runner = weir.Runner(plan, modules, loss_fn, shapes=one)
        step = lambda: runner.step((one, one) for _ in range(plan.microbatches))  # noqa: E731
    else:
        like = torch.empty(1, requires_grad=True)
        stages = [pipelining.PipelineStage(m, s, plan.stages, torch.device("cpu"), input_args=like if s else one, output_args=like) for s, m in modules.items()]
        if column == "schedule":
            schedule = weir.schedule(plan, stages, loss_fn, reduction="sum")
        else:
            schedule = getattr(pipelining, CLASSES[plan.name])(stages if len(stages) > 1 else stages[0], plan.microbatches, loss_fn=loss_fn, scale_grads=False)
        options = {"return_outputs": False}
        if 0 in modules:
            options["arg_mbs"] = [(one,)] * plan.microbatches
        if plan.stages - 1 in modules:
            options["target_mbs"] = [one] * plan.microbatches
        step = lambda: schedule.step(**options)  # noqa: E731
    actions = sum(1 for _ in plan.actions(rank))
    found = []
    for _ in range(steps + 2):
        gc.collect()
        began = time.process_time()
        step()
        found.append((time.process_time() - began) / actions)
    return statistics.median(found[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=64)
    parser.add_argument("--steps", type=int, default=21)
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {options.ranks} ranks, {options.microbatches} microbatches: CPU time of an action, µs, median of {options.steps} steps\n")
    print("| | PyTorch's schedule | PyTorch's runtime, weir.schedule | weir.Runner |\n|---|--:|--:|--:|")
    for name in CLASSES:
        command = [os.environ["WEIR"], "plan", name, f"--ranks={options.ranks}", f"--microbatches={options.microbatches}", "--to=plan"]
        plan = weir.Plan(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        cells = [max(on_ranks(options.ranks, measure, plan, column, options.steps)) for column in ("pytorch", "schedule", "runner")]
        print(f"| {name} | " + " | ".join(f"{cell * 1e6:.0f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
