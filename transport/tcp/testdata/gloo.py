"""Measures half a round trip between two processes over gloo, PyTorch's transport for CPUs.

    python3 gloo.py

prints the least mean of five rounds for 8 B, 4 KiB, 1 MiB and 16 MiB.
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def run(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    for size, times in (8, 500), (4096, 500), (1 << 20, 200), (16 << 20, 30):
        x = torch.zeros(size, dtype=torch.uint8)
        best = float("inf")
        for _ in range(5):
            dist.barrier()
            began = time.perf_counter()
            for _ in range(times):
                if rank == 0:
                    dist.send(x, 1)
                    dist.recv(x, 1)
                else:
                    dist.recv(x, 0)
                    dist.send(x, 0)
            best = min(best, (time.perf_counter() - began) / times / 2)
        if rank == 0:
            print(f"{size} B: {best * 1e6:.1f} us, {size / best / 1e9:.1f} GB/s", flush=True)
    dist.destroy_process_group()


path = os.path.join(tempfile.mkdtemp(), "meet")
child = os.fork()
run(0 if child else 1, path)
if child:
    sys.exit(os.waitpid(child, 0)[1])
