"""From a model to a training pipeline: profiles, chooses a plan, trains with weir.Runner, and compares bytes and time with the forecast.

    python pipeline.py [--ranks 2] [--stages 4] [--model own|head|qwen3_moe|gpt_oss] [--schedule choose|1f1b|zb-v|...] [--steps 9] [--measure]

Takes the command `weir` from the path, or from the variable WEIR. The ranks are processes on the CPU, over gloo, each on a
core of its own if there are enough. The bytes of a rank are its weights and the most that its allocator has alive in a step,
gradients included; the forecast is what `weir mem plan` says is alive at once, without an optimizer. Two times are measured,
as medians of steps: that of a step, and the processor time of the busiest rank, which other work on the machine does not
change. They are forecast from operations, and with --measure also from the times that weir.profile measures here before. The
model head has a large vocabulary, so that its last stage is long.
"""

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), HERE]
import weir  # noqa: E402
from weir.profile._measure import alive  # noqa: E402

WEIR = os.environ.get("WEIR", "weir")
LENGTH, MICROBATCHES = 256, 8


class Block(nn.Module):
    """A layer of a model of one's own, whose inner width differs from layer to layer."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, 4, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Own(nn.Module):
    def __init__(self, vocabulary=320, inner=(1024, 128)):
        super().__init__()
        self.embed, self.layers = nn.Embedding(vocabulary, 128), nn.ModuleList(Block(128, inner[i // 4]) for i in range(8))
        self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss_fn(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


class Stage(nn.Module):
    """The pieces of a model from first to before end; what they share, each stage makes for itself."""

    def __init__(self, model, first, end):
        super().__init__()
        base = getattr(model, "model", model)
        self.config = getattr(model, "config", None)
        self.embed = (base.embed_tokens if self.config else base.embed) if first == 0 else None
        self.layers = nn.ModuleList(base.layers[max(first - 1, 0):end - 1])
        self.norm, self.head = (base.norm, model.lm_head if self.config else model.head) if end == len(base.layers) + 2 else (None, None)
        self.rotary = base.rotary_emb if self.config else None
        self.kinds = (self.config.layer_types or [])[max(first - 1, 0):end - 1] if getattr(self.config, "layer_types", None) else []

    def forward(self, x):
        x = self.embed(x) if self.embed is not None else x
        for i, layer in enumerate(self.layers):
            if self.config is None:
                x = layer(x)
                continue
            if i == 0:
                from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

                positions = torch.arange(x.shape[1])[None]
                masks = {"full_attention": create_causal_mask(self.config, x, None, None, positions)}
                if "sliding_attention" in self.kinds:
                    masks["sliding_attention"] = create_sliding_window_causal_mask(self.config, x, None, None, positions)
                tables = self.rotary(x, positions)
            x = layer(x, attention_mask=masks[self.kinds[i] if self.kinds else "full_attention"], position_ids=positions, position_embeddings=tables)
        return self.head(self.norm(x)) if self.head is not None else x


def make(name):
    """Returns build, batch and loss of weir.profile, and the attention."""
    if name in ("own", "head"):
        return Own if name == "own" else functools.partial(Own, 16384, (1024, 1024)), lambda k, n: torch.zeros(k, n, dtype=torch.long), loss_fn, "flash"
    from compare import config

    from weir.profile._transformers import from_config

    c = config(name)
    c.num_hidden_layers, c.tie_word_embeddings = 8, False
    if getattr(c, "layer_types", None):
        c.layer_types = ["sliding_attention", "full_attention"] * 4 if name == "gpt_oss" else ["full_attention"] * 8
    build, batch = from_config(c, attention="eager", dtype="float32")
    return build, lambda k, n: {"input_ids": batch(k, n)["input_ids"]}, lambda out, b: loss_fn(out.logits, b["input_ids"]), "math"


def balanced(found, stages):
    """Returns the layers of each stage with which the longest stage is as short as possible."""
    work = [sum(found.kinds[p.kind].flops[a].at(LENGTH) for a in "FIW") for p in found.pieces]
    layers = len(work) - 2

    def longest(cuts):
        ends = [0, *(1 + c for c in cuts), len(work)]
        lengths = [sum(work[a:b]) for a, b in zip(ends, ends[1:])]
        return max(lengths), sum(x * x for x in lengths)

    best = min(itertools.combinations(range(1, layers), stages - 1), key=longest)
    return [b - a for a, b in zip((0, *best), (*best, layers))]


def command(*args):
    return subprocess.run([WEIR, *map(str, args)], check=True, capture_output=True, text=True).stdout


def rank_main(name, cut, plan, steps):
    """Trains a few steps on this rank, and writes the most bytes of the last one and medians of seconds of the steps."""
    torch.set_num_threads(1)
    rank, cores = int(os.environ["RANK"]), sorted(os.sched_getaffinity(0))
    if int(os.environ["WORLD_SIZE"]) <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = make(name)[0]().train()
    plan = weir.Plan.load(plan)
    spans, first = [], 0
    for i, layers in enumerate(cut):
        end = first + layers + (1 if i == 0 else 0) + (1 if i == len(cut) - 1 else 0)
        spans.append((first, end))
        first = end
    stages = {s: Stage(model, *spans[s]) for s in plan.on(dist.get_rank())}
    width = 128 if isinstance(model, Own) else model.config.hidden_size
    del model
    runner = weir.Runner(plan, stages, loss_fn, shapes=torch.empty(1, LENGTH, width, device="meta"))
    entries = [(ids, ids) for ids in torch.randint(0, 300, (MICROBATCHES, 1, LENGTH))]
    times = []
    for _ in range(steps):
        dist.barrier()
        begun, busy = time.time(), time.thread_time()
        runner.step(iter(entries))
        times.append((time.time() - begun, time.thread_time() - busy))
    for stage in stages.values():
        stage.zero_grad(set_to_none=True)
    allocated = []
    with alive("cpu", allocated):
        runner.step(iter(entries))
    weights = sum(t.nbytes for stage in stages.values() for t in stage.parameters())
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (weights, allocated[0], *(statistics.median(t) for t in zip(*times))))
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--model", default="own")
    p.add_argument("--stages", type=int, help="by default two for each rank")
    p.add_argument("--schedule", default="choose")
    p.add_argument("--steps", type=int, default=9, help="steps whose times are measured; bytes are those of one more")
    p.add_argument("--measure", action="store_true", help="also forecast times from those that the layers take here")
    p.add_argument("--worker", nargs=2, metavar=("CUT", "PLAN"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return rank_main(a.model, json.loads(a.worker[0]), a.worker[1], a.steps)
    build, batch, loss, attention = make(a.model)
    torch.set_num_threads(1)
    found = weir.profile(build, batch, loss, seq=LENGTH, device="cpu", attention=attention, measure=a.measure)
    with tempfile.TemporaryDirectory() as folder:
        model, timed, plan = (os.path.join(folder, name) for name in ("model.json", "timed.json", "plan.json"))
        found.save(timed)
        for kind in found.kinds:
            kind.seconds.clear()
        found.save(model)
        layers = len(found.pieces) - 2
        stages = a.stages or 2 * a.ranks
        equal = [layers // stages + (1 if i < layers % stages else 0) for i in range(stages)]
        costs = ["--seq", LENGTH, "--teraflops", "0.02"]
        for counts in [best] if (best := balanced(found, stages)) == equal else [best, equal]:
            cut = [*costs, "--layers", ",".join(map(str, counts))]
            given = [*cut, "--costs", timed]
            if a.schedule == "choose":
                command("choose", "--ranks", a.ranks, "--stages", stages, "--microbatches", MICROBATCHES, *given, "-o", plan)
            else:
                command("plan", a.schedule, "--ranks", a.ranks, "--stages", stages, "--microbatches", MICROBATCHES, "--to", "plan", "-o", plan)
            forecast = json.loads(command("mem", "plan", plan, *given, "--json"))
            sims = [json.loads(command("sim", plan, *cut, "--costs", file, "--json")) for file in (model, timed)]
            times = f"forecast {sims[0]['makespan'] / 1e6:.0f} ms of operations" + (f", {sims[1]['makespan'] / 1e6:.0f} ms of measured layers" if a.measure else "")
            out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(a.ranks), "--standalone", __file__,
                                  "--model", a.model, "--steps", str(a.steps), "--worker", json.dumps(counts), plan], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
            ranks = json.loads(out.strip().split("\n")[-1])
            print(f"{a.model} on {a.ranks} ranks, layers by stage {counts}: {sims[0]['name']}, {times}; measured {1e3 * max(r[2] for r in ranks):.0f} ms, busiest rank {1e3 * max(r[3] for r in ranks):.0f} ms of a processor")
            for rank, (weights, most, *_) in enumerate(ranks):
                expected, measured = forecast["per_rank"][rank]["at_once"] - 2 * weights, weights + most  # the costs have the state of Adam
                print(f"  rank {rank}: forecast {expected:,} bytes, measured {measured:,}: {expected / measured - 1:+.2%}")


if __name__ == "__main__":
    main()
