"""Finds the names in a Python program that lead to an object."""

from __future__ import annotations

import collections
import gc
import inspect
import sys
import types
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from torch.autograd.function import FunctionCtx

__all__ = ["frame_locals", "names"]

_DEPTH, _WIDTH = 12, 1 << 12  # objects between an object and the name that leads to it, and beside each other


def frame_locals(frame: types.FrameType) -> dict[str, Any]:
    """Returns the local variables of a frame. Before Python 3.13, f_locals itself would keep holding them."""
    variables = frame.f_locals
    copied = dict(variables)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()
    return copied


class Name(NamedTuple):
    """A name that holds an object, and the most objects that a bounded container on the path can have, or 0."""

    text: str
    limit: int


def names(targets: list[Any], known: dict[int, str]) -> list[Name | None]:
    """Returns for each target the nearest names that hold it, at most two, such as "LOG[]" or "Trainer.losses[]".

    known maps ids of nn.Modules and buffers to their names.
    """
    variables, ours = _variables()
    ours.add(id(targets))
    passed: set[tuple[int, int]] = set()  # pairs of an object and of a target that it has been found to hold
    variables.update({id(target): known[id(target)] + "=" for target in targets if id(target) in known})
    found: list[list[Name]] = [[] for _ in targets]
    level = {id(target): target for target in targets}
    paths = {key: [(i, "", 0) for i, target in enumerate(targets) if id(target) == key] for key in level}  # from an object to the targets
    for _ in range(_DEPTH):
        for key in paths.keys() & variables.keys():
            for i, path, limit in paths[key]:
                found[i].append(Name(variables[key].replace("=", path), limit))
        above: dict[int, Any] = {}
        further: dict[int, list[tuple[int, str, int]]] = {}
        ours |= {id(level), id(above)}
        passed |= {(key, i) for key, each in paths.items() for i, *_ in each}
        holders = [holder for holder in (gc.get_referrers(*level.values()) if 0 < len(level) < _WIDTH else ()) if id(holder) not in ours]
        ours.add(id(holders))
        owned = _owned([holder for holder in holders if isinstance(holder, dict)])
        for holder in holders:
            for key, step, name in list(_steps(holder, paths, known, owned)):
                for i, path, limit in paths[key]:
                    if (id(holder), i) in passed:
                        continue
                    if name:
                        found[i].append(Name(name.replace("=", step + path), limit or _limit(holder)))
                    else:
                        above[id(holder)] = holder
                        further.setdefault(id(holder), []).append((i, step + path, limit or _limit(holder)))
        named = {i for i, each in enumerate(found) if any(name.text[0] != "~" for name in each)}
        paths = {key: rest for key, each in further.items() if (rest := [path for path in each if path[0] not in named])}
        level = {key: above[key] for key in paths}
    return [_nearest(each) for each in found]


def _variables() -> tuple[dict[int, str], set[int]]:
    """Returns the names of the values of local variables in all threads by id, and the ids of their frames."""
    variables, frames = {}, set()
    for top in list(sys._current_frames().values()):
        frame: types.FrameType | None = top
        while frame is not None:
            frames.add(id(frame))
            package = (frame.f_globals.get("__package__") or "").partition(".")[0]
            if package not in (__package__, "torch") and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                variables.update({id(value): f"{k}= in {frame.f_code.co_name}()" for k, value in frame_locals(frame).items() if k != "self"})
            frame = frame.f_back  # at last None, as a variable that has its own frame makes a cycle
        del top
    return variables, frames


def _nearest(found: list[Name]) -> Name | None:
    best = [name for name in found if name.text[0] != "~"] or [Name(name.text[1:], name.limit) for name in found]
    texts = list(dict.fromkeys(name.text for name in best))[:2]
    return Name(" and ".join(texts), best[0].limit) if best else None


def _limit(holder: Any) -> int:
    """Returns the number of objects that a bounded deque or lru_cache can have, or 0."""
    if isinstance(holder, collections.deque):
        return holder.maxlen or 0
    return holder.cache_parameters()["maxsize"] or 0 if type(holder).__name__ == "_lru_cache_wrapper" else 0


def _owned(dictionaries: list[dict[Any, Any]]) -> set[int]:
    """Returns the ids of those dictionaries that have the attributes of an object or a class."""
    ids, owned = {id(each) for each in dictionaries}, set()
    for owner in gc.get_referrers(*dictionaries) if dictionaries else ():
        if isinstance(owner, type):
            owned |= {id(each) for each in gc.get_referents(owner)}
        elif (attributes := _attributes(owner)) is not None:
            owned.add(id(attributes))
    return owned & ids


def _steps(holder: Any, keys: Container[int], known: dict[int, str], owned: Container[int]) -> Iterator[tuple[int, str, str]]:
    """Yields for each object in the holder whose id is in keys: its id, the step to it, and the name of the holder.

    In a name, = stands for the steps that follow. The name is "" if an object that holds the holder has to name
    it, and begins with ~ if a name from such an object would be better.
    """
    if isinstance(holder, dict):
        for k, value in list(holder.items()):
            if id(value) in keys and "__name__" in holder and "__builtins__" in holder:
                yield id(value), "", f"{k}=" if holder["__name__"] == "__main__" else f"{holder['__name__']}.{k}="
            elif id(value) in keys:
                yield id(value), f".{k}" if id(holder) in owned else "[...]", ""
    elif isinstance(holder, (list, tuple, set, frozenset, collections.deque)):
        for value in list(holder):
            if id(value) in keys:
                yield id(value), "" if isinstance(value, types.CellType) else "[]", ""
    elif isinstance(holder, types.CellType):
        yield id(holder.cell_contents), "", ""
    elif isinstance(holder, types.FrameType):  # of a function that has ended; a traceback has it
        for k, value in frame_locals(holder).items():
            if id(value) in keys:
                yield id(value), f" (local {k} of {holder.f_code.co_name})", ""
    elif isinstance(holder, (types.TracebackType, types.MethodType)):
        for value in gc.get_referents(holder):
            if id(value) in keys:
                yield id(value), "", ""
    elif isinstance(holder, types.GeneratorType):
        for k, value in frame_locals(holder.gi_frame).items() if holder.gi_frame else ():
            if id(value) in keys:
                yield id(value), "", f"{k}= in {holder.__qualname__}()"
    else:
        slots = {k: getattr(holder, k, None) for kind in type(holder).__mro__ for k in kind.__dict__.get("__slots__", ())}
        if isinstance(holder, BaseException):
            slots["__traceback__"] = holder.__traceback__
        steps = {id(value): f".{k}" for k, value in {**slots, **(_attributes(holder) or {})}.items()}
        name = _name(holder, known)
        for key in {id(value) for value in gc.get_referents(holder)} | steps.keys():
            if key in keys:
                yield key, steps.get(key, ""), name
                if name[0] == "~":
                    yield key, steps.get(key, ""), ""


def _attributes(o: Any) -> Any:
    """Returns the dictionary of an instance or a function, without calling methods that the instance may define."""
    try:
        return object.__getattribute__(o, "__dict__")
    except AttributeError:
        return None


def _name(owner: Any, known: dict[int, str]) -> str:
    """Names an object that has attributes or a closure."""
    name = type(owner).__name__
    if id(owner) in known:
        return known[id(owner)] + "="
    if isinstance(owner, FunctionCtx):
        return f"ctx of {name[: -len('Backward')] if name.endswith('Backward') else name}="
    if isinstance(owner, types.FunctionType):
        return f"function {owner.__qualname__}="
    if name == "_lru_cache_wrapper":
        return f"lru_cache of {owner.__qualname__}="
    return f"{owner.__qualname__}=" if isinstance(owner, type) else f"~{name}="
