"""Trains with a plan of weir in torch.distributed.pipelining, PyTorch 2.6 and later.

    plan = weir_pipelining.Plan("best.csv")      # weir convert best.json --to comms > best.csv
    stages = [PipelineStage(modules[s], s, plan.stages, device, input_args=..., output_args=...)
              for s in plan.on(rank)]
    schedule = plan.schedule(stages, loss_fn)    # on every rank, also on those that have no loss
    schedule.step(inputs)                        # or step(), or step(target=..., losses=...)

PyTorch's own loader leaves three things to its caller, which this module does:

  - Gradients. The runtime of 2.6 adds up the gradients of all microbatches, so with a loss
    that is a mean they are as many times too large as there are microbatches. Later versions
    divide them, also where the loss is a sum. Here the gradients are those of the mean
    over all microbatches, or of the sum if the loss is one (reduction="sum").
  - Views. A stage whose output is a view, as that of a Linear with a 3-D input is, fails in
    the backward with "Can't detach views in-place". Here such an output is copied.
  - Placement. PyTorch takes stage s to be on rank s mod P, and a plan such as a V then
    sends to wrong ranks or waits forever. Here the plan says where every stage is.

The losses that step returns have no graph.
"""

import csv
import inspect
import re

import torch
from torch.distributed.pipelining import schedules

__all__ = ["Plan"]


class Plan:
    """A plan file in either of PyTorch's CSV forms: with transfers, or computations alone.

    ranks, stages and microbatches are those of the plan, and rank_of is the rank of each stage.
    """

    def __init__(self, path):
        self.path, self.rank_of, self.microbatches, transfers = path, {}, 0, False
        with open(path, newline="") as file:
            for rank, row in enumerate(csv.reader(file)):
                transfers = transfers or any("SEND_" in cell or "RECV_" in cell for cell in row)
                for cell in row:
                    for stage, microbatch in re.findall(r"(\d+)F(\d+)", cell):
                        self.rank_of[int(stage)] = rank
                        self.microbatches = max(self.microbatches, int(microbatch) + 1)
                self.ranks = rank + 1
        self.stages = len(self.rank_of)
        if sorted(self.rank_of) != list(range(self.stages)) or not self.rank_of:
            raise ValueError(f"{path} has forwards of the stages {sorted(self.rank_of)}: a plan has them of 0, 1, 2 and so on; "
                             "check it with: weir check")
        self.format = "compute_comms" if transfers or self.ranks == 1 else "compute_only"

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
            stage.submod.register_forward_hook(_without_views)
        extra = {"scale_grads": False} if "scale_grads" in inspect.signature(_Runtime.__init__).parameters else {}
        schedule = _Runtime(stages, self.microbatches, loss_fn=loss_fn, stage_index_to_group_rank=self.rank_of, **extra)
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
