"""The private names of PyTorch that weir.profile uses, all of them, except those of its types."""

from __future__ import annotations

import contextlib
import types
from typing import Any, Callable, Iterator
from unittest import mock

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode, UnsupportedOperatorException
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode", "TorchDispatchMode", "UnsupportedOperatorException", "WeakTensorKeyDictionary",
    "address", "inputs", "next_number", "number", "saved", "swaps", "tree_map", "values", "with_autocast", "without_engine"]

values = _disable_current_modes  # a context in which tensors have values


def address(t: Tensor) -> int:
    """Returns the address of a tensor's storage, which no other storage has while it is alive."""
    return int(t.untyped_storage()._cdata)


def next_number() -> int:
    """Returns the number of the next node of a graph."""
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]


def number(node: Any) -> int:
    """Returns the number of a node, which rises as a forward makes them; nodes that add to parameters have the largest."""
    return int(node._sequence_nr())


def inputs(node: Any) -> Any:
    """Returns shape, dtype and device of each gradient that comes to a node."""
    return node._input_metadata


def saved(node: Any) -> Iterator[Tensor]:
    """Yields what a node has saved, as a hook has packed it."""
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            value = getattr(node, name)
            for one in value if isinstance(value, (list, tuple)) else (value,):
                data = getattr(one, "data", None)
                if isinstance(data, Tensor):
                    yield data


def with_autocast() -> Any:
    """Returns a context in which autocast for CUDA works without a driver, where it switches itself off."""
    return mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)


def swaps() -> Any:
    """Returns a context in which a module on fake tensors changes its dtype and its device, though its parameters have weak references."""
    return mock.patch.object(torch.utils, "weakref", types.SimpleNamespace(getweakrefs=lambda t: []))


@contextlib.contextmanager
def without_engine(checkpoint: Callable[..., Any], engine: Callable[..., Any]) -> Iterator[None]:
    """A context in which these functions are called in place of a reentrant checkpoint and of PyTorch's engine of backwards."""
    with mock.patch.object(torch.utils.checkpoint.CheckpointFunction, "apply", checkpoint), mock.patch.object(torch.autograd, "_engine_run_backward", engine):
        yield
