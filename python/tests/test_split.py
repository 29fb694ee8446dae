"""The check of split backwards passes for models whose split backward is right, names faults, and changes nothing."""

import re

import pytest
import torch
from torch import nn
from torch._functorch import config
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from weir._backward import input_gradients, weight_gradients
from weir._split import SplitCheck

backward = pytest.importorskip("torch.distributed.pipelining._backward")
VERSION = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
pytestmark = pytest.mark.skipif(VERSION < (2, 14), reason="older split backwards are wrong for some of these models, which is why they are refused")


def weight(*shape):
    return nn.Parameter(torch.randn(*shape) / 4)


class Model(nn.Module):
    """Calls a function of itself, with parameters and modules as attributes."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


class Matmul(torch.autograd.Function):
    """A linear layer as libraries write it, with what it saves on ctx or with PyTorch."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w + b

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad, grad.sum(0)


class FusedAccumulation(Matmul):
    """Accumulates into the main_grad of its weight in its backward, as fused kernels do."""

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        w.main_grad += x.t() @ grad
        return grad @ w.t(), None, grad.sum(0)


class OwnGradient(torch.autograd.Function):
    """Hides a module from autograd, and writes the gradients of its parameters in its backward."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        return x @ module.w

    @staticmethod
    def backward(ctx, grad):
        (x,), w = ctx.saved_tensors, ctx.module.w
        w.grad = x.t() @ grad if w.grad is None else w.grad + x.t() @ grad
        return grad @ w.t(), None


def fused():
    model = Model(lambda m, x: FusedAccumulation.apply(x, m.w, m.b), w=weight(8, 8), b=weight(8))
    model.w.main_grad = torch.zeros(8, 8)
    return model


RIGHT = {
    "linear": lambda: nn.Linear(8, 8),
    "mlp": lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)),
    "batch norm and dropout": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 8)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8)),
    "residual": lambda: Model(lambda m, x: x + m.a(torch.tanh(m.a(x))), a=nn.Linear(8, 8)),
    "one weight three times": lambda: Model(lambda m, x: torch.tanh(torch.tanh(x @ m.w) @ m.w) @ m.w, w=weight(8, 8)),
    "transposed weight": lambda: Model(lambda m, x: torch.tanh(x @ m.w.t()) @ m.w, w=weight(16, 8)),
    "weight of weights": lambda: Model(lambda m, x: x @ (m.w + m.a @ m.b), w=weight(8, 8), a=weight(8, 2), b=weight(2, 8)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
    "scale used twice": lambda: Model(lambda m, x: m.g * torch.tanh(m.g * (x @ m.w)), w=weight(8, 8), g=weight(1)),
    "positions": lambda: Model(lambda m, x: torch.tanh(x @ m.w) + m.e(torch.arange(4)), w=weight(8, 8), e=nn.Embedding(4, 8)),
    "two outputs": lambda: Model(lambda m, x: (x @ m.w, torch.tanh(x) @ m.w), w=weight(8, 8)),
    "chunks": lambda: Model(lambda m, x: torch.cat([c * m.b for c in (x @ m.w).chunk(2, 1)], 1), w=weight(8, 8), b=weight(4)),
    "gates": lambda: Model(lambda m, x: torch.sigmoid(m.a(x)) * m.b(x), a=nn.Linear(8, 8), b=nn.Linear(8, 8)),
    "custom Function": lambda: Model(lambda m, x: Matmul.apply(torch.tanh(Matmul.apply(x, m.w, m.b)), m.v, m.c), w=weight(8, 8), v=weight(8, 8), b=weight(8), c=weight(8)),
    "custom Function, shared weight": lambda: Model(lambda m, x: Matmul.apply(torch.tanh(Matmul.apply(x, m.w, m.b)), m.w, m.c), w=weight(8, 8), b=weight(8), c=weight(8)),
    "frozen weight": lambda: Model(lambda m, x: torch.tanh(x @ m.v) @ m.w, w=weight(8, 8), v=weight(8, 8).requires_grad_(False)),
    "checkpoint": lambda: Model(lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8))),
    "attention": lambda: Model(lambda m, x: m.a(x[None], x[None], x[None])[0][0].clone(), a=nn.MultiheadAttention(8, 2)),
    "encoder layer": lambda: Model(lambda m, x: m.a(x[None])[0].clone(), a=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
    "LSTM": lambda: Model(lambda m, x: m.a(x[None])[0][0].clone(), a=nn.LSTM(8, 8, batch_first=True)),
    "bfloat16": lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)).bfloat16(),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), backend="aot_eager"),
}


def check(model, weights=backward.stage_backward_weight, scale=1.0):
    """Checks one microbatch of a model with PyTorch's split backward, in which weights computes W."""
    x = torch.randn(4, 8, dtype=next(model.parameters()).dtype, requires_grad=True)
    outputs = model(x)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    gradients = [scale * torch.randn_like(y) for y in outputs]
    found = SplitCheck(3, model)
    found.whole(outputs, gradients, [x])
    inputs, groups = backward.stage_backward_input(outputs, gradients, [x], model.parameters())
    found.inputs(inputs)
    with found.weights():
        weights(model.parameters(), groups)
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    with config.patch(donated_buffer=False):  # a split backward of a compiled model retains graphs
        found = check(RIGHT[name]())
    assert found.decided and not found.faults, found.faults


def wrong(change):
    """Returns PyTorch's function for W with a change to its gradients."""
    def weights(parameters, groups):
        parameters = list(parameters)
        backward.stage_backward_weight(iter(parameters), groups)
        change(parameters)
    return weights


def test_faults():
    """Two simulated faults of older versions (pytorch#180952: a weight counts twice; #166577: a custom Function loses a gradient), and three of 2.15."""
    shared = RIGHT["custom Function, shared weight"]
    assert check(shared(), wrong(lambda p: p[0].grad.mul_(2))).faults[0].startswith("the gradient of w, which MatmulBackward and MatmulBackward use, is of norm ")
    assert re.fullmatch(r"the gradient of b, which MatmulBackward uses, is none in a split backward, and of norm \S+ in a whole one",
                        check(shared(), wrong(lambda p: setattr(p[1], "grad", None))).faults[0])
    assert len(check(shared(), wrong(lambda p: p[2].grad.mul_(1.002))).faults) == 1
    apart = check(Model(lambda m, x: (x @ m.w, m.v * 2), w=weight(8, 8), v=weight(8)))
    assert [re.sub(r"norm \S+", "norm N", fault) for fault in apart.faults] == ["the gradient of v, which MulBackward0 uses, is none in a split backward, and of norm N in a whole one"]
    assert check(Model(lambda m, x: OwnGradient.apply(x, m), w=weight(8, 8))).faults == ["the backward writes to w.grad itself, so that it cannot be computed twice"]
    late = Model(lambda m, x: x @ m.w, w=weight(8, 8), v=weight(8))  # like a parameter that FSDP has resharded before I begins
    assert check(late, wrong(lambda p: setattr(p[1], "grad", torch.ones(8)))).faults == [
        "the gradient of v is lost: the parameter is in no graph when the backward begins, as one that FSDP has resharded"]
    model = fused()
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        check(model)


def test_fused_accumulation_is_named():
    model, x = fused(), torch.randn(4, 8, requires_grad=True)
    found = SplitCheck(0, model)
    found.whole([model(x)], [torch.ones(4, 8)], [x])
    assert found.faults == ["the backward writes to w.main_grad itself, so that it cannot be computed twice"]


def test_input_gradients_are_compared():
    model, x = nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    found = SplitCheck(0, model)
    found.whole([model(x), None], [torch.ones(4, 8), None], ["a string", x, torch.ones(2)])
    found.inputs([None, torch.zeros(4, 8), None])
    assert re.match(r"the gradient of its input 1, is of norm 0 in a split backward, and of norm \S+ in a whole one", found.faults[0])


def test_overflow_decides_nothing():
    assert not check(RIGHT["mlp"](), scale=float("inf")).decided


def test_nothing_changes():
    """Random numbers, buffers, gradients and hooks are as before, and W adds to gradients as it does without the check."""
    torch.manual_seed(2)
    model = RIGHT["batch norm and dropout"]()
    x = torch.randn(4, 8, requires_grad=True)
    y, grad = model(x), torch.randn(4, 8)
    wanted = torch.autograd.grad(y, list(model.parameters()), grad, retain_graph=True)
    first = [torch.randn_like(p) for p in model.parameters()]
    for p, value in zip(model.parameters(), first):
        p.grad = value.clone()
    gradients, random = [p.grad for p in model.parameters()], torch.get_rng_state()
    buffers, hooked = {k: v.clone() for k, v in model.named_buffers()}, []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hooked.append)
    found = SplitCheck(0, model)
    found.whole([y], [grad], [x])
    assert all(p.grad is value and torch.equal(value, kept) for p, value, kept in zip(model.parameters(), gradients, first))
    assert torch.equal(random, torch.get_rng_state()) and all(torch.equal(v, buffers[k]) for k, v in model.named_buffers()) and x.grad is None
    assert not hooked  # the hooks of FSDP and DDP would reduce gradients
    inputs, groups = backward.stage_backward_input([y], [grad], [x], model.parameters())
    found.inputs(inputs)
    with found.weights():
        backward.stage_backward_weight(model.parameters(), groups)
    assert not found.faults
    assert all(p.grad is value and torch.equal(value, kept + dw) for p, value, kept, dw in zip(model.parameters(), gradients, first, wanted))


@pytest.mark.skipif(not hasattr(torch.utils.checkpoint, "GraphExecGroup"), reason="this PyTorch computes a checkpoint again for each group of weights")
def test_w_computes_each_checkpoint_again_once_and_one_after_another():
    class Layer(nn.Sequential):
        def forward(self, x):
            calls.append(x)
            return super().forward(x)

    calls, layers = [], [Layer(nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(2)]
    x = y = torch.randn(4, 8).requires_grad_()
    for layer in layers:
        y = y + checkpoint(layer, y, use_reentrant=False)
    gradients, carry = input_gradients([get_gradient_edge(y)], [torch.ones_like(y)], [x])
    assert len(calls) == 4
    owners = [i for group in carry.groups for leaf in group.leaves for i, layer in enumerate(layers) if any(leaf.variable is p for p in layer.parameters())]
    assert owners == [1] * 6 + [0] * 6
    weight_gradients(carry)
    assert len(calls) == 6
    parameters = [p for layer in layers for p in layer.parameters()]
    y = x + layers[0](x)
    expected = torch.autograd.grad((y + layers[1](y)).sum(), [x, *parameters])
    torch.testing.assert_close([*gradients, *(p.grad for p in parameters)], list(expected))
