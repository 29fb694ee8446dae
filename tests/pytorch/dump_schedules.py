#!/usr/bin/env python3
"""Writes PyTorch's own schedules as CSV: dump_schedules.py FOLDER [RANKS...]

Every class that has a lowering is written as computations, with transfers, and with each
argument that changes its transfers. GPipe and 1F1B have only a list of their computations. The
files of PyTorch 2.15.0 for two ranks are in testdata.
"""

import csv
import inspect
import os
import sys
import types

import torch
from torch.distributed.pipelining import schedules

MICROBATCHES = 8
ARGUMENTS = {"": {}, "-defer-recv": {"defer_pp_recv": True}, "-defer-reduce": {"defer_reduce_grad_wait": True}, "-one-send": {"max_outstanding_sends": 1},
             "-two-active": {"max_active_stages": 2}}


def stages(ranks, each):
    """Returns stand-ins for the stages of rank 0: a schedule can be made of them, but not run."""
    return [types.SimpleNamespace(stage_index=i, num_stages=ranks * each, group_size=ranks, group_rank=0, submod=torch.nn.Module(), has_backward=True)
            for i in range(each)]


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for ranks in map(int, sys.argv[2:] or ["2", "4"]):
        for name, each in ("LoopedBFS", 2), ("Interleaved1F1B", 2), ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2):
            for suffix, arguments in ARGUMENTS.items():
                if not set(arguments) <= set(inspect.signature(schedules.get_schedule_class(name)).parameters):
                    continue  # the version has no such argument
                schedule = schedules.get_schedule_class(name)(stages(ranks, each), MICROBATCHES, loss_fn=torch.nn.functional.mse_loss, **arguments)
                schedule._dump_csv(f"{folder}/{name}-{ranks}{suffix}.csv")
                if not suffix:
                    schedule._dump_csv(f"{folder}/{name}-{ranks}-compute.csv", format="compute_only")
        for name in "GPipe", "1F1B":
            schedule = schedules.get_schedule_class(name)(stages(ranks, 1)[0], MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
            with open(f"{folder}/{name}-{ranks}-compute.csv", "w", newline="") as file:
                csv.writer(file).writerows(schedule._get_pipeline_order().values())


if __name__ == "__main__":
    main()
