"""Trains a small Llama with NeMo AutoModel's AutoPipeline, on CPUs over gloo: train_automodel.py OUT SCHEDULE.

WEIR_PLAN, if set, names the plan that runs. The losses and gradient norms of the steps go to OUT.RANK.
"""

import json
import os
import sys

import torch
import torch.distributed as dist

torch.cuda.is_available = lambda: False
MICROBATCHES, LENGTH, STEPS = 8, 16, 3

from nemo_automodel.components.distributed.pipelining.autopipeline import AutoPipeline
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM


def loss_fn(output, target):
    return torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]).float(), target.reshape(-1), reduction="sum") / target.numel() / MICROBATCHES


def main():
    out, name = sys.argv[1:]
    if "WEIR_PLAN" in os.environ:
        import weir_automodel  # noqa: F401
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("pp",))
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2,
                                         max_position_embeddings=64, attn_implementation="sdpa"))
    layers = {} if name == "1F1B" else {"layers_per_stage": 1}
    pipeline = AutoPipeline(world_mesh=mesh, pp_schedule=name, pp_microbatch_size=1, pp_batch_size=MICROBATCHES, device=torch.device("cpu"), dtype=torch.float32,
                            **layers).build(model, loss_fn=loss_fn)
    parameters = [p for part in pipeline.parts for p in part.parameters()]
    generator, optimizer, found = torch.Generator().manual_seed(1), torch.optim.SGD(parameters, lr=0.1), []
    for _ in range(STEPS):
        tokens, targets = (torch.randint(0, 64, (MICROBATCHES, LENGTH), generator=generator) for _ in range(2))
        last = pipeline.info.has_last_stage
        losses = [] if last else None
        optimizer.zero_grad()
        pipeline.step(tokens, target=targets if last else None, losses=losses)
        found.append((float(sum(losses)) if last else -1, sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None) ** 0.5))
        optimizer.step()
    with open(f"{out}.{os.environ['RANK']}", "w") as file:
        json.dump(found, file)
    dist.barrier()
    os._exit(0)


main()
