"""The private names of torch.distributed.pipelining that this package uses, all of them, and the probe that they still work."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from typing import Any, Callable, Iterator, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, schedules

from ._split import SplitCheck, agree
from .plan import Plan

__all__ = ["Runtime", "metadata", "probe"]

TESTED = "2.14", "2.15"
WAITS = hasattr(schedules, "WAIT_SEND_F")  # before 2.15, PyTorch waits for all sends when a step ends
NAMES = {"WAIT_F": "WAIT_SEND_F", "WAIT_B": "WAIT_SEND_B", "WAIT_REDUCE": "WAIT_REDUCE_GRAD"}


class Program:
    """The actions of a rank in PyTorch's form. They are made as they are read, so that a long step takes no more memory than a short one."""

    def __init__(self, plan: Plan, rank: int):
        self.plan, self.rank = plan, rank

    def __iter__(self) -> Iterator[Any]:
        pair: list[Any] = []
        for action in self.plan.actions(self.rank):
            if action.kind == "ZERO_GRAD" or action.kind in NAMES and not WAITS:
                continue  # PyTorch makes its gradients itself
            kind = schedules._ComputationType(NAMES.get(action.kind, action.kind))
            pair.append(schedules._Action(action.stage, kind, action.microbatch if action.microbatch >= 0 else None))
            if not action.joined:
                yield pair[0] if len(pair) == 1 else schedules._Action(-1, schedules.OVERLAP_F_B, None, tuple(pair))
                pair = []

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return list(self)  # PyTorch copies the actions in order to print them when one of them fails


class Runtime(schedules._PipelineScheduleRuntime):
    """PyTorch's runtime with the actions of a plan, which makes weir.schedule."""

    def __init__(self, plan: Plan, stages: list[Any], loss_fn: Callable[..., Tensor], check: bool, **options: Any):
        super().__init__(stages, plan.microbatches, loss_fn=loss_fn, scale_grads=False, **options)  # type: ignore[no-untyped-call]
        self.plan = plan
        self.stage_index_to_group_rank = dict(enumerate(plan.placement))
        for stage in stages:
            stage.stage_index_to_group_rank = self.stage_index_to_group_rank
        self.pipeline_order_with_comms = cast(Any, {rank: Program(plan, rank) for rank in range(plan.ranks)})
        self._unchecked = check and any(plan.split[1:])  # PyTorch runs stage 0's backward whole, in W

    def step(self, *args: Any, return_outputs: bool | None = None, **kwargs: Any) -> Any:
        """Runs a step, as PyTorch's schedules do. Outputs are not returned, or kept, unless asked for, or in eval."""
        keep = not self._has_backward if return_outputs is None else return_outputs
        if not (self._unchecked and self._has_backward):
            return super().step(*args, return_outputs=keep, **kwargs)
        checks = [_check(stage) for stage in self._stages if self.plan.split[stage.stage_index] and not stage.is_first]
        try:
            outputs = super().step(*args, return_outputs=keep, **kwargs)
        finally:
            for stage in self._stages:
                vars(stage).pop("backward_maybe_with_nosync", None)
        self._unchecked = not agree(checks, self.plan.path, self._stages[0].group)
        return outputs

    def _update_losses(self, stages: Any, losses: list[Tensor] | None) -> None:
        super()._update_losses(stages, losses)  # type: ignore[no-untyped-call]
        if losses:
            losses[:] = [loss.detach() for loss in losses]


def _check(stage: Any) -> SplitCheck:
    """Checks the first split backward of a stage in this step."""
    check, backward, first = SplitCheck(stage.stage_index, stage.submod), stage.backward_maybe_with_nosync, None

    def run(kind: str, arguments: dict[str, Any], last_backward: bool = False) -> Any:
        nonlocal first
        if kind == "input" and first is None:
            if isinstance(stage.submod, FSDPModule):  # as backward sets it
                stage.submod.set_reshard_after_backward(False)
                stage.submod.set_requires_gradient_sync(False)
            inputs = arguments["input_values"]
            check.whole(arguments["stage_output"], arguments["output_grads"], inputs)
            result = backward(kind, arguments, last_backward)
            check.inputs([g for g, x in zip(result[0], inputs) if isinstance(x, Tensor) and x.requires_grad])
            first = result[1]
            return result
        if kind == "weight" and first is not None and arguments["param_groups"] is first:
            with check.weights():
                return backward(kind, arguments, last_backward)
        return backward(kind, arguments, last_backward)

    stage.backward_maybe_with_nosync = run
    return check


def metadata(stage: Any) -> tuple[Any, Any]:
    """Returns what input_args and output_args of a stage were, as tensors or what PyTorch makes of them, or None."""
    given = getattr(stage, "_user_meta", None)
    return (given.inputs, given.outputs) if given else (None, None)


@functools.lru_cache(maxsize=None)
def probe() -> None:
    """Raises ImportError unless this PyTorch was tested, or is newer and trains two microbatches of a tiny model as it should.

    The model runs in every version, since a version number does not say what a vendor or a nightly
    build has changed; it takes some milliseconds, on the CPU, in a group of this rank alone.
    """
    oldest, newest, version = (tuple(int(n) for n in re.findall(r"\d+", v)[:2]) for v in (*TESTED, torch.__version__))
    refused, best = f"weir.schedule was tested on PyTorch {' and '.join(TESTED)}, and this is {torch.__version__}", f"pip install 'torch=={TESTED[-1]}.*'"
    if version < oldest:
        raise ImportError(f"{refused}; some older ones divide gradients or abort over gloo: pip install 'torch>={TESTED[0]}'")
    for call, names in ((schedules.PipelineScheduleMulti.__init__, "stages n_microbatches loss_fn scale_grads"), (schedules._PipelineScheduleRuntime._update_losses, "stages losses"),
                        (PipelineStage.backward_maybe_with_nosync, "backward_type bwd_kwargs last_backward")):
        if not set(names.split()) <= set(inspect.signature(call).parameters):
            raise ImportError(f"{refused}, whose {call.__qualname__} does not take {names}: {best}")
    try:
        _train()
    except Exception as e:
        raise ImportError(f"{refused}, which does not train a tiny model as it should: {e}: {best}") from e
    if version > newest:
        warnings.warn(f"{refused}; it trains a tiny model as it should", stacklevel=4)


def _train() -> None:
    """Trains two microbatches on two stages, one with a whole backward and one with a split one, and compares the gradients."""
    group: Any = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    try:
        modules = [torch.nn.Linear(2, 2, device="meta").to_empty(device="cpu") for _ in range(2)]  # draws no random numbers
        parameters = [torch.nn.init.constant_(p, 0.5) for module in modules for p in module.parameters()]
        actions = [[kind, stage, mb] for mb in (0, 1) for kind, stage in (("F", 0), ("F", 1), ("I", 1), ("W", 1), ("B", 0))]
        plan = Plan({"schema": 2, "name": "probe", "mode": "training", "ranks": 1, "placement": [0, 0], "microbatches": 2,
                     "programs": [[{"repeat": 1, "stride": 0, "actions": actions}]]})
        x, like, losses = torch.ones(4, 2), torch.empty(2, 2, requires_grad=True), list[Tensor]()
        stages = [PipelineStage(m, i, 2, torch.device("cpu"), input_args=like if i else x[:2], output_args=like, group=group) for i, m in enumerate(modules)]
        Runtime(plan, stages, lambda y, _: y.square().sum(), True).step(x, target=x, losses=losses)
        wanted = torch.autograd.grad(torch.nn.Sequential(*modules)(x).square().sum(), parameters)
        if len(losses) != 2 or not all(torch.equal(cast(Tensor, p.grad), w) for p, w in zip(parameters, wanted)):
            raise RuntimeError("its gradients are wrong")
    finally:
        dist.destroy_process_group(group)
