"""Profiles models of other packages that have odd parts, compares bytes with the allocator of a CPU, and prints a table: python odd.py [NAME ...]

Takes these packages beside torch 2.15.0, as pip installs them: transformers timm torchvision x-transformers vit-pytorch
reformer-pytorch perceiver-pytorch st-moe-pytorch peft segmentation-models-pytorch mambapy titans-pytorch torchao litgpt
denoising-diffusion-pytorch conformer bitsandbytes revtorch vector-quantize-pytorch open-clip-torch

Each model is small, in float32, and initialized by its own code. A row has how far the profile is above real tensors in what is
alive after F, in bytes, and in the peaks of F and of B (compare.py), at most, in two microbatches, and which operators raise a peak
by more than 2 % with what they allocate and free inside; or the text of the refusal.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import io
import operator
import os
import sys
import warnings

import torch
from compare import real
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from weir.profile import ProfileError, profile

WIDTH, WORDS, IMAGE = 64, 300, 64


def of(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def ids(k, n):
    return torch.zeros(k, n, dtype=torch.long)


def hidden(k, n):
    return torch.zeros(k, n, WIDTH)


def image(*shape):
    return lambda k, n: torch.zeros(k, *shape)


def square(out, batch):
    return out.square().mean()


def words(out, batch):
    return F.cross_entropy(getattr(out, "logits", out).flatten(0, 1), batch.flatten())


def itself(out, batch):
    return out


def contrast(out, batch):
    return F.cross_entropy(out[2] * out[0] @ out[1].T, torch.arange(len(out[0])))


def transformers(model="llama", **options):
    config = of("transformers.AutoConfig").for_model(model, hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=WORDS, use_cache=False, **options)
    return of("transformers.AutoModelForCausalLM" if model != "albert" else "transformers.AutoModelForMaskedLM").from_config(config)


def x_transformers(**options):
    layers = of("x_transformers.Decoder")(dim=WIDTH, depth=3, heads=4, attn_dim_head=32, **options)
    return of("x_transformers.TransformerWrapper")(num_tokens=WORDS, max_seq_len=512, attn_layers=layers)


def lora():
    return of("peft.get_peft_model")(transformers(), of("peft.LoraConfig")(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]))


def quantised(config):
    model = transformers()
    of("torchao.quantization.quantize_")(model.model.layers, config())
    return model


def fake_quantised():
    fake = of("torchao.quantization.qat.IntxFakeQuantizeConfig")
    return of("torchao.quantization.qat.QATConfig")(activation_config=fake(torch.int8, "per_token", is_symmetric=False), weight_config=fake(torch.int4, group_size=32), step="prepare")


def eight_bits():
    linear = of("bitsandbytes.nn.Linear8bitLt")
    return nn.Sequential(linear(WIDTH, WIDTH, has_fp16_weights=False), linear(WIDTH, WIDTH, has_fp16_weights=False))


def reversible():
    blocks = [of("revtorch.ReversibleBlock")(nn.Linear(32, 32), nn.Linear(32, 32), split_along_dim=2) for _ in range(3)]
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), of("revtorch.ReversibleSequence")(nn.ModuleList(blocks)))


def clip():
    vision = of("open_clip.model.CLIPVisionCfg")(layers=2, width=64, head_width=16, patch_size=16, image_size=IMAGE)
    return of("open_clip.model.CLIP")(32, vision, of("open_clip.model.CLIPTextCfg")(context_length=32, vocab_size=WORDS, width=64, heads=4, layers=2))


class Experts(nn.Sequential):
    def __init__(self):
        super().__init__(*(of("st_moe_pytorch.SparseMoEBlock")(of("st_moe_pytorch.MoE")(dim=WIDTH, num_experts=4)) for _ in range(2)))

    def forward(self, x):
        losses = 0
        for block in self:
            x, loss, *_ = block(x)
            losses = losses + loss
        return x.square().mean() + losses


class Codes(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, WIDTH), of("vector_quantize_pytorch.ResidualVQ")(dim=WIDTH, num_quantizers=2, codebook_size=32), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        x, _, losses = self[1](self[0](x))
        return self[2](x).square().mean() + losses.sum()


MODELS = {  # name: package, odd part, build, batch, loss, layers
    "ViT": ("timm", "dropped paths at rates that are read from a tensor, scaled layers", lambda: of("timm.create_model")("vit_tiny_patch16_224", img_size=IMAGE, depth=3, drop_path_rate=0.1, init_values=0.1), image(3, IMAGE, IMAGE), square),
    "Swin": ("timm", "shifted windows with masks in buffers, stages of other widths", lambda: of("timm.create_model")("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(2, 2), num_heads=(2, 4)), image(3, 56, 56), square),
    "ResNet-18": ("torchvision", "batch norms, whose buffers change; operations in place", lambda: of("torchvision.models.resnet18")(), image(3, IMAGE, IMAGE), square, ["layer1", "layer2", "layer3", "layer4"]),
    "FCN": ("torchvision", "a backbone that is a ModuleDict, dicts as outputs", lambda: of("torchvision.models.segmentation.fcn_resnet50")(weights_backbone=None, num_classes=4), image(3, 32, 32), lambda out, batch: square(out["out"], batch), "backbone"),
    "x-transformers": ("x-transformers", "lists of norm, function and residual as layers; rotary positions", lambda: x_transformers(rotary_pos_emb=True), ids, words),
    "x-transformers, tied": ("x-transformers", "one attention and one feed-forward in all layers", lambda: x_transformers(weight_tie_layers=True), ids, words, ["attn_layers.layers"] * 3),
    "SimpleUViT": ("vit-pytorch", "skips from the first half of the layers to the second", lambda: of("vit_pytorch.simple_uvit.SimpleUViT")(image_size=IMAGE, patch_size=16, num_classes=10, dim=WIDTH, depth=4, heads=4, mlp_dim=128, dim_head=16), image(3, IMAGE, IMAGE), square),
    "Reformer": ("reformer-pytorch", "a reversible autograd.Function, hashes, multiples of 16 tokens", lambda: of("reformer_pytorch.ReformerLM")(num_tokens=WORDS, dim=WIDTH, depth=2, max_seq_len=512, heads=4, bucket_size=8, causal=True), lambda k, n: ids(k, -(-n // 16) * 16), words),
    "Perceiver": ("perceiver-pytorch", "one cross attention in all layers", lambda: of("perceiver_pytorch.Perceiver")(num_freq_bands=4, depth=3, max_freq=10, num_latents=16, latent_dim=WIDTH, num_classes=10, weight_tie_layers=True), image(16, 16, 3), square),
    "ST-MoE": ("st-moe-pytorch", "experts with a capacity, losses beside the output", Experts, hidden, itself),
    "LoRA": ("peft", "adapters with dropout on a frozen llama", lora, ids, words),
    "QAT": ("torchao", "fake-quantised linear layers", lambda: quantised(fake_quantised), ids, words),
    "int8 training": ("torchao", "weights that are subclasses of Tensor", lambda: quantised(of("torchao.prototype.quantized_training.int8_weight_only_quantized_training")), ids, words),
    "8 bits": ("bitsandbytes", "quantised linear layers", eight_bits, hidden, square),
    "Mamba": ("mambapy", "an autograd.Function that scans in place", lambda: of("mambapy.mamba.Mamba")(of("mambapy.mamba.MambaConfig")(d_model=WIDTH, n_layers=2)), hidden, square),
    "Mamba, slow": ("transformers", "a loop over tokens", lambda: transformers("mamba", state_size=4), ids, words),
    "Titans": ("titans-pytorch", "gradients inside of the forward, by torch.func.grad", lambda: of("titans_pytorch.MemoryAsContextTransformer")(num_tokens=WORDS, dim=WIDTH, depth=2, segment_len=16), ids, words),
    "GPT": ("litgpt", "a ModuleDict, rotary tables in buffers", lambda: of("litgpt.GPT")(of("litgpt.Config")(block_size=512, vocab_size=WORDS, padded_vocab_size=WORDS, n_layer=3, n_head=4, n_embd=WIDTH)), ids, words),
    "diffusion": ("denoising-diffusion-pytorch", "skips from the way down to the way up, times as a second input", lambda: of("denoising_diffusion_pytorch.Unet")(dim=16, dim_mults=(1, 2)), lambda k, n: (torch.zeros(k, 3, 32, 32), torch.zeros(k)), square,
                  ["downs", "mid_block1", "mid_attn", "mid_block2", "ups"]),
    "Conformer": ("conformer", "dropout, depthwise convolutions, a table of relative positions", lambda: of("conformer.Conformer")(dim=WIDTH, depth=2, dim_head=16, heads=4, ff_mult=2, conv_kernel_size=7, attn_dropout=0.1, ff_dropout=0.1, conv_dropout=0.1), hidden, square),
    "RevNet": ("revtorch", "reversible blocks", reversible, hidden, square),
    "residual VQ": ("vector-quantize-pytorch", "codebooks in buffers that change, branches on buffers", Codes, hidden, itself),
    "U-Net": ("segmentation-models-pytorch", "skips from an encoder to a decoder", lambda: of("segmentation_models_pytorch.Unet")("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(32, 16, 16)), image(3, IMAGE, IMAGE), square,
              ["encoder.layer1", "encoder.layer2", "decoder.blocks"]),
    "CLIP": ("open-clip-torch", "a vision tower beside a tower of texts", clip, lambda k, n: (torch.zeros(k, 3, IMAGE, IMAGE), ids(k, 32)), contrast, ["visual.transformer.resblocks", "transformer.resblocks"]),
    "ALBERT": ("transformers", "one layer, run three times", lambda: transformers("albert", embedding_size=32), ids, words, ["albert.encoder.albert_layer_groups"] * 3),
}


def outcome(build, batch, loss, layers=None):
    try:
        found = profile(build, batch, loss, seq=64, device="cpu", attention="math", layers=layers)
    except ProfileError as e:
        return f"refused: {e}"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        rows = real(found, build, batch, loss, [(1, 128), (2, 48)])
    alive = max((e - r for row in rows for e, r in [row[1].get("alive after F", (0, 0))]), key=abs)
    forward, backward = (max((row[i] for row in rows), key=abs) for i in (2, 3))
    inside = "".join(f"; inside of {name[6:]} {part:.0%} more" for name, part in functools.reduce(operator.or_, (row[4] for row in rows)).most_common() if part > 0.02)
    return f"alive after F: {f'{alive:+,} bytes' if alive else 'equal'}; peak of F {forward:+.2%}, of B {backward:+.2%}{inside}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("| model | package | odd part | outcome |\n|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        package, part, *arguments = MODELS[name]
        with contextlib.redirect_stdout(io.StringIO()):
            said = outcome(*arguments)
        print(f"| {name} | {package} {importlib.metadata.version(package)} | {part} | {said} |", flush=True)
