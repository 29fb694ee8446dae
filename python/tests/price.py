#!/usr/bin/env python3
"""Prints what the guard adds to a microbatch: off, counting, and while it watches. python3 python/tests/price.py [width]"""

import os
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import weir

torch.set_num_threads(1)
torch.set_default_device(os.environ.get("WEIR_DEVICE", "cpu"))
width = int(sys.argv[1]) if len(sys.argv) > 1 else 256
model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())])
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(384, width)


def microbatches(n, guard=None):
    """Returns the processor's milliseconds of n microbatches, sorted."""
    times = []
    for _ in range(n):
        begun = time.process_time()
        model(x).square().mean().backward()
        optimizer.zero_grad()
        times.append(1e3 * (time.process_time() - begun))
        if guard is not None and guard._nets is None and guard.watching:
            guard._trends[0].rises, guard._rest, guard._window = 3, 0, 16
    return sorted(times)


microbatches(50)
for _ in range(2):
    for name in ("none", "off", "counting", "watching"):
        guard = None if name == "none" else weir.Guard(model, on_leak="off" if name == "off" else "warn")
        if guard is not None:
            guard.watching = name == "watching"
        times = microbatches(160, guard)
        if guard is not None:
            guard.close()
        print(f"{name:9} median {times[80]:.2f} ms, mean {sum(times) / 160:.2f} ms, longest {times[-1]:.1f} ms")
