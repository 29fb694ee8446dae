"""Compares weir.profile with real tensors: what each piece saves, and the most bytes alive in a forward and in a backward.

    python compare.py [--device cpu|cuda] [--brief] [MODEL ...]

Small models of transformers, and a module of one's own, run in float32, bfloat16 and autocast, with the model's own attention and with a kernel,
and with and without checkpoints; each on three microbatches. On a CPU the bytes alive are those that PyTorch's
profiler reads from the allocator; on a GPU they are those of torch.cuda.memory_stats. Every difference is printed:
a piece that saves other bytes (up to 64 more are allowed where one sequence is viewed and several are copied), and a
peak that differs by more than 2 %. The exit status is 1 if there is one. On a CPU, operators in bfloat16 have copies
in float32 and packed matrices inside, which are no tensors: such peaks are printed and counted, and do not count as wrong.
"""

import argparse
import collections
import contextlib
import functools
import gc
import itertools
import os
import sys
import weakref

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
import torch  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from weir.profile import ProfileError, profile
from weir.profile._measure import alive
from weir.profile._transformers import from_config

SMALL = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=320, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=48)
MODELS = {
    "llama": {}, "qwen3": {}, "gemma2": dict(query_pre_attn_scalar=16, sliding_window=64), "phi3": {}, "olmo2": {}, "gpt2": dict(n_embd=64, n_layer=3, n_head=4, n_positions=4096, attn_pdrop=0),
    "mixtral": EXPERTS, "qwen3_moe": dict(EXPERTS, decoder_sparse_step=1), "gpt_oss": dict(EXPERTS, sliding_window=64, layer_types=["sliding_attention", "full_attention"] * 2),
    "deepseek_v3": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=48, first_k_dense_replace=1, kv_lora_rank=32, q_lora_rank=32,
                        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, num_key_value_heads=4, head_dim=8),
    "glm4_moe": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=48, first_k_dense_replace=1), "own": None,
}
MICROBATCHES = [(1, 256), (2, 128), (1, 97)]


def config(name):
    from transformers import CONFIG_MAPPING

    layers = 4 if name == "gpt_oss" else 3
    return CONFIG_MAPPING[name](**({**SMALL, "num_hidden_layers": layers, **MODELS[name]}))


def made(name, attention, dtype):
    """Returns build, batch and loss of weir.profile for a model."""
    if name != "own":
        return *from_config(config(name), attention=attention, dtype=dtype), lambda output, batch: output.loss
    from pipeline import Own, loss_fn

    def build():
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            return Own()
        finally:
            torch.set_default_dtype(torch.float32)

    return build, lambda k, n: {"ids": torch.zeros(k, n, dtype=torch.long)}, lambda output, batch: loss_fn(output, batch["ids"])


class Saved:
    """Counts what each piece saves of real tensors, on its own: by the address of a storage, while a node holds it."""

    def __init__(self, model, pieces):
        self.own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
        self.piece, self.pieces, self.kept = 0, len(pieces), collections.defaultdict(dict)
        self.handles = []
        for m in dict.fromkeys(map(model.get_submodule, pieces[1:-1])):  # a layer may be in the list twice
            self.handles.append(m.register_forward_pre_hook(lambda m, a: self.go(max(self.piece, 1))))
            self.handles.append(m.register_forward_hook(lambda m, a, o: self.go(self.piece + 1)))
        self.forward = True

    def go(self, piece):
        self.piece = piece if self.forward else self.piece

    def pack(self, t):
        s, packed = t.untyped_storage(), t.detach()
        if s.data_ptr() not in self.own:
            self.kept[self.piece].setdefault((s.data_ptr(), s.nbytes()), []).append(weakref.ref(packed))
        return packed

    def bytes(self):
        return [sum(n for (_, n), held in self.kept[i].items() if any(one() is not None for one in held)) for i in range(self.pieces)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("models", nargs="*")
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--brief", action="store_true", help="three settings of each model")
    a = p.parse_args()
    if a.device == "cuda":
        capability = "%d.%d" % torch.cuda.get_device_capability()
    total, wrong, inside, worst = 0, 0, 0, [0.0, 0.0]
    for name in a.models or MODELS:
        settings = list(itertools.product(("float32", "bfloat16", "autocast"), ("eager", "flash"), (False, True)))
        for dtype, attention, checkpoint in settings[::5] if a.brief else settings:
            if attention == "flash" and (name == "gpt_oss" or a.device == "cuda" and dtype == "float32"):
                continue  # it has sinks, which no kernel takes; and flash has no float32
            backend = torch.nn.attention.SDPBackend
            with torch.nn.attention.sdpa_kernel(backend.MATH if attention == "eager" else backend.FLASH_ATTENTION):
                one = compare(name, dtype, attention, checkpoint, a.device, capability if a.device == "cuda" else "9.0")
            for what, differs, forward, backward in one:
                total += 1
                far = max(abs(forward), abs(backward)) > 0.02
                cpu = a.device == "cpu" and dtype != "float32" and max(forward, backward) <= 0.02  # below what a CPU allocates
                wrong += bool(differs) or far and not cpu
                inside += far and cpu
                if not cpu:
                    worst = [max(worst[0], abs(forward)), max(worst[1], abs(backward))]
                if differs or far:
                    print(f"{name} {dtype} {attention}{' checkpoint' if checkpoint else ''} {what}: saved {differs or 'equal'}; peak of F {forward:+.2%}, of B {backward:+.2%}", flush=True)
        print(f"{name}: so far {total} compared, {wrong} differ, {inside} are below what a CPU's operators allocate inside; largest other difference of a peak: F {worst[0]:.2%}, B {worst[1]:.2%}", flush=True)
    return 1 if wrong else 0


def compare(name, dtype, attention, checkpoint, device, capability):
    autocast = "bfloat16" if dtype == "autocast" else None
    build, batch, of = made(name, attention, "float32" if autocast else dtype)
    kernel = "math" if attention == "eager" else attention
    found = profile(build, batch, of, seq=256, device=device, attention=kernel, autocast=autocast, checkpoint=checkpoint, capability=capability)
    return real(found, build, batch, of, MICROBATCHES, device, autocast, checkpoint)


def real(found, build, batch, of, microbatches, device="cpu", autocast=None, checkpoint=False):
    """Runs a model on real tensors. Returns for each microbatch its name, the bytes saved that differ from a profile's, and by how much the profile's peaks of F and of B do."""
    pieces = [x.name for x in found.pieces]
    with torch.device(device):
        torch.manual_seed(0)
        model = build().train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for m in dict.fromkeys(map(model.get_submodule, pieces[1:-1])) if checkpoint else ():
        m.forward = functools.partial(torch.utils.checkpoint.checkpoint, m.forward, use_reentrant=False, preserve_rng_state=False)
    out = []
    for k, n in microbatches:
        with torch.device(device):
            inputs = tree_map(lambda t: torch.randn_like(t) if t.is_floating_point() else torch.randint(0, 300, t.shape), batch(k, n))
        saved = Saved(model, pieces)
        saved.own |= {t.data_ptr() for t in tree_leaves(inputs)}

        def forward_loss():
            with torch.autocast(device, torch.bfloat16) if autocast else contextlib.nullcontext():
                return of(model(**inputs) if isinstance(inputs, dict) else model(*inputs) if isinstance(inputs, tuple) else model(inputs), inputs)

        with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda t: t):
            loss = forward_loss()
        real = saved.bytes()
        saved.forward = False
        loss.backward()
        for handle in saved.handles:
            handle.remove()
        del loss
        gc.collect()
        forward, backward = [], []
        with alive(device, forward):
            loss = forward_loss()
        with alive(device, backward):
            loss.backward()
        del loss
        # Of what a checkpoint keeps for its layer, hooks see what the layer gets by position, and not what it gets by name; the allocator sees all.
        own = [found.kinds[x.kind].saved.at(*[n] * k) for x in found.pieces]
        with_shared = [b + sum(s.saved.at(*[n] * k) for s in found.shared if i in s.pieces) for i, b in enumerate(own)]
        expected = [b if checkpoint and r <= b else b_shared for b, b_shared, r in zip(own, with_shared, real)]
        differs = {pieces[i]: (e, r) for i, (e, r) in enumerate(zip(expected, real)) if not (i == 0 and checkpoint) and not 0 <= e - r <= (0 if found.kinds[found.pieces[i].kind].saved.above == 0 else 64)}
        all_saved = found.saved(0, len(pieces), *[n] * k)
        if not 0 <= forward[1] - all_saved + 64 <= 192:  # the loss, and what an allocator rounds up
            differs["alive after F"] = (all_saved, forward[1])
        f, b = found.peak("F", 0, len(pieces), *[n] * k), found.peak("B", 0, len(pieces), *[n] * k)
        out.append((f"{k} x {n}", differs, f / forward[0] - 1, b / (forward[1] + backward[0]) - 1))
    return out


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProfileError as e:
        print(e)
        sys.exit(1)
