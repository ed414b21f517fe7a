"""Sharding: batches are split between devices without communication.

A compiled function sees the whole batch, including its parts on other devices. XLA
would partition every operation inside the loops of a step, so all devices would wait
for the slowest one in every iteration. Here XLA is told that the parts of a batch are
independent.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    custom_partitioning,
    SdyShardingRule,
)
from jax.sharding import NamedSharding, PartitionSpec


def along(linear: Callable, vectors: Sequence, axes: frozenset[int], nbatch: int):
    """Apply a linear function to vectors, mapped over some of their batch axes.

    **Arguments:**

    - `linear`: function of arrays whose batch axes in `axes` have size one.
    - `vectors`: its arguments, with all batch axes.
    """
    for k in axes:
        linear = _mapped(linear, k - nbatch)
    return tuple(linear(*vectors))


def _mapped(linear: Callable, axis: int) -> Callable:
    """Return `linear` mapped along an axis, counted from the end."""

    def one(xs):
        out = linear(*(jnp.expand_dims(x, axis) for x in xs))
        return [jnp.squeeze(x, axis) for x in out]

    def wrapper(*args):
        size = max(x.shape[axis] for x in args)
        front = [jnp.moveaxis(x, axis, 0) for x in args]
        front = [jnp.broadcast_to(x, (size, *x.shape[1:])) for x in front]
        return [jnp.moveaxis(x, 0, axis) for x in jax.vmap(one)(front)]

    return wrapper


def partitioned(fn: Callable, args: Sequence, out: Sequence, nbatch: int) -> tuple:
    """Call `fn` on the part of the batch that each device has.

    **Arguments:**

    - `fn`: function of arrays with `nbatch` trailing batch axes, each of size one or of
        the size of the batch.
    - `args`: its arguments, for the whole batch.
    - `out`: its results, as arrays or shapes.
    """

    def whole(*args):
        return tuple(fn(*args))

    def partition(mesh, args, results):
        # Arguments are sharded like the results: a batch axis is split in the same
        # way in all arrays, and no other axis is split.
        spec = results[0].sharding.spec
        first = len(results[0].shape) - nbatch
        cuts = [*spec, *(None for _ in results[0].shape)][first : first + nbatch]

        def sharding(x):
            batch = zip(cuts, x.shape[len(x.shape) - nbatch :], strict=True)
            event = [None] * (len(x.shape) - nbatch)
            entries = [*event, *(cut if n > 1 else None for cut, n in batch)]
            return NamedSharding(mesh, PartitionSpec(*entries))

        return mesh, whole, tuple(map(sharding, results)), tuple(map(sharding, args))

    split = custom_partitioning(whole)
    rule = lambda *_: _rule(args, out, nbatch)
    split.def_partition(partition, sharding_rule=rule)
    return split(*args)


def _rule(args, out, nbatch: int) -> SdyShardingRule:
    """Return the sharding rule: batch axes correspond to each other; all other axes are
    replicated."""
    names: list[str] = []

    def name(axis: int, size: int) -> str:
        """Return the name of an axis, counted from the first batch axis."""
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
