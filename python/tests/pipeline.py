#!/usr/bin/env python3
"""Trains with weir.schedule or weir.Runner and compares with the model without a pipeline.

    WEIR=weir torchrun --nproc-per-node 2 python/tests/pipeline.py schedule zb-v --device cuda

Prints, on rank 0, the largest difference of a gradient and how memory grows from 16 microbatches to 64. On a
GPU ranks exchange over NCCL, and memory is counted by its allocator; on a CPU by malloc.
"""

import argparse
import gc
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import weir
from weir._memory import Memory

ROWS, WIDTH = 128, 512


def stage(index, device):
    torch.manual_seed(index)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)).to(device, torch.float64)


def loss(output, targets):
    return (output - targets).square().sum()


class Entries(list):
    """Creates the inputs of a microbatch on access, so that a step holds few of them."""

    def __init__(self, n, wrap, device):
        super().__init__([None] * n)
        self.wrap, self.device = wrap, device

    def __getitem__(self, mb):
        return self.wrap(torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(mb), dtype=torch.float64).to(self.device))

    def __iter__(self):
        return (self[mb] for mb in range(len(self)))


def pipeline(args, microbatches, rank, device):
    """Trains a step. Returns the modules by stage, and the maximum increase in allocated bytes at the end of a forward."""
    plan = weir.plan(args.plan, ranks=dist.get_world_size(), microbatches=microbatches)
    modules = {s: stage(s, device) for s in plan.on(rank)}
    gc.collect()
    memory, peak = Memory(device), 0
    before = memory.read(reset_peak=False).allocated

    def read(*_):
        nonlocal peak
        peak = max(peak, memory.read(reset_peak=False).allocated - before)

    for module in modules.values():
        module.register_forward_hook(read)
    if args.runner == "runner":
        runner = weir.Runner(plan, modules, loss, shapes=torch.empty(ROWS, WIDTH, dtype=torch.float64, device="meta"))
        runner.step((x, x) for x in Entries(microbatches, lambda x: x, device))
    else:
        from torch.distributed.pipelining import PipelineStage

        like = torch.empty(ROWS, WIDTH, dtype=torch.float64, device=device, requires_grad=True)
        stages = [PipelineStage(m, s, plan.stages, device, input_args=like if s else like.detach(), output_args=like) for s, m in modules.items()]
        schedule = weir.schedule(plan, stages, loss, reduction="sum")
        entries = {"arg_mbs": Entries(microbatches, lambda x: (x,), device)} if 0 in modules else {}
        if plan.stages - 1 in modules:
            entries["target_mbs"] = Entries(microbatches, lambda x: x, device)
        schedule.step(**entries)
    return modules, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner", choices=("schedule", "runner"))
    parser.add_argument("plan")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device(args.device, rank) if args.device == "cuda" else torch.device("cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    pipeline(args, 16, rank, device)  # makes what stays, such as a communicator
    modules, few = pipeline(args, 16, rank, device)
    gradients = {s: [p.grad for p in m.parameters()] for s, m in modules.items()}
    whole = [stage(s, device) for s in range(weir.plan(args.plan, ranks=ranks, microbatches=16).stages)]
    for x in Entries(16, lambda x: x, device):
        loss(torch.nn.Sequential(*whole)(x), x).backward()
    divisor = 16 if args.runner == "runner" else 1
    difference = max(float(((g - p.grad / divisor).abs().max()) / p.grad.abs().max()) for s in modules for g, p in zip(gradients[s], whole[s].parameters()))
    del modules, gradients, whole
    _, many = pipeline(args, 64, rank, device)
    rows = [None] * ranks
    dist.all_gather_object(rows, (difference, few, many))
    if rank == 0:
        print(f"{args.runner} {args.plan} on {ranks} ranks, {device.type}, PyTorch {torch.__version__}: gradients differ by {max(r[0] for r in rows):.1e} at most; "
              f"memory at most {max(r[1] for r in rows) / 2**20:.1f} MiB in 16 microbatches, {max(r[2] for r in rows) / 2**20:.1f} MiB in 64")
    dist.destroy_process_group()
    if difference > 1e-12:
        sys.exit("the gradients are wrong")


main()
