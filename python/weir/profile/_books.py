"""Books of every storage that a forward and a backward make, on tensors that have no memory."""

from __future__ import annotations

import bisect
import functools
import heapq
import weakref
from collections import Counter, defaultdict
from typing import Any, Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import flop_registry

from ._file import ProfileError
from ._private import TorchDispatchMode, address, inputs, next_number
from ._private import number as order

__all__ = ["Books", "Graph", "adds", "tensors"]

_MOST = 10_000  # operators of one piece in a forward, which takes seconds; a layer of 256 experts has some 3,000


def tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a nest of containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


class Books(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Books of one forward and the backward after it: when each storage is born and freed, who saves it, and
    how much is computed, piece by piece.

    piece and action say what runs now; the caller sets them. Storages that exist before are parameters,
    buffers and the batch: they are given to `own`, and never counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.piece, self.action, self.node = 0, "F", ""  # the node of a backward
        self.sizes: list[int] = []  # by storage, in the order of their births
        self.made: list[int] = []  # by storage: the piece that made it
        self.kept: dict[int, set[int]] = defaultdict(set)  # by storage: the pieces whose operations save it
        self.used: dict[int, int] = {}  # by storage: the last piece that differentiates it, if that did not make it
        self.read: dict[int, set[int]] = defaultdict(set)  # by storage: the later pieces that read it and do not differentiate it
        self.uses: dict[int, set[int]] = defaultdict(set)  # by storage that is owned: the pieces that read it
        self.alive: set[int] = set()
        self.flops: Counter[tuple[str, int]] = Counter()
        self.starts: list[int] = []  # by piece: the number of its first node
        self.kernels: set[int] = set()  # the pieces with a kernel of attention
        self.steps: dict[int, int] = {}  # by piece: a hash of the operators of F, with the shapes that they take
        self._numbers: dict[int, int] = {}  # by address of a storage that is alive; negative if it is owned
        self._highest: dict[int | None, int] = {}  # by storage: the highest of its positions, which begin at 0
        self._casts: dict[int, Any] = {}  # by storage: the one that is owned whose values it has in another dtype
        self._watch: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._events: list[tuple[int, int]] = []  # a storage and the bytes by which what is alive changes; or -1 and a mark
        self._marks: list[tuple[str, int]] = []
        self._ran = 0  # operators since the piece began
        self._unwanted: set[int] = set()
        self._work: list[tuple[int, int]] = []  # of the node that runs: a storage, and operations that make it

    def own(self, owned: list[Tensor]) -> None:
        """Enters storages that exist before, under the numbers -1, -2 and so on in the order of the tensors."""
        self._owned = owned  # alive, so that no other storage gets an address of theirs
        for n, t in enumerate(owned):
            self._numbers.setdefault(address(t), -1 - n)

    def begin(self, piece: int, action: str) -> None:
        """Says what runs from now on."""
        if self._marks and (self.piece, self.action) == (piece, action) and action != "W":  # each W is one of a weight
            return
        self.piece, self.action, self._ran = piece, action, 0
        self._events.append((-1, len(self._marks)))
        self._marks.append((action, piece))
        if action == "F" and piece >= len(self.starts):
            self.starts += [next_number()] * (piece + 1 - len(self.starts))

    def number(self, t: Tensor) -> int | None:
        return self._numbers.get(address(t))

    def hooks(self) -> saved_tensors_hooks:
        """Returns a context in which the storages that autograd saves are entered."""

        def pack(t: Tensor) -> Tensor:
            number = self.number(t)
            if number is not None and number >= 0:
                self.kept[number].add(self.piece)
            return t.detach() if t.requires_grad else t  # an output saved as it is would hold the node that holds it

        return saved_tensors_hooks(pack, lambda t: t)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.action == "F":
            self._ran += 1
            if self._ran > _MOST:
                raise ProfileError(f"a layer of more than {_MOST:,} operators, such as a loop over tokens, takes too long: give it an operator with a fake (torch.library.register_fake)")
            if "_scaled_dot_product" in str(func):
                self.kernels.add(self.piece)
            given = [*tensors((args, kwargs))]
            step = tuple((tuple(t.shape), t.dtype, t.requires_grad) for t in [*given, *tensors(out)])
            self.steps[self.piece] = hash((self.steps.get(self.piece), func, torch.is_grad_enabled(), step))
            for t in given:
                number = self.number(t)
                if number is None:
                    continue
                if number in self._casts:
                    self.uses[self._casts[number]].add(self.piece)
                if number < 0:
                    self.uses[number].add(self.piece)
                elif self.made[number] < self.piece and t.requires_grad:
                    self.used[number] = self.piece
                elif self.made[number] < self.piece:
                    self.read[number].add(self.piece)
        number = -1
        for t in tensors(out):
            number = self._enter(t)
        if func is torch.ops.aten._to_copy.default and (self.number(args[0]) or 0) < 0:
            self._casts[number] = self.number(args[0])  # which autocast keeps until the end of the forward
        aten = torch.ops.aten
        if func._overloadpacket is aten.arange:
            self._highest[number] = args[min(len(args) - 1, 1)] - 1
        elif func is aten.add.Tensor and self.number(args[0]) in self._highest and not isinstance(args[1], Tensor):
            self._highest[number] = self._highest[self.number(args[0])] + args[1]
        elif func is aten.embedding.default and self._highest.get(self.number(args[1]), -1) >= len(args[0]):
            raise ProfileError(f"it looks up positions up to {self._highest[self.number(args[1])]:,} in a table of {len(args[0]):,}")
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self._work.append((number, formula(*args, **(kwargs or {}), out_val=out)))
        elif func._overloadpacket is torch.ops.aten._grouped_mm:  # every token visits one group
            a, b = args[:2]
            self._work.append((number, 2 * a.shape[-2] * a.shape[-1] * b.shape[-1]))
        copies = _converted(func, args) if number >= 0 else []  # all alive at once
        for copy in copies:
            self._enter(copy)
        if func is torch.ops.aten._safe_softmax.default:  # which looks for rows without a number
            self._enter(torch.empty_like(args[0][..., :1].expand(*args[0].shape[:-1], args[0].shape[-1] + 1), dtype=torch.bool))
        if self.action == "F":
            self.settle(())
        return out

    def _enter(self, t: Tensor) -> int:
        key = address(t)
        if key in self._numbers:
            return self._numbers[key]
        storage = t.untyped_storage()
        number = len(self.sizes)

        def freed(_: Any) -> None:
            del self._numbers[key], self._watch[number]
            self.alive.discard(number)
            self._events.append((number, -self.sizes[number]))

        self._numbers[key] = number
        self._watch[number] = weakref.ref(storage, freed)
        self.sizes.append(storage.nbytes())
        self.made.append(self.piece)
        self.alive.add(number)
        self._events.append((number, self.sizes[number]))
        return number

    def settle(self, unwanted: Iterable[int]) -> None:
        """Ends a node: what it computed into unwanted storages, a real backward would not compute, so it does not count."""
        left_out = set(unwanted)
        for number, flops in self._work:
            if number not in left_out:
                self.flops[self.action, self.piece] += flops
        self._work.clear()
        self._unwanted |= left_out

    def total(self, numbers: Iterable[int]) -> int:
        return sum(self.sizes[n] for n in numbers)

    def levels(self) -> dict[tuple[str, int], list[int]]:
        """Returns what was alive after each change, by action and piece; for W since its weight began."""
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        live = before = 0
        mark = ("", 0)
        for number, change in self._events:
            if number in self._unwanted:
                continue
            live += change
            if number == -1:
                live, mark = live - change, self._marks[change]
                before = live if mark[0] == "W" else 0
            found[mark].append(live - before)
        return found


def _converted(func: Any, args: Any) -> list[Tensor]:
    """Returns the copies that an elementwise operator of a CPU makes of operands in another dtype than it computes in."""
    operands = [t for t in args if isinstance(t, Tensor) and t.dim() > 0]
    if torch.Tag.pointwise not in func.tags or len(operands) < 2 or any(t.device.type != "cpu" or t.dtype == torch.bool for t in operands):
        return []
    computed = functools.reduce(torch.promote_types, (t.dtype for t in operands))
    if func._schema.is_mutable:
        operands.append(operands[0])
    return [torch.empty(t.shape, dtype=computed, device="cpu") for t in operands if t.dtype != computed]


class Graph:
    """The graph of a backward, run node by node in the order of PyTorch's engine, which wants the device to be there.

    Hooks on tensors and parameters are not called. Gradients of parameters are dropped where they would be added.
    """

    def __init__(self, root: Any, books: Books) -> None:
        self.books = books
        self.nodes: dict[Any, None] = {root: None}
        stack = [root]
        while stack:
            for node, _ in stack.pop().next_functions:
                if node is not None and node not in self.nodes:
                    self.nodes[node] = None
                    stack.append(node)

    def piece(self, node: Any) -> int:
        """Returns the piece that made a node; the first node of a piece has the number in books.starts."""
        return max(bisect.bisect_right(self.books.starts, order(node)) - 1, 0)

    def through(self, first: int) -> set[int]:
        """Returns the numbers of the nodes behind a piece that the gradient of its output passes."""
        above = defaultdict(list)
        for node in self.nodes:
            for other, _ in node.next_functions:
                if other is not None:
                    above[other].append(node)
        leads = [n for n in self.nodes if not adds(n) and self.piece(n) == first]
        found: set[int] = set()
        while leads:
            for node in above[leads.pop()]:
                if self.piece(node) > first and order(node) not in found:
                    found.add(order(node))
                    leads.append(node)
        return found

    def run(self, action: str, roots: list[tuple[Any, list[Any]]], within: Callable[[Any], bool], captured: dict[Any, list[Any]] | None = None) -> None:
        """Runs the nodes that are reached from the roots, given with their gradients, and are within.

        A node is freed when it has run, unless the caller holds it; so roots is emptied. With captured, which is
        filled with the gradients that its nodes get, the graph keeps them all.
        """
        counts: Counter[Any] = Counter()
        seen, stack = set(), [node for node, _ in roots]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                inside = [other for other, _ in node.next_functions if other is not None and within(other)]
                counts.update(inside)
                stack += inside
        waiting: dict[Any, list[Any]] = dict(roots)
        ready = [(-order(node), turn, node) for turn, node in enumerate(waiting)]
        turn = len(ready)
        held: Counter[int | None] = Counter()  # how many gradients lie in a storage
        del node, inside
        seen.clear()
        roots.clear()
        if captured is None:
            self.nodes.clear()
        while ready:
            node = heapq.heappop(ready)[2]
            gradients = waiting.pop(node)
            if captured is not None and node in captured:
                captured[node] = list(gradients)
                held.update(self.books.number(g) for g in gradients if g is not None)
            self.books.begin(self.piece(node), action)
            held.subtract(self.books.number(g) for g in gradients if g is not None)
            born = len(self.books.sizes)
            following = node.next_functions
            self.books.node = node.name()
            results = _call(node, gradients, following)
            del node, gradients
            wanted = [o is not None and within(o) for o, _ in following]
            needed, spare = ({self.books.number(r) for r, w in zip(results, wanted) if r is not None and w == one} for one in (True, False))
            self.books.settle(n for n in spare - needed if n is not None and n >= born)
            for i, (other, index) in enumerate(following):
                result, results[i] = results[i], None
                if not wanted[i]:
                    continue
                slots = waiting.setdefault(other, [None] * len(inputs(other)))
                if result is not None:
                    self._add(slots, index, result, held)
                counts[other] -= 1
                if counts[other] == 0 and adds(other):
                    held.subtract(self.books.number(g) for g in waiting.pop(other) if g is not None)
                elif counts[other] == 0:
                    turn += 1
                    heapq.heappush(ready, (-order(other), turn, other))
                if counts[other] == 0:
                    del counts[other]
                del slots, result
            other = following = None
            results = []

    def _add(self, slots: list[Any], index: int, result: Tensor, held: Counter[int | None]) -> None:
        old = slots[index]
        if old is None:
            slots[index] = result
        else:
            number = self.books.number(old)
            alone = held[number] == 1 and old.untyped_storage().nbytes() == old.numel() * old.element_size()
            held[number] -= 1
            slots[index] = old.add_(result) if alone else old + result
        held[self.books.number(slots[index])] += 1


def adds(node: Any) -> bool:
    """Reports whether a node adds to the gradient of a parameter."""
    return bool(node.name() == "torch::autograd::AccumulateGrad")


def _call(node: Any, gradients: list[Any], following: Any) -> list[Any]:
    """Returns the gradients of a node's inputs, in the shapes and dtypes of these."""
    with torch.no_grad():
        if isinstance(node, BackwardCFunction):  # of an autograd.Function
            gradients = [torch.zeros(m.shape, dtype=m.dtype, device=m.device) if g is None else g for g, m in zip(gradients, inputs(node))]
            results: Any = node.apply(*gradients)  # type: ignore[no-untyped-call]
        else:
            results = node(*gradients)
        fitting = list(results) if isinstance(results, (tuple, list)) else [results]
        results = None
        for i, (other, index) in enumerate(following):
            if other is not None and fitting[i] is not None:
                m = inputs(other)[index]
                if fitting[i].shape != m.shape:
                    fitting[i] = fitting[i].sum_to_size(m.shape)
                if fitting[i].dtype != m.dtype:
                    fitting[i] = fitting[i].to(m.dtype)
    return fitting
