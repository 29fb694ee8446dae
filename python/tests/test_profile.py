"""weir.profile against real tensors on the CPU: what is saved, carried and alive."""

import functools
import gc
import itertools
import os
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from weir._backward import input_gradients, weight_gradients
from weir.profile import Profile, ProfileError, profile
from weir.profile._model import _form, _same, attend

if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 14):
    pytest.skip("weir.profile takes PyTorch 2.14 or later", allow_module_level=True)
WIDTH, VOCABULARY = 32, 50


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width=WIDTH, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(dropout)

    def forward(self, x, table=None):
        b, t, d = x.shape
        x = x if table is None else x * table[:, :1]
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.out(y))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Experts(nn.Module):
    """A layer whose experts all see all tokens, weighted."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.router, self.experts = nn.Linear(width, 3), nn.Parameter(torch.empty(3, width, width).normal_(std=0.1))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return x + torch.einsum("bte,btd,edf->btf", weights, x, self.experts)


class Model(nn.Module):
    def __init__(self, blocks, tied=False, tables=0, vocabulary=VOCABULARY):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head, self.tables = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False), tables
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        tables = [torch.outer(torch.arange(ids.shape[1]).cos(), torch.ones(ids.shape[1])) for _ in range(self.tables)]
        for i, block in enumerate(self.blocks):
            x = block(x, *tables[i % max(self.tables, 1):][:1])
        return self.head(self.norm(x))


class Prefixed(Model):
    """A model with a learned prefix, which each sequence has once."""

    def __init__(self, blocks):
        super().__init__(blocks)
        self.prefix = nn.Parameter(torch.zeros(5, WIDTH))

    def forward(self, ids):
        x = torch.cat([self.prefix.expand(len(ids), -1, -1), self.embed(ids)], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))[:, 5:]


class Rounded(torch.autograd.Function):
    """The weights of a quantised layer, whose gradient is that of the weights before."""

    @staticmethod
    def forward(ctx, w):
        return (8 * w).round() / 8

    @staticmethod
    def backward(ctx, g):
        return g


class Quantised(Block):
    def forward(self, x, skip):
        return super().forward(x) + F.linear(skip, Rounded.apply(self.out.weight))


class Odd(Model):
    """A model with a frozen vision tower, a ModuleDict of layers, a skip over all of them, and quantised linear layers."""

    def __init__(self):
        super().__init__([])
        self.tower = nn.Sequential(nn.Conv2d(3, WIDTH, 4, 4), nn.GELU()).requires_grad_(False)
        self.blocks = nn.ModuleDict({name: Quantised() for name in ("first", "second", "third")})

    def forward(self, ids):
        seen = self.tower(torch.ones(len(ids), 3, 8, 8)).flatten(2).transpose(1, 2)
        x = skip = torch.cat([seen, self.embed(ids)], 1)
        for block in self.blocks.values():
            x = block(x, skip)
        return self.head(self.norm(x))[:, 4:]


def shared():
    """A model in which two layers are one module, and nothing before them trains."""
    block = Experts()
    model = Model([block, Experts(), block])
    model.embed.requires_grad_(False)
    return model.double()


MODELS = {
    "dense": lambda: Model([Block() for _ in range(3)]),
    "kinds": lambda: Model([Block(), Experts(), Block(), Experts()]),
    "tied, two tables": lambda: Model([Block() for _ in range(3)], tied=True, tables=2),
    "shared": shared,
    "large embedding": lambda: Model([Block() for _ in range(2)], tables=1, vocabulary=20000),  # whose gradient is there when the table is not
    "prefix": lambda: Prefixed([Block(), Block()]),
    "odd": Odd,
    "dropout": lambda: Model([Block(dropout=0.1) for _ in range(2)]),
}


def batch(sequences, length):
    return torch.zeros(sequences, length, dtype=torch.long)


def loss(output, ids):
    return F.cross_entropy(output.flatten(0, 1), ids.flatten())


@functools.cache
def made(name, **options):
    """Returns a profile, which tests share."""
    return profile(MODELS[name], batch, loss, **{"seq": 256, "device": "cpu", "attention": "math", **options})


class Alive(TorchDispatchMode):
    """Counts the bytes of the storages that are made in the context and alive, on its own."""

    def __init__(self):
        super().__init__()
        self.now, self.seen = 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {t.untyped_storage()._cdata for t in (*args, *(kwargs or {}).values()) if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in {*given, *self.seen}:
                s = t.untyped_storage()
                self.seen[s._cdata] = weakref.ref(s, functools.partial(self.end, s._cdata, s.nbytes()))
                self.now += s.nbytes()
        return out

    def end(self, key, n, _):
        self.now -= n
        del self.seen[key]


def allocated(run):
    """Returns what run returns, and of the allocator the most bytes alive during it and those at its end."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        out = run()
    changes = [e.nbytes() for e in sorted((e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())]
    return out, max(itertools.accumulate(changes)), sum(changes)


def real(name, sequences, length, autocast=False, recompute=False):
    """Returns the bytes that each piece saves, and the most alive in F and in B, of real tensors."""
    model = MODELS[name]().train()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    blocks = [*(model.blocks.values() if isinstance(model.blocks, nn.ModuleDict) else model.blocks)]
    for block in blocks if recompute else ():
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    own = {t.untyped_storage()._cdata for t in model.parameters()}
    piece, kept = [0], [{} for _ in range(len(blocks) + 2)]

    def pack(t):
        if t.untyped_storage()._cdata not in own:
            kept[piece[0]][t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t.detach() if t.requires_grad else t

    for block in dict.fromkeys(blocks):
        block.register_forward_pre_hook(lambda *_: piece.__setitem__(0, max(piece[0], 1)))
        block.register_forward_hook(lambda *_: piece.__setitem__(0, piece[0] + 1))
    ids = torch.randint(0, VOCABULARY, (sequences, length))
    own.add(ids.untyped_storage()._cdata)
    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return loss(model(ids), ids)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    out, most, level = allocated(forward)
    return [sum(each.values()) for each in kept], level, most, level + allocated(out.backward)[1]


@pytest.mark.parametrize("name, setting", [
    ("dense", {}), ("dense", {"autocast": "bfloat16"}), ("dense", {"attention": "flash"}), ("tied, two tables", {"checkpoint": True}), ("tied, two tables", {}), ("large embedding", {"checkpoint": True}), ("dropout", {}), ("shared", {}), ("prefix", {}), ("odd", {})])
def test_profile_is_what_real_tensors_do(name, setting):
    found = made(name, **setting)
    pieces = len(found.pieces)
    for k, n in ((2, 64), (1, 77)):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION if "attention" in setting else torch.nn.attention.SDPBackend.MATH):
            saved, level, forward, backward = real(name, k, n, "autocast" in setting, "checkpoint" in setting)
        lengths = [n] * k
        whole = found.saved(0, pieces, *lengths)
        assert -64 <= level - whole <= 128  # the loss, and what is rounded
        if "checkpoint" not in setting:
            shared = [s for s in found.shared]
            assert saved == [found.kinds[p.kind].saved.at(*lengths) + sum(s.saved.at(*lengths) for s in shared if i in s.pieces) for i, p in enumerate(found.pieces)]
        assert found.peak("F", 0, pieces, *lengths) == pytest.approx(forward, rel=0.02, abs=64)
        assert found.peak("B", 0, pieces, *lengths) == pytest.approx(backward, rel=0.02, abs=64)
    assert {t.name: t.pieces for t in found.tied} == {"shared": {key: [1, 3] for key in ("blocks.0.experts", "blocks.0.router.weight", "blocks.0.router.bias")}, "tied, two tables": {"embed.weight": [0, 4]}}.get(name, {})
    if name == "shared":  # I has nothing to do in the first layer that trains, and W does it all
        first, last = (found.kinds[found.pieces[i].kind].flops for i in (1, 3))
        assert first["I"].token == 0 and first["W"] == first["B"] and last["I"].token > 0


class Stage(nn.Module):
    """Consecutive pieces of a model."""

    def __init__(self, model, first, end):
        super().__init__()
        self.model, self.blocks, self.last = [model], nn.ModuleList(model.blocks[max(first - 1, 0):end - 1]), end == len(model.blocks) + 2
        self.tail = nn.ModuleList([model.norm, model.head]) if self.last else nn.ModuleList()

    def forward(self, x, ids):
        for block in self.blocks:
            x = block(x)
        return loss(self.model[0].head(self.model[0].norm(x)), ids) if self.last else x


SPLITS = [(name, first, end) for name, first, end in (
    ("dense", 1, 2), ("dense", 1, 3), ("dense", 2, 4), ("dense", 2, 5), ("dense", 3, 5), ("kinds", 1, 3), ("kinds", 2, 3), ("kinds", 2, 4), ("kinds", 3, 6), ("kinds", 4, 6))]


@pytest.mark.parametrize("name, first, end, recompute", [(*split, recompute) for recompute in (False, True) for split in SPLITS[:: 1 + recompute]])
def test_carry_is_what_lives_between_i_and_w(name, first, end, recompute):
    backward = pytest.importorskip("torch.distributed.pipelining._backward")
    found = made(name, **({"checkpoint": True} if recompute else {}))
    model = MODELS[name]().train()
    if recompute:
        for block in model.blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    stage = Stage(model, first, end)
    for p in stage.parameters():
        p.grad = torch.zeros_like(p)
    ids = torch.randint(0, VOCABULARY, (2, 96))
    with Alive() as alive, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        x = torch.randn(2, 96, WIDTH).mul(1).requires_grad_()
        out = stage(x, ids)
        gradient = None if stage.last else torch.randn(2, 96, WIDTH).mul(1)
        _, groups = backward.stage_backward_input([out], [gradient] if gradient is not None else None, [x], stage.parameters())
        x.grad = None
        del x, out, gradient, _
        gc.collect()
        between = alive.now
        assert groups
    kinds = [found.kinds[p.kind] for p in found.pieces[first:end]]
    lengths = [96, 96]
    expected = found.saved(first, end, *lengths) - kinds[-1].freed.at(*lengths) + sum(k.carry.at(*lengths) for k in kinds)
    assert expected == between


@pytest.mark.skipif(not hasattr(torch.utils.checkpoint, "GraphExecGroup"), reason="this PyTorch computes a checkpoint again for each weight")
def test_w_has_one_checkpoint_computed_again_at_a_time():
    """The most bytes of W of two layers, under weir.Runner's split backward, are those of one of them."""
    model = MODELS["dense"]().train()
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
    stage = Stage(model, 2, 4)
    for p in stage.parameters():
        p.grad = torch.zeros_like(p)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        x = torch.randn(2, 96, WIDTH).requires_grad_()
        root, seed = get_gradient_edge(stage(x, None)), torch.randn(2, 96, WIDTH)
        _, carry = input_gradients([root], [seed], [x])
        del root
        _, most, _ = allocated(lambda: weight_gradients(carry))
    found = made("dense", checkpoint=True)
    assert most == pytest.approx(max(a.at(96, 96) for a in found.kinds[found.pieces[2].kind].temporary["W"]), rel=0.01)


def test_another_process_writes_the_same_file(tmp_path):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    made("shared").save(here)
    command = f"import test_profile; test_profile.made('shared').save({str(there)!r})"
    subprocess.run([sys.executable, "-c", command], check=True, env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)})
    assert there.read_text() == here.read_text()


@pytest.mark.parametrize("arguments", [["-c", "import weir"], ["-m", "weir.profile"]])
def test_a_python_without_torch(arguments):
    done = subprocess.run([sys.executable, "-S", *arguments], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))})
    assert "No module named 'torch'" in done.stderr
    assert done.stderr.endswith("weir needs PyTorch 2.9 or later: pip install torch (see python/README.md)\n")


def test_layers_in_lists_of_lists_and_rates_that_are_read():
    """As in vit-pytorch, x-transformers and timm; x-transformers has lists without modules too."""
    class Lists(Model):
        def __init__(self):
            super().__init__([])
            self.norms = nn.ModuleList([None, None])
            rates = torch.linspace(0, 0.5, 4).square()
            self.pairs = nn.ModuleList([nn.ModuleList([nn.LayerNorm(WIDTH), nn.ModuleDict({"part": Block(dropout=rates[i].item())})]) for i in (0, 3)])

        def forward(self, ids):
            x = self.embed(ids)
            for norm, block in self.pairs:
                x = x + block["part"](norm(x))
            return self.head(self.norm(x))

    found = profile(Lists, batch, loss, seq=64, device="cpu", attention="math")
    assert [p.name for p in found.pieces[1:-1]] == ["pairs.0.0", "pairs.0.1.part", "pairs.1.0", "pairs.1.1.part"]
    first, last = (found.kinds[found.pieces[i].kind].saved.token for i in (2, 4))
    assert last > first  # where nothing is dropped


def test_flops_and_parameters():
    found = made("tied, two tables")
    model = MODELS["tied, two tables"]()
    assert found.parameters == sum(p.numel() for p in model.parameters())
    layer = found.kinds[found.pieces[1].kind].flops
    products = 12 * WIDTH * WIDTH * 2
    assert layer["F"].token == products
    assert layer["F"].square == 4 * WIDTH
    assert layer["I"].token == layer["W"].token == products
    assert layer["B"].token == 2 * products and layer["B"].square == 2 * layer["F"].square
    assert any(s.pieces == [1, 3] and s.saved.longest_square == 4 for s in found.shared)


def test_cuda_without_a_gpu():
    found = profile(lambda: MODELS["dense"]().to(torch.bfloat16).cuda(), batch, loss, seq=256)
    kind = found.kinds[found.pieces[1].kind]
    assert kind.saved.source == "kernel" and kind.saved.square == 0
    efficient = made("dense", device="cuda", attention="efficient", autocast="bfloat16")
    saved = efficient.kinds[efficient.pieces[1].kind].saved
    assert saved.tile == 32 and saved.tiled == 4 * 2  # a float32 for each head and row, of which there are 32, 64 and so on
    assert made("dense", device="cuda", attention="math").kinds[found.pieces[1].kind].saved.square > 0


def test_file(tmp_path):
    found = made("kinds")
    assert [p.kind for p in found.pieces] == [0, 1, 2, 1, 2, 3]
    path = tmp_path / "model.json"
    found.save(path)
    assert Profile.load(path) == found
    text = path.read_text()
    path.write_text(text.replace('"schema": 2', '"schema": 9'))
    with pytest.raises(ProfileError, match="found schema 9, expected 2"):
        Profile.load(path)
    path.write_text("{}")
    with pytest.raises(ProfileError, match="give a file that weir.profile has written"):
        Profile.load(path)


class Item(Block):
    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


class Memory(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.data_ptr()
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Extension(Block):
    def forward(self, x):
        return Memory.apply(x)


class Compiled(Block):
    def __init__(self):
        super().__init__()
        self.run = torch.compile(super().forward, backend="eager")

    def forward(self, x):
        return self.run(x)


class Reentrant(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=True)


class Wrong(Block):
    def forward(self, x):
        return x.missing


class Short(Block):
    def forward(self, x):
        return x + torch.zeros(100, 1)[: x.shape[1]]


class Inner(Block):
    def forward(self, x):
        return torch.func.grad(lambda x: x.square().sum())(x)


class Multiple(Block):
    def forward(self, x):
        assert x.shape[1] % 16 == 0, "give a multiple of 16"
        return super().forward(x)


class Subclass(Block):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(TwoTensor(torch.ones(3), torch.ones(3)))


class Positions(Model):
    """A model with learned positions, of which there are 100."""

    def __init__(self, blocks, start):
        super().__init__(blocks)
        self.positions, self.start = nn.Embedding(100 + start, WIDTH), start

    def forward(self, ids):
        x = self.embed(ids) + self.positions(self.start + torch.arange(ids.shape[1])[None])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Twice(Model):
    def forward(self, ids):
        return self.head(self.norm(self.blocks[0](self.blocks[0](self.embed(ids)))))


@pytest.mark.parametrize("build, message", [
    (lambda: Model([Block(), Item()]), r"blocks.1 \(Item\), test_profile.py:\d+: .item\(\), or an if, a number or a list of a tensor, depends on values"),
    (lambda: Model([Block(), Extension()]), r"blocks.1 \(Extension\), test_profile.py:\d+: an extension reads memory"),
    (lambda: Model([Block(), Compiled()]), r"blocks.1 \(Compiled\), test_profile.py:\d+: a part of the model is compiled"),
    (lambda: Twice([Block(), Block()]), "blocks.0 runs when blocks.1 is expected"),
    (lambda: Model([Block(), Reentrant()]), r"blocks.1 \(Reentrant\), test_profile.py:\d+: torch.utils.checkpoint with use_reentrant=True"),
    (lambda: Model([Block(), Wrong()]), r"blocks.1 \(Wrong\), test_profile.py:\d+: AttributeError: .*missing"),
    (lambda: Model([Block(), Short()]), r"blocks.1 \(Short\), test_profile.py:\d+: .*at 128 tokens, at which amounts are checked"),
    (lambda: Positions([Block(), Block()], 0), r"positions \(Embedding\), test_profile.py:\d+: it looks up positions up to 127 in a table of 100 .*take a smaller seq"),
    (lambda: Positions([Block(), Block()], 2), r"it looks up positions up to 129 in a table of 102"),
    (lambda: Model([Block(), Inner()]), r"blocks.1 \(Inner\), test_profile.py:\d+: a gradient is computed inside of the model"),
    (lambda: Model([Block(), Multiple()]), r"blocks.1 \(Multiple\), test_profile.py:\d+: .*at 25 tokens.*pad to them in batch"),
    (lambda: Model([Block(), Subclass(), Block()]), "blocks.1.weight is a TwoTensor, a subclass of Tensor"),
    (lambda: Model([Block() for _ in range(int(torch.ones(2).add_(1).sum()))]), r"test_profile.py:\d+: .item\(\), or an if, a number"),
    (lambda: nn.Linear(3, 3), "no list of layers was found"),
    (lambda: Model([Block(), Block()]).requires_grad_(False), "every parameter is frozen"),
])
def test_refused(build, message):
    with pytest.raises(ProfileError, match=message):
        profile(build, batch, loss, seq=64, device="cpu", attention="math")


def test_a_loop_over_tokens_is_refused(monkeypatch):
    class Loop(Block):
        def forward(self, x):
            return torch.stack([y.exp().exp().exp().exp() for y in x.unbind(1)], 1)

    monkeypatch.setattr("weir.profile._books._MOST", 400)
    with pytest.raises(ProfileError, match=r"blocks.1 \(Loop\), test_profile.py:\d+: a layer of more than 400 operators, such as a loop over tokens.*at 128 tokens.*take a smaller seq"):
        profile(lambda: Model([Block(), Loop()]), batch, loss, seq=64, device="cpu", attention="math")


@pytest.mark.parametrize("heads, dtype, setting, message", [
    (2, torch.float32, {}, "attention flash takes no float32"),
    (1, torch.bfloat16, {}, "attention flash takes no heads of 288"),
    (2, torch.bfloat16, {"capability": "7.5"}, "attention flash takes a capability of 8.0"),
    (2, torch.float32, {"device": "cpu"}, "attention flash has no dropout on a CPU"),
    (2, torch.bfloat16, {}, "attention flash takes no mask"),
    (2, torch.bfloat16, {"attention": "efficient"}, "attention efficient pads a mask to 8 tokens"),
])
def test_attention_is_refused_as_its_kernel_does(heads, dtype, setting, message):
    class Attention(nn.Linear):
        def forward(self, x):
            q = super().forward(x).unflatten(-1, (heads, -1)).transpose(1, 2)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool) if "mask" in message else None
            return F.scaled_dot_product_attention(q, q, q, mask, dropout_p=0.1).transpose(1, 2).flatten(2)

    with pytest.raises(ProfileError, match=rf"1 \(Attention\), test_profile.py:\d+: {message}"):
        profile(lambda: nn.Sequential(nn.Linear(288, 288), Attention(288, 288), nn.Linear(288, 288)).to(dtype), lambda k, n: torch.zeros(k, n, 288, dtype=dtype), lambda y, x: y.sum(), seq=64, **setting)


@pytest.mark.parametrize("dtype, heads, given, dropout", [(torch.float32, 2, None, 0.1), (torch.bfloat16, 4, None, 0.1), (torch.bfloat16, 2, torch.bool, 0.0), (torch.bfloat16, 4, torch.bfloat16, 0.0)])
def test_math_attention_has_the_bytes_alive_that_pytorch_has(dtype, heads, given, dropout):
    q, k, v = (torch.randn(2, n, 96, 16, dtype=dtype) for n in (4, heads, heads))
    mask = None if given is None else torch.ones(96, 96, dtype=given)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = allocated(lambda: F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None, enable_gqa=heads == 2))
    assert allocated(lambda: attend("math", q, k, v, mask, dropout, causal=mask is None))[1:] == expected[1:]


def test_flash_attention_of_a_cpu_refuses_heads_of_two_widths():
    q = torch.randn(1, 2, 8, 24)
    with pytest.raises(ProfileError, match="attention flash takes heads of one width on a CPU, and the model gives 24 and 16: state math"):
        attend("flash", q, q, q[..., :16])


def test_a_loss_is_named():
    with pytest.raises(ProfileError, match=r"the model returned a \w*Tensor, which is no scalar loss and has none: give loss="):
        profile(MODELS["kinds"], batch, seq=64, device="cpu", attention="math")


def test_a_custom_function_keeps_more_than_it_saves():
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = x.exp()
            return x * 1

        @staticmethod
        def backward(ctx, g):
            assert given[0]() is not None  # nothing but the books keeps the batch, whose address no other tensor may get
            return g * ctx.kept

    class Layer(Block):
        def forward(self, x):
            return super().forward(Hidden.apply(x))

    def build():
        model = Model([Block(), Block(), Layer()])
        model.embed.requires_grad_(False)
        return model

    def remembered(sequences, length):
        ids = batch(sequences, length)
        given[:] = [weakref.ref(ids)]
        return ids

    given = []
    found = profile(build, remembered, lambda y, _: y.mean(), seq=64, device="cpu", attention="math")
    plain, hidden = (found.kinds[found.pieces[i].kind].saved.token for i in (2, 3))
    assert hidden - plain == 4 * WIDTH


class Chosen(Block):
    """A layer whose activation and whose temporary bytes are decided in places that are no plain attributes."""

    def __init__(self, act, wide):
        super().__init__()
        self.act, self.settings = act, {"wide": wide}

    def forward(self, x):
        y = x.detach().repeat(1, 1, self.settings["wide"]).sum(-1, keepdim=True)
        return x + self.down(self.act(self.up(x))) + y


def gated(x):
    return F.gelu(x) * x.sigmoid() * x.tanh() * (-x * x).exp()


@pytest.mark.parametrize("recompute", [False, True])
def test_layers_that_differ_in_what_no_plain_attribute_says(recompute):
    def made(acts, wide):
        return profile(lambda: Model([Chosen(a, w) for a, w in zip(acts, wide)]), batch, loss, seq=64, device="cpu", attention="math", checkpoint=recompute)

    for acts, wide in (((F.gelu, F.gelu, gated), (2, 2, 2)), ((F.gelu, F.gelu, F.gelu), (2, 2, 40))):
        each, last = made(acts, wide), made(acts[2:] * 2, wide[2:] * 2)
        for action in "FB":
            peaks = [max(a.at(64) for a in found.kinds[found.pieces[-2].kind].temporary[action]) for found in (each, last)]
            assert peaks[0] == peaks[1]
        assert [p.kind for p in each.pieces] == [0, 1, 1, 2, 3]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wide):
        ctx.wide = wide
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.repeat(1, 1, ctx.wide()).chunk(ctx.wide(), -1)[0] * 2, None


class Part:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


SHARED = {"wide": 2}


@pytest.mark.parametrize("of, same", [
    (lambda n: functools.partial(int, 2 + n), False), (lambda n: lambda: 2 + n, False), (lambda n: lambda n=2 + n: n, False), (lambda n: [Part(2 + n)].__iter__, False),
    (lambda n: functools.partial(getattr, Part(2 + n), "n"), False), (lambda n: functools.partial(getattr, Part(2), "n"), True), (lambda n: functools.partial(int, 2), True), (lambda n: lambda: SHARED["wide"], True)])
def test_layers_that_differ_only_in_a_backward(of, same):
    class Layer(Block):
        def __init__(self, n):
            super().__init__()
            self.wide, self.layer_idx = of(n), n

        def forward(self, x):
            return super().forward(Scaled.apply(x, self.wide))

    assert _same(Layer(0), Layer(0)) or not same
    assert _same(Layer(0), Layer(1)) == same


def test_the_form_of_an_output_does_not_keep_its_tensor():
    output = (torch.ones(3), None)
    kept, (_, wrap) = weakref.ref(output[0]), _form(output)
    del output
    assert kept() is None and wrap(1) == (1, None)
