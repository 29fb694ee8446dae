"""Counts the parameters of models that megatron-core builds on the meta device from its flags.

Prints a line of JSON for each set of flags: its name, its text, and the number of parameters,
including the buffers that correct a router. Each model is one stage on one rank; parallel ranks
only affect the padding of the vocabulary.
"""
import contextlib
import io
import json
import logging
import os
import shlex
import sys
import typing
import warnings

import typing_extensions

typing.override = typing_extensions.override  # of Python 3.12
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(RANK="0", WORLD_SIZE="1", CUDA_DEVICE_MAX_CONNECTIONS="1")
import torch
import torch.distributed

torch.cuda.current_device = lambda: "meta"
from megatron.core import parallel_state
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.training.argument_utils import gpt_config_from_args
from megatron.training.arguments import parse_args, validate_args
from megatron.training.models.gpt import GPTModelBuilder

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()

# Without TransformerEngine, latent attention gives its widths to a class that does not take them.
plain = DotProductAttention.__init__
DotProductAttention.__init__ = lambda self, *args, k_channels=None, v_channels=None, **more: plain(self, *args, **more)

# What a machine without a GPU, TransformerEngine and Apex needs, and what training asks for.
HERE = "--transformer-impl local --no-persist-layer-norm --use-cpu-initialization --no-rope-fusion --no-gradient-accumulation-fusion --micro-batch-size 1 --lr 1e-4 --train-iters 1"


def count(text):
    sys.argv = ["train", *shlex.split(text), *shlex.split(HERE)]
    args = parse_args()
    tensor, args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.sequence_parallel = args.tensor_model_parallel_size, 1, 1, False
    args.make_vocab_size_divisible_by *= tensor
    validate_args(args)
    with torch.device("meta"):
        model = GPTModelBuilder(gpt_config_from_args(args)).build_model(ProcessGroupCollection.use_mpu_process_groups(), True, True)
    buffers = (b.numel() for n, b in model.named_buffers() if n.endswith("expert_bias"))
    return sum(p.numel() for p in model.parameters()) + sum(buffers)


SIZES = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --vocab-size 1000 --seq-length 128 --max-position-embeddings 256 --bf16"
ROTARY = SIZES + " --position-embedding-type rope"
LLAMA = ROTARY + " --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights"
LATENT = ROTARY + " --multi-latent-attention --kv-lora-rank 64 --qk-head-dim 32 --qk-pos-emb-head-dim 16 --v-head-dim 32 --swiglu --ffn-hidden-size 512"
EXPERTS = LLAMA + " --num-experts 8 --moe-router-topk 2"

SETS = {
    "GPT": SIZES,
    "GPT untied": SIZES + " --untie-embeddings-and-output-weights",
    "GPT with rotary positions": SIZES + " --use-rotary-position-embeddings",
    "GPT without positions": SIZES + " --position-embedding-type none",
    "rotary, old flags": SIZES + " --no-position-embedding --use-rotary-position-embeddings",
    "Llama": LLAMA,
    "Llama with groups": LLAMA + " --group-query-attention --num-query-groups 2 --kv-channels 48",
    "groups without the flag": LLAMA + " --num-query-groups 2",
    "gated by quick-geglu": ROTARY + " --ffn-hidden-size 688 --untie-embeddings-and-output-weights --disable-bias-linear --quick-geglu",
    "quick-geglu of its width": ROTARY + " --quick-geglu",
    "squared relu": ROTARY + " --squared-relu --disable-bias-linear",
    "biases of queries": LLAMA + " --add-qkv-bias",
    "norms of queries": LLAMA + " --qk-layernorm",
    "norms of queries with biases": ROTARY + " --qk-layernorm",
    "learned softmax": LLAMA + " --softmax-type learnable",
    "padded for itself": LLAMA + " --padded-vocab-size 2048",
    "padded for 3": LLAMA + " --make-vocab-size-divisible-by 3",
    "padded for four ranks": LLAMA + " --tensor-model-parallel-size 4 --sequence-parallel",
    "experts": EXPERTS,
    "experts with biases": ROTARY + " --swiglu --num-experts 8 --moe-ffn-hidden-size 64",
    "experts of the last layers": EXPERTS + " --moe-layer-freq '([0]*1+[1]*3)' --moe-ffn-hidden-size 96",
    "experts in every second layer": EXPERTS + " --moe-layer-freq 2",
    "a shared expert": EXPERTS + " --moe-shared-expert-intermediate-size 192",
    "a shared expert with a gate": EXPERTS + " --moe-shared-expert-intermediate-size 192 --moe-shared-expert-gate",
    "a router with corrections": EXPERTS + " --moe-router-enable-expert-bias --moe-router-score-function sigmoid",
    "gpt-oss in small": ROTARY + " --num-experts 8 --moe-router-topk 4 --quick-geglu --glu-linear-offset 1.0 --softmax-type learnable --normalization RMSNorm --group-query-attention --num-query-groups 2",
    "latent attention": LATENT,
    "latent attention with norms": LATENT + " --q-lora-rank 96 --qk-layernorm --normalization RMSNorm",
    "latent attention of queries": LATENT + " --q-lora-rank 96",
    "latent attention with experts": LATENT + " --q-lora-rank 96 --qk-layernorm --disable-bias-linear --num-experts 8 --moe-layer-freq '[0,1,1,1]'",
    "a further token": LLAMA + " --mtp-num-layers 1",
    "two further tokens with experts": EXPERTS + " --mtp-num-layers 2",
    "a further token with biases": ROTARY + " --mtp-num-layers 1",
    "gpt-oss-20b": "--num-layers 24 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 --group-query-attention --num-query-groups 8 --ffn-hidden-size 2880 --num-experts 32 --moe-router-topk 4 --quick-geglu --softmax-type learnable --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 201088 --seq-length 4096 --max-position-embeddings 131072 --bf16 --hidden-dropout 0",
}

for name, text in SETS.items():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        parameters = count(text)
    print(json.dumps({"name": name, "text": text, "parameters": parameters}), flush=True)
