"""The two directions of every recursion over a tree."""

import jax.tree_util as jtu

from ..model import accumulate, concatenate, take, Tree


def rows(values, start: int, stop: int):
    """Rows `start` to `stop` of every array."""
    return jtu.tree_map(lambda x: x[start:stop], values)


def descend(tree: Tree, values):
    """For each node, the sum of `values` from the root of its tree to itself."""
    levels = []
    for depth, (start, stop) in enumerate(tree.levels):
        level = rows(values, start, stop)
        if depth > 0:
            above = from_parents(tree, depth, levels[-1])
            level = jtu.tree_map(lambda x, y: x + y, level, above)
        levels.append(level)
    return concatenate(levels)


def ascend(tree: Tree, values):
    """For each node, the sum of `values` over all nodes that it carries, and itself."""
    levels, carried = [], None
    for depth in reversed(range(len(tree.levels))):
        level = rows(values, *tree.levels[depth])
        if carried is not None:
            level = jtu.tree_map(lambda x, y: x + y, level, carried)
        levels.append(level)
        carried = to_parents(tree, depth, level)
    return concatenate(levels[::-1])


def from_parents(tree: Tree, depth: int, level):
    """The rows of `level`, at `depth - 1`, that carry the nodes at `depth`."""
    offset = tree.levels[depth - 1][0]
    start, stop = tree.levels[depth]
    return take(level, [tree.parents[i] - offset for i in range(start, stop)])


def to_parents(tree: Tree, depth: int, level):
    """Sums of `level`, at `depth`, for each node at `depth - 1`."""
    if depth == 0:
        return None
    low, high = tree.levels[depth - 1]
    start, stop = tree.levels[depth]
    parents = [tree.parents[i] - low for i in range(start, stop)]
    return accumulate(level, parents, high - low)
