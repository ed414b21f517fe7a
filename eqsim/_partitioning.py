"""Batches that lie on several devices: each device computes its own part.

A compiled function sees a batch as a whole, wherever its parts lie. XLA would split the
loops inside a step operation by operation, and let all devices wait for the last one in
every pass. Here it is told that the parts of a batch have nothing to do with each
other.
"""

from collections.abc import Callable, Sequence

from jax.experimental.custom_partitioning import (
    ArrayMapping,
    custom_partitioning,
    SdyShardingRule,
)


def partitioned(fn: Callable, args: Sequence, out: Sequence, nbatch: int) -> tuple:
    """Calls `fn` on the part of the batch that each device has.

    **Arguments:**

    - `fn`: takes and returns arrays with `nbatch` trailing batch axes, each of size one
        or of the size of the batch.
    - `args`: its arguments, on the whole batch.
    - `out`: its results, as arrays or shapes.
    """

    def whole(*args):
        return tuple(fn(*args))

    def partition(mesh, args, results):
        shardings = tuple(arg.sharding for arg in args)
        return mesh, whole, tuple(result.sharding for result in results), shardings

    split = custom_partitioning(whole)
    rule = lambda *_: _rule(args, out, nbatch)
    split.def_partition(partition, sharding_rule=rule)
    return split(*args)


def _rule(args, out, nbatch: int) -> SdyShardingRule:
    """Axes of the batch correspond to each other; all other axes stay whole."""
    names: list[str] = []

    def name(axis: int, size: int) -> str:
        """Of an axis, counted from the first axis of the batch."""
        found = f"b{axis}" if axis >= 0 and size > 1 else f"e{len(names)}"
        if found not in names:
            names.append(found)
        return found

    def mapping(x) -> ArrayMapping:
        first = x.ndim - nbatch
        return ArrayMapping(*(name(k - first, n) for k, n in enumerate(x.shape)))

    operands, results = tuple(map(mapping, args)), tuple(map(mapping, out))
    kept = tuple(name for name in names if name.startswith("e"))
    return SdyShardingRule(operands, results, need_replication_factors=kept)
