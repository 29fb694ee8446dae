"""Loops without leaks: the guard reports nothing, even if it watches from the first microbatch on."""

import collections
import functools
import queue

import pytest
import torch
from conftest import TOKENS, WIDTH, Always, batches, make
from torch.utils.checkpoint import checkpoint

import weir

N = 40


def step_of(model, optimizer, x):
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def plain(model, optimizer):
    for x in batches(N):
        step_of(model, optimizer, x)


def detached_history(model, optimizer):
    losses, average = [], torch.zeros(())
    for x in batches(N):
        loss = step_of(model, optimizer, x)
        losses.append(loss.detach().clone())
        average = 0.9 * average + 0.1 * losses[-1]


def weir_detached(model, optimizer):
    losses, loss_fn = [], weir.detached(torch.nn.functional.mse_loss)
    for x in batches(N):
        losses.append(loss_fn(model(x), x))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulation(model, optimizer):
    for step in range(N // 8):
        for length in torch.randint(8, 4 * TOKENS, (8,)).tolist():
            x = torch.randn(length, WIDTH)
            (model(x) - x).square().mean().div(8).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)


class Tied(torch.nn.Module):
    """A layer with tied weights, a buffer that is replaced, a table that is made once, and a cache for four lengths."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight
        self.register_buffer("mean", torch.zeros(TOKENS, WIDTH))
        self.table, self.tables = None, functools.lru_cache(4)(lambda n: torch.ones(n, WIDTH).cumsum(0))

    def forward(self, x):
        if self.table is None:
            self.table = torch.randn(TOKENS, WIDTH)
        y = self.second(self.first(x) + self.table)
        self.mean = 0.9 * self.mean + 0.1 * y.detach()
        return y + self.tables(len(x) * torch.randint(1, 5, ()).item())[: len(x)]


def tied(model, optimizer):
    model.append(Tied())
    plain(model, torch.optim.AdamW(model.parameters()))


def checkpointed(reentrant):
    def loop(model, optimizer):
        forward = model[2].forward
        model[2].forward = lambda x: checkpoint(forward, x, use_reentrant=reentrant)
        plain(model, optimizer)

    return loop


def whole_checkpointed(model, optimizer):
    for x in batches(N):
        checkpoint(model, x, use_reentrant=False).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def adversarial(model, optimizer):
    other, second = make()
    for x in batches(N):
        step_of(other, second, model(x).detach())
        other(model(x)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        second.zero_grad()


def evaluation(model, optimizer):
    for _ in range(4):
        plain_part = list(batches(N // 4))
        for x in plain_part:
            step_of(model, optimizer, x)
        with torch.no_grad():
            predictions = [model(x) for x in plain_part]
        torch.cat(predictions)


def pipeline(depth):
    """Returns a loop in which up to depth forwards run ahead of their backwards."""

    def loop(model, optimizer):
        for _ in range(4):
            flying = collections.deque()
            for x in batches(N // 2):
                flying.append((model(x) - x).square().mean())
                if len(flying) == depth:
                    flying.popleft().backward()
            while flying:
                flying.popleft().backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop


def replay(model, optimizer):
    recent = collections.deque(maxlen=4)
    for x in batches(N):
        recent.append(x)
        step_of(model, optimizer, torch.cat(list(recent)))


def filling_replay(model, optimizer):
    """Fills a bounded deque that is not full when the loop ends. Even when full it would hold less memory than the process uses."""
    recent = collections.deque(maxlen=400)
    for x in batches(N):
        recent.extend((row.clone(), 0) for row in x.repeat(1, 4)[:4])
        step_of(model, optimizer, x)


def full_pool(model, optimizer):
    """Replaces random images in a pool, as a GAN does."""
    pool = list(batches(50))
    for x in batches(N):
        pool[torch.randint(50, ()).item()] = x.clone()
        step_of(model, optimizer, x)


def prefetching(model, optimizer):
    ahead = queue.Queue()
    for i, x in enumerate(batches(N)):
        ahead.put(x)
        if i >= 6:
            step_of(model, optimizer, ahead.get())


def truncated(model, optimizer):
    state = torch.zeros(TOKENS, WIDTH)
    for x in batches(N):
        state = model(x + 0.5 * state.detach())
        state.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Experts(torch.nn.Module):
    """Uses a different expert in each microbatch, so gradients and optimizer states are created late."""

    def __init__(self):
        super().__init__()
        self.experts, self.next = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(N)), 0

    def forward(self, x):
        self.next += 1
        return self.experts[(self.next - 1) % N](x)


def experts(model, optimizer):
    model.append(Experts())
    optimizer = torch.optim.AdamW(model.parameters())
    for i, x in enumerate(batches(N)):
        (model(x) - x).square().mean().backward()
        if i % 4 == 3:
            optimizer.step()


def averaged(model, optimizer):
    average = torch.optim.swa_utils.AveragedModel(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for x in batches(N):
        step_of(model, optimizer, x)
        average.update_parameters(model)
        schedule.step()


def lbfgs(model, optimizer):
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2, history_size=3)
    for x in batches(N // 2):
        def closure(x=x):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            return loss
        optimizer.step(closure)


HEALTHY = [plain, detached_history, weir_detached, accumulation, tied, checkpointed(True), checkpointed(False), whole_checkpointed, adversarial,
           evaluation, pipeline(4), pipeline(N), replay, filling_replay, full_pool, prefetching, truncated, experts, averaged, lbfgs]


@pytest.mark.parametrize("loop", HEALTHY, ids=lambda loop: loop.__qualname__)
def test_silent(loop):
    quiet(make(), loop)


def test_silent_on_a_pool_that_fills():
    """Until the pool is full, no watch can distinguish it from a leak, so a single watch reports nothing."""
    (model, optimizer), pool = make(), []
    guard = weir.Guard(model, on_leak="raise")
    for x in batches(150):
        step_of(model, optimizer, x)
        if len(pool) < 60:
            pool.append(x)
    guard.close()
    assert guard.watched >= 16


class Cut(torch.Tensor):
    """A tensor subclass that consists of a tensor and another object, as DTensor has a mesh."""

    @staticmethod
    def __new__(cls, inner, mesh):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

    def __init__(self, inner, mesh):
        self.inner, self.mesh = inner, mesh

    def __tensor_flatten__(self):
        return ["inner", "mesh"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_silent_on_tensors_made_of_more_than_tensors():
    cut = [Cut(torch.ones(WIDTH), "mesh")]
    quiet(make(), plain)
    assert cut


def test_silent_with_a_compiled_model():
    torch._dynamo.reset()
    quiet(make(compiled=True), accumulation)


def quiet(made, loop):
    guard = weir.Guard(made[0], on_leak="raise")
    guard._trends = (Always(),) * 3
    loop(*made)
    guard.close()
    assert guard.watched >= 16
    assert guard.leaks == []
