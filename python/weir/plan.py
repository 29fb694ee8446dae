"""Reads plans of the command `weir`: the actions of each rank, in order, and the lifetimes that each action ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any, Iterator, NamedTuple, Sequence

__all__ = ["Action", "Plan", "PlanError", "plan"]

SCHEMA = 2
KINDS = frozenset((
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_F", "WAIT_B", "OFFLOAD", "WAIT_OFFLOAD", "RELOAD",
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "ZERO_GRAD", "WAIT_REDUCE", "QUANTIZE"))
ENDS = frozenset((
    "entry", "input", "output", "gradient", "saved", "carry", "near", "sent", "microbatch", "forward_weights", "backward_weights", "far"))


class PlanError(ValueError):
    """A plan cannot be read or made, or cannot be used in this way."""


class Action(NamedTuple):
    """One action of a rank.

    kind is one of KINDS. microbatch is -1 for actions without a microbatch, such as UNSHARD. ends are
    the lifetimes, of ENDS, that end on this rank when the action has run: the entry parts that
    Plan.parts lists for this stage and kind, the stage's input, its output, the gradient of its
    output, the tensors saved for the action, the carry from I to W, the sent tensors, and so
    on; "microbatch" ends the microbatch itself on this rank. joined is True if this action and the
    next one overlap.
    """

    kind: str
    stage: int
    microbatch: int
    ends: tuple[str, ...]
    joined: bool


class _Loop(NamedTuple):
    """A part of a program that runs `repeat` times; each repetition adds stride to the microbatches."""

    repeat: int
    stride: int
    body: Sequence[Any]  # of Action and _Loop


class Plan:
    """A plan file of the command `weir`, in its JSON form: `weir convert FILE --to plan`.

    name          the schedule's name
    training      False if the plan runs only forwards
    ranks         the number of ranks of the pipeline
    stages        the number of stages, of all copies of the model
    microbatches  the number of microbatches of a step
    placement     the rank of each stage, copy by copy
    copies        the number of copies of the model, 1 except for dualpipe
    slices        the number of slices of a sequence, 1 except for seq1f1b
    capacity      messages that a link between two ranks must hold, or None if it is not limited
    runtime       the runtime that the plan was made for, "weir" or "pytorch"
    facts         the known facts of each stage, dicts with frozen, split, recomputes and reads, or []
    split         whether each stage has its backward in two actions, I and W
    frozen        whether each stage is frozen, so that it has no weight gradients
    kinds         the kinds of its actions
    lifetimes     whether the actions say which lifetimes they end
    data          the file's JSON, including keys without an attribute here

    Loops are kept: a plan for a million microbatches is as small as one for eight.
    """

    def __init__(self, data: dict[str, Any], path: str = "the plan"):
        """Reads a plan from the JSON of its file. path names it in errors. Raises PlanError."""
        self.path, self.data = path, data
        if isinstance(data, dict) and "programs" not in data:
            raise PlanError(f"{path} is no plan: it has no programs")
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema", "none") if isinstance(data, dict) else "none"
            raise PlanError(f"{path} has schema {found}, and this package reads schema {SCHEMA}: weir convert {path} --to plan")
        try:
            self.name: str = data["name"]
            self.training: bool = data["mode"] == "training"
            self.ranks: int = data["ranks"]
            self.placement: list[int] = data["placement"]
            self.stages: int = len(self.placement)
            self.microbatches: int = data["microbatches"]
            self.copies: int = data.get("copies", 1)
            self.slices: int = data.get("slices", 1)
            self.capacity: int | None = data.get("capacity")
            self.runtime: str = data.get("runtime", "weir")
            self.facts: list[dict[str, Any]] = data.get("facts", [])
            self.lifetimes = "windows" in data  # those of a plan that the lifetime pass has been through
            self.kinds: set[str] = set()
            self.split, self.frozen = [False] * self.stages, [stage in data.get("frozen", ()) for stage in range(self.stages)]
            if len(data["programs"]) != self.ranks:
                raise PlanError(f"{path} has {len(data['programs'])} programs for {self.ranks} ranks")
            self._programs = [[self._loop(rank, segment, 0, 0) for segment in program] for rank, program in enumerate(data["programs"])]
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as e:
            if isinstance(e, PlanError):
                raise
            raise PlanError(f"{path} is no plan of schema {SCHEMA}: {type(e).__name__}: {e}; check it with: weir check {path}") from e

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Reads a plan file. Raises OSError, or PlanError for a file that is not a plan of schema 2."""
        with open(path, encoding="utf-8") as file:
            try:
                data = json.load(file)
            except ValueError as e:
                raise PlanError(f"{os.fspath(path)} is not JSON: {e}; other forms are converted with: weir convert {os.fspath(path)} --to plan") from e
        return cls(data, os.fspath(path))

    def on(self, rank: int) -> list[int]:
        """Returns the stages of a rank, in ascending order."""
        return [stage for stage, place in enumerate(self.placement) if place == rank]

    def actions(self, rank: int) -> Iterator[Action]:
        """Iterates over the actions of a rank, in order."""
        return _actions(self._programs[rank], 0)

    def parts(self, stage: int, kind: str) -> list[int]:
        """Returns the entry parts that end at the actions of this stage and kind that end "entry"."""
        table: list[dict[str, list[int]]] = self.data.get("parts", [])
        return table[stage].get(kind, []) if table else []

    def __repr__(self) -> str:
        return f"<weir.Plan {self.name}: {self.ranks} ranks, {self.stages} stages, {self.microbatches} microbatches>"

    def _loop(self, rank: int, segment: dict[str, Any], low: int, high: int) -> _Loop:
        """Returns a segment of the file. The segments around it add low to high to its microbatches."""
        repeat, stride = segment["repeat"], segment["stride"]
        low, high = low + min(0, (repeat - 1) * stride), high + max(0, (repeat - 1) * stride)
        if "segments" in segment:
            return _Loop(repeat, stride, [self._loop(rank, inner, low, high) for inner in segment["segments"]])
        body = []
        for item in segment["actions"]:
            pair = item if isinstance(item[0], list) else [item]
            for i, (kind, stage, microbatch, *ends) in enumerate(pair):
                if kind not in KINDS or not ENDS.issuperset(ends):
                    raise PlanError(f"{self.path}: this package knows no action {[kind, stage, microbatch, *ends]}; is it of a newer version?")
                if not 0 <= stage < self.stages or self.placement[stage] != rank:
                    raise PlanError(f"{self.path}: rank {rank} has {kind} of stage {stage}, and its stages are {self.on(rank)}; "
                                    f"check it with: weir check {self.path}")
                if microbatch is not None and not 0 <= microbatch + low <= microbatch + high < self.microbatches:
                    raise PlanError(f"{self.path}: rank {rank} has {kind} of microbatches {microbatch + low} to {microbatch + high}, and there are "
                                    f"{self.microbatches}; check it with: weir check {self.path}")
                self.kinds.add(kind)
                self.split[stage] = self.split[stage] or kind == "W"
                body.append(Action(kind, stage, -1 if microbatch is None else microbatch, tuple(ends), i + 1 < len(pair)))
        return _Loop(repeat, stride, body)


def _actions(body: Sequence[Any], shift: int) -> Iterator[Action]:
    for item in body:
        if isinstance(item, _Loop):
            for i in range(item.repeat):
                yield from _actions(item.body, shift + i * item.stride)
        elif shift and item.microbatch >= 0:
            yield Action(item.kind, item.stage, item.microbatch + shift, item.ends, item.joined)
        else:
            yield item


def plan(name: str, **flags: Any) -> Plan:
    """Makes a plan with the command: plan("zb-v", ranks=2, microbatches=8) runs `weir plan zb-v --ranks 2 --microbatches 8`.

    Flags are those of `weir plan --help`, with underscores for hyphens. The command is the one of the
    wheel, next to the interpreter, or else the one in PATH. Raises PlanError if the command is not
    found, has a different version from this package, or refuses the flags.
    """
    return Plan(json.loads(_run(command(), "plan", name, *arguments(flags), "--to", "plan")), f"weir plan {name}")


def command() -> str:
    """Returns the path of the command `weir` of this package's version. Raises PlanError if there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "weir.exe" if os.name == "nt" else "weir")
    path = beside if os.path.exists(beside) else shutil.which("weir")
    if path is None:
        raise PlanError("the command weir is neither beside Python nor in PATH: pip install weir-ml")
    try:
        version = metadata.version("weir-ml")
    except metadata.PackageNotFoundError:
        version = ""  # not from a wheel
    own = _run(path, "--version").split()[1]
    if version and own.lstrip("v") != version:
        raise PlanError(f"{path} has version {own.lstrip('v')}, and the package weir-ml has {version}: install both from one wheel")
    return path


def arguments(flags: dict[str, Any]) -> list[str]:
    """Returns flags of the command line: {"forward_only": True, "ranks": 2} is --forward-only --ranks=2."""
    return [f"--{flag.replace('_', '-')}" if value is True else f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise PlanError(done.stderr.strip() or f"{command[0]} ended with status {done.returncode}")
    return done.stdout
