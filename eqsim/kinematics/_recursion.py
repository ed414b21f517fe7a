"""The two directions of a recursion over a tree."""

import jax.tree_util as jtu

from ..model import Tree
from ..model._gather import accumulate, concatenate, take
from ._structure import Level, levels


def rows(values, start: int, stop: int):
    """Return rows `start` to `stop` of every array."""
    return jtu.tree_map(lambda x: x[start:stop], values)


def level_rows(values, level: Level):
    """Return the rows of a level, of every array with one row per node."""
    return rows(values, level.start, level.stop)


def add(one, other):
    """Add two trees of arrays; None stands for zero."""
    if other is None:
        return one
    if one is None:
        return other
    return jtu.tree_map(lambda x, y: x + y, one, other)


def descend(tree: Tree, values):
    """Compute, for each node, the sum of `values` from the root of its tree to itself.

    **Arguments:**

    - `values`: tree of arrays `(nnode, *batch)`.
    """
    out = []
    for level in levels(tree):
        own = level_rows(values, level)
        out.append(add(own, take(out[-1], level.parents)) if level.depth else own)
    return concatenate(out)


def ascend(tree: Tree, values):
    """Compute, for each node, the sum of `values` over its subtree, itself included.

    **Arguments:**

    - `values`: tree of arrays `(nnode, *batch)`.
    """
    out, carried = [], None
    for level in reversed(levels(tree)):
        out.append(add(level_rows(values, level), carried))
        carried = sum_over_children(level, out[-1])
    return concatenate(out[::-1])


def sum_over_children(level: Level, values):
    """Sum the rows of a level for each node of the level above; None at the roots."""
    if not level.depth:
        return None
    return accumulate(values, level.parents, level.num_parents)
