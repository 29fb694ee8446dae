"""The private names of PyTorch that weir.profile uses, all of them, except those of its types."""

from __future__ import annotations

from typing import Any, Iterator
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode, UnsupportedOperatorException
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensorMode", "TorchDispatchMode", "UnsupportedOperatorException",
    "address", "inputs", "next_number", "number", "saved", "with_autocast"]


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
