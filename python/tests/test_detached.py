"""weir.detached: what is kept of a loss has its value and no graph, and gradients are the same."""

import pytest
import torch
from conftest import WIDTH, make
from torch.nn.functional import mse_loss

import weir


def losses_and_gradients(loss_fn, use):
    torch.manual_seed(1)
    model, _ = make()
    x = torch.randn(8, WIDTH)
    kept = use(model, loss_fn, x)
    return kept, [p.grad for p in model.parameters()]


def one(model, loss_fn, x):
    loss = loss_fn(model(x), x)
    loss.backward()
    return [loss]


def several(model, loss_fn, x):
    loss = loss_fn(model(x), x)
    loss.backward(retain_graph=True)
    assert loss.requires_grad
    loss.backward()
    return [loss]


def accumulated(model, loss_fn, x):
    losses = [loss_fn(model(x[i : i + 2]), x[i : i + 2]) for i in range(0, 8, 2)]
    (sum(losses[:2]) / 4).backward()
    for loss in losses[2:]:
        (loss / 4).backward()
    return losses


def in_place(model, loss_fn, x):
    loss = loss_fn(model(x), x)
    loss /= 3
    loss.backward()
    return [loss]


def split(model, loss_fn, x):
    """Computes the gradient of the input first, retaining the graph, and then those of the weights."""
    x.requires_grad_()
    loss = loss_fn(model(x), x.detach())
    torch.autograd.grad(loss, x, retain_graph=True)
    assert loss.requires_grad
    for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
        p.grad = grad
    return [loss]


def created(model, loss_fn, x):
    loss = loss_fn(model(x), x)
    penalty = sum(g.square().sum() for g in torch.autograd.grad(loss, list(model.parameters()), create_graph=True))
    assert loss.requires_grad
    (loss + penalty).backward()
    return [loss]


def elementwise(model, loss_fn, x):
    loss = loss_fn(model(x), x, reduction="none")
    loss.backward(torch.ones_like(loss))
    return [loss]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("use", [one, several, accumulated, in_place, split, created, elementwise])
def test_gradients_and_values_are_those_of_the_loss(use, compiled):
    if compiled and use in (several, split, created, accumulated):
        pytest.skip("compiled backwards run once, and not twice")
    loss_fn = torch.compile(mse_loss, backend="aot_eager") if compiled else mse_loss
    plain, wanted = losses_and_gradients(loss_fn, use)
    kept, gradients = losses_and_gradients(weir.detached(loss_fn), use)
    assert all(torch.equal(a, b) for a, b in zip(wanted, gradients))
    assert all(torch.equal(a, b) and b.dtype == a.dtype for a, b in zip(plain, kept))
    assert not any(loss.requires_grad or loss.grad_fn for loss in kept)


def test_keeps_nothing_of_the_function():
    kept = weir.detached(lambda x: x.sum(1)[0])(torch.randn(100, 100, requires_grad=True))
    assert kept.untyped_storage().nbytes() == 4
    kept.backward()
    assert not kept._is_view()


def test_loss_without_gradient_is_returned_as_it_is():
    loss = torch.ones(())
    assert weir.detached(lambda: loss)() is loss
    with torch.no_grad():
        assert not weir.detached(lambda x: x.sum())(torch.ones(2, requires_grad=True)).requires_grad


def test_dropped_loss_leaves_nothing_behind():
    model, _ = make()
    loss = weir.detached(mse_loss)(model(torch.randn(2, WIDTH)), torch.randn(2, WIDTH)) * 2
    loss.backward()


@pytest.mark.parametrize("result", [(torch.ones(()), 1), {"loss": torch.ones(())}, None, 1.0])
def test_refuses_what_is_not_one_tensor(result):
    with pytest.raises(TypeError, match=f"returned a {type(result).__name__}"):
        weir.detached(lambda: result)()


def test_compiled_around_it():
    model, _ = make()
    loss_fn = weir.detached(mse_loss)
    x = torch.randn(2, WIDTH)
    loss = torch.compile(lambda x: loss_fn(model(x), x), backend="aot_eager")(x)  # a graph break
    loss.backward()
    assert not loss.requires_grad
    with pytest.raises(Exception, match="compile the loss function and wrap the result"):
        torch.compile(lambda x: loss_fn(model(x), x), backend="aot_eager", fullgraph=True)(x)
