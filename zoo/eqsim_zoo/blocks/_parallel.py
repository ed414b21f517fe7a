"""One program on several devices: environments and batches in shares, the rest whole.

    with jax.set_mesh(eqsim_zoo.device_mesh()):
        state, metrics = eqx.filter_jit(agent.iterate)(state, env)

Agents say which arrays are rows of a batch; without a mesh that says nothing.
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
    """A row of devices for `jax.set_mesh`; by default all there are, those of other
    processes too."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh((len(devices),), (AXIS,), (AxisType.Auto,), devices=devices)


def num_shards() -> int:
    """How many devices share a batch here."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AXIS not in mesh.axis_names or AXIS in mesh.manual_axes:
        return 1
    return mesh.shape[AXIS]


def check_divisible(agent: eqx.Module, *names: str) -> None:
    """Raises `ValueError` unless the devices can share sizes evenly."""
    shares = num_shards()
    for name in names:
        value = vars(agent)[name]
        if value % shares:
            raise ValueError(
                f"`{type(agent).__name__}.{name}` is {value}: a multiple of {shares}, the "
                "number of devices, is expected."
            )


def shard_batch(tree: Any) -> Any:
    """Arrays whose rows are shared among the devices."""
    return _placed(tree, _ROWS)


def replicate(tree: Any) -> Any:
    """Arrays that every device has."""
    return _placed(tree, _WHOLE)


def _placed(tree: Any, spec: PartitionSpec) -> Any:
    if num_shards() == 1:
        return tree
    place = lambda x: (
        jax.lax.with_sharding_constraint(x, spec) if eqx.is_array(x) else x
    )
    return jtu.tree_map(place, tree)


def map_shards(fn: Callable[[Any, Any], Any], rows: Any, shared: Any) -> Any:
    """`fn(rows, shared)`, on each device with its rows, whose loops then wait for no other
    device.

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
