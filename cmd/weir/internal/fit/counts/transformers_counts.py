"""Counts the parameters of models that transformers builds on the meta device.

Prints a line of JSON for each config.json: its name, its text, and the number of parameters,
including the buffers that correct a router. A config that transformers rejects has no line.
"""
import json
import warnings

warnings.filterwarnings("ignore")
import torch
from transformers import AutoModelForCausalLM, logging
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

logging.set_verbosity(logging.CRITICAL)


def count(config):
    inner = config.get("text_config", config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[inner["model_type"]].from_dict(dict(inner)))
    buffers = (b.numel() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))
    return sum(p.numel() for p in model.parameters()) + sum(buffers)


def show(name, config, strict=False):
    try:
        parameters = count(config)
    except Exception:
        if strict:
            raise
        return
    print(json.dumps({"name": name, "text": json.dumps(config, indent=2), "parameters": parameters}), flush=True)


def llama(hidden, inner, layers, heads, kv, vocabulary, **more):
    return {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": inner, "max_position_embeddings": 4096, "model_type": "llama",
        "num_attention_heads": heads, "num_hidden_layers": layers, "num_key_value_heads": kv, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": True, "vocab_size": vocabulary, **more,
    }


def other(name, kind, *sizes, **more):
    config = llama(*sizes)
    del config["attention_bias"], config["pretraining_tp"], config["rope_scaling"]
    return {**config, "architectures": [name + "ForCausalLM"], "model_type": kind, "rope_theta": 1000000.0, **more}


def mistral(*sizes, **more):
    return other("Mistral", "mistral", *sizes, sliding_window=None, **more)


def mixtral(*sizes, **more):
    return other("Mixtral", "mixtral", *sizes, num_local_experts=8, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.02, sliding_window=None, **more)


def qwen2(*sizes, **more):
    return other("Qwen2", "qwen2", *sizes, max_window_layers=28, sliding_window=131072, use_sliding_window=False, **more)


def qwen3(*sizes, **more):
    return other("Qwen3", "qwen3", *sizes, attention_bias=False, head_dim=128, max_window_layers=36, sliding_window=None, use_sliding_window=False, **more)


def qwen_moe(name, kind, *sizes, **more):
    return other(name, kind, *sizes, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.001, sliding_window=None, use_sliding_window=False, **more)


def deepseek(version, *sizes, **more):
    return other("Deepseek" + version, "deepseek_" + version.lower(), *sizes, attention_bias=False, aux_loss_alpha=0.001, ep_size=1, kv_lora_rank=512, moe_layer_freq=1, n_group=1,
                 norm_topk_prob=True, qk_nope_head_dim=128, qk_rope_head_dim=64, routed_scaling_factor=1.0, scoring_func="softmax", seq_aux=True, topk_group=1, topk_method="greedy", v_head_dim=128, **more)


PUBLISHED = {
    "Llama-2-7B": llama(4096, 11008, 32, 32, 32, 32000),
    "Llama-2-13B": llama(5120, 13824, 40, 40, 40, 32000),
    "Llama-2-70B": llama(8192, 28672, 80, 64, 8, 32000),
    "CodeLlama-34B": llama(8192, 22016, 48, 64, 8, 32000, rope_theta=1000000),
    "Llama-3-8B": llama(4096, 14336, 32, 32, 8, 128256),
    "Llama-3.1-405B": llama(16384, 53248, 126, 128, 8, 128256, mlp_bias=False, rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}),
    "Llama-3.2-1B": llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "Llama-3.2-3B": llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, tie_word_embeddings=True),
    "TinyLlama-1.1B": llama(2048, 5632, 22, 32, 4, 32000),
    "Yi-34B": llama(7168, 20480, 60, 56, 8, 64000),
    "SmolLM2-135M": llama(576, 1536, 30, 9, 3, 49152, tie_word_embeddings=True, rope_interleaved=False),
    "DeepSeek-LLM-7B": llama(4096, 11008, 30, 32, 32, 102400),
    "Mistral-7B-v0.3": mistral(4096, 14336, 32, 32, 8, 32768),
    "Mistral-Nemo-12B": mistral(5120, 14336, 40, 32, 8, 131072, head_dim=128),
    "Mistral-Small-24B": mistral(5120, 32768, 40, 32, 8, 131072, head_dim=128),
    "Mixtral-8x7B": mixtral(4096, 14336, 32, 32, 8, 32000),
    "Mixtral-8x22B": mixtral(6144, 16384, 56, 48, 8, 32768),
    "Qwen2-0.5B": qwen2(896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
    "Qwen2-7B": qwen2(3584, 18944, 28, 28, 4, 152064),
    "Qwen2-72B": qwen2(8192, 29568, 80, 64, 8, 152064),
    "Qwen2.5-1.5B": qwen2(1536, 8960, 28, 12, 2, 151936, tie_word_embeddings=True),
    "Qwen2.5-14B": qwen2(5120, 13824, 48, 40, 8, 152064),
    "Qwen2.5-32B": qwen2(5120, 27648, 64, 40, 8, 152064),
    "Qwen3-0.6B": qwen3(1024, 3072, 28, 16, 8, 151936, tie_word_embeddings=True),
    "Qwen3-4B": qwen3(2560, 9728, 36, 32, 8, 151936, tie_word_embeddings=True),
    "Qwen3-8B": qwen3(4096, 12288, 36, 32, 8, 151936),
    "Qwen3-32B": qwen3(5120, 25600, 64, 64, 8, 151936),
    "Qwen1.5-MoE-A2.7B": qwen_moe("Qwen2Moe", "qwen2_moe", 2048, 5632, 24, 16, 16, 151936, moe_intermediate_size=1408, num_experts=60, num_experts_per_tok=4, shared_expert_intermediate_size=5632, max_window_layers=21),
    "Qwen2-57B-A14B": qwen_moe("Qwen2Moe", "qwen2_moe", 3584, 18944, 28, 28, 4, 151936, moe_intermediate_size=2560, num_experts=64, num_experts_per_tok=8, shared_expert_intermediate_size=20480, max_window_layers=28),
    "Qwen3-30B-A3B": qwen_moe("Qwen3Moe", "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, attention_bias=False, head_dim=128, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, max_window_layers=48),
    "Qwen3-235B-A22B": qwen_moe("Qwen3Moe", "qwen3_moe", 4096, 12288, 94, 64, 4, 151936, attention_bias=False, head_dim=128, moe_intermediate_size=1536, num_experts=128, num_experts_per_tok=8, max_window_layers=94),
    "DeepSeek-V2-Lite": deepseek("V2", 2048, 10944, 27, 16, 16, 102400, first_k_dense_replace=1, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, q_lora_rank=None),
    "DeepSeek-V2": deepseek("V2", 5120, 12288, 60, 128, 128, 102400, first_k_dense_replace=1, moe_intermediate_size=1536, n_routed_experts=160, n_shared_experts=2, num_experts_per_tok=6, q_lora_rank=1536),
    "DeepSeek-V3": deepseek("V3", 7168, 18432, 61, 128, 128, 129280, first_k_dense_replace=3, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, num_nextn_predict_layers=1, q_lora_rank=1536),
    "Moonlight-16B-A3B": deepseek("V3", 2048, 11264, 27, 16, 16, 163840, first_k_dense_replace=1, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, num_nextn_predict_layers=0, q_lora_rank=None),
    "Mistral-Small-3.1-24B": {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": mistral(5120, 32768, 40, 32, 8, 131072, head_dim=128), "vision_config": {"model_type": "pixtral"}},
}

SMALL = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 320, "head_dim": 24,
    "moe_intermediate_size": 32, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 48, "n_shared_experts": 3,
    "first_k_dense_replace": 1, "q_lora_rank": 20, "kv_lora_rank": 28, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_group": 2, "topk_group": 1, "decoder_sparse_step": 2,
    "attention_bias": True, "mlp_bias": True, "qkv_bias": False, "tie_word_embeddings": True, "max_position_embeddings": 64,
}

for name, config in PUBLISHED.items():
    show(name, config, strict=True)
for kind in "llama mistral mixtral qwen2 qwen3 qwen2_moe qwen3_moe deepseek_v2 deepseek_v3".split():
    published = {**next(c for c in PUBLISHED.values() if c["model_type"] == kind), "num_hidden_layers": 5}
    default = CONFIG_MAPPING[kind]()
    # As the library itself writes it, with every key that the class has in a size of its own.
    small = CONFIG_MAPPING[kind].from_dict({k: v for k, v in SMALL.items() if hasattr(default, k)}).to_dict()
    small["model_type"] = kind
    for form, config in (("published", published), ("small", small)):
        show(f"{kind}, {form}", config, strict=True)
        for key in config:
            if key != "model_type":
                show(f"{kind}, {form}, without {key}", {k: v for k, v in config.items() if k != key})
                show(f"{kind}, {form}, {key} null", {**config, key: None})
    for key in "attention_bias", "mlp_bias", "qkv_bias", "tie_word_embeddings":
        for value in True, False:
            show(f"{kind}, {key} {value}", {**small, key: value})
    for key, value in ("mlp_only_layers", [1, 3]), ("num_experts", 0), ("decoder_sparse_step", 3), ("first_k_dense_replace", 9), ("n_shared_experts", 1), ("q_lora_rank", None), ("layer_types", ["full_attention"] * 4), ("hidden_act", "gelu"):
        show(f"{kind}, {key} {value}", {**small, key: value})
    show(f"{kind}, of its class", {"model_type": kind})
