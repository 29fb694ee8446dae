"""Finds tensors that outlive their microbatch: those that autograd saves, and those that Python holds."""

from __future__ import annotations

import collections
import gc
import sys
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Tuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ._holders import Name, frame_locals, names
from ._memory import blocks, user_line

__all__ = ["Leak", "Nets", "storages"]

_NODES = 1 << 18  # of graphs, that one verdict visits
_SAMPLES = 8  # tensors of one kind whose holders are searched
_Kind = Tuple[Any, ...]


@dataclass
class Leak:
    """Tensors from one line, with one holder, that outlive their microbatches.

    module: name and class of the module whose forward saved them, such as "layers.0 (Linear)", or "".
    line: file, line and function where autograd saved them, or where they were allocated, or "".
    what: "tensor" (Python holds them), "saved by autograd" (a graph holds them), "graph" (nodes of a graph that
        holds no tensors) or "allocation" (GPU memory that belongs to no tensor known to Python).
    holder: the names that hold them, such as "LOG[]", or the names that hold their graph.
    microbatches: number of microbatches of which something is alive; for allocations, their number.
    bytes: bytes of their storages; 0 for a graph without tensors.
    """

    module: str
    line: str
    what: str
    holder: str
    microbatches: int
    bytes: int

    def __str__(self) -> str:
        where = (f" in {self.module}" if self.module else "") + (f" at {self.line}" if self.line else "")
        if self.what == "graph":
            return f"graph nodes of {self.microbatches} microbatches, whose bytes are not counted, outlive them, held by {self.holder}"
        return f"{self.bytes:,} bytes of {self.microbatches} microbatches outlive them: {self.what}{where}, held by {self.holder}"


class _Entry(NamedTuple):
    """A live storage, the microbatch that made it, and the module and line of the forward that saved it."""

    born: int
    bytes: int
    address: int
    module: str
    line: str
    ref: weakref.ref[torch.UntypedStorage]


class Nets:
    """Watches the microbatches from number first on. It holds no tensor and collects no garbage."""

    def __init__(self, modules: dict[int, str], first: int, device: torch.device) -> None:
        self.known, self.first, self.now, self.device = modules, first, first, device
        self.open = True
        self._entries: dict[int, _Entry] = {}  # by the id of the storage's Python object, which lives as long as the storage
        self._marked: set[type] = set()
        self._ended: list[tuple[int, int]] = []  # of what is older than the nets: bytes, and the microbatch in which it was released
        self._aged = -1  # number of generation-1 collections at the last sweep; if it is unchanged, all new objects are still young
        self._early: dict[int, tuple[str, int]] = {}
        self._sweep(-1)  # what is older than the nets is no leak
        self._recording = device.type == "cuda" and not getattr(torch._C, "_cuda_isHistoryEnabled", bool)()
        if self._recording:
            torch.cuda.memory._record_memory_history("state", stacks="python")

    def close(self) -> None:
        self.open = False
        self._entries.clear()
        if self._recording:
            torch.cuda.memory._record_memory_history(None)

    def hooks(self) -> saved_tensors_hooks:
        """Returns a context in which the tensors that autograd saves are entered."""
        return saved_tensors_hooks(self.pack, self.unpack)

    def mark(self, output: Tensor) -> None:
        """Enters an output of the model, and marks its node of the graph with the current microbatch."""
        self._made(output)
        self._mark(output.grad_fn)

    def _mark(self, node: Any) -> None:
        if node is not None and node.metadata.setdefault("weir", self.now) == self.now:
            self._marked.add(type(node))

    def end(self, sweep: bool) -> None:
        """Ends a microbatch. A sweep enters the new tensors that Python holds."""
        if sweep:
            self._sweep(self.now)
        self.now += 1

    def halfway(self) -> None:
        """Remembers the blocks of a GPU that are live in the middle of the watch."""
        self._early = blocks(self.device) if self._recording else {}

    def pack(self, tensor: Tensor) -> tuple[Tensor, int]:
        if self.open:
            self._made(tensor)
            self._mark(tensor.grad_fn)
        return tensor.detach(), tensor._version  # an output saved as it is would hold the node that holds it

    @staticmethod
    def unpack(packed: tuple[Tensor, int]) -> Tensor:
        tensor, version = packed
        if tensor._version != version:  # which PyTorch checks without hooks alone
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: "
                               f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead")
        return tensor

    def _made(self, tensor: Tensor) -> None:
        """Enters a tensor with the module and line that run; a sweep may have seen it before."""
        for storage in storages(tensor):
            entry = self._entries.get(id(storage))
            if entry is None or entry.born >= self.first and not entry.line:
                self._enter(storage, entry.born if entry else self.now, *self._place(sys._getframe(2)))

    def _place(self, frame: Any) -> tuple[str, str]:
        """Returns the module and the user's line that run in this frame or above it."""
        stack = [f for f, _ in traceback.walk_stack(frame)]
        owners = (id(frame_locals(f).get("self")) for f in stack if f.f_code.co_varnames[:1] == ("self",))
        return (next((self.known[owner] for owner in owners if owner in self.known), ""),
                user_line((f.f_code.co_filename, f.f_lineno, f.f_code.co_name) for f in stack))

    def _enter(self, storage: torch.UntypedStorage, born: int, module: str, line: str) -> None:
        key, entries, ended = id(storage), self._entries, self._ended

        def end(_: Any) -> None:
            entry = entries.pop(key, None)
            if entry is not None and entry.born < self.first:
                ended.append((entry.bytes, self.now))

        entries[key] = _Entry(born, storage.nbytes(), storage.data_ptr(), module, line, weakref.ref(storage, end))

    def _sweep(self, born: int) -> None:
        aged = gc.get_stats()[1]["collections"]
        for tensor in _tensors(young=aged == self._aged):
            for storage in storages(tensor):
                if id(storage) not in self._entries:
                    self._enter(storage, born, "", "")
        self._aged = aged

    def verdict(self, grace: int, exempt: set[int], least: int, most: int = 0) -> list[Leak]:
        """Returns the leaks: tensors that are alive of microbatches that ended long ago, when grace others have begun since.

        A leak has at least three tensors of one kind, from the first to the last quarter of the watch, so a table that
        is made once and a queue are no leaks. Neither is a full cache, in which an older tensor of about the same size
        is released for each new one. exempt has the ids of storages to ignore. Leaks of fewer than least bytes a
        microbatch are left out, and so are tensors in a deque or an lru_cache that takes fewer than most bytes when full.
        """
        end = self.now - grace
        quarter = max(1, (end - self.first) // 4)

        def lasting(born: set[int]) -> bool:
            return len(born) >= 3 and min(born) < self.first + quarter and max(born) >= end - quarter

        old = {key: e for key, e in self._entries.copy().items() if self.first <= e.born < end and e.bytes and key not in exempt}
        kinds: dict[_Kind, set[int]] = collections.defaultdict(set)  # storages that look alike
        roots: dict[_Kind, set[int]] = collections.defaultdict(set)  # microbatches whose graphs are held by tensors that look alike
        samples: dict[_Kind, list[tuple[int, Tensor]]] = collections.defaultdict(list)  # with the microbatch, or the first of a graph
        graphs: list[tuple[int, set[int], Tensor]] = []  # with the microbatch of a tensor that has one, and those of its storages
        for tensor in _tensors():
            all_of = {id(s) for s in storages(tensor)}
            mine = all_of & old.keys()
            for key in mine:
                kind: _Kind = old[key].module, old[key].line, tensor.dim(), tensor.dtype
                kinds[kind].add(key)
                samples[kind].append((old[key].born, tensor))
            if tensor.grad_fn is not None:
                latest = max((self._entries[key].born for key in all_of & self._entries.keys()), default=self.now)
                graphs.append((latest, {old[key].born for key in mine}, tensor))
        budget = _NODES
        visited: dict[_Kind, set[Any]] = collections.defaultdict(set)  # nodes
        for _, own, tensor in sorted(graphs, key=lambda graph: -graph[0]):  # those older than the watch last
            kind = tensor.dim(), tensor.dtype, type(tensor.grad_fn).__name__
            before = len(visited[kind])
            born = {b for b in self._graph(tensor.grad_fn, visited[kind], min(budget, _NODES // 4)) if self.first <= b < end} | own
            budget -= len(visited[kind]) - before
            if own or len(born) >= 3:
                roots[kind] |= born
                samples[kind].append((min(born), tensor))
        del graphs, visited
        for key in old.keys() - set().union(*kinds.values()):
            kinds[old[key].module, old[key].line].add(key)
        replaced = collections.Counter(size.bit_length() for size, now in self._ended if now >= self.first + quarter)

        def grows(keys: set[int]) -> bool:
            sizes = collections.Counter(old[key].bytes.bit_length() for key in keys)
            return 2 * (sizes & replaced).total() < sizes.total()

        kinds = {kind: keys for kind, keys in kinds.items() if lasting({old[key].born for key in keys}) and grows(keys)}
        roots = {kind: born for kind, born in roots.items() if lasting(born)}
        asked = [(kind, tensor) for kind in (*kinds, *roots) for _, tensor in _spread(samples[kind])]
        targets, kinds_of = [tensor for _, tensor in asked], [kind for kind, _ in asked]
        del tensor, samples, asked
        answers: dict[_Kind, list[Name | None]] = collections.defaultdict(list)
        for kind, nearest in zip(kinds_of, names(targets, self.known)):
            answers[kind].append(nearest)
        del targets
        holder: dict[_Kind, str] = {}
        limits: dict[_Kind, int] = {}
        for kind, given in answers.items():
            half = len(given) // 2
            counted = collections.Counter(one for one in given if one)
            often = [one for one, _ in counted.most_common() if one in given[:half] and one in given[half:]] or [one for one, _ in counted.most_common(1)]
            if often:
                holder[kind], limits[kind] = " and ".join(one.text for one in often[:2]), often[0].limit
        roots = {kind: born for kind, born in roots.items() if kind in holder}

        leaks: dict[tuple[str, str, str, str], set[int]] = collections.defaultdict(set)
        for kind, keys in kinds.items():
            born = {old[key].born for key in keys}
            if limits.get(kind) and limits[kind] * sum(old[key].bytes for key in keys) / len(keys) < most:
                continue
            root = max(roots, key=lambda kind: len(roots[kind] & born), default=None)
            graph = f"the graph of {holder[root]}" if root and roots[root] & born else ""
            name = holder.get(kind, "")
            what = "tensor" if name or not (graph or kind[1]) else "saved by autograd"
            leaks[kind[0], kind[1], what, f"{name}, in {graph}" if graph and name.startswith("ctx of") else name or graph or "what Python does not see"] |= keys
        found = [Leak(*place, len({old[key].born for key in keys}), sum(old[key].bytes for key in keys)) for place, keys in leaks.items()]
        found = [leak for leak in found if leak.bytes >= least * leak.microbatches]
        found += [Leak("", "", "graph", holder[kind], len(born), 0) for kind, born in roots.items() if not any(holder[kind] in leak.holder for leak in found)]
        known = {e.address for e in self._entries.copy().values()}
        sizes = collections.defaultdict(list)  # of what a GPU has had since the middle of the watch, and no tensor
        for address, (line, size) in (blocks(self.device) if self._early else {}).items():
            if self._early.get(address) == (line, size) and address not in known:
                sizes[line].append(size)
        found += [Leak("", line, "allocation", "C++ alone", len(of), sum(of)) for line, of in sizes.items() if len(of) >= 3]
        return sorted(found, key=lambda leak: -leak.bytes)

    def _graph(self, root: Any, seen: set[Any], most: int) -> set[int]:
        """Returns the microbatches that are marked in a graph. It visits about most nodes, skips those in seen, and adds the others to it."""
        marks = set()
        most += len(seen)
        todo = collections.deque({root} - seen)
        while todo and len(seen) < most:
            node = todo.popleft()
            if type(node) in self._marked and "weir" in node.metadata:
                marks.add(node.metadata["weir"])
            following = {after for after, _ in node.next_functions if after is not None} - seen
            seen |= following
            todo.extend(following)
        return marks


def _spread(samples: list[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """Returns at most eight of the samples, from the first microbatch to the last."""
    ordered = sorted(samples, key=lambda sample: sample[0])
    return ordered[:: -(-len(ordered) // _SAMPLES) | 1]  # odd, as many tensors come in pairs


def _tensors(young: bool = False) -> list[Tensor]:
    """Returns the tensors that Python's collector knows, or only those that have not survived two collections."""
    classes, kinds = [Tensor], set()
    while classes:
        kinds.add(one := classes.pop())
        classes += type.__subclasses__(one)
    if young and sys.version_info < (3, 14):  # whose generations are others
        return [o for o in gc.get_objects(0) + gc.get_objects(1) if type(o) in kinds]
    return [o for o in gc.get_objects() if type(o) in kinds]


def storages(tensor: Tensor) -> Iterator[torch.UntypedStorage]:
    """Yields the storages of a tensor, and those of the tensors that a subclass such as DTensor consists of."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            if isinstance(inner := getattr(tensor, name), Tensor):  # a DTensor has its mesh as well
                yield from storages(inner)
        return
    try:
        storage = tensor.untyped_storage()
        if storage.device.type != "meta" and type(tensor).__name__ not in ("FakeTensor", "FunctionalTensor"):
            yield storage
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or one of a functional transform
        return
