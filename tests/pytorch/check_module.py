#!/usr/bin/env python3
"""Checks the promises of python/weir_pipelining.py on two ranks.

The model has only Linear layers, some of which return a view, and its loss is a mean or a sum. Each error of PyTorch's own runtime is first shown to occur without the module.
"""

import os
import re
import tempfile

import run_plan  # sets the path of the module, and one thread
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import weir_pipelining
from torch.distributed.pipelining import PipelineStage, schedules

WIDTH, ROWS, MICROBATCHES = 4, 2, 4
# Split backwards, and reductions, where PyTorch divides gradients.
SPLIT = (",".join(f"0F{m},0SEND_F{m},0RECV_B{m},0I{m},0WAIT_SEND_F{m},0W{m}" for m in range(MICROBATCHES)) + ",0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
         + ",".join(f"1RECV_F{m},1F{m},1I{m},1SEND_B{m},1W{m},1WAIT_SEND_B{m}" for m in range(MICROBATCHES)) + ",1REDUCE_GRAD,1WAIT_REDUCE_GRAD\n")


class Layer(torch.nn.Linear):
    """Returns a view if its input has three dimensions."""

    def forward(self, x):
        y = super().forward(x)
        return y.view(y.shape) if x.dim() == 3 else y


def waited(plan, waits):
    """Returns a plan as it is, or without its waits."""
    return plan if waits else re.sub(r",\d+WAIT_\w+", "", plan)


def layers(stages=2):
    torch.manual_seed(3)
    return [Layer(WIDTH, WIDTH) for _ in range(stages)]


def batch(shape):
    torch.manual_seed(4)
    return torch.randn(MICROBATCHES * ROWS, *shape), torch.randn(MICROBATCHES * ROWS, *shape)


def mean(output, target):
    return (output - target).square().mean()


def total(output, target):
    return (output - target).square().sum()


def wanted(stage, shape, loss, stages=2):
    """Returns the gradient of a stage for the whole batch without a pipeline."""
    modules, (x, target) = layers(stages), batch(shape)
    loss(torch.nn.Sequential(*modules)(x), target).backward()
    return modules[stage].weight.grad


def stage_of(rank, shape, requires_grad=True):
    module = layers()[rank]
    like = torch.empty(ROWS, *shape, requires_grad=requires_grad)
    return module, PipelineStage(module, rank, 2, torch.device("cpu"), input_args=like if rank else torch.empty(ROWS, *shape), output_args=like)


def step(schedule, rank, shape, losses=None):
    x, target = batch(shape)
    schedule.step(*([x] if rank == 0 else []), **({"target": target, "losses": losses} if rank else {}))


def bare(path, stage, loss):
    schedule = schedules._PipelineScheduleRuntime([stage], MICROBATCHES, loss_fn=loss)
    schedule._load_csv(path, format="compute_comms")
    return schedule


def refuses(error, text, call):
    try:
        call()
    except error as e:
        assert text in f"{e} {e.__cause__}", e
    else:
        raise AssertionError(f"nothing says {text!r}")


def gradients(rank, path, folder):
    """Gradients, losses and views."""
    dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(folder + "/store", 2))
    plan = weir_pipelining.Plan(path)
    assert (plan.ranks, plan.stages, plan.microbatches, plan.rank_of) == (2, 2, MICROBATCHES, {0: 0, 1: 1})
    flat, cube = (WIDTH,), (3, WIDTH)

    module, stage = stage_of(rank, flat)
    step(bare(path, stage, total), rank, flat)
    difference = (MICROBATCHES * module.weight.grad - wanted(rank, flat, total)).abs().max().item()
    assert difference < 1e-5, f"PyTorch divides the gradients of a sum by the microbatches: {difference}"

    for shape in flat, cube:
        for reduction, loss in ("mean", mean), ("sum", total):
            module, stage = stage_of(rank, shape)
            losses = []
            step(plan.schedule([stage], loss, reduction), rank, shape, losses)
            difference = (module.weight.grad - wanted(rank, shape, loss)).abs().max().item()
            assert difference < 1e-5, (shape, reduction, difference)
            if rank:
                whole, (x, target) = torch.nn.Sequential(*layers()), batch(shape)
                each = [loss(whole(a), b).item() for a, b in zip(x.chunk(MICROBATCHES), target.chunk(MICROBATCHES))]
                assert max(abs(a.item() - b) for a, b in zip(losses, each)) < 1e-4 and not any(a.requires_grad for a in losses)

    _, stage = stage_of(rank, flat)
    refuses(ValueError, 'give "mean" or "sum"', lambda: plan.schedule([stage], mean, "average"))
    refuses(ValueError, "give it on every rank", lambda: plan.schedule([stage], None))
    stage.group_size = 3
    refuses(ValueError, "there are 2 ranks", lambda: plan.schedule([stage], mean))
    _, stage = stage_of(rank, flat, requires_grad=False)
    refuses(ValueError, "requires_grad=True", lambda: plan.schedule([stage], mean))
    dist.barrier()
    dist.destroy_process_group()


def views(folder):
    """Without the module a view fails in a split backward of a middle stage; here on one rank, as others would wait."""
    path = folder + "/views.csv"
    with open(path, "w") as file:
        file.write(",".join(f"0F{m},1F{m},2F{m},2I{m},2W{m},1I{m},1W{m},0I{m},0W{m}" for m in range(MICROBATCHES)) + "\n")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/alone", 1))
    shape = (3, WIDTH)
    like = torch.empty(ROWS, *shape, requires_grad=True)
    x, target = batch(shape)

    def run(make):
        modules = layers(3)
        stages = [PipelineStage(m, s, 3, torch.device("cpu"), input_args=like if s else torch.empty(ROWS, *shape), output_args=like) for s, m in enumerate(modules)]
        make(stages).step(x, target=target)
        return modules

    def without(stages):
        schedule = schedules._PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=mean)
        schedule._load_csv(path, format="compute_comms")
        return schedule

    refuses(RuntimeError, "Can't detach views in-place", lambda: run(without))
    modules = run(lambda stages: weir_pipelining.Plan(path).schedule(stages, mean))
    assert max((m.weight.grad - wanted(s, shape, mean, 3)).abs().max().item() for s, m in enumerate(modules)) < 1e-5
    dist.destroy_process_group()


def versions(folder):
    """Which PyTorch is refused, and which file."""
    with open(os.path.join(os.path.dirname(weir_pipelining.__file__), "torch.txt")) as file:
        tested = file.read().strip()
    assert tested.split(".")[:2] == [str(n) for n in weir_pipelining.TESTED[-1]], (tested, weir_pipelining.TESTED)
    assert weir_pipelining._refusal() == ""
    own, multi = torch.__version__, schedules.PipelineScheduleMulti.__init__
    try:
        for version in "2.6.0+cu124", "2.9.1", "2.13.2":
            torch.__version__ = version
            assert "pip install 'torch>=2.14'" in weir_pipelining._refusal(), version
        torch.__version__ = "3.1.0"
        assert weir_pipelining._refusal() == ""
        schedules.PipelineScheduleMulti.__init__ = lambda self, stages, n_microbatches, loss_fn=None: None
        assert "scale_grads" in weir_pipelining._refusal()
        schedules.PipelineScheduleMulti.__init__ = multi
        update = schedules._PipelineSchedule._update_losses
        del schedules._PipelineSchedule._update_losses
        assert "stages, losses" in weir_pipelining._refusal()
        schedules._PipelineSchedule._update_losses = update
    finally:
        torch.__version__, schedules.PipelineScheduleMulti.__init__ = own, multi

    path = folder + "/older.csv"
    with open(path, "w") as file:
        file.write(waited("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n", not weir_pipelining.WAITS))
    refuses(ValueError, "weir convert", lambda: weir_pipelining.Plan(path))
    with open(path, "w") as file:
        file.write("0F0,0B0\n2F0,2B0\n")
    refuses(ValueError, "forwards of the stages [0, 2]", lambda: weir_pipelining.Plan(path))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/split.csv"
        with open(path, "w") as file:
            file.write(waited(SPLIT, weir_pipelining.WAITS))
        mp.start_processes(gradients, (path, folder), nprocs=2, start_method="fork")
        views(folder)
        versions(folder)
    print("PyTorch", torch.__version__, "ok")


if __name__ == "__main__":
    main()
