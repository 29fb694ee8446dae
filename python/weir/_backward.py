"""Splits a stage's backward into the gradients of its inputs and, later, those of its weights, with only public autograd."""

from __future__ import annotations

import collections
import contextlib
from typing import Any, NamedTuple, Sequence

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

__all__ = ["Carry", "input_gradients", "weight_gradients"]

_GraphExecGroup: Any = getattr(torch.utils.checkpoint, "GraphExecGroup", contextlib.nullcontext)  # which older versions lack


class _Group(NamedTuple):
    """Leaves of a graph, and the edges at which the gradients of these leaves branch off those of the inputs."""

    leaves: list[Any]  # AccumulateGrad nodes
    nodes: list[Any]  # nodes of these edges that also lie on a path to an input
    roots: list[int]  # indices of roots that do not


class Carry(NamedTuple):
    """The data that I leaves for W: groups of leaves, the gradients that arrived at their nodes, and the roots with their gradients."""

    groups: list[_Group]
    arrived: dict[Any, Sequence[Tensor | None]]
    roots: Sequence[GradientEdge]
    seeds: Sequence[Tensor]


def input_gradients(roots: Sequence[GradientEdge], seeds: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[list[Tensor | None], Carry]:
    """Returns the gradients of the inputs, None for an input that is not used, and the Carry that weight_gradients needs.

    roots are the edges at which the backward starts, and seeds their gradients. inputs are leaves that
    need gradients. Only nodes on a path to an input are computed. No .grad is written.
    """
    carry = Carry(*_groups(roots, inputs), roots, seeds)
    arrived = carry.arrived
    hooks = [node.register_prehook(lambda gradients, node=node: arrived.__setitem__(node, gradients))
             for group in carry.groups for node in group.nodes]
    try:
        found = torch.autograd.grad(roots, inputs, seeds, retain_graph=True, allow_unused=True) if roots else [None] * len(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    kept = {i for group in carry.groups for i in group.roots}
    return list(found), carry._replace(roots=[r if i in kept else None for i, r in enumerate(roots)],  # type: ignore[misc]
                                       seeds=[s if i in kept else None for i, s in enumerate(seeds)])  # type: ignore[misc]


def weight_gradients(carry: Carry) -> None:
    """Adds the gradients of the weights to their .grad, and empties the carry."""
    carry.groups.sort(key=lambda group: len(group.nodes) <= 1)  # those that retain the graph first
    once = _GraphExecGroup()  # in which checkpoints compute again once, and not for each group, and no node may run twice
    while carry.groups:
        group = carry.groups.pop(0)
        edges = [(GradientEdge(node, i), g) for node in group.nodes for i, g in enumerate(carry.arrived.get(node, ())) if g is not None]
        edges += [(carry.roots[i], carry.seeds[i]) for i in group.roots]
        if not edges:
            continue
        # A gradient that goes through one node of the group to another has arrived there already.
        shared = len(group.nodes) > 1
        hooks = [node.register_prehook(lambda _, arrived=carry.arrived[node]: arrived) for node in group.nodes if node in carry.arrived and shared]
        try:
            with contextlib.nullcontext() if shared else once:
                found = torch.autograd.grad([edge for edge, _ in edges], [GradientEdge(leaf, 0) for leaf in group.leaves],
                                            [g for _, g in edges], retain_graph=shared, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
        for node in () if shared else group.nodes:
            carry.arrived.pop(node, None)
        for leaf, gradient in zip(group.leaves, found):
            weight = leaf.variable
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
    carry.arrived.clear()


def _groups(roots: Sequence[GradientEdge], inputs: Sequence[Tensor]) -> tuple[list[_Group], dict[Any, Any]]:
    """Groups the leaves of a graph other than the inputs, so that leaves that share a node are in one group.

    Groups are in the order of a backward, so that W recomputes one checkpoint after another.
    """
    users: dict[Any, list[Any]] = {root.node: [] for root in roots}
    waiting = collections.deque(users)
    while waiting:
        node = waiting.popleft()
        for following, _ in node.next_functions:
            if following is not None:
                if following not in users:
                    users[following] = []
                    waiting.append(following)
                users[following].append(node)

    starts = {get_gradient_edge(x).node for x in inputs}
    on_way = _above(starts & users.keys(), users, set())[0]  # what lies on a way to an input
    rooted: dict[Any, list[int]] = collections.defaultdict(list)
    for i, root in enumerate(roots):
        if root.node not in on_way:
            rooted[root.node].append(i)
    group_of: dict[Any, _Group] = {}
    for leaf in users:
        if not hasattr(leaf, "variable") or leaf in starts:
            continue
        passed, branches = _above({leaf}, users, on_way)
        tops = {i for node in passed & rooted.keys() for i in rooted[node]}
        merged = {id(group): group for key in (*branches, *tops) if (group := group_of.get(key)) is not None}.values()
        joined = _Group([leaf, *(x for g in merged for x in g.leaves)], list(branches.union(*(g.nodes for g in merged))), list(tops.union(*(g.roots for g in merged))))
        group_of.update(dict.fromkeys((*joined.nodes, *joined.roots), joined))
    missing = {node: len(uses) for node, uses in users.items()}
    ready = [node for node in dict.fromkeys(root.node for root in roots) if not missing[node]]
    order: dict[Any, int] = {}
    while ready:
        node = ready.pop()
        order[node] = len(order)
        for following, _ in node.next_functions:
            if following is not None:
                missing[following] -= 1
                if not missing[following]:
                    ready.append(following)
    found = {id(group): group for group in group_of.values()}.values()
    return sorted(found, key=lambda group: min((order[node] for node in group.nodes), default=0)), {}


def _above(start: set[Any], users: dict[Any, list[Any]], border: set[Any]) -> tuple[set[Any], set[Any]]:
    """Returns the nodes from start up to a border, and the nodes of the border that were reached."""
    passed, reached, waiting = set(start), set(), list(start)
    while waiting:
        for user in users[waiting.pop()]:
            if user in border:
                reached.add(user)
            elif user not in passed:
                passed.add(user)
                waiting.append(user)
    return passed, reached
