#!/usr/bin/env python3
"""Loads plans that weir has written into torch.distributed.pipelining and runs them.

    weir plan zb-v --ranks 2 --stages 4 --microbatches 6 --to comms > zb-v.csv
    python3 tests/pytorch/run_plan.py zb-v.csv

Every rank is a process on the CPU (gloo). The model has one layer per stage. For
each file it compares the losses and the gradients with the same model without a pipeline.
run_all.sh in this folder does it for a plan of each kind. Plans are loaded by
python/weir_pipelining.py.
"""

import argparse
import os
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import weir_pipelining

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


def run_rank(rank, path, folder):
    plan = weir_pipelining.Plan(path)
    dist.init_process_group("gloo", rank=rank, world_size=plan.ranks, store=dist.FileStore(folder + "/store", plan.ranks))
    mine = {s: layer(s) for s in plan.on(rank)}
    # Explicit shapes: the inference of PyTorch 2.6 over gloo mixes up messages on a V of four ranks.
    like = torch.empty(ROWS, WIDTH)
    stages = [PipelineStage(mine[s], s, plan.stages, torch.device("cpu"), input_args=like, output_args=like) for s in plan.on(rank)]
    schedule = plan.schedule(stages, loss_of, reduction="sum")
    inputs, targets = batch(plan.microbatches)
    losses = []
    if plan.stages - 1 in mine:
        schedule.step(*([inputs] if 0 in mine else []), target=targets, losses=losses)
    elif 0 in mine:
        schedule.step(inputs)
    else:
        schedule.step()
    torch.save(([l.item() for l in losses], {s: [p.grad for p in one.parameters()] for s, one in mine.items()}),
               f"{folder}/{rank}")
    dist.barrier()
    dist.destroy_process_group()


def run_file(path):
    plan = weir_pipelining.Plan(path)
    ranks, stages, microbatches = plan.ranks, plan.stages, plan.microbatches
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (path, folder), nprocs=ranks)
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
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}")
    good = [run_file(f) for f in args.files]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
