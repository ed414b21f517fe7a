"""Writing of a `System` as MJCF text."""

import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from ...model import (
    Activation,
    Actuators,
    Bias,
    Control,
    EqualityKind,
    Gain,
    GeomKind,
    HeightFields,
    JointKind,
    Meshes,
    SensorKind,
    SensorObject,
    System,
    Transmission,
    WrapKind,
)
from ...model.kinds import require_known
from ...spatial import quaternion_matrix
from ._read_actuators import law_parameters
from .mujoco_names import engine


def _text(value: Any) -> str:
    """Format numbers in full precision; return words unchanged."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    return " ".join(repr(float(number)) for number in np.ravel(value))


def add_element(parent: ET.Element, tag: str, attributes: dict[str, Any]) -> ET.Element:
    """Add an element with attributes: numbers in full precision, words unchanged."""
    return ET.SubElement(parent, tag, {k: _text(v) for k, v in attributes.items()})


def write_equalities(root: ET.Element, sys: System) -> None:
    """Write the equality constraints of a system."""
    own = sys.equalities
    if not own.names:
        return
    parent = ET.SubElement(root, "equality")
    for k, (name, kind) in enumerate(zip(own.names, own.kinds, strict=True)):
        attributes = {
            "name": name,
            "active": bool(own.active[k] > 0),
            "solref": own.solref[k],
            "solimp": own.solimp[k],
        }
        add_element(parent, kind.name.lower(), attributes | _specific(sys, k, kind))


def _specific(sys: System, k: int, kind: EqualityKind) -> dict:
    own = sys.equalities
    if kind in (EqualityKind.JOINT, EqualityKind.TENDON):
        names = sys.joints.names if kind is EqualityKind.JOINT else sys.tendons.names
        objects = _objects(kind.name.lower(), names, own.objects[k])
        return objects | {"polycoef": own.coefficients[k]}
    if own.at_sites[k]:
        scale = (
            {"torquescale": own.torque_scale[k]} if kind is EqualityKind.WELD else {}
        )
        return _objects("site", sys.sites.names, own.objects[k]) | scale
    objects = _objects("body", sys.links.names, own.objects[k])
    first, second = own.anchors[k]
    if kind is EqualityKind.CONNECT:
        return objects | {"anchor": first}
    return objects | {
        "anchor": second,
        "relpose": [*first, *own.relative_quat[k]],
        "torquescale": own.torque_scale[k],
    }


def _objects(word: str, names: tuple[str, ...], pair: tuple[int, int]) -> dict:
    """Return the names of one or two objects; the second link may be the world."""
    first, second = pair
    if word == "body" and first < 0:
        return {"body1": "world", "body2": names[second]}
    objects = {f"{word}1": names[first]}
    return objects | ({f"{word}2": names[second]} if second >= 0 else {})


# Group of disabled actuators.
_OFF = 1


def disabled_groups(sys: System) -> dict[str, Any]:
    """Return the option that disables actuators."""
    actuators = sys.actuators
    if not actuators.active or all(actuators.enabled):
        return {}
    return {"actuatorgroupdisable": _OFF}


def write_actuators(root: ET.Element, sys: System) -> None:
    """Add the actuators to a model."""
    part = ET.SubElement(root, "actuator")
    actuators = sys.actuators
    for k, name in enumerate(actuators.names):
        attributes = {
            "name": name,
            **_target(sys, k),
            **_laws(actuators, k),
            **_ranges(actuators, k),
            "gear": actuators.gear[actuators.out_starts[k]],
            "actearly": actuators.act_early[k],
        }
        if actuators.active and not actuators.enabled[k]:
            attributes["group"] = _OFF
        add_element(part, "general", attributes)


def _target(sys: System, k: int) -> dict[str, Any]:
    actuators = sys.actuators
    kind, (first, second) = actuators.transmissions[k], actuators.targets[k]
    if actuators.joints[k] >= 0:
        in_parent = kind is Transmission.JOINT_IN_PARENT
        return {"jointinparent" if in_parent else "joint": sys.joints.names[first]}
    if kind is Transmission.BODY:
        return {"body": (*sys.links.names, "world")[first]}
    if kind is Transmission.TENDON:
        return {"tendon": sys.tendons.names[first]}
    names = sys.sites.names
    if kind is Transmission.SLIDER_CRANK:
        assert actuators.crank_length is not None, "there are slider-cranks"
        length = actuators.crank_length[k]
        return {
            "cranksite": names[first],
            "slidersite": names[second],
            "cranklength": length,
        }
    if second < 0:
        return {"site": names[first]}
    return {"site": names[first], "refsite": names[second]}


def _laws(actuators: Actuators, k: int) -> dict[str, Any]:
    numbers = law_parameters(actuators, k)
    gain, bias = actuators.gains[k], actuators.biases[k]
    gaintype, biastype = gain.value, bias.value
    if gain is Gain.AFFINE and not np.any(actuators.gain[k, 1:]):
        gaintype = "fixed"
    if bias is Bias.AFFINE and gain is not Gain.PID and not np.any(actuators.bias[k]):
        biastype = "none"
    if gain is Gain.ORIENTATION:
        numbers["biasprm"][1] = -numbers["gainprm"][0]
    out = {
        "dyntype": actuators.activation[k].value,
        "gaintype": gaintype,
        "biastype": biastype,
        **numbers,
    }
    signals = actuators.inputs[k]
    if gain is Gain.ORIENTATION:
        out["input"] = signals[0].value
    elif Control.SIGNAL not in signals:
        out["input"] = " ".join(signal.value for signal in signals) or "none"
    if actuators.activation[k] is Activation.DC_MOTOR:
        out["actdim"] = len(actuators.states[k])
    if actuators.muscles is not None and k in actuators.muscles.owners:
        row = actuators.muscles.owners.index(k)
        out["lengthrange"] = actuators.muscles.length_range[row]
    return out


def _ranges(actuators: Actuators, k: int) -> dict[str, Any]:
    out: dict[str, Any] = {
        "forcelimited": actuators.force_limited[k],
        "forcerange": actuators.force_range[k],
    }
    signals, first = actuators.inputs[k], actuators.ctrl_starts[k]
    if actuators.gains[k] is Gain.PID:
        names = {Control.VELOCITY: "velrange", Control.FORCE: "ffrange"}
        for j, signal in enumerate(signals):
            if signal in names:
                limited = actuators.ctrl_limited[first + j]
                span = actuators.ctrl_range[first + j]
                out[names[signal]] = span if limited else [0.0, 0.0]
    shared = not signals or signals[0] not in (Control.VELOCITY, Control.FORCE)
    if signals and (shared or actuators.gains[k] is not Gain.PID):
        out["ctrllimited"] = actuators.ctrl_limited[first]
        out["ctrlrange"] = actuators.ctrl_range[first]
    if actuators.activation[k] is not Activation.NONE:
        out["actlimited"] = actuators.act_limited[k]
        out["actrange"] = actuators.act_range[k]
    for name in ("damping", "armature"):
        values = vars(actuators)[name]
        if values is not None:
            out[name] = values[k]
    if actuators.damping_poly is not None:
        linear = (
            np.zeros(1) if actuators.damping is None else actuators.damping[k : k + 1]
        )
        out["damping"] = np.concatenate([linear, actuators.damping_poly[k]])
    return out


_FRAMES = tuple(kind for kind in SensorKind if kind.value.startswith("frame"))
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)


def write_sensors(root: ET.Element, sys: System) -> None:
    """Write all sensors."""
    if not sys.nsensor:
        return
    part, sensors = ET.SubElement(root, "sensor"), sys.sensors
    for index, kind in enumerate(sensors.kinds):
        attributes: dict[str, Any] = {"name": sensors.names[index]}
        if sensors.limited[index]:
            attributes["cutoff"] = sensors.cutoff[index]
        attributes |= _attachment(sys, kind, index)
        if kind is SensorKind.CONTACT:
            attributes["data"] = " ".join(x.value for x in sensors.contact_data[index])
            attributes["reduce"] = sensors.contact_reductions[index].value
            attributes["num"] = sensors.contact_slots[index]
        if kind is SensorKind.RANGEFINDER:
            attributes["data"] = " ".join(x.value for x in sensors.ray_data[index])
        add_element(part, kind.value, attributes)


def magnetic_field(sys: System) -> dict[str, Any]:
    """Return the option for magnetometers, if there are any."""
    magnetic = sys.sensors.magnetic
    return {} if magnetic is None else {"magnetic": magnetic}


def is_invisible(sys: System, geom: int) -> bool:
    """Test if rays pass through a shape."""
    rays = SensorKind.RANGEFINDER in sys.sensors.kinds
    return rays and geom not in sys.sensors.ray_geoms


def _name(sys: System, kind: SensorObject, index: int) -> str:
    names = {
        SensorObject.GEOM: sys.geoms.names,
        SensorObject.SITE: sys.sites.names,
        SensorObject.JOINT: sys.joints.names,
        SensorObject.TENDON: sys.tendons.names,
        SensorObject.ACTUATOR: sys.actuators.names,
    }
    return names.get(kind, (*sys.links.names, "world"))[index]


def _attachment(sys: System, kind: SensorKind, index: int) -> dict[str, str]:
    ends = sys.sensors.objects[index], sys.sensors.references[index]
    (one, first), (two, second) = ends
    if kind in _FRAMES:
        out = {"objtype": one.value, "objname": _name(sys, one, first)}
        if two is not SensorObject.NONE:
            out |= {"reftype": two.value, "refname": _name(sys, two, second)}
        return out
    if kind is SensorKind.INSIDE_SITE:
        out = {"objtype": one.value, "objname": _name(sys, one, first)}
        return out | {"site": _name(sys, two, second)}
    if kind is SensorKind.CONTACT or kind in _DISTANCES:
        return _numbered(sys, *ends)
    if one is SensorObject.NONE:
        return {}
    return {one.value: _name(sys, one, first)}


def _numbered(sys: System, *ends: tuple[SensorObject, int]) -> dict[str, str]:
    """Return the attributes of the two objects of a sensor, numbered if they are of the
    same kind."""
    out = {}
    for number, (kind, index) in enumerate(ends, start=1):
        words = {
            SensorObject.SITE: "site",
            SensorObject.GEOM: f"geom{number}",
            SensorObject.INERTIA: f"body{number}",
            SensorObject.LINK: f"subtree{number}",
        }
        if kind is not SensorObject.NONE:
            out[words[kind]] = _name(sys, kind, index)
    return out


def write_color(sys: System, geom: int) -> dict[str, Any]:
    """Return the color and the group of a shape as attributes of a geom."""
    geoms, out = sys.geoms, {}
    color = geoms.colors[geom] if geoms.colors else None
    if is_invisible(sys, geom):
        # Rays pass through it.
        color = (*(color or (0.5, 0.5, 0.5))[:3], 0.0)
    if color is not None:
        out["rgba"] = color
    if geoms.groups:
        out["group"] = geoms.groups[geom]
    return out


def write_assets(root: ET.Element, sys: System) -> None:
    """Write all meshes and height fields."""
    if not sys.nmesh and not sys.nfield:
        return
    part = ET.SubElement(root, "asset")
    for mesh, name in enumerate(sys.meshes.names):
        _write_mesh(part, sys.meshes, mesh, name)
    for field, name in enumerate(sys.height_fields.names):
        _write_height_field(part, sys.height_fields, field, name)


def shape_attributes(sys: System, geom: int) -> dict[str, Any]:
    """Return type, size and pose of a shape."""
    geoms = sys.geoms
    kind, pos = geoms.kinds[geom], geoms.pos[geom]
    require_known(kind, "have no MJCF")
    out = {"type": kind.name.lower(), "quat": geoms.quat[geom]}
    if kind is GeomKind.MESH:
        return out | {"mesh": sys.meshes.names[geoms.data[geom]], "pos": pos}
    if kind is GeomKind.HFIELD:
        fields, field = sys.height_fields, geoms.data[geom]
        quat = geoms.quat[geom] / np.linalg.norm(geoms.quat[geom])
        up = np.array(quaternion_matrix(quat.tolist()), float).reshape(3, 3)[:, 2]
        raised = pos + up * np.min(fields.grid(field))
        return out | {"hfield": fields.names[field], "pos": raised}
    return out | {"size": geoms.size[geom], "pos": pos}


def _write_mesh(part: ET.Element, meshes: Meshes, mesh: int, name: str) -> None:
    hull, others = np.asarray(meshes.hull(mesh)), np.asarray(meshes.others(mesh))
    own = np.concatenate([hull, others])
    surfaces = meshes.surfaces
    start = surfaces.span(mesh)[0] + meshes.hulls.span(mesh)[0]
    order = surfaces.order[start : start + len(own)]
    rank = np.argsort(order)
    triangles = surfaces.triangles(mesh)
    fans = [
        (polygon[0], polygon[k], polygon[k + 1])
        for polygon in meshes.hulls.polygons(mesh)
        for k in range(1, len(polygon) - 1)
    ]
    attributes = {
        "name": name,
        "vertex": own[order],
        "face": " ".join(map(str, rank[triangles].ravel().tolist())),
        "inertia": _inertia_mode(own, triangles, np.array(fans, int).reshape(-1, 3)),
    }
    if len(hull) and _is_outside(hull, np.array(fans, int), others):
        attributes["maxhullvert"] = len(hull)
    add_element(part, "mesh", attributes)


def _is_outside(hull: np.ndarray, faces: np.ndarray, points: np.ndarray) -> bool:
    """Test if points lie outside a hull whose number of vertices was limited."""
    if not len(points):
        return False
    tolerance = 1e-6 * np.ptp(hull, axis=0).max()
    a, b, c = hull[faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    # In blocks, because hulls and meshes may be large.
    blocks = np.array_split(normals, 1 + len(normals) // 64)
    return any(
        np.any(np.max(points @ n.T, axis=0) > np.max(hull @ n.T, axis=0) + tolerance)
        for n in blocks
        if len(n)
    )


class _Inertia(NamedTuple):
    """Volume or area, center and moments of inertia of a mesh."""

    total: float
    center: np.ndarray
    moments: np.ndarray


# MuJoCo rejects smaller volumes.
_SMALLEST = 1e-15


def _inertia_mode(points: np.ndarray, faces: np.ndarray, hull: np.ndarray) -> str:
    """Return the kind of inertia by which MuJoCo computed the frame of a mesh (MJCF:
    `inertia`).

    A compiled model does not contain it. In its frame, the center is zero and the
    moments are diagonal and sorted."""
    modes = {
        "legacy": lambda: _inertia(points, faces, faces, np.abs),
        "exact": lambda: _inertia(points, faces, faces, np.asarray),
        "shell": lambda: _inertia(points, faces, faces, None),
        "convex": lambda: _inertia(points, faces, _hull(points, hull), np.asarray),
    }
    errors = {}
    for mode, own in modes.items():
        errors[mode] = _misplacement(points, own())
        if errors[mode] < _PLACED:
            return mode
    return min(errors, key=lambda mode: errors[mode])


# Larger errors are not due to single precision.
_PLACED = 1e-5


def _hull(points: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the triangles of the convex hull, which shapes that are only drawn do not
    have."""
    if len(known):
        return known
    mujoco = engine()
    spec = mujoco.MjSpec()
    # Without faces, a mesh becomes its hull.
    mesh = spec.add_mesh(name="hull", uservert=points.ravel())
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    return spec.compile().mesh_face.astype(int)


def _misplacement(points: np.ndarray, own: _Inertia) -> float:
    if not own.total > _SMALLEST:
        return np.inf
    trace = np.trace(own.moments) + 1e-300
    diagonal = np.diag(own.moments)
    crossed = np.abs(own.moments - np.diag(diagonal)).sum() / trace
    unsorted = np.maximum(np.diff(diagonal), 0.0).sum() / trace
    return (
        np.linalg.norm(own.center) / np.ptp(points, axis=0).max() + crossed + unsorted
    )


def _inertia(points, faces, solid, sign) -> _Inertia:
    """Compute inertia like MuJoCo (`mjCMesh::ComputeInertia`): of areas if `sign` is
    None, else of the volumes of pyramids with this sign."""
    middle, area = _centroids(points[faces])
    middle = np.sum(middle * area[:, None], axis=0) / max(area.sum(), 1e-300)
    corners = points[solid]
    centers, area = _centroids(corners)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
    weight = area
    if sign is not None:
        weight = sign(np.sum((centers - middle) * normal, axis=1) / 3)
    total = weight.sum()
    if not total > _SMALLEST:
        return _Inertia(0.0, np.zeros(3), np.eye(3))
    center = weight @ (0.75 * centers + 0.25 * middle) / total
    corners = corners - center
    if sign is not None:
        weight = sign(np.sum((centers - center) * normal, axis=1) / 3)
    both = np.einsum("n,nki,nkj->ij", weight, corners, corners)
    summed = corners.sum(axis=1)
    products = both + np.einsum("n,ni,nj->ij", weight, summed, summed)
    products = products / (12 if sign is None else 20)
    return _Inertia(total, center, np.trace(products) * np.eye(3) - products)


def _centroids(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = corners[:, 1:] - corners[:, :1]
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2
    return corners.mean(axis=1), area


def _write_height_field(
    part: ET.Element, fields: HeightFields, field: int, name: str
) -> None:
    """Write a height field. MuJoCo's heights start at zero, so the shape is moved along
    z by the lowest height."""
    grid = np.asarray(fields.grid(field))
    low, high = np.min(grid), np.max(grid)
    x, y, base = fields.size[field]
    if base + low <= 0.0:
        raise ValueError(
            f"The lowest height of {name!r} is {low}, below the bottom at {-base}. Raise the "
            "heights, or increase the base in HeightFields.size."
        )
    add_element(
        part,
        "hfield",
        {
            "name": name,
            "nrow": fields.rows[field],
            "ncol": fields.columns[field],
            "size": (x, y, high - low if high > low else 1.0, base + low),
            # The first row in MJCF is the last one along y.
            "elevation": grid[::-1] - low,
        },
    )


def write_sites(body: ET.Element, sys: System, link: int) -> None:
    """Write the sites of a link, -1 for the world."""
    sites = sys.sites
    for site, owner in enumerate(sites.links):
        if owner == link:
            attributes = {
                "name": sites.names[site],
                "type": sites.kinds[site].name.lower(),
                "size": sites.size[site],
                "pos": sites.pos[site],
                "quat": sites.quat[site],
            }
            add_element(body, "site", attributes)


def write_tendons(root: ET.Element, sys: System) -> None:
    """Write all tendons."""
    if not sys.ntendon:
        return
    tendons, coef, pulley = sys.tendons, 0, 0
    part = ET.SubElement(root, "tendon")
    for tendon, path in enumerate(tendons.paths):
        fixed = path[0].kind is WrapKind.JOINT
        element = add_element(
            part, "fixed" if fixed else "spatial", _attributes(sys, tendon)
        )
        for point in path:
            if point.kind is WrapKind.JOINT:
                words = {"joint": sys.joints.names[point.target]}
                add_element(element, "joint", words | {"coef": tendons.coef[coef]})
                coef += 1
            elif point.kind is WrapKind.PULLEY:
                add_element(element, "pulley", {"divisor": tendons.divisor[pulley]})
                pulley += 1
            elif point.kind is WrapKind.SITE:
                words = {"site": sys.sites.names[point.target]}
                add_element(element, "site", words)
            else:
                words = {"geom": sys.geoms.names[point.target]}
                if point.side_site >= 0:
                    words["sidesite"] = sys.sites.names[point.side_site]
                add_element(element, "geom", words)


def _attributes(sys: System, tendon: int) -> dict:
    tendons = sys.tendons
    out = {
        "name": tendons.names[tendon],
        "limited": tendons.limited[tendon],
        "range": tendons.range[tendon],
        "margin": tendons.limit_margin[tendon],
        "solreflimit": tendons.limit_solref[tendon],
        "solimplimit": tendons.limit_solimp[tendon],
        "stiffness": np.r_[tendons.stiffness[tendon], tendons.stiffness_poly[tendon]],
        "damping": np.r_[tendons.damping[tendon], tendons.damping_poly[tendon]],
        "armature": tendons.armature[tendon],
        "frictionloss": tendons.frictionloss[tendon],
        "solreffriction": tendons.friction_solref[tendon],
        "solimpfriction": tendons.friction_solimp[tendon],
        "actuatorfrclimited": tendons.actuator_force_limited[tendon],
        "actuatorfrcrange": tendons.actuator_force_range[tendon],
    }
    if not tendons.rests_at_reference[tendon]:
        out["springlength"] = tendons.spring_length[tendon]
    return out


def write_mjcf(sys: System) -> str:
    """Write a robot as MJCF, for viewers and for comparison with MuJoCo.

    `load_mjcf(write_mjcf(sys))` returns the same system up to rounding, except for
    `System.notes` and for properties that MJCF does not have (the reference frame of a
    free link is its `Joints.ref`).

    **Arguments:**

    - `sys`: one robot, not a batch. MJCF has one damping, armature and dry friction per
        joint, so these must be equal in all degrees of freedom of a joint. Links must
        be in depth-first order, as in MuJoCo.

    **Returns:** the XML text, with values in full precision.

    **Raises:** `ValueError` if the robot is batched or traced, or cannot be expressed
    in MJCF.
    """
    sys = _concrete(sys)
    root = ET.Element("mujoco", model="eqsim")
    ET.SubElement(
        root,
        "compiler",
        angle="radian",
        autolimits="false",
        inertiafromgeom="false",
        alignfree="false",
    )
    _write_options(root, sys)
    write_assets(root, sys)
    world = ET.SubElement(root, "worldbody")
    parts: dict[int, ET.Element] = {-1: world}
    _check_order(sys)
    _write_geoms(world, sys, -1)
    write_sites(world, sys, -1)
    for link, parent in enumerate(sys.links.parents):
        parts[link] = _write_link(parts[parent], sys, link)
        _write_joints(parts[link], sys, link)
        _write_geoms(parts[link], sys, link)
        write_sites(parts[link], sys, link)
    _write_contacts(root, sys)
    write_tendons(root, sys)
    write_equalities(root, sys)
    write_actuators(root, sys)
    write_sensors(root, sys)
    _write_keyframes(root, sys)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _concrete(sys: System) -> System:
    leaves = jax.tree_util.tree_leaves(sys)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "write_mjcf needs concrete values: call it outside jit, grad and vmap."
        )
    if sys.dt.ndim != 0 or sys.links.mass.ndim != 1:
        raise ValueError(
            f"write_mjcf takes one robot, but this is a batch (mass has shape "
            f"{sys.links.mass.shape} for {sys.nlink} links). Pick one of them first, "
            "for instance with jax.tree.map(lambda x: x[0], sys)."
        )
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float64), sys)


def _check_order(sys: System) -> None:
    path: list[int] = [-1]
    for link, parent in enumerate(sys.links.parents):
        if parent not in path:
            raise ValueError(
                f"Link {sys.links.names[link]!r} is not in depth-first order, which "
                "MuJoCo requires. Reorder the links."
            )
        path = [*path[: path.index(parent) + 1], link]


def _write_options(root: ET.Element, sys: System) -> None:
    option = add_element(
        root,
        "option",
        {
            "timestep": sys.dt,
            "gravity": sys.gravity,
            "wind": sys.wind,
            "density": sys.density,
            "viscosity": sys.viscosity,
            "impratio": sys.impratio,
            "integrator": sys.integrator.value,
            "cone": sys.cone.value,
            **magnetic_field(sys),
            **disabled_groups(sys),
        },
    )
    switches = {
        "filterparent": sys.filter_parent,
        "refsafe": sys.safe_solref,
        "eulerdamp": sys.implicit_damping,
        "actuation": sys.actuators.active,
    }
    words = {name: "enable" if on else "disable" for name, on in switches.items()}
    add_element(option, "flag", words)


def _write_link(parent: ET.Element, sys: System, link: int) -> ET.Element:
    links, joints = sys.links, sys.joints
    pos, quat = links.pos[link], links.quat[link]
    for joint, owner in enumerate(joints.links):
        if owner == link and joints.kinds[joint] is JointKind.FREE:
            start = joints.q_starts[joint]
            pos, quat = joints.ref[start : start + 3], joints.ref[start + 3 : start + 7]
    body = add_element(
        parent,
        "body",
        {
            "name": links.names[link],
            "pos": pos,
            "quat": quat,
            "gravcomp": links.gravity_compensation[link],
            "mocap": links.mocap[link],
        },
    )
    inertia = np.array(links.inertia[link])
    # Rounding to single precision may violate A + B >= C, which MuJoCo requires.
    largest = np.argmax(inertia)
    others = inertia.sum() - inertia[largest]
    if inertia[largest] <= others * (1 + 1e-6):
        inertia[largest] = min(inertia[largest], others)
    add_element(
        body,
        "inertial",
        {
            "pos": links.com[link],
            "quat": links.inertia_quat[link],
            "mass": links.mass[link],
            "diaginertia": inertia,
        },
    )
    return body


def _write_joints(body: ET.Element, sys: System, link: int) -> None:
    joints = sys.joints
    damping = _coefficients(joints.damping, joints.damping_poly, slice(None))
    for joint, owner in enumerate(joints.links):
        if owner != link:
            continue
        kind, name = joints.kinds[joint], joints.names[joint]
        coordinate, dof = joints.q_starts[joint], joints.v_starts[joint]
        dofs = slice(dof, dof + kind.nv)
        attributes = {
            "name": name,
            "type": kind.value,
            "pos": joints.anchor[joint],
            "axis": joints.axis[joint],
            "limited": joints.limited[joint],
            "range": joints.range[joint],
            "margin": joints.limit_margin[joint],
            "solreflimit": joints.limit_solref[joint],
            "solimplimit": joints.limit_solimp[joint],
            "stiffness": _coefficients(joints.stiffness, joints.stiffness_poly, joint),
            "damping": _same(damping[dofs], name, "damping"),
            "actuatorfrclimited": joints.force_limited[joint],
            "actuatorgravcomp": joints.actuator_gravity[joint],
            "armature": _same(joints.armature[dofs], name, "armature"),
            "frictionloss": _same(joints.frictionloss[dofs], name, "frictionloss"),
            "solreffriction": _same(joints.friction_solref[dofs], name, "solref"),
            "solimpfriction": _same(joints.friction_solimp[dofs], name, "solimp"),
        }
        if joints.force_range is not None:
            attributes["actuatorfrcrange"] = joints.force_range[joint]
        if kind.nq == 1:
            attributes["ref"] = joints.ref[coordinate]
            attributes["springref"] = joints.spring_ref[coordinate]
        else:
            _check_rest(sys, joint)
        add_element(body, "joint", attributes)


def _coefficients(linear: Any, poly: Any, index: Any) -> Any:
    """Return a coefficient followed by its polynomial, if there is one."""
    linear = linear[index]
    if poly is None:
        return linear
    return np.concatenate([linear[..., None], poly[index]], axis=-1)


def _same(values: Any, joint: str, what: str) -> Any:
    if not np.all(values == values[0]):
        raise ValueError(
            f"Joint {joint!r} has different {what} in its degrees of freedom "
            f"({values.tolist()}), which MJCF cannot express. Make them equal."
        )
    return values[0]


def _check_rest(sys: System, joint: int) -> None:
    joints = sys.joints
    start = joints.q_starts[joint]
    stop = start + joints.kinds[joint].nq
    ref, rest = joints.ref[start:stop], joints.spring_ref[start:stop]
    ball = joints.kinds[joint] is JointKind.SPHERICAL
    if not np.array_equal(ref, rest) or (
        ball and not np.array_equal(ref, [1, 0, 0, 0])
    ):
        raise ValueError(
            f"Joint {joints.names[joint]!r} has reference {ref.tolist()} and spring "
            f"reference {rest.tolist()}, which MJCF cannot express. The two must be equal, "
            "and (1, 0, 0, 0) for a ball joint."
        )


def _write_geoms(body: ET.Element, sys: System, link: int) -> None:
    geoms = sys.geoms
    for geom, owner in enumerate(geoms.links):
        if owner != link:
            continue
        fluid = {}
        if geoms.fluid[geom]:
            fluid["fluidshape"] = "ellipsoid"
            fluid["fluidcoef"] = geoms.fluid_coefficients[geom]
        add_element(
            body,
            "geom",
            fluid
            | {
                "name": geoms.names[geom],
                **shape_attributes(sys, geom),
                "contype": geoms.contype[geom],
                "conaffinity": geoms.conaffinity[geom],
                "condim": geoms.condim[geom],
                "priority": geoms.priority[geom],
                "friction": geoms.friction[geom],
                "solref": geoms.solref[geom],
                "solimp": geoms.solimp[geom],
                "solmix": geoms.solmix[geom],
                "margin": geoms.margin[geom],
                **write_color(sys, geom),
            },
        )


def _write_contacts(root: ET.Element, sys: System) -> None:
    contact = ET.SubElement(root, "contact")
    names, pairs = sys.geoms.names, sys.pairs
    for index, (a, b) in enumerate(pairs.geoms):
        add_element(
            contact,
            "pair",
            {
                "geom1": names[a],
                "geom2": names[b],
                "condim": pairs.condim[index],
                "friction": pairs.friction[index],
                "solref": pairs.solref[index],
                "solreffriction": pairs.solref_friction[index],
                "solimp": pairs.solimp[index],
                "margin": pairs.margin[index],
            },
        )
    links = (*sys.links.names, "world")
    for a, b in sys.excludes:
        add_element(contact, "exclude", {"body1": links[a], "body2": links[b]})


def _write_keyframes(root: ET.Element, sys: System) -> None:
    keys = sys.keyframes
    part = ET.SubElement(root, "keyframe") if keys.names else root
    for index, name in enumerate(keys.names):
        attributes = {
            "qpos": keys.q[index],
            "qvel": keys.qd[index],
            "act": keys.act[index],
            "ctrl": keys.ctrl[index],
        }
        kept = {key: value for key, value in attributes.items() if value.size}
        add_element(part, "key", {"name": name, **kept})
