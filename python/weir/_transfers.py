"""Transfers tensors between the ranks of a pipeline, and ends a step on all of them when one fails."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, NamedTuple, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Cause", "LateError", "LostError", "Pending", "Transfers"]

Queue = Tuple[int, int, str]  # sender and receiver, as ranks of the pipeline, and "F" or "B"

_TAG = 1 << 30  # of a receive that nothing answers
_CONNECT = 60.0  # seconds, at least, for all ranks to make a runner, or to begin a step that connects
_GRACE = 0.5  # seconds in which the other ranks of a failed step say that they have left it
_numbers = itertools.count()


class Pending(NamedTuple):
    """Tensors in flight, and the Work objects of their transfers. The tensors are borrowed until wait has returned."""

    works: list[Any]
    tensors: list[Tensor]


class Cause(NamedTuple):
    """The cause of a failed step: the rank that failed, in its pipeline and in the default process group, its action, and the error.

    action may be "".
    """

    rank: int
    process: int
    action: str
    text: str


class LateError(RuntimeError):
    """A process did not take part in time in a call that all processes make. behind is True if this one came after the others gave up."""

    def __init__(self, process: int, behind: bool, text: str) -> None:
        super().__init__(text)
        self.process, self.behind = process, behind


class LostError(RuntimeError):
    """A transfer with rank peer (-1 if it is unknown which) has failed. late is True if it timed out."""

    def __init__(self, peer: int, late: bool, text: str) -> None:
        super().__init__(re.sub(r"^\[\S+\] |\. This is typically .*|\n.*", "", text, flags=re.DOTALL))  # gloo's place in its source, its advice, and C++ frames
        self.peer, self.late = peer, late


class Transfers:
    """The communicators of a pipeline, one for each queue of its plan, and two for the ends of steps.

    A queue carries the messages from one rank to another in one direction of the computation: outputs,
    or gradients. With a communicator for each queue, no queue waits for another, as `weir check`
    assumes, even over NCCL, where two directions on one communicator can block each other.

    Ranks are numbered within the pipeline, 0 to len(ranks)-1. All ranks of the default process group
    make their Transfers together, and connect together, because dist.new_group requires it.

    A rank that fails calls leave, which closes its communicators. The waits of its neighbours then end
    immediately with an error, as they do if its process ends, and the neighbours leave as well, so the
    step ends on every rank. The ranks exchange the cause through the store of the process group. A
    thread looks for it there when a wait takes longer than a second, because the processes that a rank
    has forked, such as a DataLoader's workers, keep its connections open.
    """

    def __init__(self, ranks: Sequence[int], rank: int, queues: Sequence[Queue], links: dict[str, list[int]], replicas: Sequence[int], timeout: float,
                 device: torch.device, refusal: Exception | None, alike: Sequence[tuple[str, str]]) -> None:
        """Exchanges the arguments with all ranks. Raises ValueError if another rank refuses or if a text in alike differs, and
        LateError if a process does not take part in time.

        ranks are the global ranks of the pipeline, and replicas the ranks that hold copies of this rank's
        stages. links maps names to further sets of ranks. timeout is in seconds, device is the device of
        the tensors, and refusal is an error of this rank, which the caller raises. alike maps names to
        texts that must be the same on all ranks of the pipeline and its replicas.
        """
        self.ranks, self.rank, self.size = list(ranks), rank, len(ranks)
        self.seconds, self._timeout = timeout, timedelta(seconds=timeout)
        pipeline, copies = ",".join(map(str, ranks)), sorted(replicas)
        mine: dict[Any, tuple[Any, ...]] = {(a, b, letter): (sorted((ranks[a], ranks[b])), f"{a}>{b} {letter} of {pipeline}", False) for a, b, letter in queues}
        mine.update({name: (sorted(ranks[r] for r in members), f"{name} of {pipeline}", True) for name, members in {**links, "pipeline": list(range(self.size))}.items()})
        if len(copies) > 1:
            mine.update(replicas=(copies, f"replicas {copies}", True), gradients=(copies, f"gradients {copies}", False))
        refused = None if refusal is None else f"{type(refusal).__name__}: {refusal}"
        self._number, self._connects = next(_numbers), 0
        everybody = _together(f"{self._number}", [list(mine.values()), refused, [ranks[0], copies[0]], list(alike), rank], timeout, "made its runner")
        self.places = [place for *_, place in everybody]  # of each process in its pipeline
        for other, (_, refused, *_) in enumerate(everybody):
            if refused is not None and refusal is None:
                raise ValueError(f"process {other} has no runner: {refused}")
        for other, (_, _, firsts, given, _) in enumerate(everybody):
            for first in firsts if refusal is None else ():
                for (what, theirs), (_, wanted) in zip(given, everybody[first][3]):
                    if theirs != wanted:
                        raise ValueError(f"the processes {first} and {other} were given different {what}: {wanted} and {theirs}: give all ranks the same")
        self._wanted = sorted({(name, tuple(members), control) for theirs, *_ in everybody for members, name, control in theirs})
        self._keys = {name: key for key, (_, name, _) in mine.items()}
        self._groups: dict[Any, Any] = {}
        self._stores: list[Any] = []
        self._waiting = 0.0  # since when
        self._device, self._hosted = device, device.type == "cpu"  # gloo, whose waits block the host

    def connect(self) -> None:
        """Makes the communicators, and new ones after a step that failed. Every rank takes part.

        Raises RuntimeError after the timeout or a minute, whichever is longer; it is a LateError, on every rank, if one does
        not take part. The n-th calls of all ranks belong together. If a rank is behind, its call fails immediately, and so
        does the call in which the others wait for it, so that the next calls of all ranks have the same number.
        """
        self.close()
        world: Any = dist.group.WORLD
        try:  # before new_group, which counts its calls on each rank alone
            _together(f"{self._number} {self._connects}", None, self.seconds, "begun this step")
        except LateError as e:
            while e.behind and world.get_group_store().check([f"weir {self._number} {self._connects + 1} begun"]):
                self._connects += 1
                world.get_group_store().compare_set(f"weir {self._number} {self._connects} late", "", str(dist.get_rank()))
            raise
        finally:
            self._connects += 1
        me = dist.get_rank()
        for name, members, control in self._wanted:
            try:
                group = dist.new_group(list(members), timeout=timedelta(seconds=max(self.seconds, _CONNECT)), backend="gloo" if control else None)
            except RuntimeError as e:
                raise RuntimeError(f"the ranks {list(members)} do not connect within {max(self.seconds, _CONNECT):g} s; one has ended: {str(e).partition(chr(10))[0]}") from None
            if me in members and name in self._keys:
                self._groups[self._keys[name]] = group
        self._stores = [self._groups[key].get_group_store() for key in ("pipeline", "replicas") if key in self._groups]
        threading.Thread(target=_watch, args=(weakref.ref(self), self._stores), daemon=True).start()
        self._peer = {key: dist.get_group_rank(group, self.ranks[key[1] if key[0] == self.rank else key[0]])
                      for key, group in self._groups.items() if not isinstance(key, str)}

    def close(self) -> None:
        """Closes the communicators."""
        self._stores = []
        while self._groups:
            dist.destroy_process_group(self._groups.popitem()[1])

    def send(self, queue: Queue, tensors: Sequence[Tensor]) -> Pending:
        """Starts to send tensors, which the caller must not change until wait has returned."""
        group, peer = self._groups[queue], self._peer[queue]
        tensors = [t.contiguous() for t in tensors]
        try:
            return Pending([dist.isend(t, group=group, group_dst=peer) for t in tensors], tensors)
        except RuntimeError as e:
            raise LostError(queue[1], False, str(e)) from None

    def receive(self, queue: Queue, like: Sequence[Tensor]) -> Pending:
        """Starts to receive into new buffers with the shapes and dtypes of like, which may be meta tensors."""
        group, peer = self._groups[queue], self._peer[queue]
        tensors = [torch.empty(t.shape, dtype=t.dtype, device=self._device) for t in like]
        try:
            return Pending([dist.irecv(t, group=group, group_src=peer) for t in tensors], tensors)
        except RuntimeError as e:
            raise LostError(queue[0], False, str(e)) from None

    def wait(self, pending: Pending, peer: int) -> list[Tensor]:
        """Waits for transfers with a rank, and returns their tensors. Raises LostError, after the timeout at the latest.

        Over NCCL, only the current stream waits.
        """
        self._wait(pending.works, peer, self._hosted)
        return pending.tensors

    def _wait(self, works: Sequence[Any], peer: int, blocks: bool) -> None:
        began = self._waiting = time.monotonic()
        try:
            for work in works:
                work.wait(self._timeout) if blocks else work.wait()
        except RuntimeError as e:
            raise LostError(peer, time.monotonic() - began >= self.seconds, str(e)) from None
        finally:
            self._waiting = 0.0

    def reduce(self, numbers: Tensor, over: str, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """Reduces a host tensor in place, over the "pipeline", the "replicas" of its stages or a link, and returns it."""
        return self._collective(numbers, over, lambda group: dist.all_reduce(numbers, op, group=group, async_op=True))

    def broadcast(self, tensor: Tensor, over: str, source: int) -> Tensor:
        """Broadcasts a host tensor of one rank to all other ranks of a link, in place, and returns it."""
        return self._collective(tensor, over, lambda group: dist.broadcast(tensor, self.ranks[source], group=group, async_op=True))

    def start_sum(self, tensor: Tensor) -> Any:
        """Starts to add up a tensor in place over the replicas, and returns the Work object."""
        return dist.all_reduce(tensor, group=self._groups["gradients"], async_op=True)

    def gather(self, value: Any) -> list[Any]:
        """Returns the values that the ranks of the pipeline pass, by rank. They must be picklable."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._groups["pipeline"])
        return found

    def _collective(self, tensor: Tensor, over: str, start: Callable[[Any], Any]) -> Tensor:
        group = self._groups.get(over)  # none of this rank alone
        if group is not None and group.size() > 1:
            try:
                work = start(group)
            except RuntimeError as e:
                raise LostError(-1, False, str(e)) from None
            self._wait([work], -1, True)
        return tensor

    def leave(self, cause: Cause | None) -> Cause | None:
        """Leaves a step that fails, and closes the communicators, so that the other ranks leave it as well.

        Returns the first cause that a rank posted. If this rank fails only because a transfer failed, cause and the result are None.
        """
        if cause is not None:
            cause = self._post(cause)
        self._ask(lambda store: store.set(f"left {self.rank}", "1"), self._stores[:1])
        self.disconnect()
        return cause

    def disconnect(self) -> None:
        """Closes the communicators, so that waits for their transfers fail on this rank and on its peers."""
        for key, group in list(self._groups.items()):
            if group.size() == 1:
                continue
            if not self._hosted and (key == "gradients" or not isinstance(key, str)):
                group.abort()
                continue
            try:  # a wait that ends by its timeout closes all connections of a gloo communicator
                work: Any = dist.irecv(torch.empty(1), group=group, group_src=(group.rank() + 1) % group.size(), tag=_TAG)
                work.wait(timedelta(milliseconds=1))
            except RuntimeError:
                pass

    def find_cause(self, lost: LostError, action: str) -> Cause:
        """Returns the cause of a failed step, on a rank that has left it because a transfer failed.

        If a rank has posted a cause, it is this one. Otherwise the ranks that do not leave within a second have
        ended or do not answer; if all leave, a connection was closed.
        """
        silent = [r for r in range(self.size) if r != self.rank]
        for _ in range(2):
            deadline = time.monotonic() + _GRACE
            while time.monotonic() < deadline and self._stores:
                for text in self._ask(lambda store: store.get("cause") if store.check(["cause"]) else b"", self._stores):
                    if text:
                        return self._post(Cause(*json.loads(text)))
                time.sleep(0.02)
            silent = [r for r in silent if self._ask(lambda store, r=r: store.check([f"left {r}"]), self._stores[:1]) != [True]]  # type: ignore[misc]
            if lost.peer in silent:
                break  # otherwise the peer has left because of another rank, which may yet be named
        where = f"the connection to rank {lost.peer}" if lost.peer >= 0 else "a connection"
        mine = Cause(self.rank, self.ranks[self.rank], action, f"{where} {'timed out' if lost.late else 'was closed'}")
        if not self._stores:
            return mine._replace(text=f"{mine.text}, and the process that has the store of the process group does not answer: {lost}")
        if silent and lost.peer >= 0:
            blamed = lost.peer if lost.peer in silent else silent[0]
            text = f"did nothing for {self.seconds:g} s: stopped, or it hangs" if lost.late else "has ended, or its connection was closed"
            return self._post(Cause(blamed, self.ranks[blamed], "", f"it {text}; rank {self.rank} saw this in {action}: {lost}"))
        return self._post(mine._replace(text=f"{mine.text}: {lost}"))

    def _post(self, cause: Cause) -> Cause:
        """Posts a cause unless another rank has posted one, and returns the first cause."""
        found = self._ask(lambda store: store.compare_set("cause", "", json.dumps(cause)), self._stores)
        return Cause(*json.loads(found[0])) if found else cause

    def _ask(self, question: Callable[[Any], Any], stores: Sequence[Any]) -> list[Any]:
        """Returns the answers of stores. If the process that hosts them has ended or stopped, there are none, and no store is asked again."""
        answers: list[Any] = []

        def ask() -> None:
            try:
                for store in stores:
                    answers.append(question(store))
            except (RuntimeError, ValueError, OSError):
                self._stores = []

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(2 * _GRACE)
        if asking.is_alive():
            self._stores = []
        return answers


def _together(name: str, value: Any, seconds: float, what: str) -> list[Any]:
    """Returns the values that the processes of the default group pass, by process, once all have called it with this name. Values must be JSON.

    If a process does not call it within the given seconds or a minute, whichever is longer, all get a LateError, even the late one when it calls.
    """
    world: Any = dist.group.WORLD
    store, everybody, seconds = world.get_group_store(), range(dist.get_world_size()), max(seconds, _CONNECT)
    outcome, given = f"weir {name} late", [f"weir {name} of {process}" for process in everybody]
    behind = store.check([outcome])
    store.set(given[dist.get_rank()], json.dumps(value))
    store.set(f"weir {name} begun", "1")
    if store.add(f"weir {name} arrived", 1) == len(everybody):
        store.compare_set(outcome, "", "-1")
    with contextlib.suppress(RuntimeError):
        store.wait([outcome], timedelta(seconds=seconds))
    missing = next((process for process in everybody if not store.check([given[process]])), -1)
    late = int(store.compare_set(outcome, "", str(missing)))  # the first answer holds
    if late >= 0:
        raise LateError(late, behind, f"process {late} has not {what} with the others, which wait {seconds:g} s: every process does, at the same time")
    return [json.loads(store.get(key)) for key in given]


def _watch(ref: weakref.ref[Transfers], stores: list[Any]) -> None:
    """Closes the communicators if a wait takes long and a rank has posted a cause. Ends when they are closed."""
    while True:
        time.sleep(_GRACE)
        transfers = ref()
        if transfers is None or transfers._stores is not stores:
            return
        if 0 < transfers._waiting < time.monotonic() - 2 * _GRACE:
            try:
                posted = any(store.check(["cause"]) for store in stores)
            except (RuntimeError, ValueError, OSError):
                return
            if posted:
                transfers.disconnect()
                return
        del transfers
