#!/usr/bin/env python3
"""Counts what autograd saves on every rank of a pipeline: saved.py KIND PLAN.csv

Each rank is a process of its own, over gloo. A plan has a line for each rank, with computations as
PyTorch's pipelining writes them: 0F0,1F0,0B0. KIND is gpt (LayerNorm and GELU) or llama (RMSNorm,
SwiGLU, positions by rotation). Prints the most bytes of saved tensors that each rank had at once:
storages of floating-point tensors that are neither parameters nor tables of positions, once each.
"""
import json
import sys
import tempfile
import weakref

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, FFN, WORDS, LAYERS, TOKENS, BATCH = 64, 4, 160, 300, 8, 48, 2


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        norm = nn.LayerNorm if kind == "gpt" else nn.RMSNorm
        self.norm1, self.norm2 = norm(HIDDEN), norm(HIDDEN)
        self.q, self.k, self.v = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)
        self.gate = nn.Linear(HIDDEN, FFN) if kind == "llama" else None
        angle = torch.arange(TOKENS)[:, None] * torch.linspace(1, 0.1, HIDDEN // HEADS)[None]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x):
        n = self.norm1(x)
        q, k, v = (p(n).view(BATCH, TOKENS, HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.kind == "llama":
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(BATCH, TOKENS, HIDDEN))
        n = self.norm2(x)
        if self.kind == "llama":
            return x + self.down(F.silu(self.gate(n)) * self.up(n))
        return x + self.down(F.gelu(self.up(n)))


class Head(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.norm = (nn.LayerNorm if kind == "gpt" else nn.RMSNorm)(HIDDEN)
        self.out = nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, x, labels):
        logits = self.out(self.norm(x))
        return F.cross_entropy(logits.view(-1, WORDS).float(), labels.view(-1))


class Held:
    """What autograd keeps of a tensor, until its graph is gone."""

    def __init__(self, books, tensor):
        self.tensor = tensor
        books.add(self, tensor)


class Books:
    def __init__(self, known):
        self.known, self.count, self.live, self.peak = known, {}, 0, 0

    def add(self, held, t):
        storage = t.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if not t.is_floating_point() or key in self.known:
            return
        if self.count.setdefault(key, 0) == 0:
            self.live += size
            self.peak = max(self.peak, self.live)
        self.count[key] += 1
        weakref.finalize(held, self.drop, key, size)

    def drop(self, key, size):
        self.count[key] -= 1
        if self.count[key] == 0:
            self.live -= size


def run(rank, ranks, kind, programs, store, results):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    home = {int(a.split("F")[0]): r for r, p in enumerate(programs) for a in p if "F" in a}
    stages = len(home)
    cut = [LAYERS // stages + (i >= (stages - LAYERS % stages + 1) // 2 and i < (stages - LAYERS % stages + 1) // 2 + LAYERS % stages) for i in range(stages)]
    modules = {}
    for s in (s for s in home if home[s] == rank):
        parts = [Layer(kind) for _ in range(cut[s])]
        if s == 0:
            parts.insert(0, nn.Embedding(WORDS, HIDDEN))
        modules[s] = nn.ModuleList(parts + ([Head(kind)] if s == stages - 1 else []))
    known = {t.untyped_storage().data_ptr() for m in modules.values() for t in [*m.parameters(), *m.buffers()]}
    books, sent, handed, kept = Books(known), [], {}, {}
    for action in programs[rank]:
        letter = "F" if "F" in action else "B"
        s, m = map(int, action.split(letter))
        tag = (s * 1000 + m) * 2
        if letter == "F":
            if s == 0:
                x = torch.randint(WORDS, (BATCH, TOKENS))
            else:
                x = handed.pop((s, m, "x"), None)
                if x is None:
                    x = torch.empty(BATCH, TOKENS, HIDDEN)
                    dist.recv(x, home[s - 1], tag=tag)
                x = x.detach().requires_grad_()
            y = x
            with torch.autograd.graph.saved_tensors_hooks(lambda t: Held(books, t), lambda h: h.tensor):
                for part in modules[s]:
                    y = part(y, torch.randint(WORDS, (BATCH, TOKENS))) if isinstance(part, Head) else part(y)
            kept[s, m] = (x, y)
            if s < stages - 1:
                if home[s + 1] == rank:
                    handed[s + 1, m, "x"] = y.detach().clone()
                else:
                    sent.append((dist.isend(y.detach().contiguous(), home[s + 1], tag=(((s + 1) * 1000 + m) * 2)), y.detach()))
            del x, y
        else:
            grad = None
            if s < stages - 1:
                grad = handed.pop((s, m, "g"), None)
                if grad is None:
                    grad = torch.empty(BATCH, TOKENS, HIDDEN)
                    dist.recv(grad, home[s + 1], tag=tag + 1)
            x, y = kept.pop((s, m))
            y.backward(grad)
            if s > 0:
                if home[s - 1] == rank:
                    handed[s - 1, m, "g"] = x.grad
                else:
                    sent.append((dist.isend(x.grad, home[s - 1], tag=((s - 1) * 1000 + m) * 2 + 1), x.grad))
            del x, y, grad
    for work, _ in sent:
        work.wait()
    assert books.live == 0, books.live
    results[rank] = books.peak
    dist.barrier()


if __name__ == "__main__":
    kind, path = sys.argv[1:]
    programs = [[a for a in line.strip().split(",") if a] for line in open(path)]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(run, (len(programs), kind, programs, folder + "/store", results), nprocs=len(programs))
        print(json.dumps([results[r] for r in range(len(programs))]))
