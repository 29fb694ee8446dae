"""Tests of weir.schedule in PyTorch's runtime: gradients, losses, lifetimes and errors."""

import copy
import gc
import json
import os
import re
import subprocess
import warnings
import weakref

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import nn
from torch.nn.functional import mse_loss

import weir
from weir.plan import PlanError

VERSION = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
pytestmark = pytest.mark.skipif(VERSION < (2, 14), reason="weir.schedule refuses it")
WIDTH, ROWS, M = 4, 2, 4
CPU = torch.device("cpu")


def body(actions, **fields):
    """Returns a plan for one rank with three stages. Each repeat of the actions is for the next microbatch."""
    return {"schema": 2, "name": "test", "mode": "training", "ranks": 1, "placement": [0, 0, 0], "microbatches": M, "windows": [1, 1, 1],
            "programs": [[{"repeat": M, "stride": 1, "actions": actions}]], **fields}


WHOLE = body([["F", 0, 0], ["F", 1, 0], ["F", 2, 0], ["B", 2, 0], ["B", 1, 0], ["B", 0, 0]])
SPLIT = body([["F", 0, 0], ["F", 1, 0], ["F", 2, 0], ["I", 2, 0], ["W", 2, 0], ["I", 1, 0], ["I", 0, 0], ["W", 1, 0], ["W", 0, 0]])


class Layer(nn.Linear):
    """Returns a view if its input has three dimensions."""

    def forward(self, x):
        y = super().forward(x)
        return y.view(y.shape) if x.dim() == 3 else y


class Apart(Layer):
    """Adds a parameter that no input reaches: PyTorch's split backward gives it no gradient."""

    def __init__(self, *size):
        super().__init__(*size)
        self.apart = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return super().forward(x), self.apart * 2


class Join(Layer):
    def forward(self, x, apart):
        return super().forward(x) * apart


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A group of one rank, in which all stages exchange tensors without messages."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path_factory.mktemp("alone") / "store"), 1))
    yield
    dist.destroy_process_group()


def layers(*kinds):
    torch.manual_seed(3)
    return [kind(WIDTH, WIDTH) for kind in kinds or (Layer,) * 3]


def batch(shape=(WIDTH,), count=M):
    torch.manual_seed(4)
    return torch.randn(count * ROWS, *shape), torch.randn(count * ROWS, *shape)


def stages_of(modules, shape=(WIDTH,), on=None, grad=True, wrap=lambda m: m):
    from torch.distributed.pipelining import PipelineStage

    like = torch.empty(ROWS, *shape, requires_grad=grad)
    return [PipelineStage(wrap(modules[s]), s, len(modules), CPU, input_args=like if s else torch.empty(ROWS, *shape), output_args=like)
            for s in (range(len(modules)) if on is None else on)]


def wanted(modules, shape, loss, count=M):
    """Returns the gradients and losses of a plain loop over the microbatches. For mse_loss, gradients are averaged over them."""
    modules, (x, target) = copy.deepcopy(modules), batch(shape, count)
    losses = []
    for a, b in zip(x.chunk(count), target.chunk(count)):
        for module in modules:
            a = module(a)
        losses.append(loss(a, b))
        (losses[-1] / count if loss is mse_loss else losses[-1]).backward()
    return [[p.grad for p in module.parameters()] for module in modules], [value.item() for value in losses]


def total(output, target):
    return mse_loss(output, target, reduction="sum")


def same(modules, gradients):
    return all(torch.equal(p.grad, g) for module, some in zip(modules, gradients) for p, g in zip(module.parameters(), some))


@pytest.mark.parametrize("plan", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("reduction, loss", [("mean", mse_loss), ("sum", total)])
@pytest.mark.parametrize("shape", [(WIDTH,), (3, WIDTH)], ids=["flat", "views"])
def test_gradients(alone, plan, reduction, loss, shape):
    modules, (x, target), losses = layers(), batch(shape), [torch.ones(3)]
    schedule = weir.schedule(weir.Plan(plan), stages_of(modules, shape), loss, reduction=reduction)
    assert schedule.step(x, target=target, losses=losses) is None
    gradients, numbers = wanted(layers(), shape, loss)
    assert same(modules, gradients)
    assert [value.item() for value in losses] == numbers and not any(value.requires_grad for value in losses)
    for p in (p for module in modules for p in module.parameters()):
        p.grad = None
    schedule.step(x, target=target)  # without losses; the split backwards are checked
    assert same(modules, gradients)


def test_what_pytorch_does_alone(alone):
    """Faults that weir.schedule works around or rejects. The test fails when PyTorch fixes one."""
    from torch.distributed.pipelining import schedules

    def bare(text, modules, shape, loss):
        schedule = schedules._PipelineScheduleRuntime(stages_of(modules, shape), M, loss_fn=loss)
        schedule._prepare_schedule_with_comms({0: [schedules._Action.from_str(cell) for cell in text.split()]}, format="compute_comms")
        x, target = batch(shape)
        schedule.step(x, target=target)

    cells = " ".join(f"0F{m} 1F{m} 2F{m} 2I{m} 2W{m} 1I{m} 1W{m} 0I{m} 0W{m}" for m in range(M))
    with pytest.raises(RuntimeError, match="Failed to run stage backward input") as e:
        bare(cells, layers(), (3, WIDTH), mse_loss)
    assert "Can't detach views in-place" in str(e.value.__cause__)
    modules = layers()
    bare(cells, modules, (WIDTH,), mse_loss)
    assert torch.allclose(modules[0].weight.grad / M, wanted(layers(), (WIDTH,), mse_loss)[0][0][0]), "gradients are those of the sum"


def test_outputs_and_eval(alone):
    modules, (x, target) = layers(), batch()
    schedule = weir.schedule(weir.Plan(WHOLE), stages_of(modules), mse_loss)
    outputs, losses = torch.cat([nn.Sequential(*modules)(part) for part in x.chunk(M)]), []  # products of more rows may round differently
    assert torch.equal(schedule.step(x, target=target, return_outputs=True), outputs)
    assert torch.equal(schedule.eval(x, target=target, losses=losses), outputs) and not any(value.requires_grad for value in losses)
    assert torch.allclose(torch.stack(losses).mean(), mse_loss(outputs, target))


def test_nothing_is_kept(alone):
    """Neither outputs nor losses, their storage, nor their graphs are alive three microbatches later."""
    class Kept(Layer):
        def forward(self, x):
            y = super().forward(x)
            alive.append(sum(ref() is not None for ref in refs))
            refs.append(weakref.ref(y.untyped_storage()))
            return y

    def loss_fn(output, target):
        loss = mse_loss(output, target)
        refs.append(weakref.ref(loss.untyped_storage()))
        return loss

    refs, alive = [], []
    modules, (x, target) = layers(Layer, Layer, Kept), batch()
    schedule = weir.schedule(weir.Plan(WHOLE), stages_of(modules), loss_fn)
    gc.disable()
    try:
        schedule.step(x, target=target, losses=[])
    finally:
        gc.enable()
    assert max(alive) <= 2, alive


def test_next_step_after_an_error(alone):
    """step raises the error of a stage, and the error does not affect the next step."""
    class Broken(Layer):
        def forward(self, x):
            calls.append(x)
            if len(calls) == 3:
                raise ValueError("the disk is full")
            return super().forward(x)

    calls, modules, (x, target) = [], layers(Layer, Broken, Layer), batch()
    schedule = weir.schedule(weir.Plan(WHOLE), stages_of(modules), mse_loss)
    with pytest.raises(RuntimeError) as e:
        schedule.step(x, target=target)
    assert "the disk is full" in str(e.value.__cause__)
    for p in (p for module in modules for p in module.parameters()):
        p.grad = None
    schedule.step(x, target=target)
    assert same(modules, wanted(layers(), (WIDTH,), mse_loss)[0])


def test_split_fault_is_refused(alone):
    plan = weir.Plan(SPLIT, "best.json")
    modules, (x, target) = layers(Layer, Apart, Join), batch()

    def made(**options):
        from torch.distributed.pipelining import PipelineStage
        stages = [PipelineStage(module, s, 3, CPU) for s, module in enumerate(modules)]
        return weir.schedule(plan, stages, mse_loss, **options)

    schedule = made()
    for _ in range(2):
        with pytest.raises(PlanError) as e:
            schedule.step(x, target=target)
    assert re.fullmatch(r"best\.json splits backwards, and PyTorch \S+ computes other gradients then: in stage 1, the gradient of apart, which MulBackward0 uses, "
                        r"is none in a split backward, and of norm \S+ in a whole one\. Take a plan without I and W, .*", str(e.value))
    made(check_split=False).step(x, target=target)


@pytest.mark.parametrize("data", [WHOLE, SPLIT])
def test_losses_that_are_kept_have_no_graph(alone, data, tmp_path):
    kept = []

    def loss_fn(output, target):
        kept.append(mse_loss(output, target))
        return kept[-1]

    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    modules, (x, target) = layers(), batch()
    weir.schedule(path, stages_of(modules)[::-1], loss_fn).step(x, target=target)
    assert len(kept) == M and not any(loss.requires_grad for loss in kept)
    assert same(modules, wanted(layers(), (WIDTH,), mse_loss)[0])


def test_split_check_is_once(alone, monkeypatch):
    from weir import _split

    calls, whole = [], _split.SplitCheck.whole
    monkeypatch.setattr(_split.SplitCheck, "whole", lambda self, *args: (calls.append(self.stage), whole(self, *args)))
    modules, (x, target), scale = layers(), batch(), float("inf")
    schedule = weir.schedule(weir.Plan(SPLIT), stages_of(modules), lambda output, target: mse_loss(output, target) * scale)
    schedule.step(x, target=target)  # overflows, like a step that a GradScaler skips
    scale = 1.0
    for p in (p for module in modules for p in module.parameters()):
        p.grad = None
    schedule.step(x, target=target)
    schedule.step(x, target=target)
    assert calls == [2, 1, 2, 1]


def refusals():
    """Yields plans and arguments with the expected error."""
    def plan(change=None, **fields):
        data = {**copy.deepcopy(SPLIT), **fields}
        if change:
            change(data)
        return weir.Plan(data, "best.json")

    def first(kind):
        return lambda data: data["programs"][0].insert(0, {"repeat": 1, "stride": 0, "actions": [[kind, 0, 0]]})

    def without(data):
        del data["windows"]

    whole = weir.Plan(WHOLE)
    yield plan(mode="forward-only"), {}, "runs forwards alone"
    yield plan(without), {}, "best.json has no lifetimes, and so no waits for what is sent: weir convert best.json --to plan"
    yield plan(copies=3), {}, "has 3 copies of the model"
    yield plan(slices=2), {}, "2 slices of a sequence"
    yield plan(frozen=[0]), {}, "frozen stages"
    yield plan(lambda data: data["programs"][0][0]["actions"].pop()), {}, "best.json has 0 B or W of stage 0 for 4 microbatches; check it with: weir check best.json"
    yield plan(first("OFFLOAD")), {}, "has OFFLOAD, which PyTorch's runtime does not know"
    yield plan(first("SEND_F"), capacity=1), {}, "best.json needs two queues between two ranks, for outputs and for gradients, and PyTorch has one: weir convert best.json --runtime pytorch --to plan"
    yield plan(first("SEND_F"), capacity=1, runtime="pytorch", frozen=[0]), {}, "frozen stages"
    yield plan(ranks=2, placement=[0, 0, 1], programs=[[], []]), {}, "there are 2 ranks and 3 stages, and this rank has [0, 1]"
    yield plan(lambda data: data["programs"][0][0].update(repeat=4, stride=-1, actions=[["F", 2, 3]])), {}, "forwards of the last stage out of order"
    yield whole, {"reduction": "average"}, 'give "mean" or "sum"'
    yield whole, {"loss_fn": None}, "give it on every rank"
    yield whole, {"stages": {"grad": False}}, "output_args of stage 0 require no gradient"
    yield whole, {"stages": {"wrap": nn.parallel.DistributedDataParallel}}, ""
    yield plan(), {"stages": {"wrap": nn.parallel.DistributedDataParallel}}, "stage 1 is wrapped in DDP"


@pytest.mark.parametrize("plan, options, says", list(refusals()))
def test_refused(alone, plan, options, says):
    shape = options.pop("stages", {})
    stages = stages_of(layers(), **shape)
    if not says:
        weir.schedule(plan, stages, mse_loss)
        return
    with pytest.raises(ValueError, match=re.escape(says)):
        weir.schedule(plan, stages, **{"loss_fn": mse_loss, **options})


def test_versions(alone, monkeypatch):
    from torch.distributed.pipelining import schedules, stage

    from weir import _pytorch

    def probed():
        _pytorch.probe.cache_clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _pytorch.probe()
        return [str(w.message) for w in caught]

    with open(os.path.join(os.path.dirname(__file__), "../torch.txt")) as file:
        assert file.read().startswith(_pytorch.TESTED[-1] + ".")
    torch.manual_seed(5)
    random = torch.get_rng_state()
    assert probed() == [] and torch.equal(random, torch.get_rng_state())
    monkeypatch.setattr(torch, "__version__", "3.1.0")
    assert probed() == ["weir.schedule was tested on PyTorch 2.14 and 2.15, and this is 3.1.0; its private parts work as they should"]
    for version in "2.6.0+cu124", "2.9.1", "2.13.2":
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(ImportError, match=r"pip install 'torch>=2\.14'"):
            probed()
    monkeypatch.undo()
    for owner, name, value, says in (
        (stage.PipelineStage, "backward_maybe_with_nosync", lambda self, backward_type: None, "does not take backward_type bwd_kwargs last_backward"),
        (schedules._PipelineSchedule, "_update_losses", None, "not callable"),
        (stage, "stage_backward_weight", lambda parameters, groups: None, "other gradients"),
    ):
        if name == "backward_maybe_with_nosync":
            monkeypatch.setitem(_pytorch.SIGNATURES, value, "backward_type bwd_kwargs last_backward")
        else:
            monkeypatch.setattr(owner, name, value)
        with pytest.raises(ImportError, match=says):
            probed()
        monkeypatch.undo()
    probed()


def made_by_command(name, *flags):
    done = subprocess.run([os.environ["WEIR"], "plan", name, *flags, "--to", "plan"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def two_ranks(rank, plans):
    for data in plans:
        plan = weir.Plan(data)
        count = plan.microbatches
        for reduction, loss in ("mean", mse_loss), ("sum", total):
            modules, (x, target), losses = layers(*(Layer,) * plan.stages), batch((3, WIDTH), count), []
            schedule = weir.schedule(plan, stages_of(modules, (3, WIDTH), plan.on(rank)), loss, reduction=reduction)
            last = plan.stages - 1 in plan.on(rank)
            schedule.step(*[x] * (0 in plan.on(rank)), **({"target": target, "losses": losses} if last else {}))
            gradients, numbers = wanted(layers(*(Layer,) * plan.stages), (3, WIDTH), loss, count)
            assert same([modules[s] for s in plan.on(rank)], [gradients[s] for s in plan.on(rank)]), plan
            assert not last or [value.item() for value in losses] == numbers
    # Stage 2 of zb-v is on rank 1, and both ranks reject it.
    from torch.distributed.pipelining import PipelineStage

    modules, plan = layers(Layer, Layer, Apart, Join), weir.Plan(plans[-1])
    schedule = weir.schedule(plan, [PipelineStage(modules[s], s, 4, CPU) for s in plan.on(rank)], mse_loss)
    x, target = batch()
    with pytest.raises(PlanError, match="in stage 2, the gradient of apart"):
        schedule.step(*[x] * (rank == 0), **({"target": target} if rank == 0 else {}))
    dist.barrier()


def test_two_ranks():
    if "WEIR" not in os.environ:
        pytest.skip("WEIR names no binary of the command, which makes the plans")
    flags = "--ranks=2", f"--microbatches={M}"
    on_ranks(2, two_ranks, [made_by_command(name, *flags) for name in ("1f1b", "dualpipev", "zb-v")])


def four_ranks(rank, sharded, whole, split):
    """Two pipelines of two ranks: FSDP, DDP, and stages that are compiled."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage

    torch._functorch.config.donated_buffer = False  # a split backward retains graphs
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
    data, pipeline = mesh["data"], mesh["pipeline"]
    for plan, wrap, replicas in (
        (sharded, lambda module: fully_shard(module, mesh=data), 2),
        (whole, lambda module: fully_shard(module, mesh=data), 2),
        (whole, lambda module: nn.parallel.DistributedDataParallel(module, process_group=data.get_group()), 2),
        (split, lambda module: torch.compile(module, backend="aot_eager"), 1),
    ):
        plan = weir.Plan(plan)
        modules, own = layers(*(Layer,) * plan.stages), plan.on(pipeline.get_local_rank())
        gradients = None
        for replica in range(replicas):
            part = plan.microbatches * replicas
            found, _ = wanted(modules, (3, WIDTH), lambda y, t, replica=replica, part=part: mse_loss(y, t + replica) / part, plan.microbatches)
            gradients = found if gradients is None else [[a + b for a, b in zip(*some)] for some in zip(gradients, found)]
        stages = [PipelineStage(wrap(modules[s]), s, plan.stages, CPU, group=pipeline.get_group()) for s in own]
        schedule, (x, target) = weir.schedule(plan, stages, mse_loss), batch((3, WIDTH), plan.microbatches)
        target = target + (data.get_local_rank() if replicas > 1 else 0)
        schedule.step(*[x] * (0 in own), **({"target": target} if plan.stages - 1 in own else {}))
        for s in own:
            for p, g in zip(modules[s].parameters(), gradients[s]):
                torch.testing.assert_close(p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad, g)
    dist.barrier()


def test_fsdp_ddp_and_compile():
    if "WEIR" not in os.environ:
        pytest.skip("WEIR names no binary of the command, which makes the plans")
    flags = "--ranks=2", f"--microbatches={M}"
    on_ranks(4, four_ranks, made_by_command("zb-v", *flags, "--replicas=2", "--shard=3"), made_by_command("interleaved", *flags), made_by_command("zb-v", *flags))
