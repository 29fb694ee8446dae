#!/usr/bin/env python3
"""Loads plans that weir has written into torch.distributed.pipelining and runs them.

    weir plan zb-v --ranks 2 --stages 4 --microbatches 6 --to comms > zb-v.csv
    python3 tests/pytorch/run_plan.py --microbatches 6 zb-v.csv

Every rank is a process on the CPU (gloo). The model has one layer a stage. For each
file the losses and the gradients are compared with those of the same model without a
pipeline. run_all.sh beside this file does it for a plan of each kind.

PyTorch's loader is internal and moves; this was written for 2.6.
"""

import argparse
import csv
import inspect
import os
import re
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH, ROWS = 8, 2


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


def placement(path):
    """Returns the rank of every stage: that of the row on which its forward stands."""
    rank_of = {}
    with open(path, newline="") as file:
        for rank, row in enumerate(csv.reader(file)):
            for cell in row:
                for stage in re.findall(r"(\d+)F\d+", cell):
                    rank_of[int(stage)] = rank
    return rank_of


def run_rank(rank, ranks, path, form, microbatches, folder):
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(folder + "/store", ranks))
    rank_of = placement(path)
    mine = {s: layer(s) for s, r in rank_of.items() if r == rank}
    # Shapes are given: the inference of 2.6 over gloo mixes up messages on a V of four ranks.
    like = torch.empty(ROWS, WIDTH)
    stages = [PipelineStage(mine[s], s, len(rank_of), torch.device("cpu"), input_args=like, output_args=like)
              for s in sorted(mine)]
    runtime = schedules._PipelineScheduleRuntime
    sums = {"scale_grads": False} if "scale_grads" in inspect.signature(runtime.__init__).parameters else {}
    schedule = runtime(stages, microbatches, loss_fn=loss_of, stage_index_to_group_rank=rank_of, **sums)
    schedule._load_csv(path, format=form)
    inputs, targets = batch(microbatches)
    losses = []
    if len(rank_of) - 1 in mine:
        schedule.step(*([inputs] if 0 in mine else []), target=targets, losses=losses)
    elif 0 in mine:
        schedule.step(inputs)
    else:
        schedule.step()
    torch.save(([l.item() for l in losses], {s: [p.grad for p in one.parameters()] for s, one in mine.items()}),
               f"{folder}/{rank}")
    dist.barrier()
    dist.destroy_process_group()


def run_file(path, form, microbatches):
    rank_of = placement(path)
    ranks, stages = 1 + max(rank_of.values()), len(rank_of)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (ranks, path, form, microbatches, folder), nprocs=ranks)
        got = [torch.load(f"{folder}/{rank}") for rank in range(ranks)]
    want_losses, want_gradients = sequential(stages, microbatches)
    losses = [loss for found, _ in got for loss in found]
    worst = max(abs(a - b) for a, b in zip(losses, want_losses)) if len(losses) == microbatches else float("inf")
    for _, gradients in got:
        for stage, found in gradients.items():
            for a, b in zip(found, want_gradients[stage]):
                worst = max(worst, (a - b).abs().max().item())
    verdict = "same losses and gradients" if worst < 1e-4 else "DIFFERENT"
    print(f"{os.path.basename(path)}: {ranks} ranks, {stages} stages, {microbatches} microbatches: "
          f"{verdict} (largest difference {worst:.1e})", flush=True)
    return worst < 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", type=int, required=True)
    parser.add_argument("--format", default="compute_comms", choices=["compute_only", "compute_comms"])
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {args.format}")
    good = [run_file(f, args.format, args.microbatches) for f in args.files]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
