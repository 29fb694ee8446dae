"""python -m weir.profile config.json --seq 4096 -o model.json"""

from __future__ import annotations

import argparse
import sys
import time

from . import Profile, ProfileError, profile


def main(arguments: list[str] | None = None) -> int:
    """Profiles a model of transformers, and prints what its pieces keep. Returns the exit status."""
    p = argparse.ArgumentParser("python -m weir.profile", description="Profiles a model of transformers: what each layer keeps and computes, without a GPU and without its weights.")
    p.add_argument("config", help="the model's config.json")
    p.add_argument("--seq", type=int, default=4096, help="the typical tokens of a sequence (default 4096)")
    p.add_argument("-o", "--output", help="the file to write, for weir fit, sim, choose and mem plan")
    p.add_argument("--attention", choices=("flash", "efficient", "cudnn", "math", "eager"), default="flash", help="the kernel of attention, or eager, the model's own code (default flash)")
    p.add_argument("--dtype", default="bfloat16", help="of weights and activations (default bfloat16)")
    p.add_argument("--autocast", help="the dtype of autocast, such as bfloat16, with --dtype float32")
    p.add_argument("--checkpoint", action="store_true", help="each layer keeps its input alone")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="the device whose operators count (default cuda); it need not be there")
    p.add_argument("--capability", default="9.0", help="its compute capability (default 9.0)")
    p.add_argument("--layers", action="append", help="a layer, or a list of layers, by name; by default the list with most parameters")
    p.add_argument("--measure", action="store_true", help="time the layers too, on a device that is there, with real tensors")
    a = p.parse_args(arguments)
    try:
        from ._transformers import from_config
    except ImportError as e:
        print(f"weir.profile: {e}: install transformers, or profile a module of your own with weir.profile", file=sys.stderr)
        return 2
    try:
        begun = time.time()
        build, batch = from_config(a.config, attention=a.attention, dtype=a.dtype)
        found = profile(build, batch, seq=a.seq, device=a.device, capability=a.capability, attention="math" if a.attention == "eager" else a.attention,
                        autocast=a.autocast, checkpoint=a.checkpoint, layers=a.layers, measure=a.measure)
        found.settings.update(dtype=a.dtype, attention=a.attention)
        if a.output:
            found.save(a.output)
        print(table(found, a.seq))
        print(f"{time.time() - begun:.1f} s" + (f", written to {a.output}" if a.output else ""))
    except (ProfileError, OSError) as e:
        print(f"weir.profile: {e}", file=sys.stderr)
        return 1
    return 0


def table(p: Profile, seq: int) -> str:
    """Returns the profile for people: one line for each run of pieces of a kind, for one sequence."""
    lines = [f"{p.model}, {p.parameters:,} parameters; " + ", ".join(f"{k} {v}" for k, v in p.settings.items())]
    lines.append(f"one sequence of {seq:,} tokens; exact at {', '.join(f'{len(c)} x {c[0]:,}' for c in p.checked)} too")
    rows = [("", "parameters", "saved", "a token", "sent", "carry I to W", "most in B", "FLOPs F")]
    first = 0
    for i, piece in enumerate(p.pieces):
        if i + 1 < len(p.pieces) and p.pieces[i + 1].kind == piece.kind:
            continue
        k = p.kinds[piece.kind]
        name = piece.name if i == first else f"{p.pieces[first].name} to {piece.name.rsplit('.', 1)[-1]}, each"
        rows.append((name, f"{k.parameters.count:,}", size(k.saved.at(seq)), f"{k.saved.token:,.0f} B", size(k.border.at(seq)), size(k.carry.at(seq)),
                     size(k.saved.at(seq) + max([0, *(a.at(seq) for a in k.temporary['B'])])), f"{k.flops['F'].at(seq):.3g}"))
        first = i + 1
    wide = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(w) if c == 0 else cell.rjust(w) for c, (cell, w) in enumerate(zip(r, wide))).rstrip() for r in rows]
    lines += [f"shared by {len(s.pieces)} pieces, once on each stage: {size(s.saved.at(seq))}" for s in p.shared]
    lines += [f"{t.name} is used in {len(t.pieces)} pieces" for t in p.tied]
    return "\n".join(lines)


def size(n: float) -> str:
    """Returns a number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            break
        n /= 1024
    return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
