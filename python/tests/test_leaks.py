"""Planted leaks, many of them from reported issues: the guard names each."""

import collections
import functools
import gc
import queue
from typing import ClassVar

import pytest
import torch
from conftest import DEVICE, TOKENS, WIDTH, batches, make

import weir

N = 32
LOG, OUTS, CACHE, FEATURES = [], [], {}, []
TABLES = collections.defaultdict(list)


@pytest.fixture(autouse=True)
def empty():
    yield
    for each in (LOG, OUTS, CACHE, FEATURES, TABLES, Profiler.records):
        each.clear()
    rotary.cache_clear()
    gc.enable()


def train(model, optimizer, kept=lambda step, model, x, out, loss: None):
    """Runs a training loop that calls kept, which has the leak, after each backward."""
    for step, x in enumerate(batches(N)):
        out = model(x)
        loss = (out - x).square().mean()
        loss.backward()
        kept(step, model, x, out, loss)
        optimizer.step()
        optimizer.zero_grad()


def metric_with_graph(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: LOG.append((model(x) - x).abs().mean()))


def trained_losses(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: LOG.append(loss))


def outputs(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: OUTS.append(out))


def cache_by_step(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: CACHE.__setitem__((step, 0), out.detach()))


class Linear8(torch.autograd.Function):
    """Hangs tensors on its ctx, as TransformerEngine's functions did (issues 1935 and 2750)."""

    @staticmethod
    def forward(ctx, x, kind):
        if kind == "attribute":
            ctx.q = x.detach() * 2
        elif kind == "list":
            ctx.inputs = [x.detach() * 2, x.detach() * 3]
        elif kind == "object":
            ctx.objects = [Storage8(x.detach() * 2)]
        elif kind == "cycle":
            ctx.q, ctx.own = x.detach() * 2, ctx
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


class Storage8:
    def __init__(self, data):
        self.data = data


def on_ctx(kind):
    def loop(model, optimizer):
        if kind == "cycle":
            gc.disable()
        for x in batches(N):
            loss = Linear8.apply(model(x), kind).square().mean()
            loss.backward()
            if kind != "cycle":
                LOG.append(loss)
            optimizer.step()
            optimizer.zero_grad()

    return loop


class Metrics:
    """Keeps losses by name, as Fast-LLM did (issue 486)."""

    def __init__(self):
        self.losses = {}

    def log(self, name, loss):
        self.losses.setdefault(name, []).append(loss)


def losses_by_name(model, optimizer):
    metrics = Metrics()
    train(model, optimizer, lambda step, model, x, out, loss: metrics.log("language model", (model(x) - x).abs()))


@functools.lru_cache(maxsize=None)
def rotary(length):
    return torch.outer(torch.arange(float(length)), torch.ones(WIDTH)).cos()


def rotary_by_length(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: rotary(TOKENS + step))


def average_of_losses(model, optimizer):
    average = torch.zeros(())

    def smooth(step, model, x, out, loss):
        nonlocal average
        average = 0.9 * average + 0.1 * loss

    train(model, optimizer, smooth)


def hooked_outputs(model, optimizer):
    inner = getattr(model, "_orig_mod", model)
    keep = torch.compiler.disable(lambda module, args, out: FEATURES.append(out)) if inner is not model else lambda module, args, out: FEATURES.append(out)
    handle = inner[1].register_forward_hook(keep)
    train(model, optimizer)
    handle.remove()


class Profiler:
    records: ClassVar[list] = []

    @classmethod
    def record(cls, step, model, x, out, loss):
        cls.records.append(("step", step, {"out": out.detach()}))


def profiler(model, optimizer):
    train(model, optimizer, Profiler.record)


def closure(model, optimizer):
    seen = collections.deque()

    def remember(step, model, x, out, loss):
        seen.append((step, out.detach()))

    train(model, optimizer, remember)


def local_predictions(model, optimizer):
    predictions = ()
    for x in batches(N):
        out = model(x)
        out.square().mean().backward()
        predictions += (out[0],)  # a view keeps the whole tensor
        optimizer.step()
        optimizer.zero_grad()


def generator(model, optimizer):
    def history():
        past = []
        while True:
            past.append((yield))

    kept = history()
    next(kept)
    train(model, optimizer, lambda step, model, x, out, loss: kept.send(out.detach()))


def carried_state(model, optimizer):
    state = torch.zeros(TOKENS, WIDTH)
    for x in batches(N):
        state = model(x + 0.5 * state)
        torch.autograd.grad(state.mean(), model.parameters(), retain_graph=True)


def numpy_arrays(model, optimizer):
    train(model, optimizer, lambda step, model, x, out, loss: LOG.append(out.detach().numpy()))


class Skipped:
    """Keeps the exceptions of bad batches, whose tracebacks keep the frames (pytorch issue 10348)."""

    def __init__(self):
        self.errors = []

    def step(self, model, x, bad):
        try:
            self.checked(model(x), bad).backward()
        except ValueError as error:
            self.errors.append(error)

    def checked(self, out, bad):
        if bad:
            raise ValueError("not finite")
        return out.square().mean()


def tracebacks(model, optimizer):
    skipped = Skipped()
    for step, x in enumerate(batches(N)):
        skipped.step(model, x, step % 2)
        optimizer.zero_grad()


class Whiten(torch.nn.Module):
    """Computes running statistics under autograd, so the buffer has a graph."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running_var", torch.ones(WIDTH))

    def forward(self, x):
        var = x.var(0)
        self.running_var = 0.9 * self.running_var + 0.1 * var
        return x / (var.detach() + 1e-5).sqrt()


def running_statistics(model, optimizer):
    model.append(Whiten())
    train(model, optimizer)


class Router(torch.nn.Module):
    """Keeps its outputs for an auxiliary loss of the trainer."""

    def __init__(self):
        super().__init__()
        self.aux = []

    def forward(self, x):
        self.aux.append(x.detach().softmax(-1))
        return x


def routers(model, optimizer):
    model.extend([Router(), Router()])
    train(model, optimizer)


class Writer:
    """Has a queue that is never emptied. Reading its attributes, as the guard does, creates a dictionary for them."""

    def __init__(self):
        self.jobs = queue.Queue()


def dead_writer(model, optimizer):
    runs = [{"writer": Writer()}]
    vars(runs[0]["writer"]), vars(runs[0]["writer"].jobs)
    train(model, optimizer, lambda step, model, x, out, loss: runs[0]["writer"].jobs.put((step, out.detach())))


def endless_deque(model, optimizer):
    bank = collections.deque(maxlen=1 << 30)
    train(model, optimizer, lambda step, model, x, out, loss: bank.append(out.detach()))


def among_batches(model, optimizer):
    """Creates the batches of a step together. They have the same size as the tensors that leak."""
    for _ in range(N // 4):
        data = list(batches(4))
        for x in data:
            OUTS.append(x * 2)
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def every_fifth(model, optimizer):
    for _ in range(10):
        train(model, optimizer, lambda step, model, x, out, loss: OUTS.append(out.detach()) if step % 5 == 0 else None)


LEAKS = [  # the loop, and what a leak must name: holder, module, line
    (metric_with_graph, "the graph of {here}LOG[]", "2 (Linear)", "test_leaks.py"),
    (trained_losses, "{here}LOG[]", "", ""),
    (outputs, "{here}OUTS[]", "", "train"),
    (cache_by_step, "{here}CACHE[...]", "", ""),
    (on_ctx("attribute"), "ctx of Linear8.q, in the graph of {here}LOG[]", "", ""),
    (on_ctx("list"), "ctx of Linear8.inputs[], in the graph of {here}LOG[]", "", ""),
    (on_ctx("object"), "ctx of Linear8.objects[].data, in the graph of {here}LOG[]", "", ""),
    (on_ctx("cycle"), "ctx of Linear8.q", "", ""),
    (losses_by_name, "the graph of metrics.losses[...][] in losses_by_name()", "2 (Linear)", ""),
    (rotary_by_length, "lru_cache of rotary", "", ""),
    (average_of_losses, "average in average_of_losses()", "", ""),
    (hooked_outputs, "{here}FEATURES[]", "", ""),
    (profiler, "Profiler.records[][][...]", "", ""),
    (closure, "seen[][] in closure()", "", ""),
    (local_predictions, "predictions[] in local_predictions()", "", ""),
    (generator, "past[] in generator.<locals>.history()", "", ""),
    (carried_state, "state in carried_state()", "2 (Linear)", ""),
    pytest.param(numpy_arrays, "what Python does not see", "", "", marks=pytest.mark.skipif(DEVICE != "cpu", reason="arrays are in a CPU's memory")),
    (every_fifth, "{here}OUTS[]", "", ""),
    (tracebacks, "skipped.errors[].__traceback__ (local out of checked) in tracebacks()", "", ""),
    (running_statistics, "the graph of buffer 3.running_var", "", ""),
    (routers, "3 (Router).aux[] and 4 (Router).aux[]", "", ""),
    (dead_writer, "runs[][...].jobs.queue[][] in dead_writer()", "", ""),
    (among_batches, "{here}OUTS[]", "", ""),
    (endless_deque, "bank[] in endless_deque()", "", ""),
]


@pytest.mark.parametrize(("loop", "holder", "module", "line"), LEAKS, ids=lambda x: getattr(x, "__qualname__", None))
def test_leak_is_named(loop, holder, module, line):
    named(make(), loop, holder, module, line)


COMPILED = [one for one in LEAKS if isinstance(one, tuple) and one[0] in (metric_with_graph, outputs, hooked_outputs, losses_by_name, average_of_losses, rotary_by_length)]


@pytest.mark.parametrize(("loop", "holder", "module", "line"), COMPILED, ids=lambda x: getattr(x, "__qualname__", None))
def test_leak_is_named_with_a_compiled_model(loop, holder, module, line):
    torch._dynamo.reset()  # otherwise the code compiled in another test would run without this test's hook
    named(make(compiled=True), loop, holder, module and "model (OptimizedModule)", line)


def named(made, loop, holder, module, line):
    guard = weir.Guard(made[0], on_leak=lambda leaks: None)
    loop(*made)
    print(guard.table())
    guard.close()
    wanted = holder.format(here=__name__ + ".")
    assert any(wanted in leak.holder and " and " not in leak.holder.replace(wanted, "") and module in leak.module and line in leak.line for leak in guard.leaks), guard.leaks
