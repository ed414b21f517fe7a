"""Branches.

A branch whose predicate differs between lanes is entered if any lane needs it; results of
the others are kept by selection.
"""

from collections.abc import Callable

import numpy as np

from . import _algebra as algebra
from ._arrays import Value
from ._carry import blend, Carry, materialized, union
from ._graph import Branch, Graph, LANE
from ._indices import clamped, INDEX, Index, index_node
from ._scalarize import rule, Translation


@rule("cond")
def _cond(walk, eqn, which, *operands):
    operands, branches = materialized(walk, operands), eqn.params["branches"]
    taken = [lambda branch=branch: walk.closed(branch, operands) for branch in branches]
    return switch(walk, which, taken, [var.aval for var in eqn.outvars])


def switch(
    walk: Translation, which: Value, branches: list[Callable[[], list[Value]]], avals
) -> list[Value]:
    """Return the results of the branch that is taken."""
    graph = walk.graph
    (number,) = np.asarray(which).reshape(-1).tolist()
    number = algebra.convert(graph, number, INDEX)
    last = len(branches) - 1
    if number in graph.value:
        return branches[min(max(int(graph.value[number]), 0), last)]()
    number = index_node(graph, clamped(graph, Index(number), last))
    carry, entries = Carry(walk, avals), None
    by_lane = bool(graph.dep[number] & LANE)
    for k, branch in enumerate(branches):
        here = algebra.apply(graph, "eq", (number, graph.constant(k, INDEX)), "b1")
        entries = _branch(walk, carry, branch, here, by_lane, entries)
    assert entries is not None
    return carry.restore(entries)


def _branch(walk, carry: Carry, branch, here: int, by_lane: bool, old):
    """Return the results after a branch that is taken where `here` holds; `old` are the
    results before it."""
    graph, old_mask = walk.graph, walk.mask
    test = here
    if by_lane:
        if old_mask is not None:
            here = algebra.apply(graph, "and", (old_mask, here), "b1")
        test = algebra.any_lane(graph, here)
    with graph.block(branch=True) as depth:
        walk.mask = here if by_lane else old_mask
        new = carry.flatten(materialized(walk, branch()))
        walk.mask = old_mask
        if by_lane and old is not None:
            new = [blend(graph, here, a, b) for a, b in zip(old, new, strict=True)]
    if old is None:
        old = [_nothing(graph, node) for node in new]
    changed = [k for k, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    then, other = [new[k] for k in changed], [old[k] for k in changed]
    control = graph.control("branch", (test,), Branch(depth, then, other))
    results = list(old)
    for place, k in enumerate(changed):
        pair = new[k], old[k]
        dep = union(graph, pair) | graph.dep[test]
        dtype, rows = graph.dtype[pair[0]], graph.rows[pair[0]]
        results[k] = graph.get(control, place, dtype, dep, rows)
    return results


def _nothing(graph: Graph, like: int) -> int:
    """Return a placeholder of the type of a node, for lanes in which no branch has run
    yet."""
    dtype, rows = graph.dtype[like], graph.rows[like]
    if not rows:
        return graph.constant(0, dtype)
    zero = graph.constant(0, dtype)
    return graph.pure("pack", (zero,) * rows, dtype, None, rows)
