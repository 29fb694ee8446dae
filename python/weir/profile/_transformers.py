"""Models of transformers, from their configs, for weir.profile."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
from torch import Tensor, nn

from ._file import ProfileError
from ._model import attend

__all__ = ["from_config"]


def from_config(path: Any, *, attention: str, dtype: str = "bfloat16") -> tuple[Callable[[], nn.Module], Callable[[int, int], dict[str, Tensor]]]:
    """Returns build and batch for weir.profile of the model that a config.json, or a config, describes.

    attention is that of weir.profile, or "eager", the model's own code. The kernel flash has the windows and the
    causal mask of the model inside, as the packages of FlashAttention do; the others get masks. A batch has no padding.
    """
    import transformers  # type: ignore[import-not-found, unused-ignore]
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # type: ignore[import-not-found, unused-ignore]
    from transformers.modeling_utils import AttentionInterface  # type: ignore[import-not-found, unused-ignore]

    config = AutoConfig.from_pretrained(os.path.abspath(path)) if isinstance(path, (str, os.PathLike)) else path
    for one in (config, config.get_text_config()):
        one.use_cache = False
    if getattr(config, "quantization_config", None) is not None:
        raise ProfileError("the config has a quantization_config, whose kernels are not PyTorch's: remove it to profile the model as it is trained")

    def attended(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, dropout: float = 0.0, scaling: Any = None, is_causal: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("s_aux") is not None:
            raise ProfileError("attention has learned sinks, which no kernel of PyTorch takes: state attention eager")
        causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal) and attention_mask is None and query.shape[2] > 1
        return attend(attention, query, key, value, attention_mask, dropout, causal, scaling).transpose(1, 2).contiguous(), None

    AttentionInterface.register("weir", attended)
    AttentionMaskInterface.register("weir", (lambda *args, **kwargs: None) if attention == "flash" else sdpa_mask)
    for auto in (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForMaskedLM, AutoModel):
        if type(config) in auto._model_mapping:
            break
    else:
        raise ProfileError(f"transformers {transformers.__version__} has no model for the config {type(config).__name__}")

    def build() -> nn.Module:
        try:
            return auto.from_config(config, dtype=getattr(torch, dtype), attn_implementation="eager" if attention == "eager" else "weir")  # type: ignore[no-any-return]
        except (KeyError, ValueError) as e:
            if "weir" in str(e):
                raise ProfileError(f"{type(config).__name__} has its own code for attention, into which no kernel can be put: state attention eager") from e
            raise

    def batch(sequences: int, length: int) -> dict[str, Tensor]:
        ids = torch.zeros(sequences, length, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}

    return build, batch
