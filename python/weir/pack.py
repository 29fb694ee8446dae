"""Plans steps from the lengths of their sequences, with the command `weir pack`."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Sequence

from .plan import PlanError, arguments, command

__all__ = ["PackError", "Packer", "Packing", "pack"]


class PackError(PlanError):
    """A batch cannot be packed.

    If one sequence is too long even alone, sequence is its index, length its length and longest the greatest
    length that fits, in tokens. rank is the rank that lacks excess bytes; rank is None if the sequence
    exceeds the tokens of a microbatch by excess tokens. Otherwise all of these are None.
    """

    def __init__(self, text: str, sequence: int | None = None, length: int | None = None, longest: int | None = None,
                 rank: int | None = None, excess: int | None = None) -> None:
        super().__init__(text)
        self.sequence, self.length, self.longest, self.rank, self.excess = sequence, length, longest, rank, excess


@dataclass(frozen=True)
class Packing:
    """A planned step.

    packs[r][m] is microbatch m of replica r in the order of the plan: indices of sequences, or of
    pieces if sequences were split or cut. Replicas may have different numbers of microbatches.
    pieces is None, or a list of {"sequence": index, "from": first token, "tokens": number}.
    makespan is the makespan of the slowest replica, and no packing has a makespan below bound; both are
    in unit. peaks[r][p] is the peak of the live bytes of rank p in replica r.
    """

    packs: list[list[list[int]]]
    makespan: float
    bound: float
    unit: str
    peaks: list[list[int]]
    pieces: list[dict[str, int]] | None


class Packer:
    """Packs one step after another, with one process of the command.

    Flags are those of `weir pack --help`, with underscores for hyphens:

        packer = weir.Packer(ranks=8, replicas=4, memory="80GiB", config="config.json")
        packing = packer.pack(lengths)
        for microbatch in packing.packs[replica]: ...

    Every process of a job gets the same answer for the same lengths and flags. Raises PlanError if the
    command is not found or refuses the flags. close() ends the process.
    """

    def __init__(self, **flags: Any) -> None:
        self._process = subprocess.Popen(
            [command(), "pack", "-", "--json", "--no-others", *arguments(flags)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pack(self, lengths: Sequence[int]) -> Packing:
        """Packs a step of sequences with these lengths in tokens. Raises PackError if they do not fit."""
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        line = ""
        try:
            process.stdin.write(" ".join(str(int(n)) for n in lengths) + "\n")
            process.stdin.flush()
            line = process.stdout.readline() if len(lengths) else ""
        except BrokenPipeError:
            pass
        if not line:
            if not len(lengths):
                raise PackError("there are no sequences")
            raise PlanError(process.stderr.read().strip() or "weir pack has ended")
        answer = json.loads(line)
        if "refused" in answer:
            refused = answer["refused"]
            raise PackError(refused["text"], *(refused.get(name) for name in ("sequence", "length", "longest", "rank", "excess")))
        return Packing(answer["packs"], answer["makespan"], answer["bound"], answer.get("unit", ""), answer["peaks"], answer.get("pieces"))

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.communicate()


def pack(lengths: Sequence[int], **flags: Any) -> Packing:
    """Packs one step: Packer(**flags).pack(lengths). For several steps, a Packer takes less time."""
    with closing(Packer(**flags)) as packer:
        return packer.pack(lengths)
