"""Data parallelism: environments and batches are sharded, everything else is replicated.

    with jax.set_mesh(eqsim_zoo.blocks.device_mesh()):
        state, metrics = eqx.filter_jit(agent.iterate)(state, env)

Agents mark the arrays that are batches; without a mesh the marks have no effect.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
from jax.sharding import AxisType, Mesh, PartitionSpec


AXIS = "batch"
_ROWS, _WHOLE = PartitionSpec(AXIS), PartitionSpec()


def device_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """Create a one-dimensional mesh for `jax.set_mesh`; by default of all devices of
    all processes."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh((len(devices),), (AXIS,), (AxisType.Auto,), devices=devices)


def num_shards() -> int:
    """Return the number of devices that share a batch."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AXIS not in mesh.axis_names or AXIS in mesh.manual_axes:
        return 1
    return mesh.shape[AXIS]


def check_divisible(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are multiples of the number of devices."""
    shares = num_shards()
    for name in names:
        value = vars(agent)[name]
        if value % shares:
            raise ValueError(
                f"`{type(agent).__name__}.{name}` must be a multiple of {shares}, the "
                f"number of devices, got {value}."
            )


def shard_batch(tree: Any) -> Any:
    """Shard the first axis of arrays among the devices."""
    return _placed(tree, _ROWS)


def replicate(tree: Any) -> Any:
    """Replicate arrays on all devices."""
    return _placed(tree, _WHOLE)


def _placed(tree: Any, spec: PartitionSpec) -> Any:
    if num_shards() == 1:
        return tree
    place = lambda x: (
        jax.lax.with_sharding_constraint(x, spec) if eqx.is_array(x) else x
    )
    return jtu.tree_map(place, tree)


def map_shards(fn: Callable[[Any, Any], Any], rows: Any, shared: Any) -> Any:
    """Evaluate `fn(rows, shared)` on each device with its rows, so that loops do not wait
    for other devices.

    **Arguments:**

    - `fn`: returns arrays whose first axis is that of the rows.
    """
    if num_shards() == 1:
        return fn(rows, shared)
    arrays, static = eqx.partition((rows, shared), eqx.is_array)
    local = lambda rows, shared: fn(*eqx.combine((rows, shared), static))
    run = jax.shard_map(
        local, in_specs=(_ROWS, _WHOLE), out_specs=_ROWS, check_vma=False
    )
    return run(*arrays)
