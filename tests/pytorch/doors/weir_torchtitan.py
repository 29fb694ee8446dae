"""Replaces torchtitan's pipeline schedule with a Weir plan. Import it before the trainer is built."""

import os

import weir
from torchtitan.distributed import pipeline_parallel

plan = weir.Plan.load(os.environ["WEIR_PLAN"])


def build(*, stages, loss_fn, **_):
    # torchtitan's loss functions return the loss, already divided by the tokens of the step, and metrics.
    return weir.schedule(plan, stages, lambda *args, **kwargs: loss_fn(*args, **kwargs)[0], reduction="sum")


pipeline_parallel._build_pipeline_schedule = build
