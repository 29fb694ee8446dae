#!/usr/bin/env python3
"""Trains in torch.distributed.pipelining with plans written by weir.

    weir plan zb-v --ranks 2 --stages 4 --microbatches 6 --to plan > zb-v.json
    python3 tests/pytorch/run_plan.py zb-v.json

Every rank is a process on the CPU (gloo), which runs all plans for its number of ranks. The model
has one layer per stage. For each file the losses and the gradients are compared with those of the
same model without a pipeline. Plan files run in weir.schedule, and PyTorch's CSV in PyTorch's own
runtime, which reads it itself.
"""

import argparse
import csv
import datetime
import os
import re
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules

import weir

WIDTH, ROWS = 8, 2


class CSV:
    """A plan in one of PyTorch's CSV forms: with transfers, or only computations."""

    def __init__(self, path):
        self.path, rank_of, self.microbatches = path, {}, 0
        with open(path, newline="") as file:
            rows = list(csv.reader(file))
        for rank, row in enumerate(rows):
            for stage, microbatch in re.findall(r"(\d+)F(\d+)", " ".join(row)):
                rank_of[int(stage)] = rank
                self.microbatches = max(self.microbatches, int(microbatch) + 1)
        self.ranks, self.stages = len(rows), len(rank_of)
        self.placement = [rank_of[stage] for stage in range(self.stages)]
        self.format = "compute_comms" if "SEND_" in str(rows) or self.ranks == 1 else "compute_only"

    def on(self, rank):
        return [stage for stage, place in enumerate(self.placement) if place == rank]


def load(path):
    return weir.Plan.load(path) if path.endswith(".json") else CSV(path)


def schedule(plan, stages, loss_fn):
    """Returns the schedule that runs a plan. The losses of the microbatches are added."""
    if isinstance(plan, weir.Plan):
        return weir.schedule(plan, stages, loss_fn, reduction="sum")
    made = schedules._PipelineScheduleRuntime(stages, plan.microbatches, loss_fn=loss_fn, scale_grads=False)
    made._load_csv(plan.path, format=plan.format)
    return made


def layer(stage):
    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def batch(microbatches):
    torch.manual_seed(1000)
    n = ROWS * microbatches
    return torch.randn(n, WIDTH), torch.randn(n, WIDTH)


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target, reduction="sum")


def sequential(stages, microbatches):
    """Returns the losses of all microbatches and the gradients of all stages."""
    layers = [layer(s) for s in range(stages)]
    inputs, targets = batch(microbatches)
    losses = []
    for x, target in zip(inputs.chunk(microbatches), targets.chunk(microbatches)):
        for one in layers:
            x = one(x)
        loss = loss_of(x, target)
        loss.backward()
        losses.append(loss.item())
    return losses, [[p.grad.clone() for p in one.parameters()] for one in layers]


def train(plan, rank):
    """Runs a step of a plan on a rank, and returns its losses and the gradients of its stages."""
    mine = {s: layer(s) for s in plan.on(rank)}
    inputs, targets = batch(plan.microbatches)
    like = torch.empty(ROWS, WIDTH, requires_grad=True)
    stages = [PipelineStage(one, s, plan.stages, torch.device("cpu"), input_args=like if s else inputs[:ROWS], output_args=like)
              for s, one in mine.items()]
    losses = []
    schedule(plan, stages, loss_of).step(*([inputs] if 0 in mine else []), **({"target": targets, "losses": losses} if plan.stages - 1 in mine else {}))
    return [l.item() for l in losses], {s: [p.grad for p in one.parameters()] for s, one in mine.items()}


def run_rank(rank, ranks, paths, folder):
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(folder + "/store", ranks), timeout=datetime.timedelta(minutes=5))
    for i, path in enumerate(paths):
        torch.save(train(load(path), rank), f"{folder}/{i}-{rank}")
    dist.barrier()
    dist.destroy_process_group()


def compare(path, got):
    """Prints and returns whether the results of the ranks are those of the model without a pipeline."""
    plan = load(path)
    want_losses, want_gradients = sequential(plan.stages, plan.microbatches)
    losses = [loss for found, _ in got for loss in found]
    worst = max(abs(a - b) for a, b in zip(losses, want_losses)) if len(losses) == plan.microbatches else float("inf")
    gradients = {stage: found for _, found in got for stage, found in found.items()}
    for stage, want in enumerate(want_gradients):
        worst = max([worst] + [(a - b).abs().max().item() for a, b in zip(gradients[stage], want)])
    verdict = "same losses and gradients" if worst < 1e-4 else "DIFFERENT"
    print(f"{os.path.basename(path)}: {plan.ranks} ranks, {plan.stages} stages, {plan.microbatches} microbatches: "
          f"{verdict} (largest difference {worst:.1e})", flush=True)
    return worst < 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}")
    by_ranks = {}
    for path in args.files:
        by_ranks.setdefault(load(path).ranks, []).append(path)
    good = True
    for ranks, paths in by_ranks.items():
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(run_rank, (ranks, paths, folder), nprocs=ranks, start_method="fork")
            for i, path in enumerate(paths):
                good &= compare(path, [torch.load(f"{folder}/{i}-{rank}") for rank in range(ranks)])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
