#!/usr/bin/env python3
"""Checks the promises of weir_pipelining: check_module.py MODULE_FOLDER V.csv

V.csv is a plan of two ranks and four stages on a V, with split backwards. The model has
only Linear layers and a 3-D input, and its loss is a mean. Each error is first shown to occur
without the module.
"""

import os
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
sys.path.insert(0, sys.argv[1])

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, schedules

import weir_pipelining

WIDTH, ROWS, MICROBATCHES = 4, 2, 4
SPLIT = "".join(f"0F{m},1F{m},1I{m},1W{m},0I{m},0W{m}," for m in range(MICROBATCHES)).rstrip(",") + "\n"


def layers(stages):
    torch.manual_seed(3)
    return [torch.nn.Linear(WIDTH, WIDTH) for _ in range(stages)]


def batch(shape):
    torch.manual_seed(4)
    return torch.randn(MICROBATCHES * ROWS, *shape), torch.randn(MICROBATCHES * ROWS, *shape)


def mean(output, target):
    return (output - target).square().mean()


def total(output, target):
    return (output - target).square().sum()


def wanted(stages, shape, loss):
    """Returns the gradients of the whole batch without a pipeline, by stage."""
    modules, (x, target) = layers(stages), batch(shape)
    loss(torch.nn.Sequential(*modules)(x), target).backward()
    return [m.weight.grad for m in modules]


def differ(modules, want, by=1):
    return max((m.weight.grad - by * w).abs().max().item() for m, w in zip(modules, want))


def rank_stages(plan, rank, shape):
    modules = layers(plan.stages)
    like = torch.empty(ROWS, *shape)
    return modules, [PipelineStage(modules[s], s, plan.stages, torch.device("cpu"), input_args=like, output_args=like) for s in plan.on(rank)]


def bare(plan, stages, loss):
    schedule = schedules._PipelineScheduleRuntime(stages, plan.microbatches, loss_fn=loss)
    schedule._load_csv(plan.path, format="compute_comms")
    return schedule


def alone(folder):
    """One rank with two stages: gradients and views."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/alone", 1))
    with open(folder + "/split.csv", "w") as file:
        file.write(SPLIT)
    plan = weir_pipelining.Plan(folder + "/split.csv")
    assert (plan.ranks, plan.stages, plan.microbatches) == (1, 2, MICROBATCHES)
    flat, cube = (WIDTH,), (3, WIDTH)

    if torch.__version__.startswith("2.6"):
        modules, stages = rank_stages(plan, 0, flat)
        x, target = batch(flat)
        bare(plan, stages, mean).step(x, target=target)
        assert differ(modules, wanted(2, flat, mean), MICROBATCHES) < 1e-5, "2.6 adds up"
        modules, stages = rank_stages(plan, 0, cube)
        x, target = batch(cube)
        try:
            bare(plan, stages, mean).step(x, target=target)
            raise AssertionError("2.6 detaches views")
        except RuntimeError as e:
            assert "Can't detach views in-place" in str(e), e

    for shape in flat, cube:
        for reduction, loss in ("mean", mean), ("sum", total):
            modules, stages = rank_stages(plan, 0, shape)
            x, target = batch(shape)
            losses = []
            plan.schedule(stages, loss, reduction).step(x, target=target, losses=losses)
            assert differ(modules, wanted(2, shape, loss)) < 1e-5, (shape, reduction)
            each = [loss(torch.nn.Sequential(*modules)(a), b).item() for a, b in zip(x.chunk(MICROBATCHES), target.chunk(MICROBATCHES))]
            assert max(abs(a.item() - b) for a, b in zip(losses, each)) < 1e-4 and not any(a.requires_grad for a in losses)
    for wrong in lambda: plan.schedule(stages[:1], mean), lambda: plan.schedule(stages, None), lambda: plan.schedule(stages, mean, "average"):
        try:
            wrong()
            raise AssertionError("it is refused")
        except ValueError:
            pass
    dist.destroy_process_group()


def on_v(rank, path, folder):
    """Two ranks, with stage 3 on rank 0: placement."""
    plan = weir_pipelining.Plan(path)
    dist.init_process_group("gloo", rank=rank, world_size=plan.ranks, store=dist.FileStore(folder + "/v", plan.ranks))
    shape = (3, WIDTH)
    modules, stages = rank_stages(plan, rank, shape)
    x, target = batch(shape)
    schedule = plan.schedule(stages, mean)
    schedule.step(*([x] if rank == 0 else []), **({"target": target} if plan.stages - 1 in plan.on(rank) else {}))
    want = wanted(plan.stages, shape, mean)
    assert differ([modules[s] for s in plan.on(rank)], [want[s] for s in plan.on(rank)]) < 1e-5, rank
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(on_v, (sys.argv[2], folder), nprocs=2, start_method="fork")
        alone(folder)
    print("PyTorch", torch.__version__, "ok")


if __name__ == "__main__":
    main()
