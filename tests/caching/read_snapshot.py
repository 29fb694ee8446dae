#!/usr/bin/env python3
"""Reads snapshots written by weir, with Python's pickle and PyTorch's own tools.

    weir mem export 1f1b --profile profile.json -o step.pickle
    python3 tests/caching/read_snapshot.py step.pickle

It checks for each file that it loads, that the viewer of pytorch.org/memory_viz knows all its
opcodes, that the blocks of every segment tile it, that segsum, trace, trace_plot and
segment_plot of torch.cuda._memory_viz accept it, and that every allocation is freed or live in
the end.
"""

import pickle
import pickletools
import sys

from torch.cuda import _memory_viz as viz

# The opcodes that torch/utils/viz/MemoryViz.js understands.
KNOWN = set("""PROTO MARK STOP APPEND APPENDS EMPTY_LIST LIST EMPTY_DICT DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE
TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE FRAME""".split())


def check(path):
    with open(path, "rb") as f:
        data = f.read()
    unknown = {op.name for op, _, _ in pickletools.genops(data)} - KNOWN
    assert not unknown, f"the viewer does not know {unknown}"
    snapshot = pickle.loads(data)
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    events = live = 0
    for device, trace in enumerate(snapshot["device_traces"]):
        events += len(trace)
        at = {}
        for e in trace:
            if e["action"] == "alloc":
                assert e["addr"] not in at
                at[e["addr"]] = e["size"]
            elif e["action"] == "free_completed":
                assert at.pop(e["addr"]) == e["size"]
        blocks = {b["address"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"] if b["state"] == "active_allocated"}
        assert set(at) <= blocks, "what was not freed is live"
        live += len(at)
    summary = viz.segsum(snapshot)
    text = viz.trace(snapshot)
    pages = viz.trace_plot(snapshot), viz.segment_plot(snapshot)
    reserved = next(line for line in summary.splitlines() if line.startswith("total_reserved"))
    print(f"{path}: {len(data)} bytes, {len(snapshot['segments'])} segments, {events} events, {live} live; {reserved};",
          f"trace {len(text.splitlines())} lines, pages of {len(pages[0])} and {len(pages[1])} bytes")


for path in sys.argv[1:]:
    check(path)
