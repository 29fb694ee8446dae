#!/usr/bin/env python3
"""Draws live bytes by microbatch in a step of PyTorch's pipelining, by default and otherwise, from a measurement:

    WEIR=weir python3 tests/pytorch/growth.py --schedules 1f1b --ranks 2 --microbatches 128 --columns default switches schedule runner --json growth.json
    python3 docs/pytorch/growth.py growth.json > docs/pytorch/growth.svg
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from palette import sheet

LEFT, TOP, WIDTH, HEIGHT, MIB = 64, 40, 490, 220, 1 << 20
NAMES = {"default": "PyTorch 2.15 by default", "switches": "with its switches", "schedule": "weir.schedule", "runner": "weir.Runner"}
STYLES = {"default": "stroke:var(--c1)", "switches": "stroke:var(--c3);stroke-dasharray:10 3",
          "schedule": "stroke:var(--c0)", "runner": "stroke:var(--c4);stroke-dasharray:3 3"}
with open(sys.argv[1]) as file:
    rows = json.load(file)
count = rows[0]["microbatches"]
top = -(-max(max(row["live"]) for row in rows) // (4 * MIB)) * 4


def x(i):
    return round(LEFT + WIDTH * i / (count - 1), 1)


def y(live):
    return round(TOP + HEIGHT * (1 - live / MIB / top), 1)


title = f'Live memory at each forward of one step of {count} microbatches, {rows[0]["schedule"]} on {rows[0]["ranks"]} ranks'
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 320" font-family="sans-serif" font-size="13" role="img"><title>{title}</title>')
print(sheet("text{fill:var(--soft)}.page{fill:var(--card)}.title,.name{fill:var(--ink)}.grid{stroke:var(--rule)}" + "".join(f".{name}{{{style}}}" for name, style in STYLES.items())))
print('<rect class="page" width="860" height="320" rx="8"/>')
print(f'<text class="title" x="64" y="22" font-size="15" font-weight="bold">{title}</text>')
for mib in range(0, top + 1, 4):
    print(f'<path class="grid" d="M{LEFT} {y(mib * MIB)}h{WIDTH}"/><text x="{LEFT - 8}" y="{y(mib * MIB) + 4}" text-anchor="end">{mib} MiB</text>')
for i in (0, count // 2, count - 1):
    print(f'<text x="{x(i)}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{i}</text>')
print(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 42}" text-anchor="middle">microbatch</text>')
below = TOP + HEIGHT + 17  # where the next label may end
for row in sorted(rows, key=lambda row: row["live"][-1]):
    points = " ".join(f"{x(i)},{y(live)}" for i, live in enumerate(row["live"]))
    print(f'<polyline class="{row["column"]}" points="{points}" fill="none" stroke-width="3"/>')
    at = min(y(row["live"][-1]) + 4, below - 18)
    below = at
    print(f'<path class="{row["column"]}" d="M{LEFT + WIDTH + 6} {at - 4}h22" stroke-width="3"/>')
    print(f'<text class="name" x="{LEFT + WIDTH + 34}" y="{at}">{NAMES[row["column"]]}: +{row["growth"] / 1024:.1f} KiB each</text>')
print("</svg>")
