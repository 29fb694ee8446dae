"""A model on fake tensors: its pieces, and what one microbatch keeps and computes in each."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import traceback
import types
import warnings
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Callable, ContextManager, Iterator
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from . import _private
from ._books import Books, Graph, adds, tensors
from ._file import Parameters, ProfileError, Tied
from ._private import FakeTensor, number, saved

__all__ = ["ACTIONS", "Model", "Settings", "attend"]

ACTIONS = ("F", "B", "I", "W")
_SMALL = 4096  # elements of a tensor whose values are computed while a model is built
_PARTS = 100_000  # pairs of values that two layers are compared by, which takes less than a second
_HEAP = 1 << 9  # the flag of types that Python code makes, among others
_OPEN = {object, list, tuple, dict, OrderedDict, defaultdict}  # the other types whose values are looked into
_INDEX = re.compile(r"(^|_)(layer|block)?_?(idx|index|id|number)$")  # attributes that only say which layer it is
_OTHERS = (*(os.path.join(os.path.dirname(os.path.abspath(f)), "") for f in (torch.__file__, __file__)), contextlib.__file__, os.path.abspath("<frozen"))


class Settings(types.SimpleNamespace):
    """What a profile was asked for: device, capability, attention, autocast and checkpoint."""


def attend(kernel: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, causal: bool = False, scale: float | None = None) -> Tensor:
    """Attention by the stated kernel. q, k and v are (batch, heads, tokens, width); keys may have fewer heads than queries."""
    device = q.device.type
    if torch.is_autocast_enabled(device):  # which is off inside of attention
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(dtype)
        with torch.autocast(device, enabled=False):
            return attend(kernel, q, k, v, mask, dropout, causal, scale)
    aten, width = torch.ops.aten, v.shape[-1]
    if mask is not None and mask.dtype == torch.bool:
        mask = _numbers(mask, q.dtype)
    if kernel == "math":
        return _math(q, k, v, mask, dropout, causal, scale)
    if device == "cpu" and kernel == "flash" and dropout:
        raise ProfileError("attention flash has no dropout on a CPU: state math")
    if device == "cpu" and kernel == "flash" and q.shape[-1] != width:
        raise ProfileError(f"attention flash takes heads of one width on a CPU, and the model gives {q.shape[-1]} and {width}: state math")
    if device == "cpu" and kernel == "flash":
        return aten._scaled_dot_product_flash_attention_for_cpu(*_heads(q, k, v), dropout, causal, attn_mask=mask, scale=scale)[0]  # type: ignore[no-any-return]
    if device == "cpu":
        raise ProfileError(f"attention {kernel} is a kernel of CUDA: state flash or math with device cpu")
    scale, most = q.shape[-1] ** -0.5 if scale is None else scale, max(q.shape[-1], width)
    half, capability = q.dtype in (torch.float16, torch.bfloat16), torch.cuda.get_device_capability()
    if not half and (kernel != "efficient" or q.dtype != torch.float32):
        raise ProfileError(f"attention {kernel} takes no {str(q.dtype)[6:]}: state math, or autocast")
    if most > {"flash": 256, "efficient": most, "cudnn": 256 if capability == (9, 0) else 128}[kernel] or kernel == "efficient" and (q.shape[-1] | width) % (8 if half else 4):
        raise ProfileError(f"attention {kernel} takes no heads of {q.shape[-1]} and {width}: state {'math' if kernel == 'efficient' else 'efficient or math'}")
    if kernel == "flash":
        if capability < (8, 0):
            raise ProfileError("attention flash takes a capability of 8.0 or more: state efficient or math")
        if mask is not None:
            raise ProfileError("attention flash takes no mask, and the model gives one: state cudnn or math")
        padded = -(-most // 8) * 8
        q, k, v = (t if t.shape[-1] == padded else nn.functional.pad(t, (0, padded - t.shape[-1])) for t in (q, k, v))
        return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)[0][..., :width]  # type: ignore[no-any-return]
    if kernel == "efficient":
        if mask is not None:
            raise ProfileError("attention efficient pads a mask to 8 tokens beside its log-sum-exp to 32, and an amount has one tile: state cudnn or math")
        return aten._scaled_dot_product_efficient_attention(*_heads(q, k, v), None, True, dropout, causal, scale=scale)[0]  # type: ignore[no-any-return]
    return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, True, dropout, causal, False, scale=scale)[0]  # type: ignore[no-any-return]


def _heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values with as many heads each."""
    groups = q.shape[1] // k.shape[1]
    return (q, k, v) if groups == 1 else (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))


def _numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a mask of what attention sees as the numbers that PyTorch adds to scores."""
    return torch.where(mask, torch.scalar_tensor(0.0, dtype=dtype, device=mask.device), torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device))


def _math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Attention as PyTorch's _scaled_dot_product_attention_math computes it, with the tensors alive that it has. It would copy fake ones."""
    factor, dtype = (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5, q.dtype
    if dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    scaled = q * factor
    if causal:
        mask = _numbers(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(), q.dtype)
    repeated, values = _heads(q, k, v)[1:]
    scores = scaled @ (repeated * factor).transpose(-2, -1)
    if mask is not None:
        scores.add_(mask)
    scores = torch.ops.aten._safe_softmax(scores, -1)
    scores = nn.functional.dropout(scores, dropout) if dropout else scores
    both = scores.to(dtype), scores @ values  # PyTorch returns the weights too, and drops them
    return both[1].to(dtype)


def _refuse_reentrant(*args: Any) -> Any:
    raise ProfileError("torch.utils.checkpoint with use_reentrant=True runs a backward inside of the backward: give it use_reentrant=False")


_INNER = "a gradient is computed inside of the model, by torch.autograd.grad, torch.func or a backward inside of the backward, which weir.profile does not follow"


def _refuse_engine(*args: Any, **kwargs: Any) -> Any:
    raise ProfileError(_INNER)


_CHOSEN = nn.functional.scaled_dot_product_attention


class _Attention(TorchFunctionMode):
    """Replaces PyTorch's choice among its kernels of attention by a stated one."""

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.kernel = kernel

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (self.attend if func is _CHOSEN else func)(*args, **(kwargs or {}))

    def attend(self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None, enable_gqa: bool = False) -> Tensor:
        if self.kernel == "flash" and query.device.type == "cuda" and query.shape[-1] != value.shape[-1]:
            raise ProfileError(f"attention flash takes heads of one width, and the model gives {query.shape[-1]} and {value.shape[-1]}: state efficient, cudnn or math")
        if query.dim() == 4:
            return attend(self.kernel, query, key, value, attn_mask, dropout_p, is_causal, scale)
        lead = query.shape[:-2]  # leading dimensions are batches
        q, k, v = [t.reshape(-1, 1, *t.shape[-2:]) if t.dim() == 3 else t.flatten(0, -4) for t in (query, key, value)]
        return attend(self.kernel, q, k, v, attn_mask, dropout_p, is_causal, scale).reshape(*lead, query.shape[-2], value.shape[-1])


class _Numbers(_private.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While a model is built: computes small tensors that come from numbers alone, so that code can read them, as in
    [x.item() for x in torch.linspace(0, rate, layers)]."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known: Any = _private.WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [t for t in tensors((args, kwargs)) if isinstance(t, FakeTensor) or t.is_meta]
        known = all(t in self.known for t in given) and "empty" not in str(func)
        real_args = _private.tree_map(lambda v: self.known.get(v, v) if isinstance(v, Tensor) else v, (args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default and known:
            with _private.values():
                return func(*real_args[0])
        out = func(*args, **kwargs)
        new = list(tensors(out))
        if func._schema.is_mutable and any(t in self.known for t in given):
            self.known.clear()  # also what shares its memory
        elif known and new and torch.Tag.nondeterministic_seeded not in func.tags and all(t.numel() <= _SMALL for t in new):
            with _private.values():
                real = func(*real_args[0], **{**real_args[1], **({"device": "cpu"} if "device" in kwargs else {})})
            self.known.update(zip(new, tensors(real)))
        return out


class Model:
    """A model that `build` makes, on fake tensors: it computes shapes, not numbers, and needs neither memory nor its device.

    pieces are the names of what runs before the layers, of the layers, and of what runs after them.
    twins has for each piece the first one with the same code and sizes, which runs in its place if `short`.
    """

    def __init__(self, build: Callable[[], nn.Module], batch: Callable[[int, int], Any], loss: Callable[[Any, Any], Tensor] | None, layers: Any, settings: Settings) -> None:
        if tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2]) < (2, 14):
            raise ProfileError(f"weir.profile takes PyTorch 2.14 or later, whose fake tensors run without a driver, and this is {torch.__version__}")
        self.settings, self._batch, self._loss = settings, batch, loss
        self.fake = _private.FakeTensorMode(allow_non_fake_inputs=True)
        self.names: dict[nn.Module, str] = {}
        self.books = Books()
        with self._refusing(), self.contexts(), torch.device(settings.device), _private.swaps(), _Numbers():
            self.module = build().train()
        self.names.update((m, n) for n, m in self.module.named_modules())
        self.layers = _layers(self.module, layers)
        self.pieces = ["before", *(name for name, _ in self.layers), "after"]
        self.twins, self.short, self._next = list(range(len(self.pieces))), False, 0
        self.steps: dict[int, int] = {}  # by piece: a hash of what ran in every forward of all layers
        self.owned: dict[int, tuple[str, Tensor]] = {}  # by number in the books: parameters, then buffers
        for name, t in [*self.module.named_parameters(), *self.module.named_buffers()]:
            self.owned[-1 - len(self.owned)] = (name, t)
            self._made(name, t)
        for m in dict.fromkeys(m for _, m in self.layers):
            m.forward = functools.partial(self._layer, m, m.forward)

    def _made(self, name: str, t: Tensor) -> None:
        if not isinstance(t, FakeTensor) and type(t) not in (Tensor, nn.Parameter):
            raise ProfileError(f"{name} is a {type(t).__name__}, a subclass of Tensor, whose memory weir.profile does not follow")
        if t.device.type != self.settings.device or not isinstance(t, FakeTensor):
            raise ProfileError(f"{name} is on {t.device}, made {'in' if isinstance(t, FakeTensor) else 'before'} build: make the whole module in build, on the default device, or state device {t.device.type!r}")

    def twin(self) -> None:
        """Finds the twins, which ran the same operators in every forward of all layers and whose code, sizes and settings are
        the same. Layers that share parameters have none, nor do those before which nothing trains."""
        alone = {p for key, pieces in self.users().items() if len(pieces) > 1 and self.owned[key][1].requires_grad for p in pieces}
        for i, (_, m) in enumerate(self.layers, 1):
            if i not in alone and i > self.first:
                firsts = (n for n in range(self.first + 1, i) if n not in alone and self.twins[n] == n and self.steps.get(n) == self.steps.get(i))
                self.twins[i] = next((n for n in firsts if _same(self.layers[n - 1][1], m)), i)

    def users(self) -> dict[int, list[int]]:
        """Returns the pieces that use each parameter and each buffer, of the forward of all layers that has just run."""
        inside = defaultdict(set)
        for i, (_, m) in enumerate(self.layers, 1):
            for t in [*m.parameters(), *m.buffers()]:
                inside[t].add(i)
        return {key: sorted(self.uses.get(key, set()) | inside[t]) or [0] for key, (_, t) in self.owned.items()}

    @contextlib.contextmanager
    def contexts(self) -> Iterator[None]:
        """The fake mode and the stated device, attention and autocast."""
        s = self.settings
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.fake)
            stack.enter_context(attention := _Attention(s.attention))
            stack.enter_context(mock.patch.object(nn.functional, "scaled_dot_product_attention", attention.attend))  # which nn.MultiheadAttention calls
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("error", message=".*data pointer.*")
            stack.enter_context(torch.compiler.set_stance("fail_on_recompile"))
            stack.enter_context(_private.without_engine(_refuse_reentrant, _refuse_engine))
            if s.device == "cuda":
                capability = tuple(map(int, s.capability.split(".")))
                stack.enter_context(mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: capability))
                stack.enter_context(mock.patch.object(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or capability >= (8, 0)))
                stack.enter_context(_private.with_autocast())
            yield

    def _layer(self, m: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the forward of a layer, or another one's in its place."""
        if self.books.action != "F":  # a checkpoint computes it again
            return forward(*args, **kwargs)
        i = self._next + 1
        if i > len(self.layers) or self.layers[i - 1][1] is not m:
            raise ProfileError(f"{self.names[m]} runs when {self.pieces[i] if i <= len(self.layers) else 'the end of the model'} is expected: "
                               "layers run once each, in order: name those that do with layers=")
        self._next = i
        self.books.begin(i, "F")
        self._entered[i] = next((n for n in map(self.books.number, tensors((args, kwargs))) if n is not None and n >= 0), None)
        if self.short and self.twins[i] != i:
            out = self._twin(self.twins[i], *args, **kwargs)
        elif self.settings.checkpoint:
            out = checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        else:
            out = forward(*args, **kwargs)
        if self.short and self.twins[i] == i:
            self._outputs[i] = _form(out)
        self.books.begin(i + 1, "F")
        return out

    def forward(self, sequences: int, length: int) -> Any:
        """Runs a forward of a microbatch, and returns the loss."""
        self.books = Books()
        self._outputs: dict[int, Any] = {}
        self._entered: dict[int, int | None] = {}  # by layer: the storage of the first tensor that it gets
        with torch.device(self.settings.device):
            batch = self._batch(sequences, length)
        self._entry = sum(t.untyped_storage().nbytes() for t in tensors(batch))
        self.books.own([*(t for _, t in self.owned.values()), *tensors(batch)])
        self.books.begin(0, "F")
        with self.books.hooks(), self.books:
            loss = self._run(batch)
        if self._next != len(self.layers):
            raise ProfileError(f"{self.layers[self._next][0]} did not run: name the layers that do with layers=")
        if not loss.requires_grad:
            raise ProfileError("the loss has no gradient: every parameter is frozen, or the loss was detached")
        return loss

    def _autocast(self) -> Any:
        s = self.settings
        return torch.autocast(s.device, getattr(torch, s.autocast)) if s.autocast else contextlib.nullcontext()

    def _run(self, batch: Any) -> Tensor:
        """Returns the loss of a batch."""
        self._next = 0
        with self._autocast():
            out = self.module(**batch) if isinstance(batch, dict) else self.module(*batch) if isinstance(batch, tuple) else self.module(batch)
            loss = self._loss(out, batch) if self._loss else out if isinstance(out, Tensor) else out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                raise ProfileError(f"{'loss' if self._loss else 'the model'} returned a {type(loss if self._loss else out).__name__}, which is no scalar loss and has none: give loss=, a function of the output and the batch")
            del out
            self._cast = set(self.books.alive)  # with autocast's casts of the weights, which end with it
        return loss

    def _twin(self, of: int, *args: Any, **kwargs: Any) -> Any:
        """Returns the input of a layer in the form of the output of a layer with the same code."""
        shape, wrap = self._outputs[of]
        for t in tensors((args, kwargs)):
            if t.shape == shape:
                return wrap(t)
        raise Unlike("the output of a layer is not like its input")

    def measure(self, sequences: int, length: int) -> dict[Any, Any]:
        """Returns the amounts of a microbatch: by piece and name, and by the set of pieces that share something.

        Those that are temporary are lists, with an element for each change of what is alive: the largest counts.
        """
        with self._refusing(), self.contexts():
            loss = self.forward(sequences, length)
            books, roots = self.books, [(loss.grad_fn, [torch.ones_like(loss)])]
            del loss
            out = self._kept()
            level, border = self._level, self._border
            with books, _group():
                Graph(roots[0][0], books).run("B", roots, lambda node: True)
            levels, flops = books.levels(), dict(books.flops)
            for i in self.measured():
                out[i, "temporary", "F"] = [n - level[i] - self._early[i] - self._sent[i] - self._ended[i] for n in levels["F", i]]
                out[i, "temporary", "B"] = [n - level[i] - border[i] for n in levels["B", i]]
            self._split(sequences, length, out)
            flops.update({key: n for key, n in self.books.flops.items() if key[0] in "IW"})
            for i in self.measured():
                for action in ACTIONS:
                    out[i, "flops", action] = flops.get((action, i), 0)
                if i <= self.first:  # there is no I
                    out[i, "temporary", "W"], out[i, "flops", "W"] = out[i, "temporary", "B"], out[i, "flops", "B"]
        return out

    def _kept(self) -> dict[Any, Any]:
        """Returns what the forward that has just run keeps and sends."""
        books, pieces = self.books, range(len(self.pieces))
        out: dict[Any, Any] = {}
        # What is alive and not saved, a checkpoint or Python keeps, for those that read it.
        holders = {n: books.kept.get(n) or books.read.get(n) or {books.made[n]} for n in books.alive}
        first = {n: min(pieces) for n, pieces in holders.items()}  # the first piece that keeps a storage
        own: Counter[int] = Counter()
        received: Counter[int] = Counter()
        shared = set()
        for n, piece in first.items():
            if len(holders[n]) > 1 or books.made[n] < piece and n not in books.used and n != self._entered.get(piece):  # made before: a mask, or a table
                key = ("shared", frozenset(holders[n]))
                out[key] = out.get(key, 0) + books.sizes[n]
                shared.add(n)
            else:
                own[piece] += books.sizes[n]
                received[piece] += books.sizes[n] if books.made[n] < piece else 0
        crossing = [[n for n, p in books.used.items() if books.made[n] <= i < p] for i in pieces]
        for i, entered in self._entered.items():
            if not crossing[i - 1] and entered is not None:  # nothing before it trains
                crossing[i - 1] = [entered]
        self._level = [books.total(n for n, p in first.items() if p <= i) for i in pieces]
        self._early = [books.total(n for n in shared if books.made[n] <= i < first[n]) for i in pieces]  # which a stage counts from its beginning
        self._border = [books.total(numbers) for numbers in crossing]
        self._sent = [books.total(n for n in numbers if first.get(n, i + 1) > i) for i, numbers in enumerate(crossing)]
        ended = self._cast - books.alive
        self._ended = [books.total(n for n in ended if books.made[n] <= i) for i in pieces]
        for i in self.measured():
            out[i, "cached"] = books.total(n for n in ended if books.made[n] == i)
            out[i, "saved"], out[i, "input"], out[i, "border"] = own[i], received[i], self._border[i]
            out[i, "flops", "F"] = books.flops["F", i]
        self.kernels = books.kernels
        return {"batch": self._entry, **out}

    def _split(self, sequences: int, length: int, out: dict[Any, Any]) -> None:
        """Measures I and W as torch.distributed.pipelining splits a backward: I keeps the graph for W from those
        nodes on at which the way to a weight leaves that to the input, and the gradients that these get."""
        loss = self.forward(sequences, length)
        books, roots = self.books, [(loss.grad_fn, [torch.ones_like(loss)])]
        del loss
        graph = Graph(roots[0][0], books)
        through = graph.through(self.first)

        def aside(node: Any) -> bool:
            return number(node) not in through and graph.piece(node) > self.first

        captured: dict[Any, list[Any]] = {n: [] for n in graph.nodes if number(n) in through and any(o is not None and aside(o) for o, _ in n.next_functions)}
        freed = self._freed(graph, captured)
        before = len(books.sizes)
        with books, _group():
            if through:
                graph.run("I", roots, lambda node: number(node) in through, captured)
        groups = sorted(captured.items(), key=lambda one: number(one[0]))
        captured.clear()
        graph.nodes.clear()
        carried: dict[int, int] = {}
        node: Any
        for node, gradients in groups:
            for n in (books.number(g) for g in gradients if g is not None):
                if n is not None and n >= before:
                    carried[n] = max(graph.piece(node), carried.get(n, 0))
        carry = [books.total(n for n, p in carried.items() if p == i) for i in range(len(self.pieces))]
        node, gradients = None, []
        with books, _group():
            while groups:  # the last weight first
                books.begin(graph.piece(groups[-1][0]), "W")
                graph.run("W", [groups.pop()], aside)
        levels = books.levels()
        for i in self.measured():
            out[i, "freed"], out[i, "carry"] = freed[i], carry[i]
            out[i, "temporary", "I"] = [n - self._level[-1] - sum(carry[i:]) - self._border[i] for n in levels["I", i]]
            out[i, "temporary", "W"] = levels["W", i]

    def _freed(self, graph: Graph, captured: dict[Any, list[Any]]) -> list[int]:
        """Returns by piece the saved bytes that I frees if the piece is the last of its stage: those of the nodes
        that are reached from none with which W begins."""
        nodes, begins = defaultdict(set), defaultdict(list)
        for node in graph.nodes:
            if not adds(node):
                nodes[graph.piece(node)].add(node)
        for node in captured:
            begins[graph.piece(node)].append(node)
        freed = [0] * len(self.pieces)
        for i, stack in begins.items():
            reached: set[Any] = set()
            while stack:
                node = stack.pop()
                if node in nodes[i] and node not in reached:
                    reached.add(node)
                    stack += [o for o, _ in node.next_functions]
            needed, others = ({n for node in each for n in map(self.books.number, saved(node)) if n is not None} for each in (reached, nodes[i] - reached))
            freed[i] = self.books.total(n for n in others - needed if n >= 0 and len(self.books.kept[n]) < 2)
        return freed

    def measured(self) -> list[int]:
        """Returns the pieces that run."""
        return [i for i, twin in enumerate(self.twins) if twin == i or not self.short]

    def forward_only(self, sequences: int, length: int) -> dict[Any, int]:
        """Returns saved, border and operations of the forward of every piece, and finds the first one that trains."""
        with self._refusing(), self.contexts():
            graph = Graph(self.forward(sequences, length).grad_fn, self.books)
            self.first = min(graph.piece(node) for node in graph.nodes if not adds(node))
            self.uses = dict(self.books.uses)
            self.steps = {i: hash((self.steps.get(i), step)) for i, step in self.books.steps.items()}
            return self._kept()

    def parameters(self) -> tuple[list[Parameters], list[Tied]]:
        """Returns the parameters of each piece, and those that several pieces use."""
        found, tied = [Parameters() for _ in self.pieces], []
        for key, pieces in self.users().items():
            name, t = self.owned[key]
            one, count, size = found[pieces[0]], t.numel(), t.numel() * t.element_size()
            trained = count if t.requires_grad else 0
            if not isinstance(t, nn.Parameter):
                one.buffers += size
                continue
            one.count, one.trained, one.bytes = one.count + count, one.trained + trained, one.bytes + size
            one.experts += count if re.search(r"(^|[._])experts[._]", name) and "shared" not in name else 0
            if len(pieces) > 1:
                tied.append(Tied(name, pieces, count, trained, size))
        return found, tied

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """A context for a part of the model. What it cannot do on fake tensors is refused by module and line."""
        try:
            yield
        except Unlike:
            raise
        except Exception as e:
            module, line = "", ""
            if self.books.action != "F":
                module = f"{self.pieces[self.books.piece]}, {self.books.node}, "
            for frame, at in traceback.walk_tb(e.__traceback__):
                owner, file = frame.f_locals.get("self"), frame.f_code.co_filename
                if isinstance(owner, nn.Module) and owner in self.names:
                    module = f"{self.names[owner] or 'model'} ({type(owner).__name__}), "
                if not os.path.abspath(file).startswith(_OTHERS):
                    line = f"{os.path.basename(file)}:{at}: "
            raise ProfileError(f"{module}{line}{_reason(e)}") from e


class Unlike(Exception):
    """A layer cannot stand for another one."""


def _reason(e: Exception) -> str:
    """Says why code does not run on fake tensors, and what to do."""
    text = str(e).strip().split("\n")[0]
    if isinstance(e, ProfileError):
        return text
    if isinstance(e, (_private.DataDependentOutputException, _private.DynamicOutputShapeException)):
        item = "_local_scalar_dense" in str(e.func)
        return (".item(), or an if, a number or a list of a tensor," if item else f"a shape ({e.func}: x[mask], nonzero, unique)") + " depends on values, which a fake tensor does not have: use code without it"
    if isinstance(e, _private.UnsupportedOperatorException):
        return f"{e.func} has no fake: register one with torch.library.register_fake"
    if "data pointer" in text or "data_ptr" in text:
        return f"an extension reads memory, which a fake tensor does not have: register an operator with a fake ({text})"
    if text.startswith("torch.func"):  # which takes no hooks on saved tensors
        return _INNER
    if "fail_on_recompile" in text:
        return "a part of the model is compiled, and what its kernels keep is not known before: profile it without torch.compile"
    return f"{type(e).__name__}: {text}"


def _form(output: Any) -> tuple[Any, Callable[[Tensor], Any]]:
    """Returns the shape of the only tensor in an output, and a function that puts another one in its place."""
    if isinstance(output, Tensor):
        return output.shape, lambda t: t
    found = list(tensors(output))
    if len(found) != 1 or not isinstance(output, (tuple, list)) or not isinstance(output[0], Tensor):
        return None, lambda t: t
    made, rest = type(output), list(output[1:])  # and not output, which would keep its tensor alive
    return found[0].shape, lambda t: made([t, *rest])


def _group() -> ContextManager[Any]:
    """Returns the context in which a checkpoint is computed again once, as in one backward."""
    made: Any = torch.utils.checkpoint.GraphExecGroup
    return made()  # type: ignore[no-any-return]


def _layers(model: nn.Module, named: Any) -> list[tuple[str, nn.Module]]:
    """Returns the layers: those that are named, or the members of the container with most parameters that is not one big member."""
    containers = {n: m for n, m in model.named_modules() if isinstance(m, (nn.ModuleList, nn.Sequential, nn.ModuleDict)) and len(m) > 0}

    def members(name: str, nested: bool = False) -> list[tuple[str, nn.Module]]:
        module = model.get_submodule(name)
        if name not in containers or nested and type(module).forward is not nn.Module.forward:
            return [(name, module)]
        return [one for k, m in module._modules.items() if m is not None for one in members(f"{name}.{k}".lstrip("."), True)]

    if named is not None:
        try:
            return [one for name in ([named] if isinstance(named, str) else named) for one in members(name)]
        except AttributeError as e:
            raise ProfileError(f"layers={named!r}: {e}") from e
    best, most = "", -1
    for name, container in containers.items():
        sizes = [sum(p.numel() for p in m.parameters()) for m in container.children()]
        if sizes and sum(sizes) > most and 2 * max(sizes) <= max(sum(sizes), 1):
            best, most = name, sum(sizes)
    if most < 0:
        raise ProfileError("no list of layers was found: name those that run once each, in order, with layers=")
    return members(best)


def _same(one: Any, other: Any) -> bool:
    """Reports whether two layers have the same code, sizes and settings, in all that is reached from them: an object that
    both reach is the same. What cannot be compared differs, and so does what has too many parts."""
    todo, seen = [(one, other)], {}
    while todo:
        a, b = todo.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen[id(a), id(b)] = a, b  # alive, so that the numbers stay theirs
        try:
            (key, parts), (other_key, other_parts) = _parts(a), _parts(b)
            if key != other_key or len(parts) != len(other_parts) or len(seen) > _PARTS:
                return False
        except Exception:  # noqa: BLE001 -- code of the model, such as an __eq__ of arrays
            return False
        todo += [(type(a), type(b)), *zip(parts, other_parts)]
    return True


def _parts(v: Any) -> tuple[Any, list[Any]]:
    """Returns what has to be equal in two values, and what has to be the same in turn."""
    if isinstance(v, Tensor):
        return (v.shape, v.stride(), v.dtype, v.device, v.requires_grad), []
    if isinstance(v, types.FunctionType):
        cells = dict(zip(v.__code__.co_freevars, v.__closure__ or ()))
        return (v.__code__, id(v.__globals__)), [v.__defaults__, v.__kwdefaults__, vars(v), cells]
    if isinstance(v, types.CellType):
        return (), [v.cell_contents]  # it raises if there are none
    if isinstance(v, types.MethodType):
        return (), [v.__func__, v.__self__]
    if isinstance(v, functools.partial):
        return (), [v.func, v.args, v.keywords, vars(v)]
    if isinstance(v, property):
        return (), [v.fget, v.fset, v.fdel]
    if isinstance(v, (staticmethod, classmethod)):
        return (), [v.__func__]
    if isinstance(v, type):
        return (v.__module__, v.__qualname__, v.__bases__), [{k: x for k, x in vars(v).items() if k not in ("__dict__", "__weakref__", "_abc_impl")}]
    own = dict(vars(v)) if hasattr(v, "__dict__") else None
    rest = [getattr(v, k, None) for c in type(v).__mro__ for k, member in vars(c).items() if isinstance(member, types.MemberDescriptorType)]
    builtin = {c for c in type(v).__mro__ if not c.__flags__ & _HEAP}
    key = v if not builtin <= _OPEN or builtin == {object} and own is None and not rest else ()
    if isinstance(v, (list, tuple)):
        rest += v
    if isinstance(v, dict):
        rest += [own] if own else []
        own = v
    named = {k: x for k, x in (own or {}).items() if not (isinstance(k, str) and isinstance(x, (int, str)) and _INDEX.search(k))}
    # Hooks have numbers, which are of no account.
    return (key, *named), [*rest, *([*x.values()] if isinstance(k, str) and "hooks" in k and isinstance(x, dict) else x for k, x in named.items())]
