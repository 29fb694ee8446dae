"""Draws what the pieces of a model keep, and two cuts into stages: python picture.py model.json 8192 4 > picture.svg"""

import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from palette import sheet
from weir.profile import Profile

WIDTH, HEIGHT, LEFT = 760, 150, 60


def main():
    p, n, stages = Profile.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    kinds = [p.kinds[x.kind] for x in p.pieces]
    saved = [k.saved.at(n) for k in kinds]
    most = [max([0, *(a.at(n) for a in k.temporary["B"])]) for k in kinds]
    work = [sum(k.flops[a].at(n) for a in "FIW") for k in kinds]
    layers, top, step = len(kinds) - 2, max(s + m for s, m in zip(saved, most)), WIDTH / len(kinds)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} 400" font-family="sans-serif" font-size="12" role="img"><title>Bytes of each piece of {p.model}, and two cuts into stages</title>',
           sheet("text{fill:var(--ink)}.page{fill:var(--card)}.saved,.stage,.longest{fill:var(--c0)}.peak{fill:var(--c1)}.longest{stroke:var(--ink);stroke-width:3}.in{fill:var(--card)}"),
           f'<rect class="page" width="{WIDTH + LEFT + 20}" height="400" rx="8"/>',
           f'<text x="{LEFT}" y="16">{p.model}, one sequence of {n:,} tokens: bytes of each piece that F saves (blue), and that B adds at its peak (orange)</text>']
    for i, (s, m) in enumerate(zip(saved, most)):
        x, y = LEFT + i * step, 30 + HEIGHT
        for part, bytes in zip(("saved", "peak"), (s, m)):
            h = HEIGHT * bytes / top
            y -= h
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.85:.1f}" height="{h:.1f}" class="{part}"><title>{p.pieces[i].name}: {bytes:,} bytes</title></rect>')
    out += [f'<text x="{LEFT - 6}" y="40" text-anchor="end">{top / 2**30:.1f} GiB</text>', f'<text x="{LEFT - 6}" y="{30 + HEIGHT}" text-anchor="end">0</text>',
            f'<text x="{LEFT}" y="{46 + HEIGHT}">before</text>', f'<text x="{LEFT + WIDTH}" y="{46 + HEIGHT}" text-anchor="end">after</text>']
    equal = [layers * i // stages for i in range(1, stages)]

    def longest(cut):
        ends = [0, *(1 + c for c in cut), len(work)]
        return [sum(work[a:b]) for a, b in zip(ends, ends[1:])]

    best = min(itertools.combinations(range(1, layers), stages - 1), key=lambda cut: (max(longest(cut)), sum(w * w for w in longest(cut))))
    scale = WIDTH * 0.97 / sum(work)
    for row, (name, cut) in enumerate((("equal counts", equal), ("balanced", best))):
        y, x = 250 + 75 * row, LEFT
        lengths = longest(cut)
        out.append(f'<text x="{LEFT}" y="{y - 8}">{name}: layers {" ".join(str(b - a) for a, b in zip([0, *cut], [*cut, layers]))}; the longest stage (outlined) has {100 * max(lengths) / sum(lengths):.1f} % of the work of F, I and W</text>')
        for s, w in enumerate(lengths):
            part = "longest" if w == max(lengths) else "stage"
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{w * scale:.1f}" height="26" class="{part}"/><text x="{x + w * scale / 2:.1f}" y="{y + 18}" class="in" text-anchor="middle">stage {s}</text>')
            x += w * scale + 4
    print("\n".join([*out, "</svg>"]))


main()
