"""A training loop of a few microbatches that writes a memory log.

    python3 train.py LOG [--keep-loss]

--keep-loss logs each loss as the tensor that it is, with its graph, as Fast-LLM did
(issue 486). Without a GPU, the counters are those of the C library's allocator.
"""
import ctypes
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memory_log import MemoryLog


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


class StandInForCUDA(TorchDispatchMode):
    """Gives torch.cuda the counters of malloc, read after each operation. As on a GPU, what was reserved stays reserved."""

    def __init__(self):
        super().__init__()
        self.libc, self.most, self.reserved = ctypes.CDLL("libc.so.6"), 0, 0
        self.libc.mallinfo2.restype = Mallinfo2
        self.libc.mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: tensors have pages of their own, as on a GPU
        torch.cuda.memory_stats, torch.cuda.reset_peak_memory_stats = self.memory_stats, self.reset_peak

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.memory_stats()
        return result

    def memory_stats(self):
        info = self.libc.mallinfo2()
        allocated = info.uordblks + info.hblkhd
        self.most, self.reserved = max(self.most, allocated), max(self.reserved, info.arena + info.hblkhd)
        return {"allocated_bytes.all.current": allocated, "reserved_bytes.all.current": self.reserved,
                "allocated_bytes.all.peak": self.most}

    def reset_peak(self):
        self.most = 0


def main(path, keep_loss):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        StandInForCUDA().__enter__()
    width, tokens, microbatches, steps = 256, 512, 64, 2
    model = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    log = MemoryLog(path, rank=0)
    for step in range(steps):
        losses = []
        for microbatch in range(microbatches):
            x = torch.randn(tokens, width, device=device)
            loss = (model(x) - x).square()
            (loss.mean() / microbatches).backward()
            losses.append(loss if keep_loss else loss.mean().item())
            del x, loss
            log.microbatch(step, microbatch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], "--keep-loss" in sys.argv[2:])
