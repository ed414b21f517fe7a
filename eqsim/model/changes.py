"""Changes of a robot: differences between two robots of one structure, other kinds of
shapes, and poses of mocap links, which are inputs."""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Float

from .._errors import check_type
from .._primitive import with_pattern
from ._system import System
from .kinds import AnyKind, GeomKind
from .pairs import is_measured
from .sensor_kinds import Attachment, SensorKind, SensorObject


# Differences.


def with_same_structure(old: System, new: Any, who: str) -> System:
    """Return a robot with the pattern of another one.

    **Raises:** `ValueError` unless structure, shapes and types are the same.
    """
    if not isinstance(new, System):
        raise ValueError(f"{who} must be a `System`, got {type(new).__name__}.")
    new = with_pattern(new, old.pattern)
    if jtu.tree_structure(old) != jtu.tree_structure(new):
        raise ValueError(
            f"{who} has a different structure{_difference(old, new)} than `env.sys`. Only "
            "values of arrays can differ between episodes."
        )
    leaves = jtu.tree_leaves_with_path(old)
    for (path, x), y in zip(leaves, jtu.tree_leaves(new), strict=True):
        found = jnp.shape(y), jnp.result_type(y)
        if found != (x.shape, x.dtype):
            raise ValueError(
                f"{who}: `sys{jtu.keystr(path)}` must keep shape {x.shape} and type "
                f"{x.dtype}, got {found[0]} and {found[1]}."
            )
    return new


def _difference(old: System, new: System) -> str:
    """Describe which field has a different structure, if possible."""
    path = _differing(old, new, "sys")
    return "" if path is None else f" (`{path}`)"


def _differing(old: Any, new: Any, path: str) -> str | None:
    """Return the deepest path of the first field whose structure differs."""
    if jtu.tree_structure(old) == jtu.tree_structure(new):
        return None
    if not isinstance(old, eqx.Module) or type(old) is not type(new):
        return path
    for field in dataclasses.fields(old):
        pair = vars(old)[field.name], vars(new)[field.name]
        inner = f"{path}.{field.name}"
        if not field.metadata.get("static", False):
            found = _differing(*pair, inner)
            if found is not None:
                return found
        elif pair[0] != pair[1]:
            return inner
    return path


def changed_parameters(old: System, new: System) -> System:
    """Return the robot with None for all parameters that are identical array objects in
    both."""
    return jtu.tree_map(lambda x, y: None if x is y else jnp.asarray(y), old, new)


# Kinds of shapes.


_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)


def replace_shape(
    sys: System, geom: str, kind: AnyKind, size: tuple[float, ...]
) -> System:
    """Return the robot with one shape replaced by a shape of another kind. Masses do
    not change.

    **Arguments:**

    - `geom`: name of the shape.
    - `kind`: kind of the new shape, neither mesh nor height field, such as
        `GeomKind.BOX` or `Torus()`.
    - `size`: up to three sizes, see `Geoms`.

    **Raises:** `ValueError` if the shape does not exist, the kind needs data, or the shape
    is read by a distance sensor or feels a fluid and the kind has no such distance or
    forces; `TypeError` if `kind` is no kind.
    """
    check_type("kind", kind, AnyKind, "a kind of shape")
    index = sys.geom(geom).index
    if kind in (GeomKind.MESH, GeomKind.HFIELD):
        raise ValueError(f"`kind` is {kind.name}, which needs data. Load it from MJCF.")
    if len(size) > 3:
        raise ValueError(f"`size` has {len(size)} entries; a shape has at most 3.")
    geoms = sys.geoms
    if geoms.fluid[index] and not isinstance(kind, GeomKind):
        raise ValueError(
            f"Shape {geom!r} feels a fluid, whose forces are those on ellipsoids, not on "
            f"shapes of the kind {kind.name}. Remove `fluidshape` from the MJCF file."
        )
    kinds = (*geoms.kinds[:index], kind, *geoms.kinds[index + 1 :])
    row = jnp.zeros(3, geoms.size.dtype).at[: len(size)].set(jnp.asarray(size))
    data = geoms.data
    if data:
        data = (*data[:index], -1, *data[index + 1 :])
    new = dataclasses.replace(
        geoms, kinds=kinds, size=geoms.size.at[index].set(row), data=data
    )
    changed = dataclasses.replace(sys, geoms=new)
    _check_distances(changed, index)
    return changed


def _check_distances(sys: System, geom: int) -> None:
    """Raise `ValueError` if a sensor reads distances of a shape that are not known."""
    geoms, sensors = sys.geoms, sys.sensors
    for name, kind, *ends in zip(
        sensors.names, sensors.kinds, sensors.objects, sensors.references, strict=True
    ):
        sides = [_shapes_of(sys, end) for end in ends]
        if kind not in _DISTANCES or not any(geom in side for side in sides):
            continue
        for pair in itertools.product(*sides):
            kinds = [geoms.kinds[k] for k in pair]
            flat = all(each is GeomKind.PLANE for each in kinds)
            if geom in pair and not flat and not is_measured(sys, *pair):
                one, two = (each.name for each in kinds)
                raise ValueError(
                    f"Sensor {name!r} reads the distance of shape {geoms.names[geom]!r}, "
                    f"but that of {one} and {two} is not known. Remove the sensor, or use "
                    "another kind."
                )


def _shapes_of(sys: System, end: Attachment) -> list[int]:
    kind, index = end
    if kind is SensorObject.GEOM:
        return [index]
    return [g for g, link in enumerate(sys.geoms.links) if link == index]


# Poses of mocap links.


def set_mocap(
    sys: System,
    link: str | int,
    pos: Float[Array, "3"] | None = None,
    quat: Float[Array, "4"] | None = None,
) -> System:
    r"""Move a mocap link (MuJoCo: `mocap_pos`, `mocap_quat`).

    Shapes of a mocap link push others, and links with joints may be attached to it, but
    no force moves it, and its velocity is zero. Its pose is an input of a step: it can
    be changed without recompiling, batched and differentiated. Masses and softness of
    constraints do not depend on it.

    ```python
    moved = eqsim.set_mocap(sys, "hand", pos=jnp.array([0.1, 0.0, 0.5]))
    state = pipeline.step(moved, state, ctrl)
    ```

    **Arguments:**

    - `sys`: the robot.
    - `link`: name or index of a mocap link.
    - `pos`: position in the world, m. None keeps it.
    - `quat`: orientation in the world, scalar first; it need not have unit norm. None
        keeps it.

    **Returns:** the robot with the link at its new pose.

    **Raises:** `ValueError` if there is no such mocap link.
    """
    index = _mocap_index(sys, link)
    links = sys.links
    if pos is not None:
        links = eqx.tree_at(lambda x: x.pos, links, _with_row(links.pos, index, pos))
    if quat is not None:
        links = eqx.tree_at(lambda x: x.quat, links, _with_row(links.quat, index, quat))
    return eqx.tree_at(lambda s: s.links, sys, links)


def _with_row(values, index: int, row):
    if jnp.shape(row) != values.shape[1:]:
        raise ValueError(
            f"A part of the pose must have shape {values.shape[1:]}, got "
            f"{jnp.shape(row)}. For a batch of poses use eqx.filter_vmap."
        )
    return values.at[index].set(jnp.asarray(row, values.dtype))


def _mocap_index(sys: System, link: str | int) -> int:
    names, marks = sys.links.names, sys.links.mocap
    known = [name for name, mark in zip(names, marks) if mark]
    if isinstance(link, str):
        if link in known:
            return names.index(link)
    elif 0 <= link < len(names) and marks[link]:
        return link
    raise ValueError(
        f"{link!r} is not a mocap link. The mocap links of this robot are: "
        f"{', '.join(map(repr, known)) or 'none'}."
    )
