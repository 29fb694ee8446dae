"""Which names in a Python program lead to an object."""

from __future__ import annotations

import collections
import gc
import inspect
import sys
import traceback
import types
from collections.abc import Container, Iterator
from typing import Any

from torch.autograd.function import FunctionCtx

__all__ = ["frame_locals", "names"]

_DEPTH = 6  # containers between an object and the name that leads to it


def frame_locals(frame: types.FrameType) -> dict[str, Any]:
    """Returns the local variables of a frame. Before Python 3.13, f_locals itself would go on holding them."""
    variables = frame.f_locals
    copied = dict(variables)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()
    return copied


def names(targets: list[Any], modules: dict[int, str]) -> list[str]:
    """Returns for each target the first two names that hold it, such as "LOG[]" or "Trainer.losses[]", or "".

    modules has the names of nn.Modules by id.
    """
    variables: dict[int, str] = {}
    for top in sys._current_frames().values():
        for frame, _ in traceback.walk_stack(top):
            if frame.f_globals.get("__package__") != __package__ and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
                variables.update({id(value): f"{k}= in {frame.f_code.co_name}()" for k, value in frame_locals(frame).items() if k != "self"})
    found: list[list[str]] = [[] for _ in targets]
    level = {id(target): target for target in targets}
    paths = {key: [(i, "") for i, target in enumerate(targets) if id(target) == key] for key in level}  # from an object to the targets
    passed = {id(targets)}
    for _ in range(_DEPTH):
        for key in paths.keys() & variables.keys():
            for i, path in paths[key]:
                found[i].append(variables[key].replace("=", path))
        above: dict[int, Any] = {}
        further: dict[int, list[tuple[int, str]]] = {}
        passed |= {id(level), id(above), *paths}
        for holder in gc.get_referrers(*level.values()) if level else ():
            if id(holder) in passed or isinstance(holder, (types.FrameType, types.MethodType, types.BuiltinMethodType)):
                continue
            for key, step, name in list(_steps(holder, paths, modules)):
                for i, path in paths[key]:
                    if name:
                        found[i].append(name.replace("=", step + path))
                    else:
                        above[id(holder)] = holder
                        further.setdefault(id(holder), []).append((i, step + path))
        level, paths = above, further
    best = [[name for name in each if name[0] != "~"] or [name[1:] for name in each] for each in found]
    return [" and ".join(list(dict.fromkeys(each))[:2]) for each in best]


def _steps(holder: Any, keys: Container[int], modules: dict[int, str]) -> Iterator[tuple[int, str, str]]:
    """Yields for each object with its id in keys that the holder has: its id, the step to it, and what names the holder.

    In a name, = stands for the steps that follow. It is "" if what holds the holder has to name it, and
    begins with ~ if that would be better.
    """
    if isinstance(holder, dict):
        owned = any(isinstance(o, type) or _attributes(o) is holder for o in gc.get_referrers(holder))
        for k, value in list(holder.items()):
            if id(value) in keys and "__name__" in holder and "__builtins__" in holder:
                yield id(value), "", f"{k}=" if holder["__name__"] == "__main__" else f"{holder['__name__']}.{k}="
            elif id(value) in keys:
                yield id(value), f".{k}" if owned else "[...]", ""
    elif isinstance(holder, (list, tuple, set, frozenset, collections.deque)):
        for value in list(holder):
            if id(value) in keys:
                yield id(value), "" if isinstance(value, types.CellType) else "[]", ""
    elif isinstance(holder, types.CellType):
        yield id(holder.cell_contents), "", ""
    elif isinstance(holder, types.GeneratorType):
        for k, value in frame_locals(holder.gi_frame).items() if holder.gi_frame else ():
            if id(value) in keys:
                yield id(value), "", f"{k}= in {holder.__qualname__}()"
    else:
        slots = {k: getattr(holder, k, None) for kind in type(holder).__mro__ for k in kind.__dict__.get("__slots__", ())}
        steps = {id(value): f".{k}" for k, value in {**slots, **(_attributes(holder) or {})}.items()}
        name = _name(holder, modules)
        for key in {id(value) for value in gc.get_referents(holder)} | steps.keys():
            if key in keys:
                yield key, steps.get(key, ""), name
                if name[0] == "~":
                    yield key, steps.get(key, ""), ""


def _attributes(o: Any) -> Any:
    """Returns the dictionary of an instance or a function, without calling what the instance may define."""
    try:
        return object.__getattribute__(o, "__dict__")
    except AttributeError:
        return None


def _name(owner: Any, modules: dict[int, str]) -> str:
    """Names an object that has attributes or a closure."""
    name = type(owner).__name__
    if id(owner) in modules:
        return modules[id(owner)] + "="
    if isinstance(owner, FunctionCtx):
        return f"ctx of {name[: -len('Backward')] if name.endswith('Backward') else name}="
    if isinstance(owner, types.FunctionType):
        return f"function {owner.__qualname__}="
    if name == "_lru_cache_wrapper":
        return f"lru_cache of {owner.__qualname__}="
    return f"{owner.__qualname__}=" if isinstance(owner, type) else f"~{name}="
