"""Checks of arrays: values, and the shapes that the annotations of their fields declare.

A new field is checked as soon as it is declared. A dimension is a number, or the name
of a property of the part that contains the field or of the `System`, such as `nlink`.
The dimension `order` of polynomials may have any size.
"""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import AbstractArray

from .._errors import check_shape, check_type
from ._system import State, System
from .kinds import JointKind


# Values.


def known(value: Any) -> np.ndarray | None:
    """Return the values, or None if they are traced or placeholders."""
    if isinstance(value, Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return None
    return np.asarray(value)


def reject(value: Any, bad: Any, names: tuple[str, ...], message: str) -> None:
    """Raise `ValueError` for the first bad element. The last axis of `bad` corresponds
    to `names`.

    `message` may contain `{name}` and `{value}`.
    """
    numbers = known(value)
    if numbers is None:
        return
    marks = np.asarray(bad(numbers))
    if np.any(marks):
        index = tuple(np.argwhere(marks)[0])
        text = message.format(
            name=names[index[-1]], value=numbers[index[: numbers.ndim]].tolist()
        )
        raise ValueError(text)


def check_solimp(value: Any, names: tuple[str, ...], who: str, field: str) -> None:
    """Raise `ValueError` if impedances, width, midpoint or power of `solimp` are out of
    range.

    Impedances above 1 occur in public files; as in MuJoCo, a step clips them to 0.9999.
    """
    reject(
        value,
        lambda x: np.any(x[..., :2] < 0, axis=-1),
        names,
        f"{who} has {field} {{value}}. The first two numbers, impedances, must not be "
        "negative.",
    )
    reject(
        value,
        lambda x: (x[..., 2] < 0) | (x[..., 3] < 0) | (x[..., 3] > 1) | (x[..., 4] < 1),
        names,
        f"{who} has {field} {{value}}. The width must not be negative, the midpoint "
        "must lie between 0 and 1, and the power must be 1 or more.",
    )


# Shapes.


class Declared(typing.NamedTuple):
    """An array field of a module: its name, dimensions, and whether it may be None."""

    name: str
    dims: tuple[str, ...]
    optional: bool


@functools.lru_cache
def declared(cls: type) -> tuple[Declared, ...]:
    """Return the array fields of a module class."""
    found = []
    for field in dataclasses.fields(cls):
        if field.metadata.get("static", False):
            continue
        kinds = typing.get_args(field.type) or (field.type,)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, AbstractArray):
                dims, optional = tuple(kind.dim_str.split()), type(None) in kinds
                found.append(Declared(field.name, dims, optional))
    return tuple(found)


def parts(module: eqx.Module, path: str) -> Iterator[tuple[str, eqx.Module]]:
    """Yield a module and all modules in its fields, with their paths."""
    yield path, module
    for name, value in vars(module).items():
        if isinstance(value, eqx.Module):
            yield from parts(value, f"{path}.{name}")


def array_ranks(sys: System) -> dict[str, int]:
    """Return the number of axes of each array of one robot, without batch axes, by its
    path, such as `"joints.axis"`."""
    ranks = {
        f"{path}.{field.name}".removeprefix("System."): len(field.dims)
        for path, part in parts(sys, "System")
        for field in declared(type(part))
    }
    for k, own in enumerate(sys.actuator_models):
        leaves = jtu.tree_leaves_with_path(own)
        for (path, _), rank in zip(leaves, own.ranks, strict=True):
            ranks[f"actuator_models[{k}]{jtu.keystr(path)}"] = rank
    return ranks


def size_of(dim: str, part: Any, sys: System) -> int | None:
    """Return the size of a dimension; None if neither the part nor the robot defines
    it."""
    if dim.isdecimal():
        return int(dim)
    for owner in (part, sys):
        member = vars(type(owner)).get(dim)
        if isinstance(member, property) and member.fget is not None:
            return member.fget(owner)
    return None


def check_shapes(sys: System, batched: bool = False) -> None:
    """Check that every array of a robot has the shape and type of its annotation.

    The check happens while tracing and costs nothing at run time of a compiled program.

    **Arguments:**

    - `sys`: the robot.
    - `batched`: true to allow leading batch axes. Placeholders without a shape are then
        not checked.

    **Raises:** `ValueError` with the field, its shape, and the expected shape.
    """
    leaves, structure = jtu.tree_flatten(sys)
    if not all(isinstance(leaf, _ARRAYS) for leaf in leaves):
        return _check(sys, batched)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    _check_cached(structure, shapes, batched)


@functools.lru_cache(maxsize=1024)
def _check_cached(structure: Any, shapes: tuple, batched: bool) -> None:
    """Check one structure with these shapes once; an error is raised every time."""
    leaves = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    _check(jtu.tree_unflatten(structure, leaves), batched)


def _check(sys: System, batched: bool) -> None:
    for path, part in parts(sys, "System"):
        for field in declared(type(part)):
            value = vars(part)[field.name]
            name = f"{path}.{field.name}"
            if not isinstance(value, _ARRAYS):
                _check_kind(value, name, field, batched)
                continue
            shape = value.shape
            expected = []
            for axis, dim in enumerate(field.dims, len(shape) - len(field.dims)):
                size = size_of(dim, part, sys)
                if size is None:
                    # No property defines this size, so any size is accepted.
                    size = shape[axis] if axis >= 0 else -1
                expected.append(size)
            _check_dims(name, shape, field.dims, tuple(expected), batched)
            if not jnp.issubdtype(value.dtype, jnp.floating):
                raise ValueError(
                    f"{name} must be floating point, but is {value.dtype}. Use "
                    "jnp.asarray(value, float)."
                )


_ARRAYS = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)


def _check_kind(value: Any, name: str, field: Declared, batched: bool) -> None:
    if isinstance(value, bool | int | float | complex | list | tuple):
        raise ValueError(
            f"{name} is {value!r}, of type {type(value).__name__}, but must be an array "
            f"of shape {_tuple(field.dims)}. Use jnp.asarray(value, float)."
        )
    if value is None and not field.optional and not batched:
        raise ValueError(f"{name} is None, but must be an array.")


def _check_dims(
    name: str,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    expected: tuple[int, ...],
    batched: bool,
) -> None:
    own = shape[max(0, len(shape) - len(expected)) :] if batched else shape
    if own == expected:
        return
    many = not batched and expected == shape[max(0, len(shape) - len(expected)) :]
    hint = " For a batch, wrap the call in eqx.filter_vmap." if many else ""
    named = "" if all(dim.isdecimal() for dim in dims) else f"{_tuple(dims)} = "
    raise ValueError(
        f"{name} has shape {shape}, but this system needs {named}{expected}.{hint}"
    )


def _tuple(dims: tuple[str, ...]) -> str:
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def check_step(sys: Any, state: Any, ctrl: Any, external: Any = None) -> None:
    """Check the arguments of a step of a pipeline: types, then arrays (`check_state`).

    **Raises:** `TypeError` if the robot or the state is none; `ValueError` if there are no
    controls, or a shape or type of an array is wrong.
    """
    if not isinstance(sys, System):
        order = "The arguments are swapped: pass the robot, then the state."
        remedy = order if issubclass(type(state), System) else ""
        check_type("sys", sys, System, "a robot (`eqsim.System`)", remedy)
    if not isinstance(state, State):
        remedy = "Create one, such as `pipeline.init(sys)`."
        check_type("state", state, State, "a state of the robot", remedy)
    if ctrl is None:
        raise ValueError(
            f"`ctrl` must be an array of shape (nu,) = ({sys.nu},), got None. Write "
            f"`jnp.zeros({sys.nu})` for no control."
        )
    check_state(sys, state.q, state.qd, ctrl, state.act, external)


def check_state(
    sys: System,
    q: Any = None,
    qd: Any = None,
    ctrl: Any = None,
    act: Any = None,
    external: Any = None,
) -> None:
    """Check shapes and types of the robot's arrays, and of coordinates, velocities,
    controls, activations, external forces and quaternions.

    **Arguments:**

    - `sys`: the robot.
    - `q`, `qd`, `ctrl`, `act`, `external`: arrays to check; None is skipped.

    **Raises:** `ValueError` with the expected and the actual shape or type.
    """
    check_shapes(sys)
    _check_shape(
        q,
        "q",
        "nq",
        sys.nq,
        "coordinates of all joints: 7 for a free joint, 4 "
        "for a ball joint, 1 for a hinge or slide",
    )
    _check_shape(
        qd,
        "qd",
        "nv",
        sys.nv,
        "velocities of all joints: 6 for a free joint, 3 "
        "for a ball joint, 1 for a hinge or slide",
    )
    _check_shape(ctrl, "ctrl", "nu", sys.nu, "one number per control")
    meaning = "the activations of all actuators"
    _check_shape(act, "act", "na", sys.na, meaning)
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "6": 6})
    numbers = known(q)
    if numbers is None:
        return
    for name, quat in joint_quaternions(sys, numbers):
        if not np.any(quat):
            raise ValueError(
                f"The quaternion of joint {name!r} in q is zero, which is no "
                "orientation. Use (1, 0, 0, 0) for the orientation at rest."
            )


def _check_shape(value: Any, name: str, size: str, count: int, meaning: str) -> None:
    if value is None:
        return
    write = f"Write `jnp.asarray({name}, float)`."
    if not isinstance(value, jax.Array | np.ndarray):
        raise TypeError(
            f"`{name}` must be an array of shape ({count},), got a "
            f"`{type(value).__name__}`. {write}"
        )
    if value.shape != (count,):
        raise ValueError(
            f"`{name}` has shape {value.shape}, but this system has {size} = {count}: pass "
            f"an array of shape ({count},) ({meaning}). For a batch use `eqx.filter_vmap`."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"`{name}` must be floating point, but is {value.dtype}. {write}"
        )


def joint_quaternions(sys: System, q: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the joints with quaternions in `q`, and these quaternions."""
    joints = sys.joints
    for name, kind, start in zip(joints.names, joints.kinds, joints.q_starts):
        if kind is JointKind.FREE:
            start += 3
        if kind.nq > 1:
            yield name, q[..., start : start + 4]
