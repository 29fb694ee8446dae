"""Compares the gradients of weir.Runner with those of PyTorch's runtime under the same plan and of a plain loop, bit by bit.

    WEIR=weir python3 tests/pytorch/bits.py [--steps 200]

26 plans run on two and on four ranks over gloo, with 8 microbatches. Then the model trains for 200 steps with microbatches of
random lengths, on two ranks under 1f1b and zb-v, and its parameters are compared with those of a plain loop after each step.
"""

import argparse
import json
import os
import random
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *path) for path in (("..", "..", "python"), ("..", "..", "python", "tests"))]

import torch
from ranks import on_ranks
from torch import nn
from torch.distributed import pipelining

import weir

WIDTH, ROWS, M = 32, 8, 8
NAMES = ("gpipe", "1f1b", "interleaved", "breadth-first", "depth-first", "grouped-interleave", "zb-h1", "zb-h2", "zb1p", "zb-v", "v-half", "v-min", "dualpipev")


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(self.norm(x))))


def stages_of(count):
    torch.manual_seed(1)
    return [Stage() for _ in range(count)]


def entries(seed, lengths):
    generator = torch.Generator().manual_seed(seed)
    for rows in lengths:
        yield torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, WIDTH, generator=generator)


def loss_fn(output, target):
    return (output - target).square().sum(), output.shape[0]


def plain(stages, batch):
    total = 0
    for x, t in batch:
        for stage in stages:
            x = stage(x)
        loss, weight = loss_fn(x, t)
        loss.backward()
        total += weight
    for stage in stages:
        for p in stage.parameters():
            p.grad.div_(total)


def compare(rank, plan):
    """Returns the largest difference between the gradients of the runner and of PyTorch's runtime, and of a plain loop."""
    ours, theirs, loop = stages_of(plan.stages), stages_of(plan.stages), stages_of(plan.stages)
    runner = weir.Runner(plan, {s: ours[s] for s in plan.on(rank)}, loss_fn, shapes=torch.empty(ROWS, WIDTH))
    runner.step(entries(2, [ROWS] * M))
    like = torch.empty(ROWS, WIDTH, requires_grad=True)
    built = [pipelining.PipelineStage(theirs[s], s, plan.stages, torch.device("cpu"), input_args=like if s else torch.empty(ROWS, WIDTH), output_args=like)
             for s in plan.on(rank)]
    schedule = weir.schedule(plan, built, lambda y, t: loss_fn(y, t)[0], reduction="sum")
    xs, ts = (list(part) for part in zip(*entries(2, [ROWS] * M)))
    schedule.step(**({"arg_mbs": [(x,) for x in xs]} if 0 in plan.on(rank) else {}), **({"target_mbs": ts} if plan.stages - 1 in plan.on(rank) else {}),
                  return_outputs=False)
    plain(loop, entries(2, [ROWS] * M))
    pairs = [(p.grad, q.grad / (M * ROWS), r.grad) for s in plan.on(rank) for p, q, r in zip(ours[s].parameters(), theirs[s].parameters(), loop[s].parameters())]
    return max(float((p - q).abs().max()) for p, q, _ in pairs), max(float((p - r).abs().max()) for p, _, r in pairs)


def trains(rank, plan, steps):
    """Returns the number of steps after which parameters differed from those of a plain loop."""
    ours, loop = stages_of(plan.stages), stages_of(plan.stages)
    modules = {s: ours[s] for s in plan.on(rank)}
    first = torch.optim.AdamW([p for m in modules.values() for p in m.parameters()], lr=1e-3)
    second = torch.optim.AdamW([p for m in loop for p in m.parameters()], lr=1e-3)
    runner = weir.Runner(plan, modules, loss_fn)
    generator, differ = random.Random(3), 0
    for number in range(steps):
        lengths = [generator.randrange(1, 3 * ROWS) for _ in range(M)]
        runner.step(entries(number, lengths), shapes=lambda mb, lengths=lengths: torch.empty(lengths[mb], WIDTH, device="meta"))
        first.step()
        second.zero_grad()
        plain(loop, entries(number, lengths))
        second.step()
        differ += not all(torch.equal(p, q) for s in modules for p, q in zip(ours[s].parameters(), loop[s].parameters()))
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    def plan_of(name, ranks):
        made = subprocess.run([os.environ["WEIR"], "plan", name, f"--ranks={ranks}", f"--microbatches={M}", "--to=plan"], check=True, capture_output=True, text=True)
        return weir.Plan(json.loads(made.stdout), f"weir plan {name}")

    worst, count = [0.0, 0.0], 0
    for ranks in 2, 4:
        for name in NAMES:
            off = [max(column) for column in zip(*on_ranks(ranks, compare, plan_of(name, ranks)))]
            worst, count = [max(pair) for pair in zip(worst, off)], count + 1
            print(f"{name}, {ranks} ranks: {off[0]} to PyTorch's runtime, {off[1]} to a plain loop", flush=True)
    print(f"{count} plans: largest difference {worst[0]} to PyTorch's runtime, {worst[1]} to a plain loop")
    for name in "1f1b", "zb-v":
        print(f"{name}: {max(on_ranks(2, trains, plan_of(name, 2), options.steps, limit=900))} of {options.steps} steps of unequal lengths differ from a plain loop", flush=True)


if __name__ == "__main__":
    main()
