#!/usr/bin/env python3
"""Trains the model of gpu.sh with PyTorch on a GPU: peer.py WIDTH LAYERS HEADS SEQUENCE PRECISION STEPS M...

It is the model of examples/train -tied (defined in tests/bench/peer.py), with one sequence per
microbatch, gradients accumulated over M microbatches, and AdamW. PRECISION is float32, without TF32, or
bfloat16 with autocast. For each M it prints the median time of a step and the memory of the allocator.
"""

import importlib.util
import pathlib
import statistics
import sys
import time

import torch

path = pathlib.Path(__file__).resolve().parents[2] / "tests/bench/peer.py"
spec = importlib.util.spec_from_file_location("bench_peer", path)
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def main():
    width, layers, heads, sequence = map(int, sys.argv[1:5])
    half, steps = sys.argv[5] == "bfloat16", int(sys.argv[6])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    model = bench.Model(layers, heads, width, 256, sequence).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, fused=True)
    for microbatches in map(int, sys.argv[7:]):
        ids = torch.randint(256, (microbatches, sequence + 1)).pin_memory()
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(steps):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            for row in ids:
                row = row.cuda(non_blocking=True)[None]
                with torch.autocast("cuda", torch.bfloat16, enabled=half):
                    loss = model(row[:, :-1], row[:, 1:])
                (loss / microbatches).backward()
            optimizer.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        print(f"| PyTorch {torch.__version__}, {sys.argv[5]} | {microbatches} | {statistics.median(times):.3f} | "
              f"{torch.cuda.max_memory_reserved()} reserved | {torch.cuda.max_memory_allocated()} allocated |", flush=True)


if __name__ == "__main__":
    main()
