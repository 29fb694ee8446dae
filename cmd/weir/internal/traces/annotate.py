import torch


def annotate(stage):
    """Names the computations of a pipeline stage in the traces of torch.profiler."""
    for name, letter in ("forward_one_chunk", "F"), ("backward_one_chunk", "B"), ("backward_weight_one_chunk", "W"):
        def named(microbatch, *args, call=getattr(stage, name), letter=letter, **kwargs):
            kind = letter if kwargs.get("full_backward", True) else "I"
            with torch.profiler.record_function(f"PP:{stage.stage_index}{kind}{microbatch}"):
                return call(microbatch, *args, **kwargs)
        setattr(stage, name, named)
