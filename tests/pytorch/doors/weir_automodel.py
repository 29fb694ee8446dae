"""Replaces NeMo AutoModel's pipeline schedule with a Weir plan. Import it before AutoPipeline.build."""

import os

import weir
from nemo_automodel.components.distributed.pipelining import functional

plan = weir.Plan.load(os.environ["WEIR_PLAN"])


def build(csv, name, microbatch_size, local_batch_size, stages, loss_fn, scale_grads=False):
    return weir.schedule(plan, stages, loss_fn, reduction="mean" if scale_grads else "sum")


functional.build_pipeline_schedule = build
