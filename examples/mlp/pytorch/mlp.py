#!/usr/bin/env python3
"""The trainer of examples/mlp in torch.distributed.pipelining (PyTorch 2.15), to compare the two.

    python3 examples/mlp/pytorch/mlp.py --steps 200 --run /tmp/torch-mlp

Four processes over gloo, one for each rank, under 1F1B: a frozen first stage, two losses,
a memory log that `weir mem log` reads, a checkpoint to resume from, Ctrl-C.
"""

import argparse
import json
import math
import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, ROWS, MICROBATCHES, RATE, SEED = 16, 8, 128, 2.0, 7
SHAPES = [(2, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, 2)]


class Layer(nn.Module):
    def __init__(self, rank):
        super().__init__()
        generator = torch.Generator().manual_seed(SEED + rank)
        self.rank, self.wave = rank, torch.arange(WIDTH)
        self.weight = nn.Parameter(torch.randn(SHAPES[rank], generator=generator) / math.sqrt(SHAPES[rank][0]), requires_grad=rank > 0)

    def forward(self, x):
        y = x @ self.weight
        if self.rank == 0:  # frozen
            return torch.sin(4 * y + self.wave)
        return torch.tanh(y) if self.rank < 3 else y


def points():
    xy = 2 * torch.rand(ROWS * MICROBATCHES, 2, generator=torch.Generator().manual_seed(SEED)) - 1
    radius = xy.norm(dim=1)
    return xy, torch.stack([((radius > 0.4) & (radius < 0.8)).float(), radius], dim=1)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(rank, args):
    dist.init_process_group("gloo", rank=rank, world_size=len(SHAPES), store=dist.FileStore(args.run + "/store", len(SHAPES)))
    module, step = Layer(rank), 0
    path = f"{args.run}/rank{rank}.pt"
    if os.path.exists(path):  # each rank resumes from its own file
        saved = torch.load(path)
        step = saved["step"]
        module.load_state_dict(saved["module"])
    # Explicit shapes: inferring them sends more messages. What ranks exchange requires a gradient.
    stage = PipelineStage(module, rank, len(SHAPES), torch.device("cpu"), input_args=torch.empty(ROWS, SHAPES[rank][0], requires_grad=rank > 0),
                          output_args=torch.empty(ROWS, SHAPES[rank][1], requires_grad=True))
    sums, log = torch.zeros(2), open(f"{args.run}/memory{rank}.jsonl", "a")

    def objective(output, labels):
        ring = nn.functional.binary_cross_entropy_with_logits(output[:, 0], labels[:, 0], reduction="sum")
        radius = 0.5 * (output[:, 1] - labels[:, 1]).square().sum()
        sums.add_(torch.stack([ring, radius]).detach())  # without detach the graph of every microbatch stays
        return ring + 0.125 * radius

    def record(*_):  # after each forward: the process's pages, as PyTorch counts no memory of the CPU
        nonlocal microbatch
        bytes = resident()
        log.write(json.dumps({"step": step, "rank": rank, "microbatch": microbatch, "allocated": bytes, "reserved": bytes, "peak": bytes}) + "\n")
        microbatch += 1

    module.register_forward_hook(record)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=objective)  # every rank needs a loss, or it runs no backward
    stopped = torch.zeros(1)
    signal.signal(signal.SIGINT, lambda *_: stopped.fill_(1))
    xy, labels = points()
    while step < args.steps:
        microbatch = 0
        sums.zero_()
        module.zero_grad()
        if rank == 0:
            schedule.step(xy)
        elif rank == len(SHAPES) - 1:
            schedule.step(target=labels)
        else:
            schedule.step()
        if rank > 0:
            with torch.no_grad():
                module.weight -= RATE / len(xy) * module.weight.grad
        step += 1
        if rank == len(SHAPES) - 1 and step % 50 == 0:
            ring, radius = (sums / len(xy)).tolist()
            print(f"step {step}  ring {ring:.4f}  radius {radius:.4f}", flush=True)
        together = stopped.clone()
        dist.all_reduce(together)  # a rank that stops alone leaves the others waiting
        if together.item():
            break
    torch.save({"step": step, "module": module.state_dict()}, path + ".tmp")
    os.replace(path + ".tmp", path)
    log.close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", default="/tmp/torch-mlp")
    args = parser.parse_args()
    os.makedirs(args.run, exist_ok=True)
    if os.path.exists(args.run + "/store"):
        os.remove(args.run + "/store")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ranks receive it too, and end the run
    mp.start_processes(run, (args,), nprocs=len(SHAPES), start_method="fork")


if __name__ == "__main__":
    main()
