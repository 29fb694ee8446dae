"""Puts the package on the path, and provides a model and its batches for the tests."""

import gc
import os
import sys

import pytest
import torch
import torch._dynamo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
torch.set_num_threads(1)

DEVICE = os.environ.get("WEIR_DEVICE", "cpu")  # python/gpu.sh sets it
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)

WIDTH, TOKENS = 32, 32  # an activation has 4 KiB


def pytest_sessionstart():
    gc.collect()
    gc.freeze()  # a collection before each test would take 0.2 s with the 300,000 objects of PyTorch


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()  # garbage of earlier tests would otherwise be released in the middle of a watch
    torch.manual_seed(1)


def make(compiled=False):
    """Returns a model of three layers, which may be compiled, and its optimizer."""
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.AdamW(model.parameters())
    return torch.compile(model, backend="aot_eager") if compiled else model, optimizer


def batches(n):
    for _ in range(n):
        yield torch.randn(TOKENS, WIDTH)


class Always:
    """A trend that always rises."""

    rises = property(lambda self: 3, lambda self, rises: None)

    def add(self, level):
        pass
