"""Forecasts of torchtitan's published runs of Llama 3.1, from a description of the model and from torchtitan's own code: python titan.py

Takes torchtitan 0.3.0 and the command `weir` from the path, or from the variable WEIR. The runs are those of torchtitan's
benchmarks/llama3_h100_202412: the most that was reserved on any rank, in GiB. The pipelines are taken to have 8 microbatches
of 4 sequences, torchtitan's default of the time, and all layers to be checkpointed. A profile has whole layers, so its bytes
are divided over the tensor ranks as over ranks that share a sequence (--context). The weights that FSDP holds whole, and
their gradients, are added here: with a pipeline all those of a rank, otherwise those of the embedding, the head and two layers.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional as F
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import llama3_configs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import weir

WEIR = os.environ.get("WEIR", "weir")
SIZES = {"8B": (4096, 14336, 32, 32), "70B": (8192, 28672, 64, 80), "405B": (16384, 53248, 128, 126)}  # width, inner width, heads, layers
RUNS = [  # name, model, tokens, ranks, schedule, microbatches, their sequences, tensor ranks, FSDP ranks, reserved
    ("405B, FSDP 8, TP 8, PP 8, 1F1B", "405B", 8192, 8, "1f1b", 8, 4, 8, 8, 82.5),
    ("the same, interleaved", "405B", 8192, 8, "interleaved", 8, 4, 8, 8, 72.7),
    ("70B, FSDP 32, TP 8, local batch 16", "70B", 8192, 1, "1f1b", 1, 16, 8, 32, 71.9),
    ("8B, FSDP 8, a sequence of 32,768 tokens", "8B", 32768, 1, "1f1b", 1, 1, 1, 8, 83.9),
]


def profile(flavor, tokens):
    def build():
        config = llama3_configs[flavor](attn_backend="varlen")
        for layer in config.layers:  # the attention of these runs; varlen and flex are newer
            layer.attention.inner_attention = ScaledDotProductAttention.Config()
            layer.attention.rope = dataclasses.replace(layer.attention.rope, max_seq_len=2 * tokens)
        torch.set_default_dtype(torch.bfloat16)  # as FSDP casts parameters
        try:
            return config.build()
        finally:
            torch.set_default_dtype(torch.float32)

    return weir.profile(build, lambda k, n: torch.zeros(k, n, dtype=torch.long), lambda out, ids: F.cross_entropy(out.flatten(0, 1).float(), ids.flatten()),
                        seq=tokens, attention="flash", checkpoint=True)


def fit(*args):
    out = json.loads(subprocess.run([WEIR, "fit", *map(str, args), "--json"], check=True, capture_output=True, text=True).stdout)
    return max(rank["reserved_native"] for rank in out["per_rank"]) / 2**30


def main():
    print("| run | reserved | from the description | from torchtitan's code | both with what FSDP gathers |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, flavor, tokens, ranks, schedule, microbatches, sequences, tensor, shards, reserved in RUNS:
            hidden, inner, heads, layers = SIZES[flavor]
            config, code = os.path.join(folder, flavor + ".json"), os.path.join(folder, f"{flavor}-{tokens}.json")
            if not os.path.exists(code):
                profile(flavor, tokens).save(code)
            with open(config, "w", encoding="utf-8") as file:
                json.dump(dict(model_type="llama", hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=8, num_hidden_layers=layers,
                               vocab_size=128256, tie_word_embeddings=False), file)
            common = ["--ranks", ranks, "--schedule", schedule, "--microbatches", microbatches, "--microbatch-size", sequences, "--seq", tokens,
                      "--replicas", shards, "--shard", 3, "--precision", "amp"]
            before = fit(config, *common, "--tensor", tensor, *["--sequence-parallel"] * (tensor > 1), "--recompute", "full")
            after = fit(code, *common, "--context", tensor)
            pieces = weir.profile.Profile.load(code)
            count = [pieces.kinds[p.kind].parameters.count / tensor for p in pieces.pieces]
            most = -(-layers // ranks)
            gathered = 6 * (count[0] + sum(count[1:1 + most])) if ranks > 1 else 6 * (count[0] + count[-1]) + 8 * count[1]
            gathered /= 2**30
            print(f"| {name} | {reserved} | {before:.1f} ({before / reserved - 1:+.0%}) | {after:.1f} ({after / reserved - 1:+.0%}) | "
                  f"{before + gathered:.1f} ({(before + gathered) / reserved - 1:+.0%}) and {after + gathered:.1f} ({(after + gathered) / reserved - 1:+.0%}) |", flush=True)


main()
