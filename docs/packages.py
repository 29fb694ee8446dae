#!/usr/bin/env python3
"""Draws packages, their lines of code and their imports: docs/packages.py > docs/packages.svg

Packages that belong together are one box; of the imports between boxes those are left out that
follow from others.
"""
import os
import subprocess

MODULE = "github.com/weir-ml/weir/"
BOXES = [  # prefixes of packages, the longest counts
    ("memory", ["memory"]), ("loss", ["loss"]), ("schedule", ["schedule", "schedule/internal"]),
    ("proof, lowering, simulation", ["schedule/check", "schedule/lower", "schedule/simulate"]),
    ("format, draw", ["schedule/format", "schedule/draw"]), ("choose", ["schedule/choose"]),
    ("layout", ["schedule/layout"]), ("placement", ["memory/placement", "internal/placement"]),
    ("runner", ["schedule/runner"]), ("engine", ["internal/engine"]), ("batchctx", ["context"]), ("stages", ["stages"]),
    ("transformer", ["stages/transformer"]), ("fp8", ["fp8"]), ("kernels", ["kernels"]), ("arithmetic", ["internal/arithmetic"]),
    ("logs, snapshots", ["memory/memlog", "memory/snapshot", "memory/cachingsim"]), ("formats", ["internal/formats"]),
    ("trainer", ["trainer"]), ("transport", ["transport"]), ("examples", ["examples"]),
    ("the command", ["cmd", "internal/release"]),
]
SKIP = ("tests", "stages/stagetest", "kernels/kerneltest", "memory/memorytest", "transport/transporttest", "internal/testing",
        "internal/arithmetic/vector/gen", "internal/arithmetic/neon/translate", "internal/engine/invariants", "schedule/units", "trainer/terminal")


def within(path, prefix):
    return path == prefix or path.startswith(prefix + "/")


def box(path):
    if any(within(path, s) for s in SKIP):
        return None
    found = [(len(p), name) for name, prefixes in BOXES for p in prefixes if within(path, p)]
    return max(found)[1] if found else None


def code(folder):
    """Returns the lines of Go without tests, comments and blanks of the packages of a folder."""
    lines = 0
    for name in os.listdir(folder):
        if name.endswith(".go") and not name.endswith("_test.go"):
            with open(os.path.join(folder, name)) as file:
                lines += sum(1 for line in file if line.strip() and not line.strip().startswith("//"))
    return lines


def graph(root):
    lines, imports = {}, {}
    listed = subprocess.run(["go", "list", "-f", '{{.ImportPath}} {{.Dir}} {{join .Imports " "}}', "./..."],
                            cwd=root, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path, folder, *uses = line.split()
        own = box(path.removeprefix(MODULE))
        if own:
            lines[own] = lines.get(own, 0) + code(folder)
            imports.setdefault(own, set()).update(
                b for b in (box(u.removeprefix(MODULE)) for u in uses if u.startswith(MODULE)) if b and b != own)
    return lines, imports


def reachable(imports, start, seen):
    for other in imports.get(start, ()):
        if other not in seen:
            seen.add(other)
            reachable(imports, other, seen)
    return seen


def level(imports, name, path=()):
    return max((1 + level(imports, o, path + (name,)) for o in imports.get(name, ()) if o not in path), default=0)


def panel(lines, imports, width):
    out = [f'<text class="t" x="{width / 2}" y="22">{sum(lines.values()):,} lines of code without tests</text>']
    rows = {}
    for name in lines:
        rows.setdefault(level(imports, name), []).append(name)
    at, bottom = {}, 46 + 54 * max(rows)
    for row, names in rows.items():
        names.sort(key=lambda n: [b for b, _ in BOXES].index(n))
        widths = [max(58, 6.1 * len(n) + 14) for n in names]
        gap = (width - sum(widths)) / (len(names) + 1)
        x = gap
        for n, w in zip(names, widths):
            at[n] = (x, bottom - 54 * row, w)
            x += w + gap
    for name, uses in imports.items():
        for other in sorted(uses):
            if any(other in reachable(imports, o, set()) and name not in reachable(imports, o, set()) for o in uses if o != other):
                continue
            (x, y, w), (u, v, k) = at[name], at[other]
            a, b = x + w / 2, u + k / 2
            out.append(f'<path d="M{a:.0f} {y + 32}C{a:.0f} {y + 46},{b:.0f} {v - 14},{b:.0f} {v}"/>')
    for name, (x, y, w) in at.items():
        out.append(f'<rect x="{x:.0f}" y="{y}" width="{w:.0f}" height="32" rx="4"/>'
                   f'<text x="{x + w / 2:.0f}" y="{y + 14}">{name}</text><text class="n" x="{x + w / 2:.0f}" y="{y + 26}">{lines[name]:,}</text>')
    return out, bottom + 50


def main():
    width = 760
    parts, height = panel(*graph(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")), width)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
          '<style>svg{background:#fff}text{font:11px sans-serif;text-anchor:middle;fill:#222}.t{font-size:13px;font-weight:600}'
          '.n{font-size:9.5px;fill:#666}rect{fill:#eef3fa;stroke:#7d9cc4}path{fill:none;stroke:#9aa5b1;stroke-opacity:.75}</style>')
    print("\n".join(parts) + "\n</svg>")


if __name__ == "__main__":
    main()
