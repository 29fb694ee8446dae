#!/usr/bin/env python3
"""Runs random plans in PyTorch's own runtime, and compares the outcomes with the verdicts of weir check.

    WEIR=weir python3 tests/pytorch/random_plans.py [--plans 40] [--seed 1]

Two and four processes over gloo train with plans in PyTorch's CSV. The plans have random orders and placements: receives are
posted at random places before the computations that need them, and waits at random places after sends. Some plans are broken
in one place. `weir check --runtime pytorch` decides whether each is valid, deadlocks, or pairs messages wrongly. A valid plan
must give the losses and gradients of the model without a pipeline. A plan that deadlocks must hang: no thread of its
processes may run for --limit seconds. A plan with wrong pairs, or with a missing or misplaced action, must fail, hang or give
other gradients.
"""

import argparse
import collections
import datetime
import json
import os
import queue as queues
import random
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/tests")]

import run_plan
import torch
import torch.distributed as dist
from ranks import CONTEXT
from torch.distributed.pipelining import schedules

WAITS = hasattr(schedules, "WAIT_SEND_F")  # from 2.15 on a plan has a wait for each send
BREAKS = ("nothing",) * 5 + ("receives",) * 3 + ("waits",) * 3 + ("early", "late", "swap", "swap", "order")


def grow(rng, ascending):
    """Returns a random plan that is valid if no rank waits at a transfer: a list of actions for each rank. The forwards
    of the last stage ascend, or are in any order."""
    ranks, each = rng.choice((2, 2, 4)), rng.choice((1, 2, 2))
    stages, microbatches = ranks * each, rng.randint(1, 5)
    place = [s % ranks if rng.random() < 0.5 else min(s % (2 * ranks), 2 * ranks - 1 - s % (2 * ranks)) for s in range(stages)]
    if sorted(place) != sorted(list(range(ranks)) * each):
        place = [s % ranks for s in range(stages)]
    split = rng.random() < 0.5
    rows = [[] for _ in range(ranks)]
    done, queues, todo, waits = set(), collections.defaultdict(list), [], [[] for _ in range(ranks)]
    for s in range(stages):
        for m in range(microbatches):
            todo += [(s, "F", m)] + ([(s, "I", m), (s, "W", m)] if split else [(s, "B", m)])
    back = "I" if split else "B"

    def needs(action):
        s, kind, m = action
        list_ = [] if kind == "F" else [(s, back if kind == "W" else "F", m)]
        if ascending and kind == "F" and s == stages - 1 and m > 0:
            list_.append((s, "F", m - 1))
        if kind == "F" and s > 0:
            list_.append((s - 1, "F", m))
        if kind in "IB" and s < stages - 1:
            list_.append((s + 1, back, m))
        return list_

    def receive(source, target):
        key = queues[source, target].pop(0)
        rows[target].append("{}{}{}".format(*key))
        done.add(key)

    eager = rng.random()
    while todo:
        action = rng.choice(todo)
        s, kind, m = action
        rank = place[s]
        ready = True
        for need in needs(action):
            source = place[need[0]]
            if need not in done:
                ready = False
            elif source != rank:
                key = (s, "RECV_F" if kind == "F" else "RECV_B", m)
                while ready and key not in done:
                    receive(source, rank)
        if not ready:
            continue
        if rng.random() < eager:  # one of the messages that have been sent to the rank is received now
            for source in rng.sample(range(ranks), ranks):
                if queues[source, rank]:
                    receive(source, rank)
                    break
        todo.remove(action)
        done.add(action)
        rows[rank].append(f"{s}{kind}{m}")
        if kind in "IB" and rng.random() < 0.5 or kind == "W":
            rows[rank] += waits[rank]
            waits[rank] = []
        to = s + 1 if kind == "F" else s - 1
        if kind != "W" and 0 <= to < stages and place[to] != rank:
            letter = "F" if kind == "F" else "B"
            rows[rank].append(f"{s}SEND_{letter}{m}")
            queues[rank, place[to]].append((to, "RECV_" + letter, m))
    for (source, target), left in queues.items():
        while left:
            receive(source, target)
    return rows


def with_waits(rows, rng):
    """Adds a wait for each send: a random number of computations after it, or at the end."""
    result = []
    for row in rows:
        pending, out = [], []
        for action in row:
            out.append(action)
            if "SEND" in action:
                pending.append([rng.randint(2, 12), action.replace("SEND", "WAIT_SEND")])
            for wait in pending:
                wait[0] -= 1
            out += [name for left, name in pending if left == 0]
            pending = [wait for wait in pending if wait[0] > 0]
        result.append(out + [name for _, name in pending])
    return result


def spoil(rows, how, rng):
    """Breaks a plan in one place, or moves receives forward or waits back to their sends."""
    rank = rng.randrange(len(rows))
    row = rows[rank]
    receives = [i for i, action in enumerate(row) if "RECV" in action]
    if how == "receives":  # all move forward, in the same order
        for row in rows:
            for i in [i for i, action in enumerate(row) if "RECV" in action]:
                first = next((k + 1 for k in range(i - 1, -1, -1) if "RECV" in row[k]), 0)
                row.insert(rng.randint(first, i), row.pop(i))
    elif how == "early" and receives:  # one moves to the front, past other receives
        row.insert(0, row.pop(rng.choice(receives)))
    elif how == "late" and len(receives) > 1:
        i, k = rng.sample(receives, 2)
        row[i], row[k] = row[k], row[i]
    elif how == "swap":
        i = rng.randrange(max(len(row) - 1, 1))
        row[i : i + 2] = reversed(row[i : i + 2])
    elif how == "waits":  # a wait directly after its send
        for i in range(len(row) - 1, -1, -1):
            if "SEND" in row[i] and "WAIT" not in row[i] and row[i].replace("SEND", "WAIT_SEND") in row:
                row.remove(row[i].replace("SEND", "WAIT_SEND"))
                row.insert(i + 1, row[i].replace("SEND", "WAIT_SEND"))


def expected(path):
    """Returns the verdict of weir check on a plan."""
    command = [os.environ.get("WEIR", "weir"), "check", path, "--from", "comms" if WAITS else "comms-2.6", "--runtime", "pytorch", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    if found["valid"]:
        return "same"
    codes = {fault.get("code") for fault in found["faults"]}
    return "hangs" if codes == {"deadlock"} else "wrong"


def worker(rank, ranks, folder, tasks, results):
    """Runs plans until one hangs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    sys.stderr = open(os.devnull, "w")  # PyTorch prints the whole schedule of a step that fails
    import logging

    logging.disable(logging.CRITICAL)
    while (path := tasks.get()) is not None:
        try:
            outcome = run_plan.train(run_plan.load(path), rank)
        except Exception as e:
            outcome = f"{type(e).__name__}: {e}"[:200]
        results.put((rank, outcome if isinstance(outcome, str) else (outcome[0], {s: [g.tolist() for g in gs] for s, gs in outcome[1].items() if None not in gs})))
        if isinstance(outcome, str):
            return


class Group:
    """The processes for one number of ranks. They are replaced after a plan that did not end."""

    def __init__(self, ranks, limit):
        self.ranks, self.limit, self.processes = ranks, limit, []

    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.tasks, self.results = [CONTEXT.SimpleQueue() for _ in range(self.ranks)], CONTEXT.Queue()
        self.processes = [CONTEXT.Process(target=worker, args=(r, self.ranks, self.folder.name, self.tasks[r], self.results), daemon=True) for r in range(self.ranks)]
        for process in self.processes:
            process.start()

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes = []

    def asleep(self):
        """Reports whether no thread of the processes runs, or waits for a processor."""
        for process in self.processes:
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                try:
                    with open(f"/proc/{process.pid}/task/{thread}/stat") as file:
                        if file.read().rpartition(")")[2].split()[0] != "S":
                            return False
                except OSError:  # the thread has ended
                    return False
        return True

    def run(self, path):
        """Returns the results by rank, without those of ranks that did not end."""
        if not self.processes:
            self.start()
        for queue in self.tasks:
            queue.put(path)
        found, awake = {}, time.monotonic()
        while len(found) < self.ranks and time.monotonic() < awake + self.limit:
            try:
                rank, outcome = self.results.get(timeout=0.03)
            except queues.Empty:
                if not self.asleep():
                    awake = time.monotonic()
                continue
            found[rank], awake = outcome, time.monotonic()
            if isinstance(outcome, str):  # the others may wait for this rank
                break
        if len(found) < self.ranks or any(isinstance(f, str) for f in found.values()):
            self.stop()
        return found


def happened(path, found, ranks):
    """Returns the outcome, and the error of a rank that failed."""
    failed = [f for f in found.values() if isinstance(f, str)]
    if failed:
        return "fails", failed[0]
    if len(found) < ranks:
        return "hangs", ""
    plan = run_plan.load(path)
    want_losses, want = run_plan.sequential(plan.stages, plan.microbatches)
    losses = [loss for one, _ in found.values() for loss in one]
    gradients = {s: g for _, one in found.values() for s, g in one.items()}
    if len(gradients) < plan.stages or len(losses) < plan.microbatches:
        return "differs", ""
    worst = max([abs(a - b) for a, b in zip(sorted(losses), sorted(want_losses))] + [(torch.tensor(a) - b).abs().max().item() for s, w in enumerate(want) for a, b in zip(gradients[s], w)])
    return ("same" if worst < 1e-5 else "differs"), ""


ALLOWED = {"same": {"same"}, "hangs": {"hangs"}, "wrong": {"differs", "hangs", "fails"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other 50 plans after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=0.5, help="seconds for which all processes of a plan that hangs sleep")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    table, bad, began = collections.Counter(), [], time.monotonic()
    groups = {ranks: Group(ranks, options.limit) for ranks in (2, 4)}
    with tempfile.TemporaryDirectory() as folder:
        left = options.plans
        while left > 0 and time.monotonic() < began + options.seconds:
            plans = []
            for i in range(min(left, 50)):
                how = rng.choice(BREAKS)
                rows = grow(rng, how != "order")
                rows = with_waits(rows, rng) if WAITS else rows
                spoil(rows, how, rng)
                path = f"{folder}/{i}.csv"
                with open(path, "w") as file:
                    file.writelines(",".join(row) + "\n" for row in rows)
                plans.append((path, len(rows), how, expected(path)))
            left -= len(plans)
            plans.sort(key=lambda plan: plan[3] != "same")  # those that end the processes come last
            for path, ranks, how, want in plans:
                got, error = happened(path, groups[ranks].run(path), ranks)
                table[how, want, got] += 1
                if got not in ALLOWED[want]:
                    with open(path) as file:
                        bad.append(f"{how}: weir says {want}, PyTorch: {got} {error}\n{file.read()}")
    for group in groups.values():
        group.stop()
    print(f"PyTorch {torch.__version__}, seed {options.seed}: {table.total()} plans in {time.monotonic() - began:.0f} s, {len(bad)} not as weir says")
    for (how, want, got), n in sorted(table.items()):
        print(f"  {how:9} weir: {want:6} PyTorch: {got:8} {n}")
    print("\n".join(bad[:5]))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
