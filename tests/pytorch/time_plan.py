#!/usr/bin/env python3
"""Measures the makespan of a plan in PyTorch, with stages that sleep instead of computing.

    python3 tests/pytorch/time_plan.py --costs costs.json best.csv [...]

Each rank is a process over gloo. Every stage sleeps for the time that the costs give for a
computation, and sends the number of bytes that they give. The makespan of a step is the time from
the first start of a computation on any rank to the last end on any rank. For each file the program
prints the median and the minimum over the steps in the unit of the costs, like weir sim. Other work
on the machine can only make a step longer.

With --traces FOLDER every rank writes the records of torch.profiler for the last three steps
to the folder, for weir trace. Every action is annotated, for example "PP:2F7".

makespans.sh in this folder measures several plans, with and without a cost of hops, and
starts the ranks itself with --rank and --folder; --summary prints their measurements. The
costs of stage 0 must have no i: PyTorch runs all of its backward in W.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def read_costs(path):
    """Returns the costs and the number of seconds in one unit of their time."""
    with open(path) as file:
        costs = json.load(file)
    return costs, SECONDS[costs["unit"]] / costs.get("scale", 1)


def run(args):
    """Runs the rank, and writes the start and the end of each of its steps to the folder."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), part) for part in ("../../python", "../../cmd/weir/internal/traces", ".")]
    import annotate
    import run_plan

    costs, second = read_costs(args.costs)
    plan = run_plan.load(args.files[0])
    busy = []

    def work(cost):
        busy.append(time.monotonic())
        time.sleep(cost * second)
        busy.append(time.monotonic())

    class Working(torch.autograd.Function):
        """Returns its input, and works when the gradient comes back."""

        @staticmethod
        def forward(ctx, x, cost):
            ctx.cost = cost
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            work(ctx.cost)
            return gradient, None

    class Stage(torch.nn.Module):
        def __init__(self, costs):
            super().__init__()
            self.costs, self.weight = costs, torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            work(self.costs["f"])
            return Working.apply(x, self.costs.get("i", 0)) * Working.apply(self.weight, self.costs.get("w", 0))

    dist.init_process_group("gloo", rank=args.rank, world_size=plan.ranks, store=dist.FileStore(args.folder + "/store", plan.ranks))
    per_stage = costs["stages"] if len(costs["stages"]) > 1 else costs["stages"] * plan.stages
    floats = max(per_stage[0].get("output", 4) // 4, 1)
    like = torch.empty(1, floats, requires_grad=True)
    stages = [PipelineStage(Stage(per_stage[s]), s, plan.stages, torch.device("cpu"), input_args=like, output_args=like)
              for s in plan.on(args.rank)]
    for stage in stages if args.traces else []:
        annotate.annotate(stage)
    schedule = run_plan.schedule(plan, stages, lambda output, target: output.mean())
    inputs, targets = torch.ones(plan.microbatches, floats), torch.ones(plan.microbatches, 1)
    spans = []
    profiler = contextlib.ExitStack()
    for step in range(args.steps + 1):  # the first one connects
        dist.barrier()
        if args.traces and step == max(args.steps - 2, 1):
            recorded = profiler.enter_context(torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]))
        busy.clear()
        if 0 in plan.on(args.rank):
            kwargs = {"target": targets} if plan.stages - 1 in plan.on(args.rank) else {}
            schedule.step(inputs, **kwargs)
        elif plan.stages - 1 in plan.on(args.rank):
            schedule.step(target=targets)
        else:
            schedule.step()
        spans.append([busy[0], busy[-1]])
    profiler.close()
    if args.traces:
        recorded.export_chrome_trace(f"{args.traces}/rank{args.rank}.json.gz")
    with open(f"{args.folder}/{args.rank}.json", "w") as file:
        json.dump(spans[1:], file)
    dist.barrier()
    dist.destroy_process_group()


def makespans(args):
    """Returns the makespans of the steps in ascending order, from the times that the ranks wrote."""
    _, second = read_costs(args.costs)
    ranks = [name for name in os.listdir(args.folder) if name.endswith(".json")]
    spans = [json.load(open(f"{args.folder}/{name}")) for name in ranks]
    return sorted((max(last for _, last in step) - min(first for first, _ in step)) / second for step in zip(*spans))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--costs", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--traces", metavar="FOLDER", help="write a trace of every rank there")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    if args.rank is not None:
        run(args)
        return
    if args.summary:
        show(args)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch.distributed.pipelining  # noqa: F401, once, before the ranks are forked

    for path in args.files:
        args.folder, args.files = tempfile.mkdtemp(), [path]
        with open(path) as file:
            ranks = len(file.read().splitlines())
        started = []
        for args.rank in range(ranks):
            started.append(multiprocessing.get_context("fork").Process(target=run, args=(args,)))
            started[-1].start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            sys.exit(1)
        show(args)


def show(args):
    measured = makespans(args)
    print(f"{statistics.median(measured):.0f} {measured[0]:.0f}", flush=True)


if __name__ == "__main__":
    main()
