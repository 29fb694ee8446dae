"""Tests of reading plan files in Python, and of the errors for invalid ones."""

import copy
import itertools
import json
import os
import stat
import subprocess
import sys
import tracemalloc

import pytest

import weir
from weir.plan import Action, PlanError

# Two ranks, one stage each; rank 0 loops over microbatches, and its backward is split.
PLAN = {
    "schema": 2, "name": "test", "mode": "training", "ranks": 2, "placement": [0, 1], "microbatches": 4, "capacity": 0,
    "facts": [{"frozen": False, "split": True, "recomputes": False, "reads": {"F": [0]}}, {"frozen": False, "split": False, "recomputes": False, "reads": {}}],
    "parts": [{"F": [0]}, {}], "windows": [2, 2],
    "programs": [
        [{"repeat": 1, "stride": 0, "actions": [["UNSHARD", 0, None], ["F", 0, 0, "entry"]]},
         {"repeat": 3, "stride": 1, "actions": [[["F", 0, 1, "entry"], ["I", 0, 0, "gradient", "saved"]], ["W", 0, 0, "carry", "microbatch"]]},
         {"repeat": 1, "stride": 0, "actions": [["I", 0, 3], ["W", 0, 3]]}],
        [{"repeat": 2, "stride": 2, "segments": [
            {"repeat": 2, "stride": 1, "actions": [["F", 1, 0]]}, {"repeat": 2, "stride": -1, "actions": [["B", 1, 1]]}]}],
    ],
}


def test_actions():
    plan = weir.Plan(PLAN)
    assert (plan.name, plan.training, plan.ranks, plan.stages, plan.microbatches, plan.capacity, plan.runtime) == ("test", True, 2, 2, 4, 0, "weir")
    assert (plan.placement, plan.on(1), plan.split, plan.frozen, plan.lifetimes) == ([0, 1], [1], [True, False], [False, False], True)
    assert plan.parts(0, "F") == [0] and plan.parts(1, "F") == []
    assert list(plan.actions(0))[:4] == [Action("UNSHARD", 0, -1, (), False), Action("F", 0, 0, ("entry",), False), Action("F", 0, 1, ("entry",), True),
                                         Action("I", 0, 0, ("gradient", "saved"), False)]
    assert [f"{a.kind}{a.microbatch}" for a in plan.actions(0)][-5:] == ["F3", "I2", "W2", "I3", "W3"]
    assert " ".join(f"{a.kind}{a.microbatch}" for a in plan.actions(1)) == "F0 F1 B1 B0 F2 F3 B3 B2"
    assert [f"{a.kind}{a.microbatch}" for a in plan.actions(1)] == [f"{a.kind}{a.microbatch}" for a in plan.actions(1)]  # twice


def change(**fields):
    return {**copy.deepcopy(PLAN), **fields}


def program(*actions, repeat=1, stride=0):
    return change(programs=[[{"repeat": repeat, "stride": stride, "actions": list(actions)}], []])


@pytest.mark.parametrize("data, says", [
    (change(schema=1), "has schema 1, and this package reads schema 2: weir convert"),
    ([], "has schema none, and this package reads schema 2"),
    ({"schema": 2}, "is no plan: it has no programs"),
    ({"schema": 2, "programs": []}, "KeyError: 'name'"),
    (change(programs=[[]]), "1 programs for 2 ranks"),
    (change(programs=[[{"repeat": 1}], []]), "KeyError: 'stride'"),
    (program(["FLY", 0, 0]), "no action ['FLY', 0, 0]"),
    (program(["F", 0, 0, "everything"]), "no action ['F', 0, 0, 'everything']"),
    (program(["F", 1, 0]), "rank 0 has F of stage 1, and its stages are [0]"),
    (program(["F", 2, 0]), "rank 0 has F of stage 2"),
    (program(["F", 0, 2], repeat=3, stride=1), "F of microbatches 2 to 4, and there are 4"),
    (program(["F", 0, 0], repeat=2, stride=-1), "F of microbatches -1 to 0"),
    (program(["F", 0]), "ValueError: not enough values"),
])
def test_refused(data, says):
    with pytest.raises(PlanError) as e:
        weir.Plan(data)
    assert says in str(e.value)


def test_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    assert repr(weir.Plan.load(path)) == "<weir.Plan test: 2 ranks, 2 stages, 4 microbatches>"
    path.write_text("0F0,0B0\n")
    with pytest.raises(PlanError, match=r"plan.json is not JSON: .* weir convert .*plan.json --to plan"):
        weir.Plan.load(path)


def test_loops_stay_loops():
    """A plan for a million microbatches is no larger than one for ten, and walking it takes no memory."""
    def peak(n):
        data = change(microbatches=n, programs=[[{"repeat": n, "stride": 1, "actions": [["F", 0, 0], ["B", 0, 0]]}], []])
        tracemalloc.start()
        actions = weir.Plan(data).actions(0)
        for _ in range(20):
            next(actions)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most
    peak(10)
    assert peak(1_000_000) < peak(10) + 1024


def test_command():
    """The command makes a plan, with loops and lifetimes."""
    if "WEIR" not in os.environ:
        pytest.skip("WEIR names no binary of the command, which makes the plan")
    made = subprocess.run([os.environ["WEIR"], "plan", "zb-v", "--ranks", "2", "--microbatches", "65536", "--to", "plan"], capture_output=True, text=True, check=True)
    plan = weir.Plan(json.loads(made.stdout))
    assert plan.lifetimes and plan.split == [True] * 4 and len(made.stdout) < 20_000
    assert {"carry", "microbatch"} <= {end for action in itertools.islice(plan.actions(0), 100) for end in action.ends}


def fake(folder, text):
    """Writes a command to the folder that prints the text, and writes its arguments to a file."""
    path = folder / "weir"
    path.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_plan_calls_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PlanError, match="pip install weir-ml"):
        weir.plan("1f1b")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.0")
    fake(tmp_path, "echo weir v0.2.0 go1.26")
    with pytest.raises(PlanError, match=r"has version 0.2.0, and the package weir-ml has 0.1.0"):
        weir.plan("1f1b")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    fake(tmp_path, f'[ "$1" = --version ] && echo weir v0.1.0 go1.26 && exit; read -r line < {tmp_path}/plan.json; echo "$line"')
    assert weir.plan("zb-v", ranks=2, forward_only=True).name == "test"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "plan zb-v --ranks=2 --forward-only --to plan"
    fake(tmp_path, '[ "$1" = --version ] && echo weir v0.1.0 && exit; echo "weir: no such plan" >&2; exit 1')
    with pytest.raises(PlanError, match="^weir: no such plan$"):
        weir.plan("1f1b")


def test_version_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hasattr(weir, "__version__"), "a clone has none"
    monkeypatch.setattr("importlib.metadata.version", {"weir-ml": "1.2.3"}.__getitem__)
    assert weir.__version__ == "1.2.3"
