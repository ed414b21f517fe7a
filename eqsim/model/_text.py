"""Text representation of a robot."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .kinds import Activation, GeomKind, Transmission, WrapKind
from .sensor_kinds import SensorObject


def robot_text(sys: Any) -> str:
    """Return the robot as text: sizes, options, and the tree of links with their
    elements.

    Works for one robot, for a batch (values that differ are replaced by shapes) and
    while tracing. `print(sys)` prints the same.

    **Arguments:**

    - `sys`: the robot.
    """
    lines = [*_header(sys), "", "world"]
    lines += [f"  {text}" for text in (*_shapes(sys, -1), *_sites(sys, -1))]
    lines += _tree(sys, -1, "")
    if sys.ntendon:
        lines += ["", "tendons", *(f"  {text}" for text in _tendons(sys))]
    if sys.nactuator:
        lines += ["", "actuators", *(f"  {text}" for text in _actuators(sys))]
    if sys.nsensor:
        lines += ["", "sensors", *(f"  {text}" for text in _sensors(sys))]
    extra = _contact_exceptions(sys)
    if extra:
        lines += ["", "contact", *(f"  {text}" for text in extra)]
    if sys.nkey:
        lines += ["", "keyframes", *(f"  {name}" for name in sys.keyframes.names)]
    if sys.notes:
        lines += ["", "notes", *(f"  {note}" for note in sys.notes)]
    return "\n".join(lines)


def _header(sys: Any) -> Iterator[str]:
    batch = sys.dt.shape if _is_array(sys.dt) else ()
    many = f", a batch of shape {tuple(batch)}" if batch else ""
    yield (
        f"System: {sys.nlink} links, {sys.njoint} joints (nq {sys.nq}, nv {sys.nv}), "
        f"{sys.nactuator} actuators (nu {sys.nu}, na {sys.na}), {sys.ngeom} shapes"
        + (f", {sys.nmesh} meshes" if sys.nmesh else "")
        + (f", {sys.nfield} height fields" if sys.nfield else "")
        + (f", {sys.nsite} sites" if sys.nsite else "")
        + (f", {sys.ntendon} tendons" if sys.ntendon else "")
        + (f", {sys.nsensor} sensors" if sys.nsensor else "")
        + many
    )
    damping = "" if sys.implicit_damping else ", explicit damping"
    slip = ", friction without slip" if sys.noslip_iterations else ""
    yield (
        f"dt {_number(sys.dt)} s, {sys.integrator.value}{damping}, "
        f"gravity {_number(sys.gravity, 1)} m/s^2{slip}"
    )
    if sys.has_fluid:
        yield (
            f"medium: density {_number(sys.density)} kg/m^3, viscosity "
            f"{_number(sys.viscosity)} Pa s, wind {_number(sys.wind, 1)} m/s"
        )


def _tree(sys: Any, parent: int, indent: str) -> list[str]:
    links = sys.links
    children = [link for link, above in enumerate(links.parents) if above == parent]
    lines = []
    for child in children:
        last = child == children[-1]
        own = "   " if last else "│  "
        mass = _number(_entry(links.mass, child, 0))
        branch = "└─ " if last else "├─ "
        lines.append(f"{indent}{branch}{links.names[child]}  {mass} kg")
        below = "│ " if child in links.parents else "  "
        for text in _parts(sys, child):
            lines.append(f"{indent}{own}{below} {text}")
        lines += _tree(sys, child, indent + own)
    return lines


def _parts(sys: Any, link: int) -> Iterator[str]:
    yield from _joints(sys, link)
    yield from _shapes(sys, link)
    yield from _sites(sys, link)


def _joints(sys: Any, link: int) -> Iterator[str]:
    joints = sys.joints
    for joint, owner in enumerate(joints.links):
        if owner != link:
            continue
        kind = joints.kinds[joint]
        text = f"joint {joints.names[joint]}: {kind.value}"
        if kind.nq == 1:
            text += f", axis {_number(_entry(joints.axis, joint, 1), 1)}"
        if joints.limited[joint]:
            text += f", range {_number(_entry(joints.range, joint, 1), 1)}"
        yield text


def _shapes(sys: Any, link: int) -> Iterator[str]:
    geoms = sys.geoms
    for geom, owner in enumerate(geoms.links):
        if owner != link:
            continue
        kind = geoms.kinds[geom]
        count = kind.num_sizes
        size = _entry(geoms.size, geom, 1, count)
        text = f"shape {geoms.names[geom]}: {kind.name.lower()}"
        yield text + (f" {_number(size, 1)}" if count else "") + _data(sys, geom)


def _data(sys: Any, geom: int) -> str:
    """Return the mesh or height field of a shape, and its size."""
    kind, data = sys.geoms.kinds[geom], sys.geoms.data
    if kind is GeomKind.MESH:
        meshes, index = sys.meshes, data[geom]
        first, last = meshes.hulls.span(index)
        sizes = f"{len(meshes.surfaces.triangles(index))} triangles"
        # Meshes that are only shown have no hull.
        if last > first:
            sizes += f", {last - first} vertices of its hull"
        return f" {meshes.names[index]} ({sizes})"
    if kind is GeomKind.HFIELD:
        fields, index = sys.height_fields, data[geom]
        return (
            f" {fields.names[index]} ({fields.rows[index]} x {fields.columns[index]})"
        )
    return ""


def _sites(sys: Any, link: int) -> Iterator[str]:
    sites = sys.sites
    for site, owner in enumerate(sites.links):
        if owner == link:
            yield f"site {sites.names[site]}"


def _tendons(sys: Any) -> Iterator[str]:
    tendons, coef = sys.tendons, 0
    for index, (name, path) in enumerate(zip(tendons.names, tendons.paths)):
        words = []
        for point in path:
            if point.kind is WrapKind.JOINT:
                number = _number(_entry(tendons.coef, coef, 0))
                words.append(f"{number} {sys.joints.names[point.target]}")
                coef += 1
            elif point.kind is WrapKind.PULLEY:
                words.append("pulley")
            else:
                site = point.kind is WrapKind.SITE
                names = sys.sites.names if site else sys.geoms.names
                words.append(names[point.target])
        text = f"{name}: {', '.join(words)}"
        if tendons.limited[index]:
            text += f", range {_number(_entry(tendons.range, index, 1), 1)}"
        if tendons.has_spring[index]:
            text += f", stiffness {_number(_entry(tendons.stiffness, index, 0))}"
        yield text


def _actuators(sys: Any) -> Iterator[str]:
    actuators = sys.actuators
    for index, name in enumerate(actuators.names):
        joint, out = actuators.joints[index], actuators.out_starts[index]
        count = sys.joints.kinds[joint].nv if joint >= 0 else 1
        gear = _entry(actuators.gear, out, 1, count)
        text = f"{name}: {_target(sys, index)}, gear {_number(gear, 1)}"
        first = actuators.ctrl_starts[index]
        if actuators.inputs[index] and actuators.ctrl_limited[first]:
            text += f", ctrl {_number(_entry(actuators.ctrl_range, first, 1), 1)}"
        if actuators.activation[index] is not Activation.NONE:
            text += f", {actuators.activation[index].value}"
        models = [x for x in sys.actuator_models if index in x.actuators]
        yield ", ".join([text, *(type(own.model).__name__ for own in models)])


def _target(sys: Any, index: int) -> str:
    actuators = sys.actuators
    target = actuators.targets[index][0]
    if actuators.joints[index] >= 0:
        return f"joint {sys.joints.names[target]}"
    kind = actuators.transmissions[index]
    if kind is Transmission.BODY:
        return f"contacts of link {sys.links.names[target]}"
    return f"{kind.value} {target}"


def _sensors(sys: Any) -> Iterator[str]:
    sensors = sys.sensors
    names = {
        SensorObject.GEOM: sys.geoms.names,
        SensorObject.SITE: sys.sites.names,
        SensorObject.JOINT: sys.joints.names,
        SensorObject.TENDON: sys.tendons.names,
        SensorObject.ACTUATOR: sys.actuators.names,
    }
    links = (*sys.links.names, "world")
    for index, name in enumerate(sensors.names):
        text = f"{name}: {sensors.kinds[index].value}"
        for kind, target in (sensors.objects[index], sensors.references[index]):
            if kind is not SensorObject.NONE:
                text += f", {kind.value} {names.get(kind, links)[target]}"
        if sensors.limited[index]:
            text += f", cutoff {_number(_entry(sensors.cutoff, index, 0))}"
        yield text


def _contact_exceptions(sys: Any) -> list[str]:
    names, links = sys.geoms.names, (*sys.links.names, "world")
    pairs = [f"pair {names[a]} with {names[b]}" for a, b in sys.pairs.geoms]
    return pairs + [f"never {links[a]} with {links[b]}" for a, b in sys.excludes]


def _is_array(value: Any) -> bool:
    kinds = (np.ndarray, np.generic, jax.Array, jax.ShapeDtypeStruct)
    return isinstance(value, kinds)


def _known(value: Any) -> bool:
    unknown = (Tracer, jax.ShapeDtypeStruct)
    return _is_array(value) and not isinstance(value, unknown)


def _entry(values: Any, index: int, ndim: int, count: int | None = None) -> Any:
    """Return the first `count` values of one element.

    The axis before the last `ndim` axes is that of the elements.
    """
    if not _is_array(values):
        return None
    axis = values.ndim - ndim - 1
    if not _known(values):
        shape = [*values.shape[:axis], *values.shape[axis + 1 :]]
        if count is not None:
            shape[-1] = count
        return jax.ShapeDtypeStruct(tuple(shape), values.dtype)
    entry = np.take(np.asarray(values), index, axis=axis)
    return entry if count is None else entry[..., :count]


def _number(value: Any, ndim: int = 0) -> str:
    """Return the values, or their shape if they are traced or differ."""
    if not _is_array(value):
        return "?"
    if not _known(value):
        return f"[{','.join(map(str, value.shape))}]"
    array = np.asarray(value)
    if array.ndim > ndim:
        flat = array.reshape(-1, *array.shape[array.ndim - ndim :])
        if len(flat) == 0 or np.any(flat != flat[0]):
            return f"[{','.join(map(str, array.shape))}]"
        array = flat[0]
    if array.ndim == 0:
        return f"{float(array):.4g}"
    return "(" + ", ".join(f"{float(number):.4g}" for number in array) + ")"
