"""The file of a profile: what each piece of a model keeps and computes, for microbatches of any lengths."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SCHEMA", "Amount", "Kind", "Parameters", "Piece", "Profile", "ProfileError", "Shared", "Tied", "padded"]

SCHEMA = 2
FORM = "weir model profile"


class ProfileError(ValueError):
    """A model cannot be profiled, or a file is no profile. The message names the module and the line."""


@dataclass
class Amount:
    """Bytes or operations of a microbatch, by its sequences and their lengths:

        constant + sequence * sequences + token * tokens + square * squares
        + longest * L + longest_square * L * L + tiled * padded + tiled_square * padded squares

    tokens are those of the whole microbatch, squares is the sum of the squared lengths of its sequences,
    and L is the longest length: what sequences share, such as rotary tables, does not grow with their
    number. padded and padded squares are the sums of R and of length * R over the sequences, where R is the
    length rounded up to a multiple of tile. Microbatches of more than one sequence have the amount several,
    if it is given. The amount is at most above, a part of 1, larger than what was found: 0 if it is exact;
    a measured one differs from it by at most above, in either direction.

    source says where the number comes from: "model" (the model's code), "kernel" (also the derivative of
    the attention that the caller stated), "cpu" (an operator as the CPU has it), or
    "measured", for times and bytes of real tensors.
    """

    constant: float = 0
    sequence: float = 0
    token: float = 0
    square: float = 0
    longest: float = 0
    longest_square: float = 0
    tile: int = 1
    tiled: float = 0
    tiled_square: float = 0
    above: float = 0
    source: str = "model"
    several: Amount | None = None

    def at(self, *lengths: int) -> int:
        """Returns the amount of a microbatch whose sequences have these lengths."""
        if self.several is not None and len(lengths) > 1:
            return self.several.at(*lengths)
        most = max(lengths)
        each = (self.sequence + self.token * n + self.square * n * n + (self.tiled + self.tiled_square * n) * padded(n, self.tile) for n in lengths)
        return round(self.constant + sum(each) + self.longest * most + self.longest_square * most * most)


def padded(length: int, tile: int) -> int:
    """Returns a length rounded up to a multiple of a tile."""
    return -(-length // tile) * tile


@dataclass
class Parameters:
    """The parameters of a piece. trained is their number without frozen ones, and experts the part of
    count that is in experts. bytes are those of the weights, and buffers those of the piece's buffers."""

    count: int = 0
    trained: int = 0
    experts: int = 0
    bytes: int = 0
    buffers: int = 0


@dataclass
class Kind:
    """What pieces with the same code and the same sizes have in common. All amounts are of one microbatch.

    saved      bytes that F keeps for the backward, the piece's input included if it is kept
    input      the part of saved that is the piece's input
    cached     bytes that F keeps until its end, besides: autocast's copies of weights
    freed      the part of saved that I frees if the piece is the last of its stage
    carry      bytes that I keeps for W, besides what F saved
    border     bytes of the piece's output that the next piece differentiates; its gradient has as many
    temporary  by action (F, B, I, W): the most bytes alive during the action besides what is saved so far, the
               border and, in I, the carry: the largest of the amounts, none of which counts below 0.
               Gradients of weights are temporary, since they are added to those that are there
    flops      by action: floating-point operations; those of masked products are counted in full
    seconds    by action: times that were measured, which the command takes in place of operations
    """

    parameters: Parameters
    saved: Amount
    input: Amount
    cached: Amount
    freed: Amount
    carry: Amount
    border: Amount
    temporary: dict[str, list[Amount]]
    flops: dict[str, Amount]
    seconds: dict[str, Amount] = field(default_factory=dict)


@dataclass
class Piece:
    """A part of the model that is not cut: what runs before the layers, a layer, or what runs after them."""

    name: str
    kind: int  # index into Profile.kinds


@dataclass
class Shared:
    """Bytes that several pieces keep together, such as a mask. Each stage with one of the pieces keeps them once."""

    pieces: list[int]
    saved: Amount


@dataclass
class Tied:
    """A parameter that several pieces use. It is counted in the first of them; a stage with another one has a copy.
    trained is its count, or 0 if it is frozen."""

    name: str
    pieces: list[int]
    count: int
    trained: int
    bytes: int


@dataclass
class Profile:
    """A model, piece by piece in the order of execution. Stages are consecutive pieces.

    model      the name of the model's class
    settings   what the profile was asked for: device, capability, attention, dtype, autocast, checkpoint
    fitted     the lengths that the amounts were computed from
    checked    the microbatches, as lists of lengths, at which they were then compared, with no difference
    notes      what a reader has to know, in sentences
    """

    model: str
    settings: dict[str, str]
    fitted: list[int]
    checked: list[list[int]]
    pieces: list[Piece]
    kinds: list[Kind]
    shared: list[Shared] = field(default_factory=list)
    tied: list[Tied] = field(default_factory=list)
    batch: Amount = field(default_factory=Amount)
    notes: list[str] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        """The number of parameters of the model, tied ones counted once."""
        return sum(self.kinds[p.kind].parameters.count for p in self.pieces)

    def saved(self, first: int, end: int, *lengths: int) -> int:
        """Returns the bytes that a stage with the pieces from first to before end keeps for one microbatch."""
        own = sum(self.kinds[p.kind].saved.at(*lengths) for p in self.pieces[first:end])
        return own + sum(s.saved.at(*lengths) for s in self.shared if any(first <= p < end for p in s.pieces))

    def peak(self, action: str, first: int, end: int, *lengths: int) -> int:
        """Returns the most bytes that F or B of one microbatch has alive on a stage with these pieces: what is saved
        included, the gradients and the weights not, and at the ends what is received and sent."""
        kinds = [self.kinds[p.kind] for p in self.pieces[first:end]]
        level = self.saved(first, end, *lengths) - sum(k.saved.at(*lengths) for k in kinds)
        most = 0
        for i, k in enumerate(kinds, first + 1):
            level += k.saved.at(*lengths) + k.cached.at(*lengths)
            held = level if action == "F" else self.saved(first, i, *lengths)  # B frees what pieces share after the first of them
            most = max(most, held + k.border.at(*lengths) + max([0, *(a.at(*lengths) for a in k.temporary[action])]))
        return most

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the profile to a file, as JSON."""
        text = json.dumps({"form": FORM, "schema": SCHEMA, **dataclasses.asdict(self, dict_factory=_members)}, indent=1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile:
        """Reads a profile from a file. Raises ProfileError for another form or another schema."""
        with open(path, encoding="utf-8") as file:
            o: Any = json.load(file)
        if not isinstance(o, dict) or o.get("form") != FORM:
            raise ProfileError(f'{path}: found no "form": "{FORM}": give a file that weir.profile has written')
        if o.get("schema") != SCHEMA:
            raise ProfileError(f"{path}: found schema {o.get('schema')}, expected {SCHEMA}: write the profile again with this version of weir")
        read: dict[str, Any] = {"parameters": lambda v: Parameters(**v), "temporary": lambda v: {action: [_amount(a) for a in each] for action, each in v.items()}}
        for name in ("flops", "seconds"):
            read[name] = lambda v: {action: _amount(a) for action, a in v.items()}
        kinds = [Kind(**{name: read.get(name, _amount)(v) for name, v in k.items()}) for k in o["kinds"]]
        return Profile(
            o["model"], o["settings"], o["fitted"], o["checked"], [Piece(**p) for p in o["pieces"]], kinds,
            [Shared(s["pieces"], _amount(s["saved"])) for s in o.get("shared", [])], [Tied(**t) for t in o.get("tied", [])], _amount(o.get("batch", {})), o.get("notes", []))


def _amount(o: dict[str, Any]) -> Amount:
    return Amount(**{**o, "several": _amount(o["several"]) if o.get("several") else None})


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the members of an object in the file: amounts without what is 0 or 1."""
    o = dict(pairs)
    if "square" in o:
        return {k: v for k, v in o.items() if v and (k, v) != ("tile", 1)}
    return {k: v for k, v in o.items() if v not in ([], {}) or k == "pieces"}
