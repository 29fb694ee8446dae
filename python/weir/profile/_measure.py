"""Times of a model's pieces, and its bytes, on a device that is there: with real tensors, whose values are random."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import time
from collections import defaultdict
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from .._backward import input_gradients, weight_gradients
from ._books import Books, tensors
from ._file import Amount, ProfileError
from ._model import Model, _Attention, _form

__all__ = ["Real", "alive", "nearest"]

WARM, RUNS = 2, 5


@contextlib.contextmanager
def alive(device: str, out: list[int]) -> Iterator[None]:
    """Appends to out the most bytes that the allocator has alive in the context above those at its begin, and those at its end.

    On a CPU they are the allocations of this thread and of those that it starts, which PyTorch's profiler lists.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        begun = torch.cuda.memory_stats()["requested_bytes.all.current"]
        torch.cuda.reset_peak_memory_stats()
        yield
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        out += [stats["requested_bytes.all.peak"] - begun, stats["requested_bytes.all.current"] - begun]
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        yield
    events: Any = p.profiler
    changes = [e.nbytes() for e in sorted((e for e in events.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())]
    out += [max(itertools.accumulate(changes), default=0), sum(changes)]


class Real(Model):
    """A model on its device. Parameters are random and buffers zero. If twins are given, layers for which others stand have no memory."""

    def __init__(self, build: Callable[[], nn.Module], batch: Any, loss: Any, layers: Any, settings: Any, twins: list[int] | None = None) -> None:
        if settings.device == "cuda" and not torch.cuda.is_available():
            raise ProfileError("measure: PyTorch sees no GPU here: measure on the machine that has one, or state device cpu")

        def on_meta() -> nn.Module:
            with torch.device("meta"):
                return build()

        super().__init__(on_meta, batch, loss, layers, settings)
        self.timing, self.twins, self.short = False, twins or self.twins, twins is not None
        spare = {m for i, (_, layer) in enumerate(self.layers, 1) if self.twins[i] != i for m in layer.modules()}
        with torch.no_grad():
            for m in self.module.modules():
                if m not in spare:
                    self._fill(m)
        self.owned = {-1 - n: one for n, one in enumerate([*self.module.named_parameters(), *self.module.named_buffers()])}

    def _fill(self, m: nn.Module) -> None:
        m.to_empty(device=self.settings.device, recurse=False)
        for t in m.buffers(recurse=False):
            t.zero_()
        for t in m.parameters(recurse=False):
            t.normal_(std=0.02) if t.is_floating_point() else t.zero_()
            t.grad = torch.zeros_like(t) if t.requires_grad else None
        for name, t in vars(m).items():
            if isinstance(t, Tensor) and t.is_meta:
                setattr(m, name, torch.zeros_like(t, device=self.settings.device))

    def contexts(self) -> Any:
        return _Attention(self.settings.attention)

    def _refusing(self) -> Any:
        return contextlib.nullcontext()

    def _made(self, name: str, t: Tensor) -> None:
        """Parameters are filled later."""

    def times(self, sequences: int, length: int, weigh: bool) -> tuple[dict[tuple[int, str], float], dict[int, Any]]:
        """Returns the median seconds of each action of the pieces that run; and to weigh them, of each layer by itself the most bytes
        of F, those that it saves and the most of B, as the allocator has them without its input and the gradient of its output."""
        self._seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._calls: dict[int, Any] = {}
        self._leaf: dict[int, Any] = {}
        self.timing, self.books, last = True, Books(), len(self.layers) + 1
        with torch.device(self.settings.device):
            batch = self._batch(sequences, length)
        self._model(batch)
        weighed = {i: self._alone(i, weigh, *self._calls.pop(i)) for i in sorted(self._calls)}
        for turn in range(2 * (WARM + RUNS)):
            begun, loss, end = self._clock(), self._model(batch), self._clock()
            self._seconds[0, "F"].append(self._arrived - begun)
            self._seconds[last, "F"].append(end - self._left)
            self._backward(last, turn, [loss], self._leaves)
            if turn % 2 == 0:
                self._backward(0, turn, self._first, [])
            del loss
        self._seconds[0, "W"], self.timing = self._seconds[0, "B"], False
        return {key: statistics.median(each[WARM:]) for key, each in self._seconds.items()}, weighed

    def _clock(self) -> float:
        if self.settings.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _model(self, batch: Any) -> Tensor:
        with self.contexts():
            return self._run(batch)

    def _layer(self, m: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """While pieces are timed, each by itself: returns the output of the layer that stands for this one as a leaf."""
        if not self.timing:
            return super()._layer(m, forward, *args, **kwargs)
        self._next += 1
        of = self.twins[self._next] if self.short else self._next
        if self._next == 1:
            self._arrived, self._first = self._clock(), [t for t in tensors((args, kwargs)) if t.requires_grad]
        if of not in self._leaf:
            with torch.no_grad():
                out = forward(*args, **kwargs)
            self._leaf[of], self._calls[of] = (_form(out)[1], next(tensors(out))), (forward, args, kwargs)
            if _form(out)[0] is None:
                raise ProfileError(f"{self.names[m]}: a layer that returns several tensors is not timed")
        wrap, out = self._leaf[of]
        self._leaves = [torch.empty_like(out).copy_(out).requires_grad_()]
        self._left = self._clock()
        return wrap(self._leaves[0])

    def _alone(self, i: int, weigh: bool, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        leaves: list[Tensor] = []

        def fresh(value: Any) -> Any:
            if isinstance(value, Tensor) and value.requires_grad:
                leaves.append(torch.randn_like(value).requires_grad_())
                return leaves[-1]
            return type(value)(fresh(one) for one in value) if type(value) in (tuple, list) else value

        args, kwargs = fresh(args), {key: fresh(value) for key, value in kwargs.items()}

        def layer(*args: Any, **kwargs: Any) -> Any:
            with self.contexts():  # here, where a checkpoint computes again
                return forward(*args, **kwargs)

        def run() -> list[Tensor]:
            with self._autocast():
                out = checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs) if self.settings.checkpoint else layer(*args, **kwargs)
                return [t for t in tensors(out) if t.requires_grad]

        for turn in range(2 * (WARM + RUNS)):
            begun, roots, end = self._clock(), run(), self._clock()
            self._seconds[i, "F"].append(end - begun)
            self._backward(i, turn, roots, leaves)
        if not weigh:
            return ()
        seeds, bytes = [torch.randn_like(t) for t in roots], list[int]()
        del roots
        with alive(self.settings.device, bytes):
            edges = [get_gradient_edge(t) for t in run()]
        with alive(self.settings.device, bytes):
            torch.autograd.backward(edges, seeds)
        return bytes[0], bytes[1], bytes[1] + bytes[2]

    def _backward(self, piece: int, turn: int, roots: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Times B in even turns, and I and W in odd ones."""
        edges, seeds = [get_gradient_edge(t) for t in roots], [torch.randn_like(t) if t.dim() else torch.ones_like(t) for t in roots]
        times = [self._clock()]
        if turn % 2 == 1:
            carry = input_gradients(edges, seeds, inputs)[1]
            times.append(self._clock())
            weight_gradients(carry)
        elif roots:
            torch.autograd.backward(edges, seeds)
        times.append(self._clock())
        for action, a, b in zip("B" if turn % 2 == 0 else "IW", times, times[1:]):
            self._seconds[piece, action].append(b - a)
        for x in inputs:
            x.grad = None


def nearest(values: dict[tuple[int, int], float], below: bool) -> Amount:
    """Returns the amount of tokens and squares, none of them negative, with the least squares of relative errors.

    above is its largest relative error in either direction; if it may not lie below a value, it is raised first.
    """
    points = [(k, n, v) for (k, n), v in values.items() if v > 0]
    best, least = Amount(source="measured"), float("inf")
    for terms in (t for size in (1, 2, 3) for t in itertools.combinations(range(3), size)):
        if not points:
            break
        rows = torch.tensor([[(1.0, k * n, k * n * n)[t] / v for t in terms] for k, n, v in points], dtype=torch.float64)
        found = torch.linalg.lstsq(rows, torch.ones(len(points), 1, dtype=torch.float64), driver="gelsd").solution
        off = float((rows @ found - 1).square().sum())
        if bool((found >= 0).all()) and off < least:
            least, by = off, dict(zip(terms, map(float, found[:, 0])))
            best = Amount(by.get(0, 0.0), token=by.get(1, 0.0), square=by.get(2, 0.0), source="measured")

    def errors() -> list[float]:
        return [(best.constant + best.token * k * n + best.square * k * n * n) / v - 1 for k, n, v in points]

    if not below:
        up = 1 / (1 + min([0.0, *errors()]))
        best.constant, best.token, best.square = best.constant * up, best.token * up, best.square * up
    best.above = round(max([0.0, *map(abs, errors())]), 4)
    return best
