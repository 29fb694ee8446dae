"""Records PyTorch's own schedules with torch.profiler: trace_schedules.py FOLDER RANK RANKS.

Every rank is a process over gloo and writes FOLDER/SCHEDULE/rankN.json, with two steps of four
microbatches. The stages of Schedule1F1B are annotated, because PyTorch 2.15 does not name its actions.
Those of ScheduleGPipe are annotated too, so each of its actions has two names.
"""

import os
import sys

import torch
import torch.distributed as dist
from annotate import annotate
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

SCHEDULES = {"ScheduleGPipe": 1, "Schedule1F1B": 1, "ScheduleLoopedBFS": 2, "ScheduleInterleaved1F1B": 2,
             "ScheduleInterleavedZeroBubble": 2, "ScheduleZBVZeroBubble": 2, "ScheduleDualPipeV": 2}
MICROBATCHES = 4


def record(name, each, rank, ranks, folder):
    count = each * ranks
    on = [rank] if each == 1 else [rank, ranks + rank]
    if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        on = [rank, count - 1 - rank]
    like = torch.zeros(1, 8, requires_grad=True)
    stages = [pipelining.PipelineStage(torch.nn.Linear(8, 8), stage, count, torch.device("cpu"), input_args=(like,), output_args=like)
              for stage in on]
    for stage in stages if each == 1 else []:
        annotate(stage)
    schedule = getattr(schedules, name)(stages[0] if each == 1 else stages, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.ones(MICROBATCHES, 8), torch.ones(MICROBATCHES, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            schedule.step(*([inputs] if 0 in on else []), **({"target": targets} if count - 1 in on else {}))
            dist.barrier()
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    profiler.export_chrome_trace(f"{folder}/{name}/rank{rank}.json")


folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(f"{folder}/store", ranks))
for name, each in SCHEDULES.items():
    record(name, each, rank, ranks, folder)
dist.barrier()
os._exit(0)  # destroying the group may wait for minutes
