"""Watches any training loop for tensors that outlive their microbatch."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._memory import Memory, Reading, user_line
from ._nets import Leak, Nets, storages

__all__ = ["Guard", "Leak", "LeakError", "LeakWarning"]

_SWEEPS = 16  # of a watch, which has as many microbatches at first
_REST = 4  # watches' lengths that pass before the next


class LeakWarning(UserWarning):
    """Tensors outlive their microbatch."""


class LeakError(RuntimeError):
    """Tensors outlive their microbatch; leaks lists them."""

    def __init__(self, leaks: list[Leak]) -> None:
        super().__init__("; ".join(map(str, leaks)))
        self.leaks = leaks


class Guard:
    """Names the tensors that outlive their microbatch in a training loop, with or without a pipeline.

        guard = weir.Guard(model)
        ...                         # the loop
        print(guard.table())

    A microbatch begins with each forward of the model that needs gradients, or with begin() or
    microbatch() if the loop calls one of them. In each, the guard reads a counter of memory. After
    three rises in a row it watches 16 microbatches, with hooks on the tensors that autograd saves and sweeps
    over the tensors that Python holds; then it rests. Tensors that stay are a leak if a second watch finds
    tensors of the same line or holder that stay, or if the loop ends before a second watch. After a watch
    that finds nothing, the next one is twice as long. The guard never runs the garbage collector and
    never freezes objects. A copy of the model has no guard.

    Args:
        model: the module whose forward is called, or the modules of a rank's stages in a pipeline. Give a
            compiled module as torch.compile returned it.
        on_leak: "warn" (LeakWarning), "raise" (LeakError, at the start of the next microbatch), a function
            that is called with the new leaks, or "off", which installs nothing.
        log: path of a memory log with a line for each microbatch, which `weir mem log` reads. The device's
            peak counter is then reset in every microbatch.
        rank: the rank in the log and the table; by default torch.distributed's, or the variable RANK, or 0.
        device: where memory is counted; by default where the model's parameters are.
        saved: False leaves out the hooks on the tensors that autograd saves. Under them a saved parameter comes
            back without the attributes that Python code gave it, and torch.func raises an error.
        least: bytes a microbatch; smaller leaks are not reported, except the nodes of graphs.

    Attributes: leaks (all found so far), microbatches, step, watched (numbers of each).
    """

    def __init__(self, model: nn.Module | Sequence[nn.Module], on_leak: str | Callable[[list[Leak]], Any] = "warn", *, log: str | None = None,
                 rank: int | None = None, device: torch.device | str | None = None, saved: bool = True, least: int = 1024) -> None:
        if not callable(on_leak) and on_leak not in ("off", "warn", "raise"):
            raise ValueError(f'on_leak is {on_leak!r}: give "warn", "raise", "off" or a function')
        self.leaks: list[Leak] = []
        self._suspects: list[Leak] = []  # what watches have found
        self._latest: list[Leak] = []  # what the last one has
        self.microbatches = self.step = self.watched = 0
        self._models = [model] if isinstance(model, nn.Module) else list(model)
        self._on_leak, self._rank, self._device, self._saved, self._least = on_leak, rank, device, saved, least
        self._explicit = self._open = self._stepped = False
        self._readings: list[Reading] = []  # the first and the last
        self._levels: list[int] = []  # what was allocated, of at most 64 microbatches at equal distances
        self._stride = 1
        self._index = self._depth = self._outputs = self._backwards = self._rest = self._peak = 0
        self._window, self._lowest = _SWEEPS, -1
        self._trends = _Trend(least), _Trend(least), _Trend(least)  # of microbatches, of the lowest in each step, and of the host beside a GPU
        self._memory: Memory | None = None
        self._nets: Nets | None = None
        self._hooks: Any = None
        self._optimizers: set[Any] = set()
        self._log: Any = None
        self._handles: list[Any] = []
        if on_leak == "off":
            return
        if log is not None:
            self._log = open(log, "w", buffering=1 << 20)  # noqa: SIM115
            atexit.register(self._log.close)  # the guard and its hooks are a cycle, which an exit leaves
        self._handles = [register_optimizer_step_post_hook(self._after_step), self._models[0].register_forward_pre_hook(self._before_forward)]
        self._handles += [one.register_forward_hook(self._after_forward) for one in self._models]

    def __reduce__(self) -> Any:
        """Returns a guard that is off, for the hooks of a copy of the model."""
        return Guard, ((), "off")

    @contextlib.contextmanager
    def microbatch(self) -> Iterator[None]:
        """Runs a microbatch, or the part of it that makes tensors. From then on, forwards begin no microbatches."""
        self.begin()
        try:
            yield
        finally:
            self._unhook()

    def begin(self) -> None:
        """Begins a microbatch and ends the previous one. From then on, forwards begin no microbatches."""
        self._explicit = True
        self._begin()

    def close(self) -> None:
        """Ends the last microbatch, removes all hooks that the guard has installed, and closes the log."""
        self._finish()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._nets is not None:
            self._nets.close()
            self._nets = None
        if self._log is not None:
            self._log.close()
            atexit.unregister(self._log.close)

    def table(self) -> str:
        """Ends the last microbatch, and returns a table of the memory and the leaks, the largest first."""
        self._finish()
        if self._memory is None:
            return "weir guard: no microbatch was seen; if model.compile() has compiled it in place, use guard.microbatch()"
        (first, last), size = self._readings, _size
        lines = [f"weir guard, rank {self._number()}: {self.microbatches} microbatches in {self.step} steps, {self.watched} of them watched; bytes of {self._memory.source}",
                 f"allocated {size(first.allocated)} after the first, {size(last.allocated)} after the last, {size(self._peak)} at most",
                 f"reserved {size(last.reserved)}, {size(last.reserved - last.allocated)} of it not allocated"]
        if not self.leaks:
            rise = self._rise()
            return "\n".join([*lines, f"nothing was named, but allocated rose by {size(rise)} a microbatch: run more microbatches" if rise
                              else "nothing was found that outlives its microbatch"])
        rows = [("bytes", "microbatches", "what", "module", "line", "held by")]
        rows += [(size(x.bytes) if x.what != "graph" else "not counted", str(x.microbatches), x.what, x.module or "-", x.line or "-", x.holder) for x in sorted(self.leaks, key=lambda x: -x.bytes)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join(lines + ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows])

    def _rise(self) -> int:
        """Returns the bytes by which the lowest level rose per microbatch if it rose in every quarter from the second on, or else 0."""
        n = len(self._levels) // 4
        lows = [min(self._levels[-k * n :][:n]) for k in (3, 2, 1)] if n >= 2 else [0, 0, 0]
        rise = (lows[2] - lows[0]) // (2 * n * self._stride or 1)
        return rise if lows[0] < lows[1] < lows[2] and rise >= self._least else 0

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        if _trains() and not self._explicit:
            self._begin()

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        """Finds out how many microbatches begin before this one's backward does, as in a pipeline."""
        if self._on_leak == "off" or not _trains():
            return
        born = self.microbatches
        begun: list[int] = []

        def backward(grads: Any) -> None:
            if not begun:
                begun.append(1)
                self._backwards += 1
                self._depth = max(self._depth, self.microbatches - born)

        for tensor in list(_tensors(output))[:8]:
            if tensor.grad_fn is not None:
                self._outputs += 1
                tensor.grad_fn.register_prehook(backward)
                if self._nets is not None:
                    self._nets.mark(tensor)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._stepped = True
        self._optimizers.add(optimizer)

    def _begin(self) -> None:
        if self._on_leak == "off":
            return
        self._finish(watching=True)
        self.microbatches += 1
        self._open = True
        if self._nets is None and self.microbatches > self._rest and any(trend.rises >= 3 for trend in self._trends):
            names = {id(m): f"{_plain(name) or 'model'} ({type(m).__name__})" for one in self._models for name, m in one.named_modules()}
            self._window = max(self._window, _SWEEPS * -(-self._depth // 4))
            self._nets = Nets(names, self.microbatches, self._where())
        engine = torch._C._autograd
        if self._nets is not None and self._saved and self._hooks is None and engine._top_saved_tensors_default_hooks(False) is None:
            self._hooks = self._nets.hooks()  # not over others: the innermost alone are called
            self._hooks.__enter__()

    def _unhook(self) -> None:
        """Removes the hooks on the tensors that autograd saves, unless other hooks have been installed over them."""
        top = torch._C._autograd._top_saved_tensors_default_hooks(False)
        if self._hooks is not None and top is not None and top[0] == self._hooks.pack_hook:
            self._hooks.__exit__()
            self._hooks = None

    def _finish(self, watching: bool = False) -> None:
        """Ends a microbatch, and the watch if it is over, or if nothing follows."""
        self._unhook()
        if self._open:
            self._open = False
            self._read()
            if self._nets is not None:
                self._watch(self._nets, watching)
        if not watching and (self._nets is not None or self.microbatches <= self._rest):
            self._report(self._latest)  # which no second watch has had the time to refute

    def _watch(self, nets: Nets, watching: bool) -> None:
        """Ends a microbatch of a watch."""
        self.watched += 1
        passed = self.microbatches + 1 - nets.first
        nets.end(sweep=passed % (self._window // _SWEEPS) == 0 or not watching)
        if passed == self._window // 2:
            nets.halfway()
        if passed < self._window and (watching or passed < _SWEEPS // 2):
            return
        exempt = [t for one in self._models for t in (*one.parameters(), *one.buffers())]
        exempt += [t for one in self._optimizers for t in _tensors([list(one.state.values()), [group["params"] for group in one.param_groups]])]
        kept = {id(s) for t in exempt for one in (t, t.grad if t.is_leaf else None) if one is not None for s in storages(one)}
        nets.known.update({id(b): f"buffer {_plain(name)}" for one in self._models for name, b in one.named_buffers() if b.grad_fn is not None})
        found = nets.verdict(self._depth + 1, kept, self._least, self._readings[-1].allocated) if self._backwards or not self._outputs else []
        nets.close()
        self._nets = None
        self._rest = self.microbatches + _REST * self._window
        self._window = self._window if found else min(2 * self._window, _SWEEPS << 8)
        for trend in self._trends:
            trend.rises = 0
        again = [x for x in found if any(x.holder == y.holder or x.line == y.line != "" for y in self._suspects)]
        self._suspects += [x for x in found if x not in again]
        self._latest = found
        self._report(again)

    def _report(self, found: list[Leak]) -> None:
        known = {(x.module, x.line, x.what, x.holder): x for x in self.leaks}
        fresh = [x for x in found if (x.module, x.line, x.what, x.holder) not in known]
        for x in found:
            old = known.get((x.module, x.line, x.what, x.holder), x)
            old.bytes, old.microbatches = max((old.bytes, old.microbatches), (x.bytes, x.microbatches))
        self.leaks += fresh
        if fresh and callable(self._on_leak):
            self._on_leak(fresh)
        elif fresh and self._on_leak == "raise":
            raise LeakError(fresh)
        stack = [user_line([(f.f_code.co_filename, n, "")]) for f, n in traceback.walk_stack(sys._getframe())]
        for x in fresh if self._on_leak == "warn" else ():
            warnings.warn(str(x), LeakWarning, stacklevel=next((i for i, line in enumerate(stack, 1) if line), 2))

    def _read(self) -> None:
        """Reads the counter. This is the cost of every microbatch."""
        if self._memory is None:
            self._memory = Memory(self._where())
        reading = self._memory.read(reset_peak=self._log is not None)
        if self._log is not None:
            self._log.write(json.dumps({"step": self.step, "rank": self._number(), "microbatch": self._index, **reading._asdict()}) + "\n")
        self._readings = [*self._readings[:1], reading] if self._readings else [reading, reading]
        self._peak = max(self._peak, reading.peak)
        if self.microbatches % self._stride == 0:
            self._levels.append(reading.allocated)
        if len(self._levels) == 64:
            del self._levels[::2]  # leaves the multiples of twice the stride
            self._stride *= 2
        self._trends[0].add(reading.allocated)
        self._trends[2].add(self._memory.host())
        self._lowest = min(self._lowest, reading.allocated) if self._index else reading.allocated
        self._index += 1
        if self._stepped:
            self._trends[1].add(self._lowest)
            self._stepped, self._index = False, 0
            self.step += 1

    def _where(self) -> torch.device:
        first = (p.device for one in self._models for p in one.parameters())
        return torch.device(self._device) if self._device is not None else next(first, torch.device("cpu"))

    def _number(self) -> int:
        ready = torch.distributed.is_available() and torch.distributed.is_initialized()
        return self._rank if self._rank is not None else torch.distributed.get_rank() if ready else int(os.environ.get("RANK", "0"))


class _Trend:
    """Counts the rises of a level since it last fell. Changes of fewer than least bytes are ignored."""

    def __init__(self, least: int) -> None:
        self.least, self.rises, self.level = least, 0, -1

    def add(self, level: int) -> None:
        if self.level < 0 or abs(level - self.level) >= self.least:
            self.rises = self.rises + 1 if level > self.level >= 0 else 0
            self.level = level


def _trains() -> bool:
    """Reports whether a forward is one of training: not of an evaluation, not recomputed by a backward, and not traced."""
    return not torch.compiler.is_compiling() and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a tuple, list, dictionary or dataclass, such as a module's output."""
    if isinstance(value, Tensor):
        yield value
        return
    members = vars(value) if hasattr(value, "__dataclass_fields__") and not isinstance(value, dict) else value
    for one in members.values() if isinstance(members, dict) else members if isinstance(members, (list, tuple)) else ():
        yield from _tensors(one)


def _plain(name: str) -> str:
    return name.replace("_orig_mod.", "")


def _size(n: int) -> str:
    return f"{n / (1 << 20):.1f} MiB" if n >= 10 << 20 else f"{n / 1024:.1f} KiB"
