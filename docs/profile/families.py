"""Profiles the default configs of families of transformers, each in a process of its own, and compares their parameters with the meta device's.

    python families.py [FAMILY[:ATTENTION] | CONFIG.json ...]

Prints a line of JSON for each: parameters and whether they are equal, or why the model is refused; the seconds of a processor
that the profile took, and the MiB of the process.
"""

import json
import multiprocessing
import os
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
from transformers import CONFIG_MAPPING, AutoConfig
from weir.profile import ProfileError, profile
from weir.profile._transformers import from_config

FAMILIES = """llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next:eager gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo:eager gpt_neox gptj opt bloom falcon:eager mpt:eager codegen starcoder2
stablelm olmo olmo2 olmo3 olmoe cohere cohere2 granite granitemoe deepseek_v2 deepseek_v3 glm glm4 glm4_moe gpt_oss gpt_oss:eager llama4_text smollm3 ernie4_5 ernie4_5_moe hunyuan_v1_dense minimax:eager mamba:eager
t5:eager bert helium arcee nemotron persimmon exaone4 seed_oss""".split()
CONFIGS = ["../fit/llama-3-8b.json", "../fit/deepseek-v3.json"]


def one(name, attention):
    config = AutoConfig.from_pretrained(os.path.abspath(name)) if name.endswith(".json") else CONFIG_MAPPING[name]()
    out = {"model": name, "attention": attention}
    begun = time.process_time()
    try:
        build, batch = from_config(config, attention=attention)
        found = profile(build, batch, seq=2048, attention="math" if attention == "eager" else attention)
        with torch.device("meta"):
            meta = sum(p.numel() for p in build().parameters())
        out.update(parameters=found.parameters, equal=found.parameters == meta, kinds=len(found.kinds), pieces=len(found.pieces))
    except ProfileError as e:
        out["refused"] = str(e)
    out.update(seconds=round(time.process_time() - begun, 1), mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    for family in sys.argv[1:] or FAMILIES + CONFIGS:
        name, _, attention = family.partition(":")
        process = multiprocessing.get_context("fork").Process(target=one, args=(name, attention or "flash"))
        process.start()
        process.join()
        if process.exitcode:
            print(json.dumps({"model": name, "failed": process.exitcode}), flush=True)
