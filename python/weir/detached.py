"""Makes losses that can be kept, in a list or by a pipeline's runtime, without their graphs once their backwards have run."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

__all__ = ["detached"]


def detached(loss_fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a function like loss_fn, whose losses drop their graph when their backward no longer needs it.

    A loss has the value, shape, dtype, device and gradients of loss_fn's loss. It is a copy with
    separate storage, so it keeps no tensor that loss_fn computed. The backward that frees the
    graph detaches the loss in place; a backward that retains the graph (retain_graph, create_graph, the
    input gradients of a split backward) does not, so you can run several backwards from a loss. A loss
    that needs no gradient is returned unchanged.

    A tensor that you compute from the loss, such as `loss / n`, has its own graph: keep the loss
    instead. `loss /= n` changes the loss in place. Raises TypeError if loss_fn returns anything but one
    tensor, such as a tuple: return the tensor from which the backward starts.
    """

    @functools.wraps(loss_fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Tensor:
        if torch.compiler.is_compiling():  # a trace has no end of a backward to wait for
            raise RuntimeError("weir.detached: compile the loss function and wrap the result, not a function that calls the wrapped one")
        loss = loss_fn(*args, **kwargs)
        if not isinstance(loss, Tensor):
            raise TypeError(f"weir.detached: the loss function returned a {type(loss).__name__}, and one tensor is needed: "
                            "return the tensor that backward starts from, and keep the rest elsewhere, detached")
        if not loss.requires_grad or not torch.is_grad_enabled():
            return loss
        inner = loss.clone()
        kept: Tensor = _Copy.apply(inner)
        assert inner.grad_fn is not None
        inner.grad_fn.register_prehook(_release(weakref.ref(kept), weakref.ref(kept.grad_fn)))
        return kept

    return wrapped


class _Copy(torch.autograd.Function):
    """Copies the loss. It saves an empty tensor, which is freed together with the graph."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss.new_empty(0))
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _release(kept: weakref.ref[Tensor], node: weakref.ref[Any]) -> Callable[[Sequence[Tensor]], None]:
    """Returns a hook that runs after the backward of _Copy, when its saved tensor is freed unless the graph is retained."""

    def hook(grads: Sequence[Tensor]) -> None:
        loss, copy = kept(), node()
        if loss is None or copy is None:
            return
        try:
            copy.saved_tensors  # noqa: B018
        except RuntimeError:  # "Trying to backward through the graph a second time": it is freed
            loss.detach_()

    return hook
