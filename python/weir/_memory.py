"""Reads counters of a process's memory that do not slow it down."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

__all__ = ["Memory", "Reading", "blocks", "user_line"]


class Reading(NamedTuple):
    """The bytes that are allocated, those reserved from the system, and the most allocated since the peak was last reset."""

    allocated: int
    reserved: int
    peak: int


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


class Memory:
    """Reads the counters of one device.

    On an accelerator, they are the counters of its caching allocator (torch.cuda.memory_stats). On a CPU,
    they are glibc's malloc counters, which include tensors and graphs but few of Python's own objects. If
    tensors come from another malloc, the counter is the peak resident memory, which can only rise.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._most = device, 0
        self._module: Any = getattr(torch, device.type, None)
        self._mallinfo2: Any = getattr(ctypes.CDLL(None), "mallinfo2", None) if os.name == "posix" else None
        self.source = f"torch.{device.type}.memory_stats"
        if self._mallinfo2:
            self._mallinfo2.restype = _Mallinfo2
        if not hasattr(self._module, "memory_stats"):
            before, probe = self._malloc()[0], torch.empty(1 << 20, dtype=torch.uint8)
            self.source = "malloc" if self._malloc()[0] - before >= probe.numel() else "most resident pages"

    def read(self, reset_peak: bool) -> Reading:
        """Returns the counters. The peak is the highest since the last reset; on a CPU it is the largest reading."""
        if self.source.startswith("torch"):
            stats: dict[str, int] = self._module.memory_stats(self._device)
            if reset_peak:
                self._module.reset_peak_memory_stats(self._device)
            return Reading(*(stats.get(key, 0) for key in ("allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak")))
        allocated, reserved = self._malloc() if self.source == "malloc" else (_resident(),) * 2
        reading = Reading(allocated, reserved, max(self._most, allocated))
        self._most = allocated if reset_peak else reading.peak
        return reading

    def host(self) -> int:
        """Returns the bytes that malloc has allocated in the host's memory, if the device has separate memory, and 0 otherwise."""
        return self._malloc()[0] if self.source.startswith("torch") else 0

    def _malloc(self) -> tuple[int, int]:
        info = self._mallinfo2() if self._mallinfo2 else _Mallinfo2()
        return info.uordblks + info.hblkhd, info.arena + info.hblkhd


def _resident() -> int:
    if sys.platform == "win32":  # where the standard library has no such counter
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def blocks(device: torch.device) -> dict[int, tuple[str, int]]:
    """Returns, by address, the line and the bytes of the live blocks that CUDA's allocator has recorded."""
    found = {}
    for segment in torch.cuda.memory._snapshot(device)["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block.get("frames"):
                found[address] = user_line((f["filename"], f["line"], f["name"]) for f in block["frames"]), block["size"]
            address += block["size"]
    return found


_OURS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep, "<", "??")
_LIBRARY = os.path.dirname(os.__file__) + os.sep


def user_line(stack: Iterable[tuple[str, int, str]]) -> str:
    """Returns the first line in a stack that is not generated and not in PyTorch, this package or the standard library, or ""."""
    for filename, line, function in stack:
        if not filename.startswith(_OURS) and "torchinductor_" not in filename and ("site-packages" in filename or not filename.startswith(_LIBRARY)):
            return f"{os.path.basename(filename)}:{line} {function}"
    return ""
