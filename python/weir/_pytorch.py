"""All uses of private names of torch.distributed.pipelining in this package, and the probe that checks that they still work."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import warnings
from typing import Any, Callable, Iterator, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, schedules

from ._split import SplitCheck, agree
from .plan import Action, Plan
from .schedule import FORWARDS, RUNS

TESTED = "2.14", "2.15"
WAITS = hasattr(schedules, "WAIT_SEND_F")  # before 2.15, PyTorch waits for all sends when a step ends
SIGNATURES: dict[Any, str] = {schedules.PipelineScheduleMulti.__init__: "stages n_microbatches loss_fn scale_grads",
                              PipelineStage.backward_maybe_with_nosync: "backward_type bwd_kwargs last_backward"}
NAMES = {"WAIT_F": "WAIT_SEND_F", "WAIT_B": "WAIT_SEND_B", "WAIT_REDUCE": "WAIT_REDUCE_GRAD"}


class Program:
    """The actions of a rank in PyTorch's form. Each is made when it is read, so a long step takes no more memory than a short one."""

    def __init__(self, actions: Callable[[int], Iterator[Action]], rank: int, forwards: bool):
        self.actions, self.rank, self.forwards = actions, rank, forwards

    def __iter__(self) -> Iterator[Any]:
        pair: list[Any] = []
        for action in self.actions(self.rank):
            if action.kind in (FORWARDS if self.forwards else RUNS) and (WAITS or action.kind not in NAMES):
                kind = schedules._ComputationType(NAMES.get(action.kind, action.kind))
                pair.append(schedules._Action(action.stage, kind, action.microbatch if action.microbatch >= 0 else None))
            if pair and not action.joined:
                yield pair[0] if len(pair) == 1 else schedules._Action(-1, schedules.OVERLAP_F_B, None, tuple(pair))
                pair = []

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return list(self)  # PyTorch copies the actions in order to print them when one of them fails


class Runtime(schedules._PipelineScheduleRuntime):
    """PyTorch's runtime with the actions of a plan, which makes weir.schedule."""

    def __init__(self, plan: Plan, actions: Callable[[int], Iterator[Action]], stages: list[Any], loss_fn: Callable[..., torch.Tensor],
                 factor: float, check: bool, **options: Any):
        super().__init__(stages, plan.microbatches, loss_fn=loss_fn, scale_grads=False, **options)  # type: ignore[no-untyped-call]
        self.plan, self._actions, self._factor = plan, actions, factor  # of the gradients
        self._numbers: torch.Tensor | None = None  # the losses of the step
        self.stage_index_to_group_rank = dict(enumerate(plan.placement))
        for stage in stages:
            stage.stage_index_to_group_rank = self.stage_index_to_group_rank
        self._unchecked = check and any(plan.split[1:])  # PyTorch runs stage 0's backward whole, in W

    def step(self, *args: Any, return_outputs: bool | None = None, **kwargs: Any) -> Any:
        """Runs a step, as PyTorch's schedules do. It returns and keeps outputs only with return_outputs=True, and in eval."""
        self._internal_losses, self._numbers = [], None  # a step may have failed
        self.pipeline_order_with_comms = cast(Any, {rank: Program(self._actions, rank, not self._has_backward) for rank in range(self.plan.ranks)})
        checking = self._unchecked and self._has_backward
        checks = [_check(stage) for stage in self._stages if checking and self.plan.split[stage.stage_index] and not (stage.is_first or stage.dw_builder)]
        try:
            outputs = super().step(*args, return_outputs=not self._has_backward if return_outputs is None else return_outputs, **kwargs)
        finally:
            for stage in self._stages:
                vars(stage).pop("backward_maybe_with_nosync", None)
        self._unchecked = self._unchecked and not (checking and agree(checks, self.plan.path, self._stages[0].group))
        return outputs

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> torch.Tensor | None:
        """Passes the loss to its backward, and keeps only its number."""
        loss = super()._maybe_get_loss(stage, mb_index)  # type: ignore[no-untyped-call]
        if loss is not None:
            self._numbers = loss.new_empty((self._n_microbatches, *loss.shape)) if self._numbers is None else self._numbers
            self._numbers[mb_index], self._internal_losses[mb_index] = loss.detach(), self._numbers
            loss, _ = loss * self._factor, loss._is_view() or loss.detach_()  # loss_fn may have kept it, and with it the graph
        return cast("torch.Tensor | None", loss)

    def _update_losses(self, stages: Any, losses: list[torch.Tensor] | None) -> None:
        self._internal_losses[:] = [loss.detach() for loss in self._internal_losses] if self._numbers is None else self._numbers.unbind()
        super()._update_losses(stages, losses)  # type: ignore[no-untyped-call]
        self._numbers = None


def _check(stage: Any) -> SplitCheck:
    """Checks the first split backward of a stage in this step."""
    check, backward, first = SplitCheck(stage.stage_index, stage.submod), stage.backward_maybe_with_nosync, None

    def run(kind: str, arguments: dict[str, Any], last_backward: bool = False) -> Any:
        nonlocal first
        if kind == "input" and first is None:
            if isinstance(stage.submod, FSDPModule):  # as backward sets it
                stage.submod.set_reshard_after_backward(False)
                stage.submod.set_requires_gradient_sync(False)
            check.whole(arguments["stage_output"], arguments["output_grads"], arguments["input_values"])
            gradients, first = backward(kind, arguments, last_backward)
            check.inputs(gradients)
            return gradients, first
        with check.weights() if kind == "weight" and arguments["param_groups"] is first else contextlib.nullcontext():
            return backward(kind, arguments, last_backward)

    stage.backward_maybe_with_nosync = run
    return check


def metadata(stage: Any) -> list[Any]:
    """Returns the input and output metadata of a stage that PyTorch knows, or None for what it does not know."""
    return [getattr(getattr(stage, "_user_meta", None), name, None) for name in ("inputs", "outputs")]


@functools.lru_cache(maxsize=None)
def probe() -> None:
    """Raises ImportError unless this PyTorch was tested, or is newer, and its private parts work as they should."""
    oldest, newest, version = (tuple(int(n) for n in re.findall(r"\d+", v)[:2]) for v in (*TESTED, torch.__version__))
    refused, best = f"weir.schedule was tested on PyTorch {' and '.join(TESTED)}, and this is {torch.__version__}", f"pip install 'torch=={TESTED[-1]}.*'"
    if version < oldest:
        raise ImportError(f"{refused}; some older ones divide gradients or abort over gloo: pip install 'torch>={TESTED[0]}'")
    try:
        for call, names in SIGNATURES.items():
            if not set(names.split()) <= set(inspect.signature(call).parameters):
                raise TypeError(f"{call.__qualname__} does not take {names}")
        _train()
    except Exception as e:
        raise ImportError(f"{refused}, which differs: {e}: {best}") from e
    if version > newest:
        warnings.warn(f"{refused}; its private parts work as they should", stacklevel=4)


def _train() -> None:
    """Trains two microbatches on two stages, one with a split backward, in 0.03 s on the CPU, without drawing random numbers.

    Tested versions are probed as well, because builds differ. The process group has only this rank, so no other rank takes part.
    """
    group: Any = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    modules = [torch.nn.Linear(2, 2, device="meta").to_empty(device="cpu") for _ in range(2)]
    parameters = [torch.nn.init.constant_(p, 0.5) for module in modules for p in module.parameters()]
    body = {"repeat": 2, "stride": 1, "actions": [["F", 0, 0], ["F", 1, 0], ["I", 1, 0], ["W", 1, 0], ["B", 0, 0]]}
    plan = Plan({"schema": 2, "name": "probe", "mode": "training", "ranks": 1, "placement": [0, 0], "microbatches": 2, "programs": [[body]]})
    x, like, losses = torch.ones(4, 2, device="cpu"), torch.empty(2, 2, device="cpu", requires_grad=True), list[torch.Tensor]()
    stages = [PipelineStage(m, i, 2, torch.device("cpu"), input_args=like if i else x[:2], output_args=like, group=group) for i, m in enumerate(modules)]
    Runtime(plan, plan.actions, stages, lambda y, _: y.square().sum(), 1.0, True).step(x, target=x, losses=losses)
    wanted = torch.autograd.grad(torch.nn.Sequential(*modules)(x).square().sum(), parameters)
    if len(losses) != 2 or not all(torch.equal(cast(torch.Tensor, p.grad), w) for p, w in zip(parameters, wanted)):
        raise RuntimeError("a tiny model has other gradients than without a pipeline")
    dist.destroy_process_group(group)
