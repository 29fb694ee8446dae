#!/usr/bin/env python3
"""The trainer of examples/mlp in torch.distributed.pipelining, to compare the two.

    python3 tests/pytorch/mlp.py --steps 200 --run /tmp/torch-mlp

Four processes over gloo, one for each rank, 1F1B, a frozen first stage, two losses, a
checkpoint to go on from, Ctrl-C. There is no memory log: the runtime has no hook for a
microbatch, and on the CPU PyTorch counts no memory.
"""

import argparse
import math
import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, ROWS, MICROBATCHES, RATE, RANKS = 16, 8, 128, 2.0, 4


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, WIDTH) / math.sqrt(2), requires_grad=False)

    def forward(self, x):
        return torch.sin(4 * x @ self.weight + torch.arange(WIDTH))


class Layer(nn.Module):
    def __init__(self, out, act):
        super().__init__()
        self.weight, self.act = nn.Parameter(torch.randn(WIDTH, out) / math.sqrt(WIDTH)), act

    def forward(self, h):
        return self.act(h @ self.weight)


def points():
    generator = torch.Generator().manual_seed(7)
    xy = 2 * torch.rand(ROWS * MICROBATCHES, 2, generator=generator) - 1
    radius = xy.norm(dim=1)
    return xy, torch.stack([((radius > 0.4) & (radius < 0.8)).float(), radius], dim=1)


def losses(output, labels):
    """Sums over a microbatch: dividing them by the points of the step is ours to do."""
    ring = nn.functional.binary_cross_entropy_with_logits(output[:, 0], labels[:, 0], reduction="sum")
    return ring, 0.5 * (output[:, 1] - labels[:, 1]).square().sum()


def run(rank, args):
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=dist.FileStore(args.run + "/store", RANKS))
    torch.manual_seed(rank)
    module = [Features(), Layer(WIDTH, torch.tanh), Layer(WIDTH, torch.tanh), Layer(2, lambda x: x)][rank]
    path = f"{args.run}/rank{rank}.pt"
    step = 0
    if os.path.exists(path):  # every rank must have written the same step: nothing checks it
        saved = torch.load(path)
        step = saved["step"]
        module.load_state_dict(saved["module"])
    shapes = [(ROWS, 2)] + [(ROWS, WIDTH)] * 3 + [(ROWS, 2)]
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"), input_args=torch.empty(shapes[rank]),
                          output_args=torch.empty(shapes[rank + 1], requires_grad=rank > 0))
    sums = torch.zeros(2)  # detached by hand: what the schedule hands out keeps its graph

    def objective(output, labels):
        ring, radius = losses(output, labels)
        sums.add_(torch.stack([ring, radius]).detach())
        return ring + 0.125 * radius

    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=objective)  # 2.6 adds gradients; later ones scale them unless told
    stopped = torch.zeros(1)
    signal.signal(signal.SIGINT, lambda *_: stopped.fill_(1))
    xy, labels = points()
    while step < args.steps:
        sums.zero_()
        module.zero_grad(set_to_none=False)
        if rank == 0:
            schedule.step(xy)
        else:
            schedule.step(**({"target": labels, "losses": []} if rank == RANKS - 1 else {}))
        with torch.no_grad():
            for p in module.parameters():
                if p.requires_grad:
                    p -= RATE / len(xy) * p.grad
        step += 1
        if rank == RANKS - 1 and step % 50 == 0:
            ring, radius = (sums / len(xy)).tolist()
            print(f"step {step}  ring {ring:.4f}  radius {radius:.4f}", flush=True)
        together = stopped.clone()
        dist.all_reduce(together)  # a rank that stopped alone would leave the others waiting
        if together.item():
            break
    torch.save({"step": step, "module": module.state_dict()}, path + ".tmp")
    os.replace(path + ".tmp", path)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", default="/tmp/torch-mlp")
    args = parser.parse_args()
    os.makedirs(args.run, exist_ok=True)
    if os.path.exists(args.run + "/store"):
        os.remove(args.run + "/store")
    mp.spawn(run, (args,), nprocs=RANKS)


if __name__ == "__main__":
    main()
