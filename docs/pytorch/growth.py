#!/usr/bin/env python3
"""Draws live bytes by microbatch in a step of PyTorch's pipelining, by default and otherwise, from a measurement:

    WEIR=weir python3 tests/pytorch/growth.py --schedules 1f1b --ranks 2 --microbatches 128 --columns default switches schedule runner --json growth.json
    python3 docs/pytorch/growth.py growth.json > docs/pytorch/growth.svg
"""
import json
import sys

LEFT, TOP, WIDTH, HEIGHT, MIB = 64, 40, 490, 220, 1 << 20
NAMES = {"default": ("#d1495b", "PyTorch 2.15 by default"), "switches": ("#e0932f", "with its switches"),
         "schedule": ("#1f77b4", "weir.schedule"), "runner": ("#2a9d5c", "weir.Runner")}
with open(sys.argv[1]) as file:
    rows = json.load(file)
count = rows[0]["microbatches"]
top = -(-max(max(row["live"]) for row in rows) // (4 * MIB)) * 4


def x(i):
    return round(LEFT + WIDTH * i / (count - 1), 1)


def y(live):
    return round(TOP + HEIGHT * (1 - live / MIB / top), 1)


print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 320" font-family="sans-serif" font-size="13">')
print('<rect width="860" height="320" fill="#fff"/>')
print(f'<text x="64" y="22" font-size="15" font-weight="bold">Live memory at each forward of one step of {count} microbatches, {rows[0]["schedule"]} on {rows[0]["ranks"]} ranks</text>')
for mib in range(0, top + 1, 4):
    print(f'<path d="M{LEFT} {y(mib * MIB)}h{WIDTH}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y(mib * MIB) + 4}" text-anchor="end">{mib} MiB</text>')
for i in (0, count // 2, count - 1):
    print(f'<text x="{x(i)}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{i}</text>')
print(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 42}" text-anchor="middle">microbatch</text>')
below = TOP + HEIGHT + 17  # where the next label may end
for row in sorted(rows, key=lambda row: row["live"][-1]):
    color, name = NAMES[row["column"]]
    points = " ".join(f"{x(i)},{y(live)}" for i, live in enumerate(row["live"]))
    print(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="3"/>')
    at = min(y(row["live"][-1]) + 4, below - 18)
    below = at
    print(f'<text x="{LEFT + WIDTH + 8}" y="{at}" fill="{color}">{name}: +{row["growth"] / 1024:.1f} KiB each</text>')
print("</svg>")
