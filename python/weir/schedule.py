"""Runs a plan of Weir in PyTorch's own pipeline runtime."""

from __future__ import annotations

import collections
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from torch import Tensor, nn

from .plan import Action, Plan, PlanError

if TYPE_CHECKING:
    from ._pytorch import Runtime

__all__ = ["schedule"]

# The kinds that PyTorch's runtime runs, in eval and in a step. ZERO_GRAD it does itself.
FORWARDS = frozenset(("F", "SEND_F", "RECV_F", "WAIT_F", "UNSHARD", "RESHARD"))
RUNS = FORWARDS | {"B", "I", "W", "SEND_B", "RECV_B", "WAIT_B", "REDUCE_GRAD", "WAIT_REDUCE"}


def schedule(plan: Plan | str | os.PathLike[str], stages: Sequence[Any], loss_fn: Callable[..., Tensor], *, reduction: str = "mean", check_split: bool = True,
             **options: Any) -> Runtime:
    """Returns PyTorch's pipeline schedule with the actions of a plan, its transfers and its waits.

        plan = weir.Plan.load("best.json")                # or the path itself
        stages = [PipelineStage(modules[s], s, plan.stages, device) for s in plan.on(rank)]
        schedule = weir.schedule(plan, stages, loss_fn)
        schedule.step(inputs)                             # or step(), or step(target=targets, losses=losses)

    stages are the PipelineStages of this rank, which are those of plan.on(rank). loss_fn(output, target) returns
    the loss of one microbatch as one tensor. With reduction="mean" it must be a mean over the microbatch, and the
    gradients are those of the mean over all microbatches; with "sum" it must be a sum, and the gradients are those
    of the sum over all microbatches. Give loss_fn on every rank.

    The result is a schedule of torch.distributed.pipelining, with its step and eval, except that

      - losses are detached: numbers without a graph, unscaled, in the list that step fills;
      - step returns and keeps outputs only with return_outputs=True;
      - if the plan gathers no weights (without --shard 3 of weir plan and weir choose), a stage that FSDP
        shards keeps its gathered weights for the whole step, and its gradients are reduced at the end;
      - stages with a split backward copy outputs that are views, because PyTorch cannot detach views;
      - in the first step with split backwards, each such stage also computes one microbatch's backward
        whole (check_split=False leaves this out). If gradients differ, step raises PlanError on every
        rank, before the optimizer runs.

    options are those of PyTorch's runtime: args_chunk_spec, kwargs_chunk_spec, output_merge_spec.
    To keep to the memory of the plan, keep no tensors yourself: pass losses=None or read the losses, and give
    inputs as arg_mbs and targets as target_mbs, lists that may make their items when asked.

    Raises PlanError for a plan or stages that PyTorch cannot run, and ImportError for a PyTorch whose
    private names, on which this relies, differ from those of the tested versions.
    """
    from . import _pytorch  # needs a build of PyTorch with torch.distributed

    _pytorch.probe()
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction is {reduction!r}: give "mean" or "sum", which is what loss_fn returns')
    if loss_fn is None:
        raise ValueError("loss_fn is None: give it on every rank, since a rank without one runs no backward")
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    _check_plan(plan)
    stages = sorted(stages, key=lambda stage: stage.stage_index)
    given, rank = sorted(stage.stage_index for stage in stages), stages[0].group_rank
    if stages[0].group_size != plan.ranks or stages[0].num_stages != plan.stages or given != plan.on(rank):
        raise PlanError(f"rank {rank} of {stages[0].group_size} has the stages {given} of {stages[0].num_stages}: in {plan.path} "
                        f"there are {plan.ranks} ranks and {plan.stages} stages, and this rank has {plan.on(rank) if rank < plan.ranks else 'none'}")
    for stage in stages:
        _check_stage(plan, stage, _pytorch.metadata(stage))
    last = plan.stages - 1
    if last in given and any(a.microbatch != i for i, a in enumerate(a for a in plan.actions(rank) if a.kind == "F" and a.stage == last)):
        raise PlanError(f"{plan.path} runs the forwards of the last stage out of order, and PyTorch finds losses by their order")
    counts = collections.Counter((a.stage, a.kind) for a in plan.actions(rank))
    for stage, kinds in ((stage, kinds) for stage in given for kinds in ("F", "BW")):
        if (found := sum(counts[stage, kind] for kind in kinds)) != plan.microbatches:
            raise PlanError(f"{plan.path} has {found} {' or '.join(kinds)} of stage {stage} for {plan.microbatches} microbatches; check it with: weir check {plan.path}")
    for stage in stages:
        if plan.split[stage.stage_index] and 0 < stage.stage_index < last:
            stage.submod.register_forward_hook(_without_views)
    return _pytorch.Runtime(plan, _actions(plan, stages), stages, loss_fn, 1 / plan.microbatches if reduction == "mean" else 1.0, check_split, **options)


def _check_plan(plan: Plan) -> None:
    """Raises PlanError for a plan that PyTorch's runtime cannot run, or that lacks its waits."""
    if not plan.training:
        raise PlanError(f"{plan.path} runs forwards alone: give a plan that trains, whose schedule runs its forwards alone in eval")
    if not plan.lifetimes:
        raise PlanError(f"{plan.path} has no lifetimes, and so no waits for what is sent: weir convert {plan.path} --to plan writes them")
    if plan.runtime != "pytorch" and plan.capacity != 0 and "SEND_F" in plan.kinds:
        # With capacity 0, sends and receives of two ranks are in one order, whatever the number of queues.
        raise PlanError(f"{plan.path} needs two queues between two ranks, for outputs and for gradients, and PyTorch has one: "
                        f"weir convert {plan.path} --runtime pytorch --to plan")
    if plan.copies > 1 or plan.slices > 1:
        raise PlanError(f"{plan.path} has {plan.copies} copies of the model and {plan.slices} slices of a sequence, and PyTorch runs one of each")
    if any(plan.frozen):
        raise PlanError(f"{plan.path} has frozen stages, and PyTorch runs the backward of every stage: plan them as trained, and freeze their parameters")
    if unknown := plan.kinds - RUNS - {"ZERO_GRAD"}:
        raise PlanError(f"{plan.path} has {', '.join(sorted(unknown))}, which PyTorch's runtime does not know: plan without --offload and --quantize")


def _check_stage(plan: Plan, stage: Any, exchanged: Sequence[Any]) -> None:
    """Raises PlanError for a stage that PyTorch would train incorrectly, or not at all, under this plan."""
    index = stage.stage_index
    for name, tensors, other in zip(("input_args", "output_args"), exchanged, (index, index + 1)):
        if tensors and 0 < other < plan.stages and not any(tensor.requires_grad for tensor in tensors):
            raise PlanError(f"{name} of stage {index} require no gradient, so none would be sent back: torch.empty(..., requires_grad=True)")
    if isinstance(stage.submod, nn.parallel.DistributedDataParallel) and plan.split[index] and index:  # PyTorch runs stage 0's backward whole, in W
        raise PlanError(f"stage {index} is wrapped in DDP, which does not see gradients of split backwards, and {plan.path} splits them: "
                        "shard it with fully_shard, or take a plan without I and W")


def _actions(plan: Plan, stages: Sequence[Any]) -> Callable[[int], Iterator[Action]]:
    """Returns the actions of a rank. In a plan that gathers no weights, stages that FSDP shards keep gathered weights for the whole step."""
    from torch.distributed.fsdp import FSDPModule

    sharded = [stage.stage_index for stage in stages if isinstance(stage.submod, FSDPModule) and "UNSHARD" not in plan.kinds]

    def actions(rank: int) -> Iterator[Action]:
        own = [stage for stage in sharded if plan.placement[stage] == rank]
        yield from (Action("UNSHARD", stage, -1, (), False) for stage in own)
        yield from plan.actions(rank)
        yield from (Action(kind, stage, -1, (), False) for stage in own for kind in ("REDUCE_GRAD", "WAIT_REDUCE", "RESHARD"))

    return actions


def _without_views(module: nn.Module, args: Any, output: Any) -> Any:
    """Copies outputs that are views, because a split backward detaches outputs in place, which fails for views."""
    if isinstance(output, (tuple, list)):
        return type(output)(_without_views(module, args, one) for one in output)
    return output.clone() if isinstance(output, Tensor) and output._is_view() else output
