"""Compares weir.profile with real tensors: what each piece saves, and the most bytes alive in a forward and in a backward.

    python compare.py [--device cpu|cuda] [--brief] [MODEL ...]

Small models of transformers, and a module of one's own, run in float32, bfloat16 and autocast, with the model's own attention and with a kernel,
and with and without checkpoints; each on three microbatches. On a CPU the bytes alive are those that PyTorch's
profiler reads from the allocator; on a GPU they are those of torch.cuda.memory_stats. Every difference is printed:
a piece that saves other bytes (up to 64 more are allowed where one sequence is viewed and several are copied), and a
peak that differs by more than 2 %. The exit status is 1 if there is one.

On a CPU, an operator may allocate bytes and free them before it returns, such as the float32 result of a product in
bfloat16. They are no tensors, so a profile does not have them, except for the copies of operands in another dtype.
The profiler tells which operator allocates what, so peaks are compared without these bytes, and each operator that
raises a peak with them is printed with the most by which it does.
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
from collections import Counter

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
import torch  # noqa: E402
from torch._C._profiler import _EventType  # noqa: E402
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


OPERATORS = {name.partition(".")[0] for name in {*torch._C._dispatch_get_all_op_names()} - {*torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")} if not name.endswith("out")}


@functools.cache
def counted(name):
    """Reports whether a profile counts what an operator allocates inside: copies of operands, and a mask of softmax."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    return name == "aten::_safe_softmax" or any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def changes(event, call=None):
    """Yields the allocations of an event and of those inside it: when, how many bytes, where, and in which call of an operator."""
    if event.tag == _EventType.Allocation:
        yield event.start_time_ns, event.extra_fields.alloc_size, event.extra_fields.ptr, call
    names, stack = Counter(), [*event.children]
    if call is None and event.name in OPERATORS and not counted(event.name):
        while stack:
            names[stack[-1].name] += 1
            stack += stack.pop().children
        if event.name not in names:  # under autocast, an operator calls itself with other operands
            call = event.id, event.name
    for inner in event.children:
        yield from changes(inner, call)


def peak(device, run, raising, before=0):
    """Returns what run returns; and of the bytes alive, which are that many before, the most without those inside of operators, and those at the end.

    raising gets, by operator, the largest part by which bytes inside of it raise the most.
    """
    if device == "cuda":
        out = []
        with alive(device, out):
            result = run()
        return result, before + out[0], before + out[1]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        result = run()
    events = sorted((one for event in p.profiler.kineto_results.experimental_event_tree() for one in changes(event)), key=lambda one: one[0])
    made, inside = {}, set()
    for i, (_, size, where, call) in enumerate(events):
        if size > 0:
            made[where] = i
        elif where in made and call is not None and events[made[where]][3] == call:
            inside |= {made.pop(where), i}
    seen = [*itertools.accumulate((0 if i in inside else one[1] for i, one in enumerate(events)), initial=before)]
    for now, (*_, call) in zip(itertools.accumulate((one[1] for one in events), initial=before), [(None,), *events]):
        if now > max(seen):
            raising[call[1]] = max(raising[call[1]], now / max(seen) - 1)
    return result, max(seen), seen[-1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("models", nargs="*")
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--brief", action="store_true", help="three settings of each model")
    a = p.parse_args()
    if a.device == "cuda":
        capability = "%d.%d" % torch.cuda.get_device_capability()
    failed = 0
    for name in a.models or MODELS:
        total, wrong, raised, worst, most = 0, 0, 0, [0.0, 0.0], Counter()
        settings = list(itertools.product(("float32", "bfloat16", "autocast"), ("eager", "flash"), (False, True)))
        for dtype, attention, checkpoint in settings[::5] if a.brief else settings:
            if attention == "flash" and (name == "gpt_oss" or name == "deepseek_v3" and a.device == "cpu" or a.device == "cuda" and dtype == "float32"):
                continue  # no kernel takes sinks, nor flash heads of two widths on a CPU, nor float32 on a GPU
            backend = torch.nn.attention.SDPBackend
            with torch.nn.attention.sdpa_kernel(backend.MATH if attention == "eager" else backend.FLASH_ATTENTION):
                one = compare(name, dtype, attention, checkpoint, a.device, capability if a.device == "cuda" else "9.0")
            for what, differs, forward, backward, raising in one:
                total += 1
                far = max(abs(forward), abs(backward)) > 0.02
                wrong += bool(differs) or far
                raised += max(raising.values(), default=0) > 0.02
                most |= raising
                worst = [max(worst[0], abs(forward)), max(worst[1], abs(backward))]
                if differs or far:
                    print(f"{name} {dtype} {attention}{' checkpoint' if checkpoint else ''} {what}: saved {differs or 'equal'}; peak of F {forward:+.2%}, of B {backward:+.2%}", flush=True)
        failed += wrong
        inside = ", ".join(f"{operator} by up to {part:.2%}" for operator, part in most.most_common())
        print(f"{name}: {total} compared, {wrong} differ; largest difference of a peak: F {worst[0]:.2%}, B {worst[1]:.2%}; bytes inside of operators raise {raised} by more than 2 %: {inside or 'none'}", flush=True)
    return 1 if failed else 0


def compare(name, dtype, attention, checkpoint, device, capability):
    autocast = "bfloat16" if dtype == "autocast" else None
    build, batch, of = made(name, attention, "float32" if autocast else dtype)
    kernel = "math" if attention == "eager" else attention
    found = profile(build, batch, of, seq=256, device=device, attention=kernel, autocast=autocast, checkpoint=checkpoint, capability=capability)
    return real(found, build, batch, of, MICROBATCHES, device, autocast, checkpoint)


def real(found, build, batch, of, microbatches, device="cpu", autocast=None, checkpoint=False):
    """Runs a model on real tensors. Returns for each microbatch its name, the bytes saved that differ from a profile's, by how much the profile's peaks of F and of B do, and what raises them inside of operators."""
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
        raising = Counter()
        loss, forward, level = peak(device, forward_loss, raising)
        _, backward, _ = peak(device, loss.backward, raising, level)
        del loss
        # Of what a checkpoint keeps for its layer, hooks see what the layer gets by position, and not what it gets by name; the allocator sees all.
        own = [found.kinds[x.kind].saved.at(*[n] * k) for x in found.pieces]
        with_shared = [b + sum(s.saved.at(*[n] * k) for s in found.shared if i in s.pieces) for i, b in enumerate(own)]
        expected = [b if checkpoint and r <= b else b_shared for b, b_shared, r in zip(own, with_shared, real)]
        differs = {pieces[i]: (e, r) for i, (e, r) in enumerate(zip(expected, real)) if not (i == 0 and checkpoint) and not 0 <= e - r <= (0 if found.kinds[found.pieces[i].kind].saved.above == 0 else 64)}
        all_saved = found.saved(0, len(pieces), *[n] * k)
        if not 0 <= level - all_saved + 64 <= 192:  # the loss, and what an allocator rounds up
            differs["alive after F"] = (all_saved, level)
        f, b = found.peak("F", 0, len(pieces), *[n] * k), found.peak("B", 0, len(pieces), *[n] * k)
        out.append((f"{k} x {n}", differs, f / forward - 1, b / backward - 1, raising))
    return out


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProfileError as e:
        print(e)
        sys.exit(1)
