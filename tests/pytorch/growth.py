#!/usr/bin/env python3
"""Measures how the memory of a pipeline grows with the number of microbatches, in PyTorch's own schedules and under Weir's plans.

    WEIR=weir python3 tests/pytorch/growth.py
    WEIR=weir python3 tests/pytorch/growth.py --json growth.json --microbatches 8 64

Every rank is a process over gloo. Stages exchange tensors of 64 KiB, and keep what a feed-forward block keeps.
Entries are created when their forward needs them, so the figures include no whole batch. The bytes are those
allocated with malloc, which include all tensors; they are read at every forward and every backward of a rank.

Growth is the change in KiB from one microbatch to the next, over the middle half of the longest step.
The peak, in MiB, is the maximum above the level before the step. Both are the largest of all ranks, and
are measured in a second step: in the first one PyTorch creates its descriptors of messages, and
weir.schedule checks split backwards. The columns:

    default     PyTorch's schedule without changes
    switches    with return_outputs=False, losses=None and, except for 1F1B, which lacks it, max_outstanding_sends=1
    detached    the same, with loss_fn = weir.detached(loss_fn)
    schedule    weir.schedule, PyTorch's runtime with the plan of the same name
    runner      weir.Runner with the plan of the same name

WEIR names the command that makes the plans.
"""

import argparse
import ctypes
import datetime
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import pipelining
from torch.nn.functional import gelu, mse_loss

import weir

SHAPE = 4, 32, 128  # 64 KiB
CLASSES = {"1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B", "zb-v": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV"}


class Stage(torch.nn.Module):
    """Saves the same bytes for its backward as a feed-forward block, but computes little: it has no matrix products."""

    def __init__(self, index):
        super().__init__()
        torch.manual_seed(index)
        self.a, self.b = torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x + (gelu(x[..., None] * self.a) * self.b).sum(-1)


class Entries(list):
    """A list for arg_mbs or target_mbs that creates its items on access."""

    def __init__(self, n, make):
        super().__init__([()] * n)
        self.make = make

    def __getitem__(self, i):
        return self.make(i)


def entry(i):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(i))


class Case:
    """A rank's part of one measurement: its plan, its modules, and the step for a column."""

    def __init__(self, plan, rank):
        self.plan, self.rank = plan, rank
        self.modules = {s: Stage(s) for s in plan.on(rank)}
        self.stages = []

    def make_stages(self):
        like = torch.empty(SHAPE, requires_grad=True)
        self.stages = [pipelining.PipelineStage(module, s, self.plan.stages, torch.device("cpu"), input_args=like if s else torch.empty(SHAPE), output_args=like)
                       for s, module in self.modules.items()]
        return self.stages

    def step(self, schedule, **options):
        if 0 in self.modules:
            options["arg_mbs"] = Entries(self.plan.microbatches, lambda i: (entry(i),))
        if self.plan.stages - 1 in self.modules:
            options["target_mbs"] = Entries(self.plan.microbatches, entry)
        schedule.step(**options)


def loss_fn(output, target):
    return mse_loss(output, target, reduction="sum")


def pytorch(case, loss_fn, **options):
    stages = case.make_stages()
    return getattr(pipelining, CLASSES[case.plan.name])(stages if len(stages) > 1 else stages[0], case.plan.microbatches, loss_fn=loss_fn, scale_grads=False, **options)


def default(case):
    schedule, losses = pytorch(case, loss_fn), []
    return lambda: case.step(schedule, losses=losses)


def switches(case, loss_fn=loss_fn):
    schedule = pytorch(case, loss_fn, **({} if case.plan.name == "1f1b" else {"max_outstanding_sends": 1}))
    return lambda: case.step(schedule, return_outputs=False)


def detached(case):
    return switches(case, weir.detached(loss_fn))


def schedule(case):
    schedule, losses = weir.schedule(case.plan, case.make_stages(), loss_fn, reduction="sum"), []
    return lambda: case.step(schedule, losses=losses)


def runner(case):
    runner = weir.Runner(case.plan, case.modules, loss_fn, shapes=torch.empty(SHAPE))
    return lambda: runner.step((entry(i), entry(i)) for i in range(case.plan.microbatches))


COLUMNS = {"default": default, "switches": switches, "detached": detached, "schedule": schedule, "runner": runner}


class Malloc:
    """Reads the bytes allocated with malloc, which include tensors that only C++ holds."""

    class Info(ctypes.Structure):
        _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

    def __init__(self):
        self.info = ctypes.CDLL("libc.so.6").mallinfo2
        self.info.restype = self.Info

    def live(self):
        info = self.info()
        return info.uordblks + info.hblkhd


def measure(rank, plan, column, folder):
    logging.disable(logging.CRITICAL)
    dist.init_process_group("gloo", rank=rank, world_size=plan.ranks, store=dist.FileStore(folder + "/store", plan.ranks), timeout=datetime.timedelta(minutes=5))
    case, malloc = Case(plan, rank), Malloc()
    step = COLUMNS[column](case)
    forwards, peak = torch.zeros(plan.microbatches, dtype=torch.int64), 0
    first = min(case.modules)

    def sample(*_):
        nonlocal peak
        peak = max(peak, malloc.live())

    def forward(module, args, output):
        nonlocal count
        sample()
        if module is case.modules[first]:
            forwards[count] = malloc.live()
            count += 1
        output.register_hook(sample)

    step()
    for module in case.modules.values():
        module.zero_grad()
        module.register_forward_hook(forward)
    for stage in case.stages:
        stage.clear_runtime_states()  # the outputs, which PyTorch keeps until the next step
    count = 0
    gc.collect()
    dist.barrier()
    before = malloc.live()
    step()
    low, high = plan.microbatches // 4, 3 * plan.microbatches // 4
    torch.save(((forwards[high] - forwards[low]).item() / (high - low), peak - before, (forwards - before).tolist()), f"{folder}/{rank}")
    dist.barrier()
    os._exit(0)  # destroying the group may wait


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", nargs="+", default=list(CLASSES))
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--microbatches", nargs="+", type=int, default=[8, 64, 256, 1024])
    parser.add_argument("--json", help="file for the measurements, with the level at each forward of the rank that grows most")
    args = parser.parse_args()
    print(f"PyTorch {torch.__version__}. Growth in KiB per microbatch, and the peak in MiB with {', '.join(map(str, args.microbatches))} microbatches\n")
    print("| | " + " | ".join(args.columns) + " |\n|---|" + "--:|" * len(args.columns))
    found = []
    for name in args.schedules:
        for ranks in args.ranks:
            cells = []
            for column in args.columns:
                rows = []
                for microbatches in args.microbatches:
                    made = subprocess.run([os.environ["WEIR"], "plan", name, f"--ranks={ranks}", f"--microbatches={microbatches}", "--to=plan"], check=True, capture_output=True, text=True)
                    plan = weir.Plan(json.loads(made.stdout))
                    with tempfile.TemporaryDirectory() as folder:
                        mp.start_processes(measure, (plan, column, folder), nprocs=ranks, start_method="fork")
                        growth, peak, live = zip(*(torch.load(f"{folder}/{rank}") for rank in range(ranks)))
                    rows.append({"schedule": name, "ranks": ranks, "column": column, "microbatches": microbatches, "growth": max(growth), "peak": max(peak),
                                 "live": live[growth.index(max(growth))]})
                found += rows
                cells.append(f"{rows[-1]['growth'] / 2**10:.2f}; " + ", ".join(f"{row['peak'] / 2**20:.2f}" for row in rows))
            print(f"| {name}, {ranks} ranks | " + " | ".join(cells) + " |", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
