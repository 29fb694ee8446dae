"""weir.Runner against a plain loop over gloo: numbers to the last bit, lifetimes, and how a step ends when a rank fails."""

import contextlib
import copy
import gc
import itertools
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

import weir
from weir._memory import Memory

pytestmark = pytest.mark.skipif(tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 14), reason="weir.Runner takes PyTorch 2.14")

WIDTH = 16
SHAPE = torch.empty(4, WIDTH, device="meta")


def plan_of(name, ranks, m=6, *flags):
    made = subprocess.run([os.environ["WEIR"], "plan", name, f"--ranks={ranks}", f"--microbatches={m}", *flags, "--to=plan"], check=True, capture_output=True, text=True)
    return weir.Plan(json.loads(made.stdout), f"weir plan {name}")


class Block(nn.Module):
    """Returns a view, and normalizes with a weight that it uses twice."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.norm(self.b(torch.tanh(self.a(self.norm(x))))).view(x.shape)


def blocks(count, make=Block):
    torch.manual_seed(1)
    return [make() for _ in range(count)]


def loss_fn(output, target):
    """Returns the sum of losses and its weight, which is 0 for some microbatches."""
    count = int(target[0, 0] > 0) * target.shape[0]
    return (output - target)[:count].square().sum() + 0 * output.sum(), count


def entries(m, rows=lambda mb: 4, width=WIDTH):
    generator = torch.Generator().manual_seed(2)
    for mb in range(m):
        yield torch.randn(rows(mb), width, generator=generator), torch.randn(rows(mb), width, generator=generator)


def plain(stages, batch, loss_fn=loss_fn, forward=contextlib.nullcontext):
    """Trains in a plain loop. Returns gradients by stage, the sum of the losses, and their weight."""
    total = weight = 0.0
    for x, t in batch:
        with forward():
            for stage in stages:
                x = stage(*x) if isinstance(x, tuple) else stage(x)
            loss, w = loss_fn(x, t)
        loss.backward()
        total, weight = total + loss.detach().double(), weight + w
    return [[p.grad / weight if p.grad is not None else None for p in stage.parameters()] for stage in stages], float(total), weight


def equal(modules, wanted):
    for s, module in modules.items():
        for (name, p), g in zip(module.named_parameters(), wanted[s]):
            assert (p.grad is None) == (g is None) and (g is None or torch.equal(p.grad, g)), f"stage {s}'s {name} is off by {(p.grad - g).abs().max()}"


def run(rank, plan, stages, reference, m=None, rows=lambda mb: 4, loss_fn=loss_fn, **options):
    """Runs two steps of a plan, compares the second with a plain loop, and returns the runner."""
    modules = {s: stages[s] for s in plan.on(rank)}
    runner = weir.Runner(plan, modules, loss_fn, **{"shapes": SHAPE, "timeout": 30, **options})
    results = [runner.step(entries(plan.microbatches, rows)) for _ in range(2)]
    wanted, total, weight = plain(reference, entries(plan.microbatches, rows), loss_fn, options.get("forward", contextlib.nullcontext))
    assert results[0] == results[1]._replace(step=0) and results[1] == (1, total, weight, False) and results[1].loss == total / weight
    equal(modules, wanted)
    same_norms(runner, wanted)
    return runner


def same_norms(runner, wanted):
    """Compares the 2-norm and the maximum norm of all gradients, bit for bit, with the norm of the parameters' norms, in order, of a plain loop."""
    for kind in 2.0, math.inf:
        norms = [torch.linalg.vector_norm(g, kind, dtype=torch.float64) for stage in wanted for g in stage if g is not None]
        assert runner.clip_grad_norm_(1e9, kind) == torch.linalg.vector_norm(torch.stack(norms), kind)


PLANS = ("1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev")


def numbers(rank, plans):
    for plan in plans:
        run(rank, plan, blocks(plan.stages), blocks(plan.stages)).close()


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients(ranks):
    on_ranks(ranks, numbers, [plan_of(name, ranks, 8) for name in (PLANS if ranks == 2 else PLANS[1:4:2])])


class Relay(nn.Module):
    """Passes on a skip connection, positions, a constant table, and its output."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("own", torch.ones(1, WIDTH))

    def forward(self, x, skip=None, positions=None, table=None):
        if skip is None:
            skip, positions, table = x, torch.arange(x.shape[0]), self.own
        return self.a(x).tanh() + positions[:, None] * table, skip, positions, table


class Head(Relay):
    def forward(self, x, skip, positions, table):
        return self.a(x + skip)


class Checkpointed(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


def models(rank, zbv, f1b, frozen):
    for plan in zbv, f1b:
        stages = blocks(plan.stages - 1, Relay) + blocks(1, Head)
        kept = copy.deepcopy(stages)
        run(rank, plan, stages, kept, shapes=(SHAPE, SHAPE, torch.empty(4, dtype=torch.int64), torch.empty(1, WIDTH)))
        stages = blocks(plan.stages, Checkpointed)
        run(rank, plan, stages, copy.deepcopy(stages))
        run(rank, plan, blocks(plan.stages), blocks(plan.stages), rows=lambda mb: 1 + mb % 5, shapes=lambda mb: torch.empty(1 + mb % 5, WIDTH))
        stages = blocks(plan.stages, lambda: nn.Linear(WIDTH, WIDTH))
        run(rank, plan, stages, copy.deepcopy(stages), forward=autocast, shapes=torch.empty(4, WIDTH, dtype=torch.bfloat16), loss_fn=in_float)
        run(rank, plan, [torch.compile(stage, backend="aot_eager") for stage in blocks(plan.stages)], blocks(plan.stages))
    stages = blocks(frozen.stages)
    for stage in stages[:2]:
        stage.requires_grad_(False)
    run(rank, frozen, stages, copy.deepcopy(stages))


def in_float(output, target):
    return (output.float() - target).square().sum(), 4


def test_models():
    on_ranks(2, models, plan_of("zb-v", 2), plan_of("1f1b", 2), plan_of("interleaved", 2, 6, "--frozen=0,1"))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return x @ self.table


def ties(rank, plans, shared):
    for plan in plans:
        last = plan.stages - 1
        stages = [Embedding(), *blocks(plan.stages - 2), Embedding()]
        torch.manual_seed(3)
        table = torch.randn(WIDTH, WIDTH)
        for s in 0, last:
            stages[s].table.data.copy_(table)
        reference = copy.deepcopy(stages)
        if plan.placement[0] == plan.placement[last]:
            stages[last].table = stages[0].table
        modules = {s: stages[s] for s in plan.on(rank)}
        runner = weir.Runner(plan, modules, loss_fn, shapes=SHAPE, tied=[{0: "table", last: "table"}] if shared != "found" else ())
        runner.step(entries(plan.microbatches))
        wanted, _, _ = plain(reference, entries(plan.microbatches))
        total = reference[0].table.grad + reference[last].table.grad
        wanted[0][0] = wanted[last][0] = total / runner.step(entries(plan.microbatches)).weight
        equal(modules, wanted)
        norm = torch.cat([g.flatten() for g in itertools.chain(*wanted[:-1])]).norm()
        before = runner.clip_grad_norm_(norm.item() / 2)
        assert abs(before - norm) < 1e-5 * norm
        assert all((p.grad - g / 2).abs().max() < 1e-5 * norm for s in modules for p, g in zip(modules[s].parameters(), wanted[s]))
        if shared == "declared" and runner._linked(0):
            stages[last].table.data.add_(1)
            with pytest.raises(ValueError, match=r"the tied parameters of the stages \[0, \d\] differ"):
                weir.Runner(plan, modules, loss_fn, shapes=SHAPE, tied=[{0: "table", last: "table"}])


def test_ties():
    on_ranks(2, ties, [plan_of("1f1b", 2), plan_of("interleaved", 2), plan_of("zb-v", 2)], "declared")
    on_ranks(2, ties, [plan_of("zb-v", 2)], "found")


def evaluates(rank, plan):
    stages = blocks(plan.stages)
    got = {}
    parameters = [p for stage in stages for p in stage.parameters()]
    for p in parameters:
        p.grad = torch.ones_like(p)
    modules = {s: stages[s] for s in plan.on(rank)}
    result = weir.Runner(plan, modules, loss_fn, shapes=SHAPE).step(entries(plan.microbatches), on_output=got.__setitem__)
    _, total, weight = plain(blocks(plan.stages), entries(plan.microbatches))
    assert result == (0, total, weight, False)
    again = {}
    result = weir.Runner(plan, modules, shapes=SHAPE).step(entries(plan.microbatches), on_output=again.__setitem__)
    assert result[1:] == (0.0, 0.0, False) and got.keys() == again.keys() and all(torch.equal(y, again[mb]) for mb, y in got.items())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in parameters)
    assert len(got) == (plan.microbatches if plan.stages - 1 in plan.on(rank) else 0) and not any(y.requires_grad for y in got.values())


def test_evaluation():
    on_ranks(2, evaluates, plan_of("interleaved", 2, 6, "--forward-only"))


def weights(rank, plan, none):
    stages = blocks(2)
    optimizer = torch.optim.AdamW(stages[rank].parameters(), weight_decay=0.1)
    before = copy.deepcopy(stages[rank].state_dict())
    runner = weir.Runner(plan, {rank: stages[rank]}, none, shapes=SHAPE)
    result = runner.step(entries(6))
    optimizer.step()
    assert result.weight == 0 and result.loss != result.loss
    assert all(torch.equal(v, before[k]) for k, v in stages[rank].state_dict().items())
    # one big batch, and the mean of means that PyTorch's runtime computes
    uneven = lambda y, t: ((y - t).square().sum(), t.shape[0])
    rows = lambda mb: 1 + 3 * mb
    runner = weir.Runner(plan, {rank: stages[rank]}, uneven, shapes=lambda mb: torch.empty(rows(mb), WIDTH))
    runner.step(entries(6, rows))
    big, _, _ = plain(blocks(2), [tuple(torch.cat(part) for part in zip(*entries(6, rows)))], uneven)
    means, _, _ = plain(blocks(2), entries(6, rows), lambda y, t: ((y - t).square().sum() / t.shape[0], 1))
    off = [max(float((p.grad - g).abs().max() / g.abs().max()) for p, g in zip(stages[rank].parameters(), other[rank])) for other in (big, means)]
    assert off[0] < 1e-5 and off[1] > 1e-2, off


def weightless(output, target):
    return 0 * output.sum(), torch.zeros(())


def test_weights():
    on_ranks(2, weights, plan_of("1f1b", 2), weightless)


def scales(rank, plan):
    stages = blocks(plan.stages)
    modules = {s: stages[s] for s in plan.on(rank)}
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1000)
    optimizer = torch.optim.SGD([p for m in modules.values() for p in m.parameters()], lr=0.1)
    runner = weir.Runner(plan, modules, loss_fn, shapes=SHAPE, scaler=scaler)
    before = copy.deepcopy({s: m.state_dict() for s, m in modules.items()})
    assert not runner.step(entries(plan.microbatches)).overflow
    scaler.unscale_(optimizer)
    wanted, _, _ = plain(blocks(plan.stages), entries(plan.microbatches))
    equal(modules, wanted)
    scaler.step(optimizer)
    scaler.update()
    after = copy.deepcopy({s: m.state_dict() for s, m in modules.items()})
    assert not any(torch.equal(before[s]["a.weight"], after[s]["a.weight"]) for s in modules)
    if rank == 1:  # on the other rank, every gradient is finite
        modules[plan.on(1)[0]].a.weight.register_hook(lambda g: g * float("inf"))
    assert runner.step(entries(plan.microbatches)).overflow
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**7
    assert all(torch.equal(v, after[s][k]) for s in modules for k, v in modules[s].state_dict().items())


def test_scaler():
    on_ranks(2, scales, plan_of("1f1b", 2))


def replicas(rank, plans):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    place, copy_of = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    for plan in plans:
        mine = list(entries(2 * plan.microbatches))[copy_of::2]
        wanted, total, weight = plain(blocks(plan.stages), entries(2 * plan.microbatches))
        for wrap in "plain", "ddp", "fsdp":
            stages = blocks(plan.stages)
            if wrap == "fsdp":
                if not hasattr(torch.distributed.fsdp.FSDPModule, "finalize_backward"):
                    with pytest.raises(ValueError, match="takes PyTorch 2.15"):
                        weir.Runner(plan, {s: fully_shard(stages[s], mesh=mesh["dp"]) for s in plan.on(place)}, loss_fn, mesh["pp"], shapes=SHAPE, replicas=mesh["dp"])
                    continue
                for stage in stages:
                    fully_shard(stage.a, mesh=mesh["dp"])
                    fully_shard(stage, mesh=mesh["dp"])
            modules = {s: DistributedDataParallel(stages[s], process_group=mesh["dp"].get_group()) if wrap == "ddp" else stages[s] for s in plan.on(place)}
            with pytest.raises(ValueError, match="give replicas=") if wrap != "plain" else contextlib.nullcontext():
                weir.Runner(plan, modules, loss_fn, mesh["pp"], shapes=SHAPE)
            runner = weir.Runner(plan, modules, loss_fn, mesh["pp"], shapes=SHAPE, replicas=mesh["dp"], timeout=30)
            for _ in range(2):
                result = runner.step(iter(mine))
            assert abs(result.sum - total) < 1e-9 * total and result.weight == weight
            norm = torch.cat([g.flatten() for g in itertools.chain(*wanted)]).norm()
            assert abs(runner.clip_grad_norm_(1e9) - norm) < 1e-5 * norm
            for s in modules:
                for (name, p), g in zip(stages[s].named_parameters(), wanted[s]):
                    mine_g = p.grad.full_tensor() if wrap == "fsdp" else p.grad
                    assert (mine_g - g).abs().max() < 1e-6 * g.abs().max() + 1e-9, (wrap, plan.name, s, name)
            if plan.name == "zb-v" and wrap != "plain":  # an error on one replica ends the step on all
                hook = stages[3].register_forward_pre_hook(planted) if dist.get_rank() == 1 else None
                with pytest.raises(weir.StepError, match=r"step 2 ended on rank 0 \(process 1\) in 3F0: ArithmeticError: planted" if copy_of else "process|connection"):
                    runner.step(iter(mine))
                if hook is not None:
                    hook.remove()
                assert runner.step(iter(mine))[1:] == result[1:]
            runner.close()


def planted(module, args):
    raise ArithmeticError("planted")


def test_replicas():
    on_ranks(4, replicas, [plan_of("1f1b", 2), plan_of("zb-v", 2), plan_of("1f1b", 2, 6, "--replicas=2", "--shard=3")])


def saves(rank, plans, path):
    """Trains two steps under one cut, and the third under each: from memory, and from a checkpoint."""
    import torch.distributed.checkpoint as dcp

    outcomes = []
    for number, plan in enumerate(plans):
        per = 8 // plan.stages
        layers = [nn.Sequential(*blocks(8)[s * per:(s + 1) * per]) for s in range(plan.stages)]
        modules = {s: layers[s] for s in plan.on(rank)}
        optimizer = torch.optim.AdamW([p for m in modules.values() for p in m.parameters()], lr=0.01)
        runner = weir.Runner(plan, modules, loss_fn, shapes=SHAPE, names=lambda s, name, per=per: f"layers.{int(name.split('.')[0]) + s * per}.{name.split('.', 1)[1]}")
        state = {"train": runner.checkpoint(optimizer)}
        if number == 0:
            for _ in range(2):
                runner.step(entries(plan.microbatches))
                optimizer.step()
            dcp.save(state, checkpoint_id=path)
        else:
            dcp.load(state, checkpoint_id=path)
        result = runner.step(entries(plan.microbatches))
        optimizer.step()
        model = state["train"].state_dict()["model"]
        everything = {}
        for theirs in runner._transfers.gather({k: v.detach().clone() for k, v in model.items()}):
            everything.update(theirs)
        outcomes.append((result[1:], everything))
    first, *others = outcomes
    assert len(first[1]) == 8 * 6 and "layers.7.norm.weight" in first[1]
    for other in others:
        assert other[0] == first[0] and all(torch.equal(v, other[1][k]) for k, v in first[1].items())
    runner._names = lambda s, name: name
    with pytest.raises(ValueError, match="are both named 0.a.weight in the unsplit model: give names="):
        runner.checkpoint()


def test_checkpoint(tmp_path):
    on_ranks(2, saves, [plan_of("1f1b", 2), plan_of("zb-v", 2), plan_of("interleaved", 2)], str(tmp_path / "saved"))


# Lifetimes.


def pulls(rank, plan):
    pulled, alive = [], []

    def source():
        for mb, (x, t) in enumerate(entries(plan.microbatches + 3)):
            pulled.append(mb)
            alive.append((weakref.ref(x), weakref.ref(t)))
            most.append(sum(ref() is not None for pair in alive for ref in pair))
            pair = x, t
            del x, t
            yield pair
            del pair

    most = []
    stages = blocks(plan.stages)
    runner = weir.Runner(plan, {s: stages[s] for s in plan.on(rank)}, loss_fn, shapes=SHAPE)
    runner.step(source() if {0, plan.stages - 1} & set(plan.on(rank)) else None)
    ends = {0, plan.stages - 1} & set(plan.on(rank))
    assert pulled == list(range(plan.microbatches if ends else 0))
    assert not any(ref() is not None for pair in alive[:-1] for ref in pair) and max(most, default=0) <= 2 * max(plan.data["windows"]) + 2


def packed(rank, plan, lengths, packs):
    """Runs a step of packed sequences in the order of the packing, and compares it with a loop over its microbatches."""
    generator = torch.Generator().manual_seed(3)
    sequences = [(torch.randn(n, WIDTH, generator=generator), torch.randn(n, WIDTH, generator=generator)) for n in lengths]
    batch = [tuple(torch.cat(parts) for parts in zip(*(sequences[i] for i in pack))) for pack in packs]
    stages = blocks(plan.stages)
    runner = weir.Runner(plan, {s: stages[s] for s in plan.on(rank)}, loss_fn, timeout=30)
    result = runner.step(batch, shapes=lambda mb: torch.empty(sum(lengths[i] for i in packs[mb]), WIDTH, device="meta"))
    reference = blocks(plan.stages)
    wanted, total, weight = plain(reference, batch)
    assert (result.sum, result.weight) == (total, weight)
    equal(runner.modules, wanted)
    runner.close()


def test_packing(tmp_path, monkeypatch):
    (tmp_path / "weir").symlink_to(os.path.abspath(os.environ["WEIR"]))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    costs = tmp_path / "costs.json"
    costs.write_text('{"schema": 1, "unit": "ns", "stages": [{"f": 100, "b": 200, "per_token": {"f": 200, "b": 400}}]}')
    lengths = [3, 40, 20, 1, 15, 7, 9, 2, 31, 12]
    packs = weir.pack(lengths, ranks=2, tokens=48, costs=costs).packs[0]
    assert [i for pack in packs for i in pack] != list(range(len(lengths))), "the order is that in which they came"
    for name in "1f1b", "zb-h1":
        on_ranks(2, packed, plan_of(name, 2, len(packs)), lengths, packs)


def test_entries():
    for plan in plan_of("1f1b", 4, 16), plan_of("zb-v", 4, 16):
        on_ranks(4, pulls, plan)


def flights(rank, plans):
    """Counts, after each action, the microbatches of which each stage holds a tensor."""
    for plan in plans:
        stages = blocks(plan.stages)
        runner = weir.Runner(plan, {s: stages[s] for s in plan.on(rank)}, loss_fn, shapes=SHAPE)
        most = dict.fromkeys(plan.on(rank), 0)

        def counted(action, runner=runner, most=most):
            def act(stage, mb):
                action(stage, mb)
                held = {key[2] for key in runner._held if key[1] == stage and key[0] in ("input", "saved", "carry")}
                most[stage] = max(most[stage], len(held))

            return act

        runner._run = {kind: counted(action) for kind, action in runner._run.items()}
        runner.step(entries(plan.microbatches))
        assert most == {s: plan.data["windows"][s] for s in plan.on(rank)}, plan.name


def test_microbatches_in_flight():
    on_ranks(2, flights, [plan_of(name, 2, 12) for name in ("1f1b", "interleaved", "zb-v")])


def level(rank, plans):
    """Measures allocated bytes, and Python's blocks without garbage, at a quarter and three quarters of a long step."""
    memory = Memory(torch.device("cpu"))
    for plan in plans:
        stages = blocks(plan.stages)
        runner = weir.Runner(plan, {s: stages[s] for s in plan.on(rank)}, loss_fn, shapes=SHAPE)
        retire, readings = runner._retire, {}

        def read(mb, retire=retire, readings=readings, m=plan.microbatches):
            retire(mb)
            if mb in (m // 4, 3 * m // 4):
                gc.collect()
                blocks = [(time.sleep(0.02), sys.getallocatedblocks())[1] for _ in range(10)]  # other threads use some temporarily
                readings[mb] = torch.tensor([memory.read(False).allocated, min(blocks)])

        runner._retire = read
        runner.step(entries(plan.microbatches))
        growth = (readings[3 * plan.microbatches // 4] - readings[plan.microbatches // 4]) / (plan.microbatches // 2)
        assert growth[0] < 50 and growth[1] < 0.5, (plan.name, growth)


def test_memory():
    on_ranks(2, level, [plan_of(name, 2, 512) for name in ("1f1b", "zb-v")])


KEPT = []


class Keeps(Block):
    def forward(self, x):
        y = super().forward(x)
        KEPT.append(y.detach())
        return y


def leaks(rank, plan):
    stages = [Keeps(), Block()]
    runner = weir.Runner(plan, {rank: stages[rank]}, loss_fn, shapes=SHAPE)
    with pytest.raises(weir.StepError, match=r"step 0 ended on rank 0 in 0\w+: LeakError: .* outlive them: output in stage 0 \(Keeps\), held by test_runner.KEPT\[\]") as caught:
        runner.step(entries(plan.microbatches))
    assert isinstance(caught.value.__cause__, weir.LeakError if rank == 0 else type(None))


def test_leak_is_named():
    on_ranks(2, leaks, plan_of("1f1b", 2, 8))


def guarded(rank, plan, folder):
    stages = blocks(2)
    guard = weir.Guard([stages[rank]], log=f"{folder}/{rank}.jsonl", rank=rank)
    runner = weir.Runner(plan, {rank: stages[rank]}, loss_fn, shapes=SHAPE, guard=guard)
    for _ in range(2):
        runner.step(entries(plan.microbatches))
    guard.close()
    assert guard.microbatches == 2 * plan.microbatches and not guard.leaks


def test_guard(tmp_path):
    on_ranks(2, guarded, plan_of("1f1b", 2, 8), str(tmp_path))
    for rank in range(2):
        lines = [json.loads(line) for line in (tmp_path / f"{rank}.jsonl").read_text().splitlines()]
        assert len(lines) == 16 and all(line["rank"] == rank for line in lines)


# Faults.


def tensor_bytes():
    return sum({s.data_ptr(): s.nbytes() for o in gc.get_objects() if type(o) is torch.Tensor for s in [o.untyped_storage()]}.values())


def connections(cut=()):
    """Returns the file descriptors of this process's connected sockets. Those in cut are shut down."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:  # closes the duplicate, which would keep the connection open
            one.getpeername()
            found.add(int(name))
            if int(name) in cut:
                one.shutdown(socket.SHUT_RDWR)
    return found


def faults(rank, plan, kind):
    stages = blocks(plan.stages)
    before = connections()
    modules = {s: stages[s] for s in plan.on(rank)}
    runner = weir.Runner(plan, modules, loss_fn, shapes=SHAPE, timeout=6.0 if kind == "stop" else 60.0)
    runner.step(entries(plan.microbatches))
    wanted = {s: [p.grad.clone() for p in m.parameters()] for s, m in modules.items()}
    level = tensor_bytes() - sum(g.nbytes for gs in wanted.values() for g in gs)
    own = connections() - before
    first = plan.on(1)[0]
    began = time.monotonic()

    def happen(module, args):
        if kind == "forked" and os.fork() == 0:  # like a worker of a DataLoader, the child keeps the connections open
            time.sleep(15)
            os._exit(0)
        if kind in ("error", "forked"):
            raise ArithmeticError("planted")
        if kind == "cut":
            connections(cut=own)
        else:
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}[kind])
        return args

    hook = modules[first].register_forward_pre_hook(happen) if rank == 1 else None
    with pytest.raises(KeyboardInterrupt if kind == "interrupt" and rank == 1 else weir.StepError) as caught:
        runner.step(entries(plan.microbatches))
    assert tensor_bytes() <= level, tensor_bytes() - level
    assert time.monotonic() - began < (20 if kind == "stop" else 10)
    if kind in ("error", "forked", "interrupt", "cut"):
        if hook:
            hook.remove()
        assert runner.step(entries(plan.microbatches)).step == 2
        equal(modules, wanted)
    return str(caught.value), getattr(caught.value, "rank", None), getattr(caught.value, "action", None)


@pytest.mark.parametrize("kind, says", [
    ("error", "step 1 ended on rank 1 in 1F0: ArithmeticError: planted"),
    ("interrupt", "step 1 ended on rank 1 in 1F0: KeyboardInterrupt$"),
    ("forked", "step 1 ended on rank 1 in 1F0: ArithmeticError: planted"),
    ("cut", r"step 1 ended on rank \d in \w+: .*was closed"),
    ("kill", "step 1 ended on rank 1: it has ended, or its connection was closed; rank 0 saw this in"),
    ("stop", "step 1 ended on rank 1: it did nothing for 6 s: stopped, or it hangs; rank 0 saw this in"),
])
def test_fault(kind, says):
    found = on_ranks(2, faults, plan_of("zb-v", 2), kind, store="parent")
    text, rank, action = found[0]
    assert re.match(says, text) and (kind == "cut" or rank == 1 and action == ("" if kind in ("kill", "stop") else "1F0"))
    assert (found[1] is None) == (kind in ("kill", "stop"))
    if kind in ("error", "forked", "cut"):
        assert found[1] == found[0]


class Wide(Block):
    def forward(self, x):
        return torch.cat([super().forward(x)] * 2)


class Reentrant(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=True)


class Lossy(torch.autograd.Function):
    """Computes its weight gradient only in the first backward, like a Function that frees its saved tensors."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.calls = 0
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.calls += 1
        return grad * weight, (grad * x).sum(0) if ctx.calls == 1 else torch.zeros_like(weight)


class Misses(Block):
    def forward(self, x):
        return Lossy.apply(super().forward(x), self.norm.weight)


def steps(rank, cases):
    texts = []
    for plan, made, loss, batch, says in cases:
        stages = made(plan.stages)
        shape = SHAPE if rank == 0 or "different shapes" not in says else torch.empty(8, WIDTH)  # smaller messages arrive in larger buffers
        runner = weir.Runner(plan, {s: stages[s] for s in plan.on(rank)}, loss, shapes=shape, timeout=10)
        with pytest.raises(weir.StepError, match=says) as caught:
            runner.step(batch(plan.microbatches))
        texts.append(str(caught.value))
        runner.close()
    return texts


def wide(count):
    return blocks(count, Wide)


def reentrant(count):
    return blocks(count, Reentrant)


def misses(count):
    return blocks(count, Misses)


def pair(output, target):
    return output, 1


def of_output(output, target):
    return output.sum(), 1


def negative(output, target):
    return output.sum(), -1


def fewer(m):
    return entries(m - 1)


def stacked(m):
    return (torch.stack(pair) for pair in entries(m))


def test_steps_that_are_refused():
    f1b, zbv, forwards = plan_of("1f1b", 2), plan_of("zb-v", 2), plan_of("1f1b", 2, 6, "--forward-only")
    texts = on_ranks(2, steps, [
        (f1b, blocks, negative, entries, "the total weight is -6.0: loss_fn returns weights that are finite"),
        (f1b, blocks, loss_fn, fewer, "ValueError: entries ended after 5 of 6 microbatches"),
        (f1b, blocks, loss_fn, stacked, r"TypeError: an entry is a pair \(inputs, targets\), not a Tensor\[2, 4, 16\]"),
        (forwards, blocks, of_output, entries, "the ranks were given different shapes"),
        (f1b, blocks, pair, entries, r"loss_fn returned Tensor\[4, 16\]: return \(sum, weight\)"),
        (f1b, wide, loss_fn, entries, r"stage 0 sends float32\[8, 16\] for microbatch 0, and shapes says float32\[4, 16\]"),
        (f1b, reentrant, loss_fn, entries, "no output of stage 0 has a graph in microbatch 0, .*without use_reentrant=False"),
        (zbv, misses, loss_fn, entries, r"the split backward of stage \d is wrong: the gradient of norm.weight"),
    ])
    assert texts[0] == texts[1]


def refused(rank, cases):
    for plan, change, says in cases:
        stages = blocks(plan.stages)
        given = {"plan": plan, "modules": {s: stages[s] for s in plan.on(rank)}, "loss_fn": loss_fn, "shapes": SHAPE, **(change if rank == 1 else {})}
        if given.pop("without", None) is not None:
            given["modules"].popitem()
        with pytest.raises(ValueError, match=says if rank == 1 or not change or "different" in says else f"process 1 has no runner: .*{says}"):
            weir.Runner(**given)


def test_runners_that_are_refused():
    f1b = plan_of("1f1b", 2)
    bare = copy.deepcopy(f1b.data)
    del bare["windows"]
    on_ranks(2, refused, [
        (f1b, {"without": 1}, r"modules has the stages \[\], and rank 1 has \[1\]"),
        (f1b, {"loss_fn": None}, "loss_fn is None"),
        (f1b, {"plan": plan_of("gpipe", 2)}, r"the processes 0 and 1 were given different plans: 1f1b \w{12} and gpipe \w{12}"),
        (f1b, {"tied": [{0: "a.weight", 1: "a.wieght"}]}, "tied names the parameter a.wieght of stage 1"),
        (f1b, {"tied": [{0: "a.weight", 1: "a.weight"}]}, r"the processes 0 and 1 were given different tied parameters: \[\] and \[\[\(0, 'a.weight'\)"),
        (weir.Plan(bare, "bare"), {}, "bare .* has no lifetimes"),
        (plan_of("1f1b", 4), {}, "is for 4 ranks, and the group has 2"),
        (plan_of("1f1b", 2, 6, "--quantize=at-start"), {}, "a Runner does not run: make the plan without --offload"),
        (plan_of("interleaved", 2, 6, "--frozen=0,1"), {}, r"stage [01] is frozen in .* requires a gradient"),
    ])


def alone(rank, plan):
    """Makes a runner, and begins a step, on rank 0 only. Rank 1 follows after rank 0 has given up, and then both try again."""
    stages, texts = blocks(2), []

    def late(call, error):
        if rank == 1:
            dist.barrier()
        with mock.patch("weir._transfers._CONNECT", 1.0), pytest.raises(error) as caught:
            call()
        if rank == 0:
            dist.barrier()
        texts.append(str(caught.value))

    late(lambda: weir.Runner(plan, {rank: stages[rank]}, loss_fn, shapes=SHAPE, timeout=1), RuntimeError)
    runner = weir.Runner(plan, {rank: stages[rank]}, loss_fn, shapes=SHAPE)
    runner._transfers.seconds = 1.0
    late(lambda: runner.step(entries(6)), weir.StepError)
    dist.barrier()
    runner._transfers.seconds = 60.0
    assert runner.step(entries(6)).step == 1
    equal({rank: stages[rank]}, plain(blocks(2), entries(6))[0])
    # Rank 1 omits a call: the next call fails on both ranks, and the one after that succeeds.
    runner.close()
    runner._transfers.seconds = 1.0
    if rank == 0:
        with mock.patch("weir._transfers._CONNECT", 1.0), pytest.raises(weir.StepError):
            runner.step(entries(6))
    runner._transfers.seconds = 60.0
    dist.barrier()
    time.sleep(rank)
    began = time.monotonic()
    with pytest.raises(weir.StepError, match="process 1 has not begun this step"):
        runner.step(entries(6))
    assert time.monotonic() - began < 30
    dist.barrier()
    wanted, total, weight = plain(blocks(2), entries(6))
    assert runner.step(entries(6))[1:] == (total, weight, False)
    equal({rank: stages[rank]}, wanted)
    return texts


def test_one_rank_alone():
    text = "process 1 has not {} with the others, which wait 1 s: every process does, at the same time"
    assert on_ranks(2, alone, plan_of("1f1b", 2)) == 2 * [[text.format("made its runner"), "step 0 ended on rank 1: " + text.format("begun this step")]]


def test_one_process():
    assert not dist.is_initialized()
    plan = plan_of("1f1b", 1, 6, "--stages=4")
    stages = blocks(plan.stages)
    runner = weir.Runner(plan, dict(enumerate(stages)), loss_fn)
    result = runner.step(entries(plan.microbatches))
    wanted, total, weight = plain(blocks(plan.stages), entries(plan.microbatches))
    assert result == (0, total, weight, False)
    equal(dict(enumerate(stages)), wanted)
    same_norms(runner, wanted)
