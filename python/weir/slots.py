"""Checks the slots of `weir slots PLAN --json` against the plan: python slots.py SLOTS PLAN [PLAN...]

The plans are those of the slots' variants, in order, each in the JSON form of `weir convert PLAN --to plan` or in
PyTorch's CSV with communication. The script computes an interval of actions for every tensor, from the action
that writes it to its last use, by the definitions of docs/slots.md and without the command. No two intervals in
one slot may overlap, and each pool must have an action at which all its slots are full. The script needs only the
standard library and can be copied. The exit status is 0 if the slots are right, 1 if they are wrong, and 2 if a
file cannot be read.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from typing import Any, Iterator

__all__ = ["faults", "read"]

CELL = re.compile(r"(\d+)(WAIT_SEND_F|WAIT_SEND_B|WAIT_REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD|F|B|I|W)(\d*)")


def read(path: str) -> dict[str, Any]:
    """Reads a plan: the moments of each rank, the rank of each stage, and the stages of a copy of the model."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if text.lstrip().startswith("{"):
        data = json.loads(text)
        return {"rank": data["placement"], "depth": len(data["placement"]) // data.get("copies", 1), "programs": [list(_expand(p, 0)) for p in data["programs"]]}
    rows = [[_cell(cell) for cell in row if cell.strip()] for row in csv.reader(text.splitlines())]
    rank = {stage: r for r, row in enumerate(rows) for moment in row for _, stage, _ in moment}
    first, last = ({mb for row in rows for moment in row for kind, stage, mb in moment if kind == "F" and stage == one} for one in (0, len(rank) - 1))
    return {"rank": [rank[stage] for stage in range(len(rank))], "depth": len(rank) // (1 if first & last else 2), "programs": rows}


def _expand(segments: Any, shift: int) -> Iterator[Any]:
    for s in segments:
        for i in range(s["repeat"]):
            by = shift + i * s["stride"]
            yield from _expand(s.get("segments", ()), by)
            for item in s.get("actions", ()):
                yield [(a[0], a[1], -1 if a[2] is None else a[2] + by) for a in (item if isinstance(item[0], list) else [item])]


def _cell(text: str) -> Any:
    parts = CELL.findall(text)
    if ";".join("".join(p) for p in parts) != re.sub(r"\(|\)OVERLAP_F_B|\s", "", text):
        raise ValueError(f"{text!r} is no action of PyTorch's CSV")
    return [(kind.replace("WAIT_SEND", "WAIT"), int(stage), int(mb or -1)) for stage, kind, mb in parts]


def _intervals(plan: dict[str, Any], rank: int, hold: str) -> Iterator[tuple[str, str, int, int, int, int]]:
    """Iterates over the tensors of a rank: kind of tensor, direction, stage, microbatch, birth and death."""
    at: dict[tuple[str, int, int], int] = {}
    position = 0
    for moment in plan["programs"][rank]:
        for action in moment:
            at[action] = position
        position += len(moment)
    end, backward = position, {stage for row in plan["programs"] for moment in row for kind, stage, _ in moment if kind in "BI"}

    def given(kinds: str, stage: int, mb: int) -> int:
        """Returns the last use of a tensor that a computation of these kinds takes."""
        return max(at.get((kind, stage, mb), -1) for kind in (kinds if hold == "taken" else "FBIW"))

    def handed(stage: int, to: int, kinds: str, wait: str, mb: int) -> int:
        """Returns the last use of a tensor that a stage passes to another: in that stage if it is local, or at the wait for the send."""
        return given(kinds, to, mb) if plan["rank"][to] == rank else at.get((wait, stage, mb), end)

    for (kind, stage, mb), birth in at.items():
        first, last = stage % plan["depth"] == 0, (stage + 1) % plan["depth"] == 0
        if kind == "RECV_F":
            yield "received", "forward", stage, mb, birth, given("F", stage, mb)
        elif kind == "RECV_B":
            yield "received", "backward", stage, mb, birth, given("BI", stage, mb)
        elif kind == "F":
            yield "outputs", "forward", stage, mb, birth, birth if last else handed(stage, stage + 1, "F", "WAIT_F", mb)
            if stage in backward:
                yield "saved", "forward", stage, mb, birth, max(at.get((k, stage, mb), -1) for k in "BIW")
        elif kind in "BI" and not first and stage - 1 in backward:
            yield "gradients", "backward", stage, mb, birth, handed(stage, stage - 1, "BI", "WAIT_B", mb)


def faults(slots: dict[str, Any], variant: int, plan: dict[str, Any]) -> Iterator[str]:
    """Iterates over the faults of a variant of the slots, as texts."""
    slot_of: dict[tuple[Any, ...], tuple[int, int]] = {}
    assignments = slots["variants"][variant]["assignments"]
    for i, pool in enumerate(slots["pools"]):
        needs = max((a["slots"] for v in slots["variants"] for a in v["assignments"] if a["pool"] == i), default=0)
        if pool["slots"] != needs:
            yield f"pool {i} has {pool['slots']} slots, and the plans need {needs}"
    for i, a in enumerate(assignments):
        pool = slots["pools"][a["pool"]]
        for run in a["runs"]:
            if pool.get("stage", run["stage"]) != run["stage"] or pool.get("direction", run["direction"]) != run["direction"]:
                yield f"pool {a['pool']} has a run of stage {run['stage']}, {run['direction']}"
            for k in range(run["count"]):
                key = pool["rank"], pool["tensor"], run["direction"], run["stage"], run["microbatch"] + k * run["stride"]
                slot = run["slots"][k % len(run["slots"])]
                if key in slot_of or not 0 <= slot < a["slots"]:
                    yield f"{key} has a second slot, or slot {slot} of {a['slots']}"
                slot_of[key] = i, slot
    lives: dict[tuple[int, int], list[tuple[int, int, tuple[Any, ...]]]] = {}
    full = [0] * len(assignments)
    for rank in range(len(plan["programs"])):
        for tensor, direction, stage, mb, birth, death in _intervals(plan, rank, slots["hold"]):
            key = rank, tensor, direction, stage, mb
            if key not in slot_of:
                yield f"{key} has no slot"
                continue
            owner = slot_of.pop(key)
            lives.setdefault(owner, []).append((birth, death, key))
            full[owner[0]] += birth <= assignments[owner[0]]["at"] <= death
    for (i, slot), list_ in lives.items():
        list_.sort()
        for (_, death, one), (birth, _, other) in zip(list_, list_[1:]):
            if birth <= death:
                yield f"pool {assignments[i]['pool']}: {other} is written to slot {slot} at action {birth}, and {one} is alive in it until action {death}"
    for a, n in zip(assignments, full):
        if n != a["slots"]:
            yield f"pool {a['pool']} has {a['slots']} slots, and {n} tensors are alive at action {a['at']}, which should prove that it needs them"
    for key in slot_of:
        yield f"{key} has a slot and is never written"


def main(arguments: list[str]) -> int:
    """Checks the files of a command line and returns the exit status."""
    try:
        with open(arguments[0], encoding="utf-8") as file:
            slots = json.load(file)
        plans = [read(path) for path in arguments[1:]]
        if slots["schema"] != 1 or len(plans) != len(slots["variants"]):
            raise ValueError(f"schema {slots['schema']} with {len(slots['variants'])} plans: give schema 1 and each of its plans")
        found = [text for variant, plan in enumerate(plans) for text in faults(slots, variant, plan)]
    except (OSError, ValueError, LookupError, TypeError) as e:
        print(f"usage: slots.py SLOTS PLAN [PLAN...]: {type(e).__name__}: {e}", file=sys.stderr)
        return 2
    print("\n".join(found[:20]) or f"ok: {sum(pool['slots'] for pool in slots['pools'])} slots")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
