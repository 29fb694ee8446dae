#!/usr/bin/env python3
"""Draws live bytes by microbatch, without a guard and with it, from two logs of examples/leaks:

    go run ./examples/leaks -log leaks
    python3 docs/growth.py leaks/attention.jsonl leaks/plain.jsonl > docs/growth.svg
"""
import json
import sys

from palette import sheet

LEFT, TOP, WIDTH, HEIGHT, MIB = 64, 40, 560, 200, 1 << 20
logs = [[json.loads(line) for line in open(name) if '"microbatch"' in line] for name in sys.argv[1:3]]
logs = [[r["live"] for r in log if "live" in r] for log in logs]
count = len(logs[0])
top = -(-max(map(max, logs)) // (2 * MIB)) * 2


def x(i):
    return round(LEFT + WIDTH * i / (count - 1), 1)


def y(live):
    return round(TOP + HEIGHT * (1 - live / MIB / top), 1)


TITLE = "Live memory after each microbatch of one step"
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 300" font-family="sans-serif" font-size="13" role="img"><title>{TITLE}</title>')
print(sheet("text{fill:var(--soft)}.page{fill:var(--card)}.title,.name{fill:var(--ink)}.grid{stroke:var(--rule)}.kept{stroke:var(--c1)}.weir{stroke:var(--c0)}"))
print('<rect class="page" width="860" height="300" rx="8"/>')
print(f'<text class="title" x="64" y="22" font-size="15" font-weight="bold">{TITLE}</text>')
for mib in range(0, top + 1, 2):
    print(f'<path class="grid" d="M{LEFT} {y(mib * MIB)}h{WIDTH}"/><text x="{LEFT - 8}" y="{y(mib * MIB) + 4}" text-anchor="end">{mib} MiB</text>')
for i in (0, count // 2, count - 1):
    print(f'<text x="{x(i)}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{i}</text>')
print(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 42}" text-anchor="middle">microbatch</text>')
for live, line, name in zip(logs, ("kept", "weir"), ("saved tensors are kept", "Weir: saved tensors are taken once")):
    points = " ".join(f"{x(i)},{y(v)}" for i, v in enumerate(live))
    print(f'<polyline class="{line}" points="{points}" fill="none" stroke-width="3"/>')
    growth = (live[-1] - live[0]) / (count - 1) / 1024
    print(f'<text class="name" x="{LEFT + WIDTH + 8}" y="{y(live[-1])}">{name}:</text>')
    print(f'<text class="name" x="{LEFT + WIDTH + 8}" y="{y(live[-1]) + 17}">+{growth:g} KiB each</text>')
print("</svg>")
