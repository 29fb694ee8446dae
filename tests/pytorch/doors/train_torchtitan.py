"""Trains torchtitan's llama3 debug model with its own Trainer, on CPUs over gloo: train_torchtitan.py OUT SCHEDULE.

torchtitan 0.3.0 needs a GPU, and loads the data set from the network. Both are replaced here, and so are
attention kernels that no CPU has. WEIR_PLAN, if set, names the plan that runs. The losses and
gradient norms of the steps go to OUT.RANK.
"""

import json
import os
import sys
import types

import torch
import torchtitan.tools.utils as utils

CPU = {name: (lambda *args, **kwargs: None) for name in ("set_device", "reset_peak_memory_stats", "empty_cache", "synchronize", "manual_seed_all", "manual_seed")}
utils.device_type, utils.device_module = "cpu", types.SimpleNamespace(
    **CPU, device_count=lambda: 1, current_device=lambda: 0, get_device_name=lambda device=None: "cpu", is_available=lambda: True, memory_stats=lambda device=None: {},
    get_device_properties=lambda device=None: types.SimpleNamespace(total_memory=1 << 34), get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state,
    current_stream=torch.cpu.current_stream, Stream=torch.cpu.Stream)
utils.get_local_device = lambda: torch.device("cpu")
torch.accelerator.is_available = lambda: False

import torchtitan.models.common.attention as attention
from torchtitan.models.llama3 import config_registry, model_registry
from torchtitan.trainer import Trainer

MICROBATCHES, LENGTH, STEPS = 8, 32, 4


def forward(self, q_BLNH, k_BLNH, v_BLNH, *, scale=None, enable_gqa=False, **_):  # torchtitan looks these names up
    q, k, v = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, v_BLNH))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa).transpose(1, 2)


attention.FlexAttention.forward = forward


class Batches:
    def __iter__(self):
        generator = torch.Generator().manual_seed(7)
        while True:
            tokens = torch.randint(0, 2000, (MICROBATCHES, LENGTH + 1), generator=generator)
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def main():
    out, name = sys.argv[1:]
    if "WEIR_PLAN" in os.environ:
        import weir_torchtitan  # noqa: F401
    config = config_registry.llama3_debugmodel() if os.environ.get("CHUNKED") else config_registry.llama3_debugmodel_ce_loss()
    config.model_spec = model_registry("debugmodel", attn_backend="flex")
    type(config.dataloader).build = lambda self, **_: Batches()
    type(config.tokenizer).build = lambda self, **_: types.SimpleNamespace(eos_id=0, bos_id=0)
    config.training.local_batch_size, config.training.seq_len, config.training.steps = MICROBATCHES, LENGTH, STEPS
    config.training.disable_cuda_graphs, config.training.mixed_precision_param = True, "float32"
    config.parallelism.pipeline_parallel_degree = int(os.environ["WORLD_SIZE"])
    config.parallelism.data_parallel_shard_degree = 1
    config.parallelism.pipeline_parallel_schedule = name
    config.activation_checkpoint = None
    config.checkpoint.enable = config.validator.enable = False
    config.dump_folder, config.debug.seed, config.optimizer.implementation, config.metrics.log_freq = out + ".dump", 3, "for-loop", 1
    config.comm.init_timeout_seconds = config.comm.train_timeout_seconds = 60
    found, step = [], Trainer.pp_forward_backward_step

    def record(self, **kwargs):
        loss = step(self, **kwargs)
        gradients = (p.grad for part in self.model_parts for p in part.parameters() if p.grad is not None)
        found.append((float(loss), sum(float((g.to_local() if hasattr(g, "to_local") else g).double().square().sum()) for g in gradients) ** 0.5))
        return loss

    Trainer.pp_forward_backward_step = record
    config.build().train()
    with open(f"{out}.{os.environ['RANK']}", "w") as file:
        json.dump(found, file)


main()
