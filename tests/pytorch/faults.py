"""Ends a training step by errors, kills, stops, cut connections and Ctrl-C at random actions, and measures how it ends on the other ranks.

    python tests/pytorch/faults.py [--trials 200] [--seed 1] [--runtime pytorch] [--kinds error,kill,stop,cut,interrupt]

Each trial trains with a plan in two or four processes over gloo. Step 0 succeeds. Step 1 is ended on a random rank in a random
action. If all processes are still alive, step 2 runs and must give the gradients of step 0. The plans are
1f1b, interleaved, zb-v and dualpipev. WEIR names the command weir. With --runtime pytorch the same plans run in PyTorch's
own runtime (weir.schedule), and ranks that have not ended after --limit seconds are killed.
"""

import argparse
import collections
import gc
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *path) for path in (("..", "..", "python"), ("..", "..", "python", "tests"))]

import torch
from ranks import CONTEXT, on_ranks
from torch import nn

import weir

WIDTH, ROWS, M = 32, 16, 12
TIMEOUT = 3.0  # seconds that a rank of the runner waits


def modules(count):
    torch.manual_seed(1)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def entries():
    generator = torch.Generator().manual_seed(2)
    for _ in range(M):
        yield torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, WIDTH, generator=generator)


def loss_fn(output, target):
    return (output - target).square().sum(), ROWS


def sockets():
    """Returns the file descriptors of connected sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                one.getpeername()
                found.add(int(name))
        except OSError:
            pass
    return found


def fault(kind, generator, own):
    """Returns the function that ends the step in the action."""

    def cut():
        for number in generator.sample(sorted(own), 1):
            with socket.socket(fileno=os.dup(number)) as one:
                one.shutdown(socket.SHUT_RDWR)

    def error():
        raise ArithmeticError("planted")

    return {"error": error, "cut": cut, "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP)}[kind]


def tensors():
    """Returns the bytes of the storages that Python's tensors hold."""
    return sum({s.data_ptr(): s.nbytes() for o in gc.get_objects() if type(o) is torch.Tensor for s in [o.untyped_storage()]}.values())


def trial(rank, path, kind, victim, at, seed, runtime, report):
    plan = weir.Plan.load(path)
    count = modules(plan.stages)
    mine = {s: count[s] for s in plan.on(rank)}
    before = sockets()
    happened = []
    if runtime == "weir":
        runner = weir.Runner(plan, mine, loss_fn, shapes=torch.empty(ROWS, WIDTH, device="meta"), timeout=TIMEOUT)
        step = lambda: runner.step(entries())  # noqa: E731
        table = runner._run
    else:
        from torch.distributed.pipelining import PipelineStage, schedules

        like = torch.empty(ROWS, WIDTH, requires_grad=True)
        stages = [PipelineStage(mine[s], s, plan.stages, torch.device("cpu"), input_args=like if s else torch.empty(ROWS, WIDTH), output_args=like) for s in mine]
        schedule = weir.schedule(plan, stages, lambda y, t: loss_fn(y, t)[0], reduction="sum")
        xs, ts = (torch.cat(part) for part in zip(*entries()))

        def step():
            for s in mine:
                for p in mine[s].parameters():
                    p.grad = None
            schedule.step(*[xs] * (0 in mine), target=ts if plan.stages - 1 in mine else None, losses=None, return_outputs=False)

        table = {}
        run = schedules._PipelineScheduleRuntime
    step()
    wanted = [p.grad.clone() for s in mine for p in mine[s].parameters()]
    own = sockets() - before
    level = tensors() - sum(p.grad.nbytes for s in mine for p in mine[s].parameters())

    counter = [0]
    happen = fault(kind, random.Random(seed), own) if rank == victim else None

    def counted(inner):
        def action(*args, **kwargs):
            counter[0] += 1
            if counter[0] == at and happen is not None and not happened:
                happened.append(time.monotonic())
                report.put((rank, "fault", happened[0]))
                time.sleep(0.05)  # until the report is written
                happen()
            return inner(*args, **kwargs)

        return action

    if runtime == "weir":
        for name in table:
            table[name] = counted(table[name])
    else:  # an action begins with one of these calls
        for owner, name in ((run, "_fwd_or_bwd"),):
            if hasattr(owner, name):
                setattr(owner, name, counted(getattr(owner, name)))
        for stage in stages:
            for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk", "get_fwd_recv_ops", "get_bwd_recv_ops", "get_fwd_send_ops", "get_bwd_send_ops"):
                setattr(stage, name, counted(getattr(stage, name)))
    try:
        step()
        said = "nothing"
    except KeyboardInterrupt:
        said = "KeyboardInterrupt"
    except Exception as e:
        said = f"{type(e).__name__}: {e}"
    report.put((rank, "ended", time.monotonic()))
    left = tensors() - level
    again = None
    if kind not in ("kill", "stop"):
        try:
            if kind == "cut" and said == "nothing":  # nothing more was sent on this connection, so the next step fails instead
                left = 0
                try:
                    step()
                except weir.StepError as e:
                    said = f"{e} (in the step after)"
            step()
            again = all(torch.equal(p.grad, w) for s in mine for p, w in zip(mine[s].parameters(), [wanted.pop(0) for _ in mine[s].parameters()]))
        except Exception as e:
            again = f"{type(e).__name__}: {e}"
    return said, left, again


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runtime", choices=("weir", "pytorch"), default="weir")
    parser.add_argument("--kinds", default="error,kill,stop,cut,interrupt")
    parser.add_argument("--limit", type=float, default=30)
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    kinds = [kind for kind in options.kinds.split(",") if options.runtime == "weir" or kind != "cut"]  # PyTorch's runtime has no connections other than the default group's
    generator = random.Random(options.seed)
    seconds, texts, wrong, hung = collections.defaultdict(list), collections.Counter(), [], collections.Counter()
    for number in range(options.trials):
        kind = kinds[number % len(kinds)]
        ranks = generator.choice((2, 4))
        name = generator.choice(("1f1b", "interleaved", "zb-v", "dualpipev"))
        path = f"/tmp/weir-faults-{os.getpid()}.json"
        command = [os.environ.get("WEIR", "weir"), "plan", name, "--ranks", str(ranks), "--microbatches", str(M), "--to", "plan", "-o", path]
        subprocess.run(command, check=True)
        victim = generator.randrange(ranks)
        actions = sum(1 for _ in weir.Plan.load(path).actions(victim))
        at = generator.randrange(1, actions + 1 if options.runtime == "weir" else actions // 2)
        store = generator.choice(("rank 0", "parent"))
        report = CONTEXT.Manager().Queue()
        found = on_ranks(ranks, trial, path, kind, victim, at, number, options.runtime, report, limit=options.limit, store=store)
        events = []
        while not report.empty():
            events.append(report.get())
        began = next((t for _, what, t in events if what == "fault"), None)
        ended = {r: t for r, what, t in events if what == "ended"}
        others = [r for r in range(ranks) if r != victim or kind not in ("kill", "stop")]
        faults = []
        if began is None:
            faults.append("no fault happened")
        for r in others:
            if r not in ended or found[r] is None:
                faults.append(f"rank {r} did not end")
                hung[kind] += 1
                continue
            said, left, again = found[r]
            if began is not None:
                seconds[kind].append(ended[r] - began)
            if left > 0:
                faults.append(f"rank {r} has {left} bytes left")
            if again not in (None, True):
                faults.append(f"rank {r}'s next step: {again}")
            if said == "nothing" and kind != "cut":
                faults.append(f"rank {r} said nothing")
            if kind in ("error", "kill", "stop", "interrupt") and f"rank {victim}" not in said and "the store" not in said and said != "KeyboardInterrupt":
                faults.append(f"rank {r} blames another: {said}")
            texts[f"{kind}: {said.split(' saw this')[0][:140]}"] += 1
        if faults or options.v:
            print(f"trial {number}: {kind} on rank {victim} of {ranks}, {name}, action {at} of {actions}, store in {store}: {faults or 'ok'}", flush=True)
            if options.v:
                print("   ", found, flush=True)
        if faults:
            wrong.append(number)
    print(f"{options.runtime}: {options.trials} trials, {len(wrong)} not as promised: {wrong}")
    for kind in kinds:
        values = seconds[kind] or [float("nan")]
        print(f"{kind:10} {len(seconds[kind]):4} ranks ended, seconds: median {statistics.median(values):.2f}, most {max(values):.2f}; {hung[kind]} did not end")
    for text, count in texts.most_common(12):
        print(f"{count:4} {text}")
    os.remove(path)


if __name__ == "__main__":
    main()
