#!/usr/bin/env python3
"""Measures Weir and PyTorch side by side, and prints Markdown.

    python3 tests/bench/peer.py                          products and training steps
    python3 tests/bench/peer.py --only "4k T64" --rounds 5 steps of those configurations
    python3 tests/bench/peer.py --products --threads 1   products alone
    python3 tests/bench/peer.py --cpu --threads 1        by processor time, on a busy machine

Every figure is a process of its own. Weir and PyTorch take turns, round after round,
and a line of a table has the medians over the rounds, so that what else the machine
does falls on both. It runs from the root of the repository.

PyTorch may live elsewhere; its source reaches it through standard input:

    --python "chroot /opt/trixie env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-pthread python3"

OpenBLAS may not know the processor, and then uses AVX2 where there is AVX-512: the
first line says what it took it for, and OPENBLAS_CORETYPE=SKYLAKEX beside
LD_LIBRARY_PATH corrects it.

The model is that of tests/bench: the layout of GPT-2 with a tied head, float32,
AdamW, four sequences a step. PyTorch takes the four at once, with its fused
attention and its fused AdamW; Weir takes each as a microbatch.
"""

import argparse
import ctypes
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

BATCH = 4


def main():
    flags = argparse.ArgumentParser(description="Weir and PyTorch side by side")
    flags.add_argument("--python", default="python3", help="command of an interpreter that has PyTorch")
    flags.add_argument("--rounds", type=int, default=3, help="turns of each")
    flags.add_argument("--time", type=float, default=3, help="seconds of a turn")
    flags.add_argument("--threads", default="1,2")
    flags.add_argument("--only", default="", help="configurations whose name has all of these parts, such as g4,4k")
    flags.add_argument("--products", action="store_true", help="products alone")
    flags.add_argument("--steps", action="store_true", help="training steps alone")
    flags.add_argument("--cpu", action="store_true", help="processor time instead of the clock's")
    flags.add_argument("--child", help=argparse.SUPPRESS)
    options = flags.parse_args()
    if options.child:
        return child(json.loads(options.child))
    with tempfile.TemporaryDirectory() as folder:
        bench = os.path.join(folder, "bench")
        subprocess.run(["go", "build", "-o", bench, "./tests/bench"], check=True)
        both = not options.products and not options.steps
        print(f"{machine()}; {ask(options, {'kind': 'version'})['version']}; "
              f"medians of {options.rounds} turns of {options.time:g} s, by "
              f"{'processor time' if options.cpu else 'the clock'}; {loads()}.\n")
        if options.products or both:
            products(options, bench)
        if options.steps or both:
            steps(options, bench)


def products(options, bench):
    print("| product, m×n×k | threads | Weir GFLOP/s | of peak | PyTorch GFLOP/s | of peak | Weir : PyTorch |")
    print("|---|---|---|---|---|---|---|")
    turns(options, bench, ["-products"], product_line)


def product_line(weir, torch, threads):
    share = lambda rates: 100 * statistics.median(r / (w["peak_gflops"] * threads) for r, w in zip(rates, weir))
    ours, theirs = [w["median_gflops"] for w in weir], [t["median"] for t in torch]
    return (f"| {statistics.median(ours):.0f} | {share(ours):.0f} % | {statistics.median(theirs):.0f} | {share(theirs):.0f} % "
            f"| {ratio(ours, theirs):.2f} |")


def steps(options, bench):
    print("| configuration | threads | Weir tokens/s | MiB | PyTorch tokens/s | MiB | Weir : PyTorch |")
    print("|---|---|---|---|---|---|---|")
    turns(options, bench, ["-only", options.only], step_line)


def step_line(weir, torch, threads):
    ours, theirs = [w["median_tokens_per_second"] for w in weir], [t["median"] for t in torch]
    mib = lambda sizes: max(sizes) / 2**20
    return (f"| {statistics.median(ours):,.0f} | {mib([w['resident_peak_bytes'] for w in weir]):.0f} | {statistics.median(theirs):,.0f} "
            f"| {mib([t['resident'] for t in torch]):.0f} | {ratio(ours, theirs):.2f} |")


def ratio(ours, theirs):
    """The median over the rounds: each compares neighbours in time."""
    return statistics.median(o / t for o, t in zip(ours, theirs))


def turns(options, bench, select, line):
    """Goes through what bench lists: for each thing and number of threads a line."""
    for thing in json.loads(run([bench, *select, "-list"])):
        for threads in map(int, options.threads.split(",")):
            weir, torch = [], []
            for _ in range(options.rounds):
                weir.append(json.loads(run([bench, *select, "-child", thing["name"], "-threads", str(threads),
                                            "-time", f"{options.time}s", f"-cpu={str(options.cpu).lower()}"])))
                torch.append(ask(options, {**thing, "threads": threads, "time": options.time, "cpu": options.cpu}))
            print(f"| {thing['name']} | {threads} {line(weir, torch, threads)}", flush=True)
    print()


def ask(options, job):
    """Has another interpreter do the job."""
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]  # of a BLAS that does not ask PyTorch
    limits = dict.fromkeys(names, str(job.get("threads", 1)))
    with open(__file__, encoding="utf-8") as source:
        return json.loads(run([*shlex.split(options.python), "-", "--child", json.dumps(job)], source.read(), limits))


def run(command, text=None, environment=None):
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | (environment or {})).stdout


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        name = next((l.split(":")[1].strip() for l in lines if l.startswith("model name")), "?")
    return f"{os.cpu_count()} × {name}"


def loads():
    return f"load before {os.getloadavg()[0]:.1f}"


# What the other interpreter does.


def child(job):
    import torch

    if job["kind"] == "version":
        blas = [l.split()[-1] for l in open("/proc/self/maps", encoding="utf-8") if "blas" in l or "mkl" in l]
        libraries = sorted({kernels(os.path.realpath(l)) for l in blas})
        return answer({"version": f"PyTorch {torch.__version__}, {', '.join(libraries) or 'no BLAS of its own file'}"})
    torch.set_num_threads(job["threads"])
    now = time.process_time if job["cpu"] else time.perf_counter
    if job["kind"] == "product":
        work, amount = product(torch, job)
    else:
        work, amount = trainer(torch, job)
    work()
    times, end = [], time.monotonic() + job["time"]
    while len(times) < 3 or time.monotonic() < end:
        begin = now()
        work()
        times.append(now() - begin)
    answer({"median": amount / statistics.median(times), "best": amount / min(times), "resident": resident()})


def kernels(library):
    """The name of a library, and for which processor OpenBLAS thinks that this one is."""
    name = os.path.basename(library)
    if "openblas" not in name:
        return name
    core = ctypes.CDLL(library).openblas_get_corename
    core.restype = ctypes.c_char_p
    return f"{name} for {core().decode()}"


def answer(value):
    json.dump(value, sys.stdout)


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def product(torch, job):
    m, n, k = job["m"], job["n"], job["k"]
    a = torch.randn(k, m).t() if job["transposed_a"] else torch.randn(m, k)
    b = torch.randn(n, k).t() if job["transposed_b"] else torch.randn(k, n)
    c = torch.zeros(m, n)
    calls = 1 + int(2e7 / (2 * m * n * k))

    def work():
        for _ in range(calls):
            if job["accumulate"]:
                c.addmm_(a, b)
            else:
                torch.mm(a, b, out=c)

    return work, 2e-9 * m * n * k * calls


def trainer(torch, job):
    from torch import nn
    from torch.nn import functional

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

    torch.manual_seed(1)
    model = Model(job["layers"], job["heads"], job["width"], job["vocabulary"], job["sequence"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(job["vocabulary"], (BATCH, job["sequence"] + 1))

    def work():
        optimizer.zero_grad(set_to_none=True)
        model(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()

    return work, BATCH * job["sequence"]


if __name__ == "__main__":
    main()
