"""Tests of the checker of slots, which must find the same faults as the checker of the command."""

import json
import os
import random
import subprocess
import sys

import pytest

from weir import slots as checker

SCHEDULES = ("gpipe", "1f1b", "interleaved", "breadth-first", "depth-first", "zb-h1", "zb-h2", "zb1p", "zb-v", "v-half", "v-min", "grouped-interleave",
             "dualpipe", "dualpipev", "seq1f1b")


def weir(*arguments, status=0):
    if "WEIR" not in os.environ:
        pytest.skip("WEIR names no binary of the command, which makes the slots")
    done = subprocess.run([os.environ["WEIR"], *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def python(*arguments):
    """Runs the checker as a program that can import neither the package nor installed modules."""
    return subprocess.run([sys.executable, "-I", "-S", checker.__file__, *map(str, arguments)], capture_output=True, text=True, check=False)


def plant(rng, assignment):
    """Merges the tensors of two slots into one."""
    one, two = rng.sample(range(assignment["slots"]), 2)
    for run in assignment["runs"]:
        run["slots"] = [two if slot == one else slot for slot in run["slots"]]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("form", ["plan", "comms"])
def test_schedules(name, form, tmp_path):
    """Both checkers accept the slots of every schedule, and find every overlap that is planted."""
    rng, plan, file = random.Random(name), tmp_path / "plan", tmp_path / "slots.json"
    plan.write_text(weir("plan", name, "--ranks", "4", "--microbatches", "24", "--to", form))
    for pool, hold in ("stage", "last"), ("direction", "taken"), ("rank", "last"):
        text = weir("slots", str(plan), "--pool", pool, "--hold", hold, "--json")
        table, read = json.loads(text), checker.read(str(plan))
        assert list(checker.faults(table, 0, read)) == []
        file.write_text(text)
        weir("slots", str(plan), "--verify", str(file))
        for i in rng.sample([i for i, assignment in enumerate(table["variants"][0]["assignments"]) if assignment["slots"] > 1], 2):
            wrong = json.loads(text)
            plant(rng, wrong["variants"][0]["assignments"][i])
            assert any("is alive in it" in fault for fault in checker.faults(wrong, 0, read))
            file.write_text(json.dumps(wrong))
            weir("slots", str(plan), "--verify", str(file), status=1)


def test_faults(tmp_path):
    """Other faults of a file."""
    plan = tmp_path / "plan"
    plan.write_text(weir("plan", "zb-v", "--ranks", "2", "--microbatches", "6", "--to", "plan"))
    text, read = weir("slots", str(plan), "--json"), checker.read(str(plan))
    for change, says in (
        (lambda t: t["pools"][0].update(slots=0), "and the plans need"),
        (lambda t: t["pools"][0].update(slots=99), "has 99 slots, and the plans need"),
        (lambda a: a["variants"][0]["assignments"][0].update(slots=9), "9 slots, and"),
        (lambda a: a["variants"][0]["assignments"][0].update(at=99), "alive at action 99"),
        (lambda a: a["variants"][0]["assignments"][0]["runs"].pop(), "has no slot"),
        (lambda a: a["variants"][0]["assignments"][0]["runs"].append(a["variants"][0]["assignments"][0]["runs"][0]), "has a second slot"),
        (lambda a: a["variants"][0]["assignments"][1]["runs"][0].update(count=7), "is never written"),
        (lambda a: a["pools"][0].update(stage=7), "has a run of stage"),
    ):
        table = json.loads(text)
        change(table)
        assert any(says in fault for fault in checker.faults(table, 0, read)), says


def test_program(tmp_path):
    """The exit status, for two plans that exclude each other and for files that are none."""
    files = [tmp_path / name for name in ("training", "evaluation", "slots")]
    for file, flags in zip(files, ([], ["--forward-only"])):
        file.write_text(weir("plan", "zb-v", "--ranks", "2", "--to", "plan", "--capacity", "1", *flags))
    files[2].write_text(weir("slots", str(files[0]), "--with", str(files[1]), "--json"))
    done = python(files[2], *files[:2])
    assert done.returncode == 0 and done.stdout.startswith("ok: "), done.stderr
    assert python(files[2], files[1], files[0]).returncode == 1
    assert python(files[2], files[0]).returncode == 2
    files[1].write_text("0F0,0G0\n")
    done = python(files[2], *files[:2])
    assert done.returncode == 2 and "'0G0' is no action of PyTorch's CSV" in done.stderr
