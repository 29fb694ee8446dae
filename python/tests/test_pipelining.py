"""PyTorch's own pipelines on two ranks over gloo: losses lose their graphs, gradients stay the same, and the guard names what is kept."""

import re

import pytest
import torch
from conftest import TOKENS, WIDTH
from ranks import on_ranks
from torch.nn.functional import mse_loss

import weir

M = 40


class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())

    def forward(self, x):
        return self.net(x)


def step(name, rank, loss_fn):
    """Runs a step, and returns the gradients, the losses, and the leaks that a guard finds."""
    from torch.distributed import pipelining

    torch.manual_seed(1)
    stages = {"Schedule1F1B": [rank], "ScheduleZBVZeroBubble": [rank, 3 - rank]}[name]
    count = 2 * len(stages)
    x, like = torch.randn(M * TOKENS, WIDTH), torch.empty(TOKENS, WIDTH, requires_grad=True)
    modules = [Stage() for _ in range(count)]
    built = [pipelining.PipelineStage(modules[s], s, count, torch.device("cpu"), input_args=like if s else torch.empty(TOKENS, WIDTH), output_args=like) for s in stages]
    schedule = getattr(pipelining, name)(built[0] if name == "Schedule1F1B" else built, M, loss_fn=loss_fn)
    guard = weir.Guard([modules[s] for s in stages], on_leak=lambda leaks: None)
    kept, losses = [], []
    schedule._update_losses, update = lambda *args: (kept.extend(schedule._internal_losses), update(*args)), schedule._update_losses
    schedule.step(*[x] * (stages[0] == 0), target=x if count - 1 in stages else None, losses=losses, return_outputs=False)
    guard.close()
    return [p.grad for s in stages for p in modules[s].parameters()], kept, guard.leaks


def run(rank):
    for name in ("Schedule1F1B", "ScheduleZBVZeroBubble"):
        wanted, plain, leaks = step(name, rank, mse_loss)
        gradients, kept, fewer = step(name, rank, weir.detached(mse_loss))
        assert all(torch.equal(a, b) for a, b in zip(wanted, gradients)), name
        assert all(torch.equal(a, b) for a, b in zip(plain, kept)), name
        assert not any(loss.requires_grad for loss in kept), name
        if rank == 1 and name == "Schedule1F1B":  # the rank of the losses
            assert any("_internal_losses[]" in leak.holder for leak in leaks), leaks
        assert all("P2POp" in leak.holder for leak in fewer), (name, rank, fewer)  # sends wait until the step ends


@pytest.mark.skipif(tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 15), reason="older pipelines keep more, or abort over gloo")
def test_losses_of_two_pipelines():
    on_ranks(2, run)
