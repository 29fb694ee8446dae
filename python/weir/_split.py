"""Compares the gradients of a split backward with those of a whole one, in the first microbatch that has both."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from .plan import PlanError

__all__ = ["SplitCheck", "agree"]

# Nodes between a parameter and the Function that uses it.
VIEWS = frozenset(("TBackward0", "TransposeBackward0", "ViewBackward0", "ReshapeAliasBackward0", "ToCopyBackward0", "UnsafeViewBackward0", "ExpandBackward0"))


class SplitCheck:
    """Checks one microbatch of a stage whose backward is split into input gradients, I, and weight gradients, W.

        check = SplitCheck(2, module)
        check.whole(outputs, gradients, inputs)      # before I
        check.inputs(input_gradients)                # after I
        with check.weights():                        # around W of the same microbatch
            ...                                      # which adds to the .grad of the module's parameters

    No forward is repeated: the whole backward runs through the same graph as I and W, which is
    retained, and it adds to no .grad. So no random numbers are drawn, and buffers, gradients and
    hooks do not change, but hooks on gradients run once more. Until W has run, the check also
    holds a second set of the stage's weight gradients.

    faults are sentences that name parameters and autograd Functions; if there are none, the gradients
    are the same. decided is False until W has run, and stays False if the gradients are not finite, as in
    a step that a GradScaler will skip; check another microbatch then.
    """

    def __init__(self, stage: int, module: torch.nn.Module):
        """Prepares the check of a stage. module is borrowed, with its parameters."""
        self.stage, self.module = stage, module
        self.faults: list[str] = []
        self.decided = False

    def whole(self, roots: Sequence[Any], gradients: Sequence[Tensor | None] | None, inputs: Sequence[Any]) -> None:
        """Computes the gradients of the parameters and of the inputs in one backward.

        roots are the stage's outputs, their gradient edges, or the loss; roots that need no
        gradient are ignored. gradients are the gradients of the roots, None for a loss. inputs that are not
        tensors, or need no gradient, are ignored.
        """
        kept = [i for i, root in enumerate(roots) if root is not None and (not isinstance(root, Tensor) or root.requires_grad)]
        roots, gradients = [roots[i] for i in kept], None if gradients is None else [gradients[i] for i in kept]
        parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        tensors = {i: x for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad}
        self._used, cast = _uses(roots, parameters)
        half = [x for x in (*parameters.values(), *tensors.values()) if x.is_floating_point() and x.element_size() < 4]
        self._tolerance = 5e-2 if cast or half else 1e-3
        before, gradient = self._versions(parameters), {name: p.grad for name, p in parameters.items()}
        found = torch.autograd.grad(roots, [*parameters.values(), *tensors.values()], gradients, retain_graph=True, allow_unused=True) if roots else ()
        written = [name for name, x, version in before if x._version != version]
        for name, p in parameters.items():
            if p.grad is not gradient[name]:
                written.append(f"{name}.grad")
                p.grad = gradient[name]
        if written:
            self.faults.append(f"the backward writes to {' and '.join(written)} itself, so that it cannot be computed twice")
        self._weights = dict(zip(parameters, found))
        self._inputs = dict(zip(tensors, found[len(parameters):]))

    def inputs(self, gradients: Sequence[Tensor | None]) -> None:
        """Compares the gradients that I computed, one for each input given to whole, with those of the whole backward."""
        for i, whole in self._inputs.items():
            self._compare(f"the gradient of its input {i}", whole, gradients[i])
        self._inputs = {}

    @contextmanager
    def weights(self) -> Iterator[None]:
        """Compares the amounts that W adds to the gradients of the parameters with those of the whole backward."""
        parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        kept = {name: p.grad for name, p in parameters.items()}
        for p in parameters.values():
            p.grad = None
        self.decided = True
        try:
            yield
            for name, p in parameters.items():
                used = f", which {' and '.join(self._used[name])} use{'s' * (len(self._used[name]) == 1)}" if self._used[name] else ""
                self._compare(f"the gradient of {name}{used}", self._weights.get(name), p.grad)
        finally:
            self._weights = {}
            for name, p in parameters.items():
                before = kept[name]
                if before is not None:
                    p.grad = before if p.grad is None else before.add_(p.grad)

    def _compare(self, what: str, whole: Tensor | None, split: Tensor | None) -> None:
        whole, split = _local(whole), _local(split)
        size, other = (0.0 if x is None else float(x.float().norm()) for x in (whole, split))
        difference = size + other if whole is None or split is None else float((whole.float() - split.float()).norm())
        if not difference < float("inf"):  # infinite or NaN
            self.decided = False
        elif whole is None and difference:
            self.faults.append(f"{what} is lost: the parameter is in no graph when the backward begins, as one that FSDP has resharded")
        elif difference > self._tolerance * max(size, other):
            self.faults.append(f"{what}, is {'none' if split is None else f'of norm {other:.3g}'} in a split backward, and of norm {size:.3g} in a whole one")

    def _versions(self, parameters: dict[str, torch.nn.Parameter]) -> list[tuple[str, Tensor, int]]:
        """Returns the tensors that a backward that runs twice must not write to: parameters, tensors attached to them, and buffers."""
        named = [(name if key == "" else f"{name}.{key}", x) for name, p in parameters.items() for key, x in {"": p, "grad": p.grad, **vars(p)}.items()]
        return [(name, x, x._version) for name, x in (*named, *self.module.named_buffers()) if isinstance(x, Tensor) and not x.is_inference()]


def agree(checks: Sequence[SplitCheck], path: str, group: Any) -> bool:
    """Returns whether the checks of all ranks of a group are decided, or raises PlanError on all of them if one found a fault.

    It communicates: call it on every rank, after the step and before the optimizer. path names the plan.
    """
    found: list[Any] = [None] * dist.get_world_size(group)
    mine = [f"in stage {check.stage}, {fault}" for check in checks for fault in check.faults], all(check.decided for check in checks)
    dist.all_gather_object(found, mine, group=group)
    if faults := [fault for some, _ in found for fault in some]:
        raise PlanError(f"{path} splits backwards, and PyTorch {torch.__version__} computes other gradients then: {'; '.join(faults)}. "
                        "Take a plan without I and W, such as those of weir plan 1f1b and interleaved, or change the model")
    return all(decided for _, decided in found)


def _local(x: Tensor | None) -> Tensor | None:
    """Returns this rank's part of a DTensor, so that no comparison communicates."""
    to_local = getattr(x, "to_local", None)
    return to_local() if to_local is not None else x


def _uses(roots: Sequence[Any], parameters: dict[str, torch.nn.Parameter]) -> tuple[dict[str, list[str]], bool]:
    """Returns the autograd Functions that use each parameter, and whether the graph casts tensors."""
    users: dict[Any, list[Any]] = {}
    waiting = [root.grad_fn if isinstance(root, Tensor) else root.node for root in roots]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions if node is not None else ():
            if following is not None:
                users.setdefault(following, []).append(node)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)

    def names(node: Any) -> list[str]:
        return [name for user in users.get(node, ()) for name in (names(user) if user.name() in VIEWS and user in users else [user.name()])]

    leaves = {id(node.variable): node for node in users if hasattr(node, "variable")}
    used = {name: sorted(names(leaves[id(p)])) if id(p) in leaves else [] for name, p in parameters.items()}
    return used, any(node.name() == "ToCopyBackward0" for node in users)
