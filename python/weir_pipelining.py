"""Trains with a plan of weir in torch.distributed.pipelining, PyTorch 2.14 and 2.15.

    plan = weir_pipelining.Plan("best.csv")      # weir convert best.json --to comms > best.csv
    like = torch.empty(rows, width, requires_grad=True)      # what a stage sends and receives
    stages = [PipelineStage(modules[s], s, plan.stages, device, input_args=like if s else inputs, output_args=like)
              for s in plan.on(rank)]
    schedule = plan.schedule(stages, loss_fn)    # on every rank, also on those that have no loss
    schedule.step(inputs)                        # or step(), or step(target=..., losses=...)

PyTorch's own loader leaves two things to its caller, which this module does:

  - Gradients. The runtime divides them by the number of microbatches where the plan reduces
    them, also if the loss is a sum. Here the gradients are those of the mean over all
    microbatches, or of the sum if the loss is one (reduction="sum").
  - Views. A stage whose output is a view, as that of a Linear with a 3-D input is, fails in
    a split backward with "Can't detach views in-place". Here such an output is copied.

The losses that step returns have no graph. The module stands on names that PyTorch keeps to
itself, so it refuses versions before 2.14, and later ones in which one of these names differs.
"""

import csv
import inspect
import re

import torch
from torch.distributed.pipelining import schedules

__all__ = ["Plan"]

TESTED = (2, 14), (2, 15)
WAITS = hasattr(schedules, "WAIT_SEND_F")  # from 2.15 on, every send of a plan has its wait


def _refusal():
    """Returns why this PyTorch is refused, or "" for one that was tested, or has all that the module uses."""
    version = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])
    if version < TESTED[0]:
        return "some older ones divide gradients or abort over gloo: pip install 'torch>=2.14'"
    runtime = schedules._PipelineScheduleRuntime
    for call, names in (
        (schedules.PipelineScheduleMulti.__init__, ("stages", "n_microbatches", "loss_fn", "scale_grads")),
        (runtime._load_csv, ("filename", "format")),
        (getattr(runtime, "_maybe_get_loss", None), ("stage", "mb_index")),
        (getattr(runtime, "_update_losses", None), ("stages", "losses")),
    ):
        if call is None or not set(names) <= set(inspect.signature(call).parameters):
            return f"its pipelining has no {getattr(call, '__qualname__', 'runtime')} with {', '.join(names)}: pip install 'torch==2.15.*', or a newer weir-ml if there is one"
    return ""


if reason := _refusal():
    raise ImportError(f"weir_pipelining was tested on PyTorch {' and '.join('%d.%d' % v for v in TESTED)}, and this is {torch.__version__}: {reason}")


class Plan:
    """A plan file in either of PyTorch's CSV forms: with transfers, or computations alone.

    ranks, stages and microbatches are those of the plan, and rank_of is the rank of each stage.
    """

    def __init__(self, path):
        self.path, self.rank_of, self.microbatches = path, {}, 0
        with open(path, newline="") as file:
            rows = list(csv.reader(file))
        for rank, row in enumerate(rows):
            for cell in row:
                for stage, microbatch in re.findall(r"(\d+)F(\d+)", cell):
                    self.rank_of[int(stage)] = rank
                    self.microbatches = max(self.microbatches, int(microbatch) + 1)
        self.ranks, self.stages = len(rows), len(self.rank_of)
        if sorted(self.rank_of) != list(range(self.stages)) or not self.rank_of:
            raise ValueError(f"{path} has forwards of the stages {sorted(self.rank_of)}: a plan has them of 0, 1, 2 and so on; "
                             "check it with: weir check")
        cells = "".join(cell for row in rows for cell in row)
        if "SEND_" in cells and ("WAIT_" in cells) != WAITS:
            raise ValueError(f"{path} has sends with{'out' * WAITS} waits for them, which PyTorch {torch.__version__} does not run: "
                             f"weir convert {path} --to {'comms' if WAITS else 'comms-2.6'}")
        self.format = "compute_comms" if "SEND_" in cells or self.ranks == 1 else "compute_only"

    def on(self, rank):
        """Returns the stages of a rank, ascending."""
        return [stage for stage in range(self.stages) if self.rank_of[stage] == rank]

    def schedule(self, stages, loss_fn, reduction="mean"):
        """Returns the schedule that runs the plan with these stages, those of this rank.

        loss_fn(output, target) returns the loss of one microbatch, as a mean over it or as a
        sum, which reduction says. With "mean" the gradients are those of the mean over
        all microbatches, with "sum" those of the sum.
        """
        if reduction not in ("mean", "sum"):
            raise ValueError(f'reduction is {reduction!r}: give "mean" or "sum", which is what loss_fn returns')
        if loss_fn is None:
            raise ValueError("loss_fn is None: give it on every rank, since a rank without one runs no backward")
        first = stages[0]
        given, wanted = sorted(s.stage_index for s in stages), self.on(first.group_rank)
        if given != wanted or first.num_stages != self.stages or first.group_size != self.ranks:
            raise ValueError(f"rank {first.group_rank} of {first.group_size} has the stages {given} of {first.num_stages}: in {self.path} "
                             f"it has {wanted} of {self.stages}, and there are {self.ranks} ranks")
        for stage in stages:
            index, exchanged = stage.stage_index, stage._user_meta
            for name, given, other in ("input_args", exchanged.inputs, index), ("output_args", exchanged.outputs, index + 1):
                if given and 0 < other < self.stages and not any(tensor.requires_grad for tensor in given):
                    raise ValueError(f"{name} of stage {index} require no gradient, so none would be sent back: torch.empty(..., requires_grad=True)")
            stage.submod.register_forward_hook(_without_views)
        schedule = _Runtime(stages, self.microbatches, loss_fn=loss_fn, scale_grads=False)
        schedule.seed = 1 / self.microbatches if reduction == "mean" else 1
        schedule._load_csv(self.path, format=self.format)
        return schedule


def _without_views(module, args, output):
    """Copies outputs that are views: the runtime detaches them in place, which a view refuses."""
    if isinstance(output, (tuple, list)):
        return type(output)(_without_views(module, args, one) for one in output)
    return output.clone() if isinstance(output, torch.Tensor) and output._is_view() else output


class _Runtime(schedules._PipelineScheduleRuntime):
    """PyTorch's runtime, with backwards that start from a part of the loss."""

    def _maybe_get_loss(self, stage, mb_index):
        loss = super()._maybe_get_loss(stage, mb_index)
        return loss if loss is None or self.seed == 1 else loss * self.seed

    def _update_losses(self, stages, losses):
        super()._update_losses(stages, losses)
        if losses:
            losses[:] = [loss.detach() for loss in losses]
