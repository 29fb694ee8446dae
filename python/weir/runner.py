"""Trains with a plan and its lifetimes over torch.distributed: weir.Runner."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import math
import os
import traceback
import weakref
from typing import Any, Callable, ContextManager, Iterable, Iterator, Mapping, NamedTuple, NoReturn, Sequence, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from ._backward import input_gradients, weight_gradients
from ._holders import names as holder_names
from ._nets import Leak, storages
from ._split import SplitCheck
from ._transfers import Cause, LateError, LostError, Pending, Transfers
from .guard import Guard, LeakError
from .plan import Action, Plan, PlanError

__all__ = ["Checkpoint", "Result", "Runner", "StepError"]

Shapes = Union[Tensor, Sequence[Tensor], Callable[[int], Any], Mapping[int, Any], None]


class Result(NamedTuple):
    """The result of a step, the same on every rank.

    sum and weight are the totals of the values that loss_fn returned, over all microbatches, ranks and
    replicas; loss is sum / weight, or NaN if the weight is 0. step is the number of the step, from 0.
    overflow is True if a gradient of some rank is not finite, in a runner with a GradScaler.
    """

    step: int
    sum: float
    weight: float
    overflow: bool

    @property
    def loss(self) -> float:
        return self.sum / self.weight if self.weight else math.nan


class StepError(RuntimeError):
    """A step has ended on all ranks because of an error on one.

    rank is the rank of the pipeline that failed, process its rank in the default process group, action the action that it ran,
    such as "1F3", or "" if this is unknown, cause its error as text, and step the number of the step. On the rank that
    failed, __cause__ is the error. All tensors of the step, including gradients, are released, and
    the next step works unless a process has ended or does not answer.
    """

    def __init__(self, step: int, cause: Cause) -> None:
        process = f" (process {cause.process})" if cause.process != cause.rank else ""
        super().__init__(f"step {step} ended on rank {cause.rank}{process}{' in ' + cause.action if cause.action else ''}: {cause.text}")
        self.step, self.rank, self.process, self.action, self.cause = step, cause.rank, cause.process, cause.action, cause.text


class Runner:
    """Trains one step after another with a plan, and keeps no tensor longer than the plan says.

        plan = weir.Plan.load("plan.json")                       # weir plan zb-v --ranks 2 --microbatches 64 -o plan.json --to plan
        runner = weir.Runner(plan, {s: model[s] for s in plan.on(rank)}, loss_fn, shapes=torch.empty(32, 512, device="meta"))
        for ...:
            result = runner.step(batches)                        # pairs (inputs, targets), a pair for each microbatch
            runner.clip_grad_norm_(1.0)
            optimizer.step()

    Every rank makes its runner, and calls step, at the same time.

    Args:
        plan: a Plan with lifetimes, or the path of one, the same on every rank.
        modules: the module of each stage of this rank, by stage. A stage is called with the tensors that the
            stage before it returned, one or a tuple; stage 0 with the inputs of an entry: a tensor, a tuple
            of arguments, or a dict of keyword arguments.
        loss_fn: loss_fn(output, targets) of the last stage returns the loss of one microbatch as (sum, weight): a
            scalar tensor, summed over the elements that count, such as tokens, and their number (a number or
            a tensor). It may return only the scalar, which has weight 1. Needed on the rank of the last stage, unless the
            plan runs only forwards.
        group: the ranks of the pipeline, a ProcessGroup or a DeviceMesh of one dimension; by default all.
        shapes: shapes and dtypes of the tensors that stages pass to each other, as a tensor or a tuple of tensors
            (meta tensors are enough), a function of the microbatch that returns them, or a dict of either by the stage
            that they enter. Only tensors that go to or come from another rank need them. Every rank must give the
            same shapes, because they are not exchanged.
        replicas: the ranks that hold copies of this rank's stages, a ProcessGroup or a DeviceMesh of one dimension, for
            data parallelism. Gradients are added up over them: by fully_shard if a stage is wrapped in it,
            otherwise by the runner, also for a stage in DistributedDataParallel.
        tied: parameters that several stages share, as dicts of the parameter's name by stage, the same on every rank:
            [{0: "embed.weight", 3: "head.weight"}]. Stages of one rank must share the Parameter. Each use gets the sum of
            the gradients of all uses, added in stage order.
        names: names(stage, name) returns the name that a parameter or buffer has in the unsplit model.
        forward: returns a context for a forward with its loss: lambda: torch.autocast("cuda", torch.bfloat16).
        scaler: a GradScaler. Gradients are then gradients of the scaled loss; unscale them as usual.
        guard: a Guard of the modules, which writes the memory log and names the owners of leaks.
        timeout: seconds that a rank waits for one transfer. If a rank stops, the step ends on the others after this time. When all
            ranks make their runners, or begin a step that makes new connections, each waits for at least a minute.
        device: where buffers are received; by default where the parameters are.

    Attributes: plan, rank (of this process in the pipeline), modules. step returns a Result (step, sum, weight, loss,
    overflow), or raises a StepError (step, rank, process, action, cause).

    Raises PlanError for a plan that it cannot run, ValueError or TypeError for invalid arguments, and
    RuntimeError if another process does not make its runner within timeout or a minute, whichever is longer.
    """

    def __init__(self, plan: Plan | str | os.PathLike[str], modules: Mapping[int, nn.Module], loss_fn: Callable[..., Any] | None = None, group: Any = None, *,
                 shapes: Shapes = None, replicas: Any = None, tied: Sequence[Mapping[int, str]] = (), names: Callable[[int, str], str] | None = None,
                 forward: Callable[[], ContextManager[Any]] | None = None, scaler: Any = None, guard: Guard | None = None, timeout: float = 300.0,
                 device: torch.device | str | None = None) -> None:
        self.modules = dict(modules)
        self._loss_fn, self._shapes, self._forward, self._scaler, self._guard = loss_fn, shapes, forward, scaler, guard
        self._names = names or (lambda stage, name: name)
        ranks = _ranks(group) if dist.is_initialized() else [0]
        self.rank = ranks.index(dist.get_rank()) if dist.is_initialized() else 0
        self._process = ranks[self.rank]
        self._replicas = _ranks(replicas) if replicas is not None else [self._process]
        first = next((p for m in self.modules.values() for p in m.parameters()), None)
        self._device = torch.device(device) if device is not None else first.device if first is not None else torch.device("cpu")
        self._fsdp = {s: [m for m in module.modules() if isinstance(m, FSDPModule)] for s, module in self.modules.items()}
        refusal: Exception | None = None
        queues: list[tuple[int, int, str]] = []
        links: dict[str, list[int]] = {}
        alike: list[tuple[str, str]] = []
        try:
            self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
            self._check(ranks, replicas is not None)
            self._ties = self._find_ties(tied)
            queues = sorted({self._queue(a.kind, a.stage) for a in self.plan.actions(self.rank) if a.kind.startswith(("SEND_", "RECV_"))})
            links = {f"tie {i}": sorted({self.plan.placement[s] for s in names}) for i, names in enumerate(tied)}
            plan_hash = hashlib.sha256(json.dumps(self.plan.data, sort_keys=True).encode()).hexdigest()[:12]
            alike = [("plans", f"{self.plan.name} {plan_hash}"), ("tied parameters", str([sorted(names.items()) for names in tied]))]
        except (OSError, ValueError, AttributeError) as e:
            refusal = e
        self._transfers: Any = Transfers(ranks, self.rank, queues, links, self._replicas, timeout, self._device, refusal, alike) if dist.is_initialized() else None
        if refusal is not None:
            raise refusal
        self._broken = self._transfers is not None
        self._steps = 0
        self._needs = [self.plan.training and not all(self.plan.frozen[: s + 1]) for s in range(self.plan.stages)]  # a gradient of the output
        self._parts = {(s, kind): tuple({min(part, 1) for part in self.plan.parts(s, kind)}) for s in self.modules for kind in "FBIW"}
        self._run: dict[str, Callable[[int, int], None]] = {
            "F": self._f, "B": self._b, "I": self._i, "W": self._w, "SEND_F": self._send_f, "SEND_B": self._send_b, "RECV_F": self._recv_f,
            "RECV_B": self._recv_b, "WAIT_F": self._wait_f, "WAIT_B": self._wait_b, "UNSHARD": self._unshard, "RESHARD": self._reshard,
            "REDUCE_GRAD": self._reduce_grad, "ZERO_GRAD": self._nothing, "WAIT_REDUCE": self._nothing}
        self._held: dict[tuple[str, int, int], Any] = {}  # by lifetime, stage and microbatch
        self._watched: dict[int, list[Any]] = {}  # of a microbatch: weak references to storages
        self._survivors: dict[int, Any] = {}  # what outlived its microbatch, by the id of its storage
        self._checks: dict[int, Any] = {s: None for s in self.modules if self.plan.split[s] and s and self._needs[s - 1]}
        self._checking: dict[tuple[int, int], SplitCheck] = {}
        self._uses: dict[tuple[int, int], Any] = {}  # gradients of the uses of parameters that stages of this rank share
        self._reductions: list[Any] = []
        self._planned = {a.stage for a in self.plan.actions(self.rank) if a.kind == "REDUCE_GRAD"}
        self._source: Iterator[Any] | None = None
        for s, wrapped in self._fsdp.items():
            for module in wrapped:
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
                module.set_reshard_after_forward(False, recurse=False)  # but by RESHARD, and after the last backward
            for root in self._roots(s):
                root.set_manual_backward_finalization(True)
        if scaler is not None:  # which otherwise has no scale on a rank without losses
            scaler.scale(torch.zeros((), device=self._device))
        self._compare_ties()

    def step(self, entries: Iterable[Any] | None = None, *, shapes: Shapes = None, on_output: Callable[[int, Any], Any] | None = None) -> Result:
        """Runs the plan once: a training step, or an evaluation if the plan runs only forwards.

        entries yields a pair (inputs, targets) for each microbatch. The ranks of the first and the last stage take one
        when the plan needs it, and exactly as many as the plan has microbatches; the other ranks may give
        None. The runner drops its reference to the inputs after the first stage's forward, and to the
        targets at their last read.

        shapes replaces the shapes of the runner for this step. on_output(microbatch, output) is called with
        the detached output of the last stage.

        After a training step each .grad is the gradient of the sum of all losses, divided by their total weight; it replaces
        the previous .grad. If the total weight is 0, all are None, so an optimizer does nothing. An evaluation does not change
        .grad. Raises StepError if the step ends early on any rank, and KeyboardInterrupt on the rank on which it was raised.
        """
        action: Action | None = None
        try:
            self._begin(entries, shapes, on_output)
            held, run, parts = self._held, self._run, self._parts
            for action in self.plan.actions(self.rank):
                kind, stage, mb, ends, _ = action
                run[kind](stage, mb)
                for end in ends:
                    if end == "microbatch":
                        self._retire(mb)
                    elif end == "entry":
                        for part in parts[stage, kind]:
                            held.pop(("entry", part, mb), None)
                    elif end == "sent":
                        held.pop((kind, stage, mb), None)
                    else:
                        held.pop((end, stage, mb), None)
            action = None
            return self._finish()
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt as well: the other ranks must not wait
            self._fail(error, action)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients of all ranks so that their common norm is at most max_norm, and returns the norm before scaling.

        Each parameter counts once: a tied one at its first stage. Norms are computed in float64 for each parameter separately, and
        combined in the order of the model, so every plan and cut gives the same bits, if no stage is sharded. Every rank of the
        pipeline must call it.
        """
        passed = {id(p) for uses in self._ties for _, p in uses[1:] if p is not None and p is not uses[0][1]}
        norms: dict[tuple[int, int], Any] = {}  # by stage and place in it, which is the order of the model
        for s in sorted(self.modules):
            for i, p in enumerate(self.modules[s].parameters()):
                if p.requires_grad and p.grad is not None and id(p) not in passed:
                    passed.add(id(p))
                    norm: Any = torch.linalg.vector_norm(p.grad, norm_type, dtype=torch.float64)
                    norms[s, i] = (norm.full_tensor() if hasattr(norm, "full_tensor") else norm).to(self._device)
        mine = dict(zip(norms, torch.stack(list(norms.values())).tolist() if norms else ()))
        gathered = self._connected().gather(mine) if self._transfers is not None else [mine]
        ordered = [norm for _, norm in sorted((key, norm) for theirs in gathered for key, norm in theirs.items())]
        total: Tensor = torch.linalg.vector_norm(torch.tensor(ordered or [0.0], dtype=torch.float64), norm_type)
        found = [p for p in self._parameters() if p.grad is not None]
        for device in {p.device for p in found}:
            nn.utils.clip_grads_with_norm_([p for p in found if p.device == device], max_norm, total.to(device, torch.float32))
        return total

    def checkpoint(self, optimizer: torch.optim.Optimizer | None = None) -> Checkpoint:
        """Returns the state of the stages and of their optimizer for torch.distributed.checkpoint, by the names of the unsplit model.

            dcp.save({"model": runner.checkpoint(optimizer)}, checkpoint_id=path)
            dcp.load({"model": runner.checkpoint(optimizer)}, checkpoint_id=path)

        A runner with other stages, another number of ranks or another plan can load the checkpoint. Every rank of the pipeline must
        call it. Raises ValueError if two parameters have the same name and are not tied.
        """
        whole = nn.Module()
        mine: dict[str, str] = {}
        clash = ""
        ties = {id(p): i for i, uses in enumerate(self._ties) for _, p in uses if p is not None}
        for s in sorted(self.modules):
            module = _bare(self.modules[s])
            saved, buffers = module.state_dict().keys(), dict(module.named_buffers(remove_duplicate=False))
            for name, tensor in itertools.chain(module.named_parameters(remove_duplicate=False), buffers.items()):
                if name not in saved:
                    continue
                full = self._names(s, name.replace("_orig_mod.", ""))
                key = f"tie {ties[id(tensor)]}" if id(tensor) in ties else f"stage {s}'s {name}"
                if mine.setdefault(full, key) != key:
                    clash = clash or f"{mine[full]} and {key} are both named {full}"
                at = whole
                *path, leaf = full.split(".")
                for part in path:
                    if not hasattr(at, part):
                        at.add_module(part, nn.Module())
                    at = getattr(at, part)
                if name in buffers:
                    at.register_buffer(leaf, tensor)
                else:
                    at.register_parameter(leaf, tensor)  # type: ignore[arg-type]
        found: dict[str, str] = {}
        for theirs, clashes in [(mine, clash)] if self._transfers is None else self._connected().gather((mine, clash)):
            clash = clash or clashes
            for full, key in theirs.items():
                if found.setdefault(full, key) != key:
                    clash = clash or f"{found[full]} and {key} are both named {full}"
        if clash:
            raise ValueError(f"{clash} in the unsplit model: give names=")
        return Checkpoint(whole, optimizer)

    def close(self) -> None:
        """Closes the communicators. The runner can be used again: the next step makes new ones, with all ranks."""
        if self._transfers is not None:
            self._transfers.close()
            self._broken = True

    # Checks before anything runs.

    def _check(self, ranks: Sequence[int], replicated: bool) -> None:
        plan = self.plan
        what = f"{plan.path} ({plan.name})"
        if not plan.lifetimes:
            raise PlanError(f"{what} has no lifetimes: write them with: weir convert {plan.path} --to plan")
        if plan.copies > 1 or plan.slices > 1:
            raise PlanError(f"{what} has {plan.copies} copies of the model and {plan.slices} slices of a sequence, and a Runner runs one of each")
        if dist.is_initialized() and dist.get_backend() in ("mpi", "ucc"):
            raise ValueError(f"the process group is of {dist.get_backend()}, and a Runner runs over gloo and NCCL")
        if len(ranks) != plan.ranks:
            raise PlanError(f"{what} is for {plan.ranks} ranks, and the group has {len(ranks)}")
        for action in plan.actions(self.rank):
            if action.kind in ("OFFLOAD", "WAIT_OFFLOAD", "RELOAD", "QUANTIZE"):
                raise PlanError(f"{what} has {_name(action)}, which a Runner does not run: make the plan without --offload and --quantize")
        if sorted(self.modules) != plan.on(self.rank):
            raise ValueError(f"modules has the stages {sorted(self.modules)}, and rank {self.rank} has {plan.on(self.rank)} in {what}")
        if self.plan.stages - 1 in self.modules and self._loss_fn is None and plan.training:
            raise ValueError("loss_fn is None: the rank of the last stage needs it, unless the plan runs forwards alone")
        for s, module in self.modules.items():
            if plan.training and plan.frozen[s]:
                for name, p in module.named_parameters():
                    if p.requires_grad:
                        raise ValueError(f"stage {s} is frozen in {what}, and its parameter {name} requires a gradient: requires_grad_(False), or another plan")
            parallel = self._fsdp[s] or any(isinstance(m, DistributedDataParallel) for m in module.modules())
            if parallel and not replicated:
                raise ValueError(f"stage {s} is data-parallel: give replicas=, the group of the ranks that have copies of it")
            if self._fsdp[s] and not hasattr(FSDPModule, "finalize_backward"):
                raise ValueError(f"stage {s} is wrapped by fully_shard, which takes PyTorch 2.15 or later here, and this is {torch.__version__}")

    def _queue(self, kind: str, stage: int) -> tuple[int, int, str]:
        other = self.plan.placement[stage + 1 if kind in ("SEND_F", "RECV_B") else stage - 1]
        return (self.rank, other, kind[-1]) if kind[0] == "S" else (other, self.rank, kind[-1])

    def _find_ties(self, tied: Sequence[Mapping[int, str]]) -> list[list[tuple[int, Any]]]:
        """Returns the uses of each tied parameter in stage order, with the parameter if its stage is of this rank.

        Declared ties come first. A parameter that stages of this rank share is also tied.
        """
        users: dict[int, list[tuple[int, Any]]] = {}
        for s in sorted(self.modules):
            for p in self.modules[s].parameters():
                users.setdefault(id(p), []).append((s, p))
        self._shared = {s: [p for p in self.modules[s].parameters() if len(users[id(p)]) > 1] for s in self.modules}
        ties = [[(s, self._tied(s, name) if s in self.modules else None) for s, name in sorted(names.items())] for names in tied]
        for uses in ties:
            here = [(s, p) for s, p in uses if p is not None]
            if any(p is not here[0][1] for _, p in here):
                raise ValueError(f"the stages {[s for s, _ in here]} are on one rank, and have tied parameters: let them share one Parameter")
            for _, p in here:
                users.pop(id(p), None)
        return ties + [uses for uses in users.values() if len(uses) > 1]

    def _tied(self, s: int, name: str) -> nn.Parameter:
        try:
            return _bare(self.modules[s]).get_parameter(name)
        except AttributeError:
            raise ValueError(f"tied names the parameter {name} of stage {s}, which has none of that name") from None

    def _compare_ties(self) -> None:
        """Raises ValueError on all ranks if tied parameters are not equal."""
        for i, uses in enumerate(self._ties):
            here = next((p for _, p in uses if p is not None), None)
            if here is None or not self._linked(i):
                continue
            link, own = self._connected(), _local(here.detach()).cpu()
            alike = torch.equal(link.broadcast(own.clone(), f"tie {i}", self.plan.placement[uses[0][0]]), own)
            if link.reduce(torch.tensor([float(alike)]), f"tie {i}", dist.ReduceOp.MIN)[0] == 0:
                raise ValueError(f"the tied parameters of the stages {[s for s, _ in uses]} differ: give them equal values before the runner is made")

    def _linked(self, tie: int) -> bool:
        """Reports whether the uses of a tied parameter are on several ranks."""
        return len({self.plan.placement[s] for s, _ in self._ties[tie]}) > 1

    # The beginning and the end of a step.

    def _connected(self) -> Transfers:
        if self._broken:
            self._transfers.connect()
            self._broken = False
        return self._transfers  # type: ignore[no-any-return]

    def _begin(self, entries: Iterable[Any] | None, shapes: Shapes, on_output: Callable[[int, Any], Any] | None) -> None:
        if self._transfers is not None:
            self._connected()
        self._source = iter(entries) if entries is not None else None
        self._pulled, self._on_output = 0, on_output
        self._now = self._shapes if shapes is None else shapes
        self._sum: Any = 0.0
        self._weight: Any = 0.0
        self._digest = 0  # of what is sent, less that of what is received: 0 over all ranks
        self._left = {s: self.plan.microbatches for s in self.modules}  # microbatches whose weight gradients are to come
        self._to_reduce = {s for s in self.modules if self._needs[s]}
        self._sharded = {s for s in self.modules if self._fsdp[s]}
        self._forget_gradients()
        for s in self.modules:
            for root in self._roots(s):
                root.set_requires_gradient_sync(False)
                root.set_reshard_after_backward(False)
        if self._guard is not None:
            self._guard.begin()

    def _finish(self) -> Result:
        if self._held:
            raise RuntimeError(f"the plan ends without releasing {sorted(self._held)[:4]}: check it with: weir check {self.plan.path}")
        self._source, transfers = None, self._transfers
        if self.plan.training:
            for s in sorted(self.modules):
                self._reduce(s)
            if self._transfers is not None:
                self._transfers.wait(Pending(self._reductions, []), -1)
            self._reductions.clear()
            for i in range(len(self._ties)):
                self._add_uses(i)
        else:
            for s in self.modules:
                self._reshard(s, -1)
        found: list[Any] = [p for p in self._parameters() if p.grad is not None and self.plan.training]
        bad = self._scaler is not None and not all(bool(torch.isfinite(_local(p.grad)).all()) for p in found)
        numbers = torch.tensor([float(self._sum), float(self._weight), float(bad), self._digest % _DIGESTS], dtype=torch.float64)
        if transfers is not None:
            transfers.reduce(numbers, "pipeline")
            if numbers[3] % _DIGESTS != 0:
                raise ValueError("the ranks were given different shapes, so that tensors were not received as they were sent")
            numbers[3] = 0
            transfers.reduce(numbers, "replicas")
        total, weight, overflow, _ = numbers.tolist()
        self._sum = self._weight = 0.0
        if not 0 <= weight < math.inf:
            raise ValueError(f"the total weight is {weight}: loss_fn returns weights that are finite and not negative")
        for p in found:
            if weight == 0:
                p.grad = None
            else:
                p.grad.div_(weight)
        if overflow:  # a GradScaler looks at its own rank alone: let each find an infinity, so that all skip
            own = next((g for p in found if (g := _local(p.grad)).numel()), torch.empty(()))
            own[(0,) * own.dim()].fill_(math.inf)
        self._steps += 1
        return Result(self._steps - 1, total, weight, overflow > 0)

    def _fail(self, error: BaseException, action: Action | None) -> NoReturn:
        """Ends a step that has failed, on the other ranks as well, and releases its tensors."""
        at, step, transfers = _name(action) if action is not None else "", self._steps, self._transfers
        self._steps += 1
        lost = error if isinstance(error, LostError) else None
        cause = None if lost is not None else Cause(self.rank, self._process, at, f"{type(error).__name__}: {error}"[:4000].removesuffix(": "))
        if isinstance(error, LateError):
            cause = Cause(transfers.places[error.process], error.process, "", str(error))
        if transfers is not None:
            cause = transfers.leave(cause)
            self._broken = True
        one: BaseException | None = error
        while one is not None:
            traceback.clear_frames(one.__traceback__)  # frames hold tensors
            one = one.__cause__ or one.__context__
        self._held.clear()
        self._watched.clear()
        self._survivors.clear()
        self._checking.clear()
        self._uses.clear()
        self._reductions.clear()
        self._source, self._on_output, self._sum, self._weight = None, None, 0.0, 0.0
        for s in self.modules:
            for module in self._fsdp[s]:
                module.reshard()
            for root in self._roots(s):
                root.reset_iter_state()
        self._forget_gradients()
        gc.collect()  # Module.__call__ leaves cycles where a hook has failed
        if lost is not None and transfers is not None:
            cause = transfers.find_cause(lost, at)
        assert cause is not None
        if not isinstance(error, Exception):
            raise error
        raise StepError(step, cause) from (None if isinstance(error, (LateError, LostError)) else error)

    def _retire(self, mb: int) -> None:
        """Ends a microbatch on this rank. All tensors that the runner has made for it must be gone."""
        for ref, what, stage in self._watched.pop(mb, ()):
            storage = ref()
            if storage is not None:
                self._survivors.setdefault(id(storage), (ref, what, stage, mb))
        if len(self._survivors) > 2:
            self._survivors = {key: one for key, one in self._survivors.items() if one[0]() is not None}
            if len({mb for *_, mb in self._survivors.values()}) > 2:  # a table that is returned each time is one storage
                self._leaks()
        if self._guard is not None and mb < self.plan.microbatches - 1:
            self._guard.begin()

    def _leaks(self) -> NoReturn:
        alive = [(ref(), what, stage, mb) for ref, what, stage, mb in self._survivors.values()]
        kept = [(storage, what, stage, mb) for storage, what, stage, mb in alive if storage is not None]
        pointers = [storage.data_ptr() for storage, *_ in kept]
        holders = [t for t in gc.get_objects() if type(t) is Tensor and any(s.data_ptr() in pointers for s in storages(t))]
        owner = next((name.text for name in holder_names(holders, {}) if name), "")
        del holders, alive
        _, what, stage, _ = kept[0]
        size = sum(storage.nbytes() for storage, *_ in kept)
        raise LeakError([Leak(f"stage {stage} ({type(self.modules[stage]).__name__})", "", what, owner or "what Python does not see", len({mb for *_, mb in kept}), size)])

    def _watch(self, tensors: Iterable[Tensor | None], what: str, stage: int, mb: int) -> None:
        watched = self._watched.setdefault(mb, [])
        for t in tensors:
            if t is not None:
                watched.append((weakref.ref(t.untyped_storage()), what, stage))

    # Computations.

    def _f(self, s: int, mb: int) -> None:
        last, needs, module = s == self.plan.stages - 1, self._needs[s], self.modules[s]
        if s == 0 or last:
            self._pull(mb)
        if s in self._sharded:
            self._unshard(s, mb)
        keywords: Mapping[str, Any] = {}
        if s == 0:
            given = self._held["entry", 0, mb]
            inputs: Sequence[Any] = tuple(given) if isinstance(given, (tuple, list)) else () if isinstance(given, dict) else (given,)
            keywords = given if isinstance(given, dict) else {}
        else:
            inputs = self._arrived("input", s, mb)
            if self._needs[s - 1]:
                for x in inputs:
                    if x.is_floating_point():
                        x.requires_grad_()
        with contextlib.ExitStack() as contexts:
            contexts.enter_context(torch.set_grad_enabled(needs))
            if self._forward is not None:
                contexts.enter_context(self._forward())
            if isinstance(module, DistributedDataParallel):
                contexts.enter_context(module.no_sync())
            output = module(*inputs, **keywords)
            outputs = () if last else _tensors(output, s)
            if last:
                output = self._loss(output, mb)
        sources = [output] if last else outputs
        roots: list[Any] = [get_gradient_edge(y) if y.requires_grad else None for y in sources if y.is_floating_point()]
        if needs and not any(roots) and any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(f"{'the loss has no graph' if last else f'no output of stage {s} has a graph'} in microbatch {mb}, though the stage has parameters to train: "
                               "it was detached, or computed without gradients, or by torch.utils.checkpoint without use_reentrant=False; "
                               "a loss of nothing is 0 * output.sum()")
        if needs:
            self._held["saved", s, mb] = [x for x in inputs if x.is_floating_point()] if s else [], roots
            if last:
                self._held["gradient", s, mb] = [torch.ones_like(output, requires_grad=False)]
        if not last:
            outputs = tuple(y.detach() for y in outputs)
            own = {x.untyped_storage().data_ptr() for x in _all(self._held["entry", 0, mb])} if s == 0 else ()
            self._watch((y for y in outputs if y.untyped_storage().data_ptr() not in own), "output", s, mb)
            if self.plan.placement[s + 1] == self.rank:
                self._held["input", s + 1, mb] = outputs
            else:
                self._held["output", s, mb] = outputs

    def _loss(self, output: Any, mb: int) -> Tensor:
        """Adds the loss of a microbatch to the sums, and returns the tensor from which its backward starts."""
        found = self._loss_fn(output, self._held["entry", 1, mb]) if self._loss_fn is not None else (torch.zeros(()), 0.0)
        loss, weight = found if isinstance(found, tuple) else (found, 1.0)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"loss_fn returned {type(loss).__name__}{list(loss.shape) if isinstance(loss, Tensor) else ''}: "
                            "return (sum, weight) with a scalar tensor as the sum, or the scalar alone")
        self._sum = self._sum + loss.detach().double().reshape(())
        self._weight = self._weight + (weight.detach().double().reshape(()) if isinstance(weight, Tensor) else weight)
        if self._on_output is not None:
            self._on_output(mb, _detached(output))
        return self._scaler.scale(loss) if self._scaler is not None and self.plan.training else loss

    def _b(self, s: int, mb: int) -> None:
        inputs, roots, seeds = self._starts(s, mb)
        with self._own_uses(s) if self._shared[s] else _NOTHING:
            if roots:
                torch.autograd.backward(roots, seeds)
        given = [x.grad for x in inputs]
        for x in inputs:
            x.grad = None
        self._give(s, mb, inputs, given)
        self._accumulated(s)

    def _i(self, s: int, mb: int) -> None:
        inputs, roots, seeds = self._starts(s, mb)
        wanted = [x for x in inputs if x.requires_grad]
        if not wanted:  # nothing goes to an earlier stage, so that all of it is W's
            self._held["carry", s, mb] = roots, seeds
            return
        check = None
        if s in self._checks and self._checks[s] is None:
            self._checks[s] = check = self._checking[s, mb] = SplitCheck(s, self.modules[s])
            check.whole(roots, seeds, wanted)
        gradients, carry = input_gradients(roots, seeds, wanted)
        if check is not None:
            check.inputs(gradients)
        self._held["carry", s, mb] = carry
        arrived = iter(gradients)
        self._give(s, mb, inputs, [next(arrived) if x.requires_grad else None for x in inputs])

    def _w(self, s: int, mb: int) -> None:
        carry = self._held.pop(("carry", s, mb))
        check = self._checking.pop((s, mb), None)
        with self._own_uses(s) if self._shared[s] else _NOTHING, check.weights() if check is not None else _NOTHING:
            if len(carry) == 2:
                torch.autograd.backward(*carry)
            else:
                weight_gradients(carry)
        if check is not None:
            if check.faults:
                raise RuntimeError(f"the split backward of stage {s} is wrong: {'; '.join(check.faults)}. Use a plan without I and W, such as 1f1b or interleaved")
            if check.decided:
                del self._checks[s]
            else:
                self._checks[s] = None
        self._accumulated(s)

    def _starts(self, s: int, mb: int) -> tuple[Sequence[Tensor], list[Any], list[Any]]:
        """Takes the tensors that F has saved: the floating-point inputs of a stage, and the roots of its graph with their gradients."""
        inputs, edges = self._held.pop(("saved", s, mb))
        arrived = self._arrived("gradient", s, mb)
        del self._held["gradient", s, mb]
        kept = [(edge, g) for edge, g in zip(edges, arrived) if edge is not None and g is not None]
        return inputs, [edge for edge, _ in kept], [g for _, g in kept]

    def _give(self, s: int, mb: int, inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Passes the gradients of a stage's inputs to the stage before it."""
        if s == 0 or not self._needs[s - 1]:
            return
        self._watch(gradients, "gradient", s, mb)
        if self.plan.placement[s - 1] == self.rank:
            self._held["gradient", s - 1, mb] = gradients
        else:
            self._held["given", s, mb] = [g if g is not None else torch.zeros_like(x) for x, g in zip(inputs, gradients)]

    def _accumulated(self, s: int) -> None:
        """Counts a microbatch whose weight gradients are complete. After the last one, reduces the stage unless the plan has its REDUCE_GRAD."""
        self._left[s] -= 1
        if self._left[s] == 0 and s not in self._planned:
            self._reduce(s)

    @contextlib.contextmanager
    def _own_uses(self, s: int) -> Iterator[None]:
        """Accumulates the gradients of shared parameters separately for each stage that uses them."""
        for p in self._shared[s]:
            p.grad = self._uses.pop((s, id(p)), None)
        yield
        for p in self._shared[s]:
            if p.grad is not None:
                self._uses[s, id(p)], p.grad = p.grad, None

    def _pull(self, mb: int) -> None:
        """Takes entries from the source, up to the entry of a microbatch."""
        while self._pulled <= mb:
            if self._source is None:
                raise ValueError(f"entries is None, and rank {self.rank} has the first or the last stage")
            try:
                entry = next(self._source)
            except StopIteration:
                raise ValueError(f"entries ended after {self._pulled} of {self.plan.microbatches} microbatches") from None
            if not isinstance(entry, (tuple, list)) or len(entry) != 2:
                what = f"{list(entry.shape)}" if isinstance(entry, Tensor) else f" of {len(entry)}" if hasattr(entry, "__len__") else ""
                raise TypeError(f"an entry is a pair (inputs, targets), not a {type(entry).__name__}{what}")
            inputs, targets = entry
            del entry
            if 0 in self.modules:
                self._held["entry", 0, self._pulled] = inputs
            if self.plan.stages - 1 in self.modules:
                self._held["entry", 1, self._pulled] = targets
            self._pulled += 1

    # Transfers.

    def _like(self, stage: int, mb: int) -> Sequence[Tensor]:
        """Returns tensors with the shapes and dtypes of the tensors that enter a stage."""
        shapes: Any = self._now
        if isinstance(shapes, Mapping):
            shapes = shapes.get(stage)
        if callable(shapes) and not isinstance(shapes, Tensor):
            shapes = shapes(mb)
        if shapes is None:
            raise ValueError(f"shapes says nothing of what enters stage {stage}: give a tensor with its shape and dtype")
        return (shapes,) if isinstance(shapes, Tensor) else shapes

    def _arrived(self, name: str, s: int, mb: int) -> Sequence[Tensor]:
        found = self._held[name, s, mb]
        if isinstance(found, Pending):
            assert self._transfers is not None
            peer = self.plan.placement[s - 1 if name == "input" else s + 1]
            self._held[name, s, mb] = found = self._transfers.wait(found, peer)
        return found  # type: ignore[no-any-return]

    def _send(self, kind: str, name: str, s: int, mb: int, like: Sequence[Tensor]) -> None:
        tensors = self._held.pop((name, s, mb))
        if [(t.shape, t.dtype) for t in tensors] != [(t.shape, t.dtype) for t in like]:
            raise ValueError(f"stage {s} sends {_describe(tensors)} for microbatch {mb}, and shapes says {_describe(like)}")
        self._digest += _digest(kind, s, mb, like)
        self._held[f"WAIT_{kind}", s, mb] = self._transfers.send(self._queue(f"SEND_{kind}", s), tensors)

    def _send_f(self, s: int, mb: int) -> None:
        self._send("F", "output", s, mb, self._like(s + 1, mb))

    def _send_b(self, s: int, mb: int) -> None:
        self._send("B", "given", s, mb, [t for t in self._like(s, mb) if t.is_floating_point()])

    def _receive(self, kind: str, name: str, s: int, mb: int, like: Sequence[Tensor]) -> None:
        self._digest -= _digest(kind[-1], s - 1 if kind == "RECV_F" else s + 1, mb, like)
        self._held[name, s, mb] = pending = self._transfers.receive(self._queue(kind, s), like)
        self._watch(pending.tensors, f"received {name}", s, mb)

    def _recv_f(self, s: int, mb: int) -> None:
        self._receive("RECV_F", "input", s, mb, self._like(s, mb))

    def _recv_b(self, s: int, mb: int) -> None:
        self._receive("RECV_B", "gradient", s, mb, [t for t in self._like(s + 1, mb) if t.is_floating_point()])

    def _wait_f(self, s: int, mb: int) -> None:
        self._transfers.wait(self._held["WAIT_F", s, mb], self.plan.placement[s + 1])

    def _wait_b(self, s: int, mb: int) -> None:
        self._transfers.wait(self._held["WAIT_B", s, mb], self.plan.placement[s - 1])

    # Data parallelism and ties.

    def _roots(self, s: int) -> list[Any]:
        """Returns the outermost modules of a stage that fully_shard has wrapped."""
        inner = {id(m) for one in self._fsdp[s] for m in one.modules() if m is not one}
        return [one for one in self._fsdp[s] if id(one) not in inner]

    def _meet(self) -> None:
        """Waits for the replicas before a collective of fully_shard, which would not end if one of them has left the step."""
        if self._transfers is not None:
            self._transfers.reduce(torch.zeros(1), "replicas")

    def _unshard(self, s: int, mb: int) -> None:
        self._sharded.discard(s)
        if self._fsdp[s]:
            self._meet()
        for module in self._fsdp[s]:
            module.unshard()

    def _reshard(self, s: int, mb: int) -> None:
        for module in self._fsdp[s]:
            module.reshard()

    def _nothing(self, s: int, mb: int) -> None:
        pass

    def _reduce_grad(self, s: int, mb: int) -> None:
        if self._left[s] == 0:  # an earlier one is of a part, which the last one contains
            self._reduce(s)

    def _reduce(self, s: int) -> None:
        """Adds up the gradients of a stage over the replicas, unless this is done. Hooks cannot do it, because split backwards do not call them."""
        if s not in self._to_reduce:
            return
        self._to_reduce.remove(s)
        if self._fsdp[s]:
            self._meet()
        for root in self._roots(s):
            root.set_requires_gradient_sync(True)
            root.set_reshard_after_backward(True)
            root.finalize_backward()
        if self._fsdp[s] or len(self._replicas) == 1 or self._transfers is None:
            return
        shared = {id(p) for p in self._shared[s]}
        for p in self.modules[s].parameters():
            if not p.requires_grad:
                continue
            gradient = self._uses.get((s, id(p))) if id(p) in shared else p.grad
            if gradient is None:  # on this replica alone, perhaps
                gradient = torch.zeros_like(p)
                if id(p) in shared:
                    self._uses[s, id(p)] = gradient
                else:
                    p.grad = gradient
            self._reductions.append(self._transfers.start_sum(gradient))

    def _add_uses(self, i: int) -> None:
        """Gives each use of a tied parameter the sum of the gradients of all uses, added in stage order."""
        uses = self._ties[i]
        mine = next((p for _, p in uses if p is not None), None)
        if mine is None or not mine.requires_grad:
            return
        shared, total = any(mine is p for ps in self._shared.values() for p in ps), None
        for s, p in uses:
            gradient = None if p is None else self._uses.pop((s, id(p)), None) if shared else p.grad
            addend = torch.zeros_like(_local(mine)) if gradient is None else _local(gradient)
            if self._linked(i) and self._transfers is not None:
                addend = self._transfers.broadcast(addend.cpu(), f"tie {i}", self.plan.placement[s]).to(addend.device)
            total = addend.clone() if total is None else total.add_(addend)
        if mine.grad is None:
            mine.grad = torch.zeros_like(mine)
        _local(mine.grad).copy_(total)

    def _forget_gradients(self) -> None:
        for p in self._parameters() if self.plan.training else ():
            p.grad = None

    def _parameters(self) -> list[nn.Parameter]:
        """Returns the trained parameters of this rank, each once."""
        return list({id(p): p for s in sorted(self.modules) for p in self.modules[s].parameters() if p.requires_grad}.values())


class Checkpoint:
    """The result of Runner.checkpoint, a Stateful of torch.distributed.checkpoint."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self._model, self._optimizers = model, [] if optimizer is None else [optimizer]

    def state_dict(self) -> dict[str, Any]:
        """Returns parameters, buffers and optimizer state. The tensors are those of the modules and of the optimizer, not copies."""
        model, optimizer = get_state_dict(self._model, self._optimizers, options=_FLAT)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the modules and the optimizer to a state that state_dict returned, or that was loaded into it."""
        set_state_dict(self._model, self._optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=_FLAT)


_DIGESTS = 1 << 40
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
_NOTHING: ContextManager[None] = contextlib.nullcontext()


def _ranks(group: Any) -> list[int]:
    """Returns the global ranks of a process group, or of a mesh of one dimension."""
    return dist.get_process_group_ranks(group.get_group() if hasattr(group, "get_group") else group)


def _bare(module: Any) -> nn.Module:
    """Returns the module inside DistributedDataParallel or torch.compile."""
    while isinstance(module, DistributedDataParallel) or hasattr(module, "_orig_mod"):
        module = module.module if isinstance(module, DistributedDataParallel) else module._orig_mod
    return module  # type: ignore[no-any-return]


def _detached(value: Any) -> Any:
    """Returns a module's output, a tensor, tuple, list or dict, without its graph."""
    if isinstance(value, dict):
        return {key: _detached(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_detached(one) for one in value]
    return value.detach() if isinstance(value, Tensor) else value


def _local(tensor: Any) -> Any:
    """Returns this rank's part of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _name(action: Action) -> str:
    return f"{action.stage}{action.kind}{action.microbatch if action.microbatch >= 0 else ''}"


def _digest(kind: str, sender: int, mb: int, tensors: Sequence[Tensor]) -> int:
    """Returns a number that differs between messages of different stages, microbatches or shapes, and is the same in every process."""
    return hash((kind == "F", sender, mb, *((*t.shape, t.element_size()) for t in tensors))) % _DIGESTS


def _describe(tensors: Sequence[Tensor]) -> str:
    return " and ".join(f"{str(t.dtype).replace('torch.', '')}{list(t.shape)}" for t in tensors) or "nothing"


def _all(value: Any) -> Iterator[Tensor]:
    """Yields the tensors of an entry's inputs."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(one, Tensor):
            yield one


def _tensors(output: Any, stage: int) -> tuple[Tensor, ...]:
    """Returns a stage's output as a tuple of tensors."""
    found = tuple(output) if isinstance(output, (tuple, list)) else (output,)
    for one in found:
        if not isinstance(one, Tensor):
            raise TypeError(f"stage {stage} returned a {type(one).__name__}: stages return a tensor, or a tuple of tensors")
    return found
