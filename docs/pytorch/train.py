"""Trains a model of linear layers in a pipeline: torchrun --nproc-per-node RANKS train.py PLAN."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

import weir

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

plan = weir.Plan.load(sys.argv[1])
modules = {s: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for s in plan.on(rank)}
stages = [PipelineStage(modules[s], s, plan.stages, torch.device("cpu")) for s in plan.on(rank)]
schedule = weir.schedule(plan, stages, torch.nn.functional.mse_loss)

optimizer = torch.optim.AdamW([p for module in modules.values() for p in module.parameters()])
for step in range(3):
    inputs, targets, losses = torch.randn(4 * plan.microbatches, 64), torch.zeros(4 * plan.microbatches, 64), []
    first, last = 0 in modules, plan.stages - 1 in modules
    optimizer.zero_grad()
    schedule.step(*[inputs] * first, **({"target": targets, "losses": losses} if last else {}))
    optimizer.step()
    if last:
        print(f"step {step}: loss {torch.stack(losses).mean():.3f}")
dist.destroy_process_group()
