#!/usr/bin/env python3
"""Measures training steps of PyTorch: python3 peer.py JOB, as tests/bench -all runs it.

JOB is JSON: the sizes of the model, threads, time (seconds), cpu (processor time), compile, and the
number of microbatches.
The answer is JSON: a name, tokens per second of the median step and of the best one, and
the maximum resident bytes of the process.

The model is that of tests/bench: the layout of GPT-2 with a tied head, float32,
AdamW, four sequences per step, with the fused attention and the fused AdamW. With one microbatch,
PyTorch computes the four as one batch; with more, it accumulates their gradients.
"""

import json
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

BATCH = 4


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    now = time.process_time if job["cpu"] else time.perf_counter
    work = trainer(job)
    for _ in range(3):
        work()
    times, end = [], time.monotonic() + job["time"]
    while len(times) < 3 or time.monotonic() < end:
        begin = now()
        work()
        times.append(now() - begin)
    tokens = BATCH * job["sequence"]
    json.dump({
        "name": f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "median": tokens / statistics.median(times),
        "best": tokens / min(times),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }, sys.stdout)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, sequence):
        super().__init__()
        self.table, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.table(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.table.weight)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def trainer(job):
    torch.manual_seed(1)
    model = Model(job["layers"], job["heads"], job["width"], job["vocabulary"], job["sequence"])
    step = torch.compile(model) if job["compile"] else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(job["vocabulary"], (BATCH, job["sequence"] + 1))

    def work():
        optimizer.zero_grad(set_to_none=True)
        for part in ids.chunk(job["microbatches"]):
            (step(part[:, :-1], part[:, 1:]) / job["microbatches"]).backward()
        optimizer.step()

    return work


if __name__ == "__main__":
    main()
