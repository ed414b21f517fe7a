"""Writing of a `System` as MJCF text.

The text is built element by element, because `mujoco.MjSpec.to_xml` prints six digits.
`_table` names the attributes that are fields of a part; here are the others.
"""

import functools
import xml.etree.ElementTree as ET
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ...actuators import Delay
from ...model import (
    AbstractDistanceField,
    Activation,
    ActivationState,
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
from ._read_actuators import (
    INTERPOLATIONS,
    law_parameters,
    mujoco_activations,
    PID_PLUGIN,
)
from ._read_bodies import plugin_of
from ._table import attributes, DISCRETE_PID
from .mujoco_names import engine
from .sources import compile_source


def write_mjcf(sys: System) -> str:
    """Write a robot as MJCF, for viewers and for comparison with MuJoCo.

    `load_mjcf(write_mjcf(sys))` returns the same system up to rounding, except for
    `System.notes` and for properties that MJCF does not have (the reference frame of a
    free link is its `Joints.ref`, the box of a distance field that of MuJoCo's mesh).

    **Arguments:**

    - `sys`: one robot, not a batch. MJCF has one damping, armature and dry friction per
        joint, so these must be equal in all degrees of freedom of a joint. Links must
        be in depth-first order, as in MuJoCo.

    **Returns:** the XML text, with values in full precision;
    `mujoco.MjSpec.from_string(text)` makes it a `mujoco.MjSpec`.

    **Raises:** `ValueError` if the robot is batched or traced, or cannot be expressed
    in MJCF.
    """
    sys = _concrete(sys)
    _check_order(sys)
    root = ET.Element("mujoco", model="eqsim")
    compiler = {"angle": "radian", "autolimits": False}
    _add(root, "compiler", compiler | {"inertiafromgeom": False, "alignfree": False})
    _write_options(root, sys)
    _write_assets(root, sys)
    _write_distance_fields(root, sys)
    bodies = {-1: ET.SubElement(root, "worldbody")}
    for link in range(-1, sys.nlink):
        if link >= 0:
            bodies[link] = _write_link(bodies[sys.links.parents[link]], sys, link)
            _write_joints(bodies[link], sys, link)
        _write_geoms(bodies[link], sys, link)
        _write_sites(bodies[link], sys, link)
    _write_contacts(ET.SubElement(root, "contact"), sys)
    _write_tendons(ET.SubElement(root, "tendon"), sys)
    _write_equalities(ET.SubElement(root, "equality"), sys)
    if sys.actuators.discrete_pids is not None:
        _add(_add(root, "extension", {}), "plugin", {"plugin": PID_PLUGIN})
    _write_actuators(ET.SubElement(root, "actuator"), sys)
    _write_sensors(ET.SubElement(root, "sensor"), sys)
    keyframes = ET.SubElement(root, "keyframe")
    for k, name in enumerate(sys.keyframes.names):
        words = {"name": name, **attributes("key", sys.keyframes, k)}
        if sys.na:
            places, act = mujoco_activations(sys.actuators), sys.keyframes.act[k]
            words["act"] = act[places]
            if np.any(np.delete(act[: sys.actuators.na], places) > 0):
                words["time"] = sys.dt
        _add(keyframes, "key", words)
    for part in [x for x in root if not len(x) and not x.attrib]:
        root.remove(part)
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


def _add(parent: ET.Element, tag: str, values: dict[str, Any]) -> ET.Element:
    """Add an element with attributes: numbers in full precision, words unchanged."""
    return ET.SubElement(parent, tag, {k: _text(v) for k, v in values.items()})


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    return " ".join(map(repr, np.ravel(value).astype(float).tolist()))


def _names(sys: System) -> dict[str, tuple[str, ...]]:
    """Return the names of all elements by their kind in MJCF; body -1 is the world."""
    bodies = (*sys.links.names, "world")
    return {
        "body": bodies,
        "xbody": bodies,
        "geom": sys.geoms.names,
        "site": sys.sites.names,
        "joint": sys.joints.names,
        "tendon": sys.tendons.names,
        "actuator": sys.actuators.names,
    }


# Group of disabled actuators.
_OFF = 1


def _write_options(root: ET.Element, sys: System) -> None:
    words = attributes("option", sys, ...)
    words |= {"integrator": sys.integrator.value, "cone": sys.cone.value}
    if sys.noslip_iterations:
        words["noslip_iterations"] = sys.noslip_iterations
    if sys.sensors.magnetic is not None:
        words["magnetic"] = sys.sensors.magnetic
    actuators = sys.actuators
    if actuators.active and not all(actuators.enabled):
        words["actuatorgroupdisable"] = _OFF
    flags = {
        "filterparent": sys.filter_parent,
        "refsafe": sys.safe_solref,
        "eulerdamp": sys.implicit_damping,
        "actuation": actuators.active,
    }
    words_of_flags = {k: "enable" if on else "disable" for k, on in flags.items()}
    _add(_add(root, "option", words), "flag", words_of_flags)


def _write_link(parent: ET.Element, sys: System, link: int) -> ET.Element:
    links, joints = sys.links, sys.joints
    words: dict[str, Any] = {"name": links.names[link]}
    words |= attributes("body", links, link)
    for joint, owner in enumerate(joints.links):
        if owner == link and joints.kinds[joint] is JointKind.FREE:
            start = joints.q_starts[joint]
            words["pos"] = joints.ref[start : start + 3]
            words["quat"] = joints.ref[start + 3 : start + 7]
    body = _add(parent, "body", words | {"mocap": links.mocap[link]})
    words = attributes("inertial", links, link)
    inertia = np.array(links.inertia[link])
    # Rounding to single precision may violate A + B >= C, which MuJoCo requires.
    largest = np.argmax(inertia)
    others = inertia.sum() - inertia[largest]
    if inertia[largest] <= others * (1 + 1e-6):
        inertia[largest] = min(inertia[largest], others)
    _add(body, "inertial", words | {"diaginertia": inertia})
    return body


def _write_joints(body: ET.Element, sys: System, link: int) -> None:
    joints = sys.joints
    for joint, owner in enumerate(joints.links):
        if owner != link:
            continue
        kind, name = joints.kinds[joint], joints.names[joint]
        coordinate, dof = joints.q_starts[joint], joints.v_starts[joint]
        same = functools.partial(_same, name, slice(dof, dof + kind.nv))
        words: dict[str, Any] = {"name": name, "type": kind.value}
        words |= attributes("joint", joints, joint, same)
        if kind.nq == 1:
            words["ref"] = joints.ref[coordinate]
            words["springref"] = joints.spring_ref[coordinate]
        else:
            _check_rest(sys, joint)
        _add(body, "joint", words)


def _same(joint: str, dofs: slice, what: str, values: np.ndarray) -> Any:
    """Return the value of the degrees of freedom of a joint, which must be equal."""
    values = values[dofs]
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
    geoms, names = sys.geoms, _names(sys)
    for geom, owner in enumerate(geoms.links):
        if owner != link:
            continue
        kind = geoms.kinds[geom]
        is_field = isinstance(kind, AbstractDistanceField)
        if not is_field:
            require_known(kind, "have no MJCF")
        words: dict[str, Any] = {"name": names["geom"][geom]}
        words["type"] = "sdf" if is_field else kind.name.lower()
        words |= attributes("geom", geoms, geom) | _color(sys, geom)
        if geoms.fluid[geom]:
            words["fluidshape"] = "ellipsoid"
            words["fluidcoef"] = geoms.fluid_coefficients[geom]
        if is_field or kind in (GeomKind.MESH, GeomKind.HFIELD):
            del words["size"]
        if is_field:
            words["mesh"] = _field_mesh(sys, geom)
        if kind is GeomKind.MESH:
            words["mesh"] = sys.meshes.names[geoms.data[geom]]
        if kind is GeomKind.HFIELD:
            fields, field = sys.height_fields, geoms.data[geom]
            quat = geoms.quat[geom] / np.linalg.norm(geoms.quat[geom])
            up = np.array(quaternion_matrix(quat.tolist()), float).reshape(3, 3)[:, 2]
            words["hfield"] = fields.names[field]
            low = np.min(fields.grid(field))
            words["pos"] = geoms.pos[geom] + up * low
            if geoms.surface_velocity is not None:
                # The velocity at the new center.
                lin, ang = np.split(geoms.surface_velocity[geom], 2)
                lin = lin + np.cross(ang, [0.0, 0.0, low])
                words["surfacevel"] = np.append(lin, ang)
        element = _add(body, "geom", words)
        if is_field:
            _add(element, "plugin", {"instance": names["geom"][geom]})


def _color(sys: System, geom: int) -> dict[str, Any]:
    """Return the color and the group of a shape. Rays pass through transparent ones."""
    geoms, sensors, out = sys.geoms, sys.sensors, {}
    color = geoms.colors[geom] if geoms.colors else None
    is_field = isinstance(geoms.kinds[geom], AbstractDistanceField)
    unseen = geom not in sensors.ray_geoms and not is_field
    if SensorKind.RANGEFINDER in sensors.kinds and unseen:
        color = (*(color or (0.5, 0.5, 0.5))[:3], 0.0)
    if color is not None:
        out["rgba"] = color
    if geoms.groups:
        out["group"] = geoms.groups[geom]
    return out


def _write_sites(body: ET.Element, sys: System, link: int) -> None:
    sites = sys.sites
    for site, owner in enumerate(sites.links):
        if owner == link:
            words = {"name": sites.names[site], "type": sites.kinds[site].name.lower()}
            _add(body, "site", words | attributes("site", sites, site))


def _write_contacts(part: ET.Element, sys: System) -> None:
    names = _names(sys)
    for pair, (a, b) in enumerate(sys.pairs.geoms):
        words = {"geom1": names["geom"][a], "geom2": names["geom"][b]}
        _add(part, "pair", words | attributes("pair", sys.pairs, pair))
    for a, b in sys.excludes:
        _add(part, "exclude", {"body1": names["body"][a], "body2": names["body"][b]})


def _write_tendons(part: ET.Element, sys: System) -> None:
    tendons, names = sys.tendons, _names(sys)
    coefs, divisors = iter(tendons.coef), iter(tendons.divisor)
    for tendon, path in enumerate(tendons.paths):
        words = {"name": tendons.names[tendon], **attributes("tendon", tendons, tendon)}
        if not tendons.rests_at_reference[tendon]:
            words["springlength"] = tendons.spring_length[tendon]
        fixed = path[0].kind is WrapKind.JOINT
        element = _add(part, "fixed" if fixed else "spatial", words)
        for kind, target, side in path:
            if kind is WrapKind.PULLEY:
                words = {"divisor": next(divisors)}
            else:
                words = {kind.value: names[kind.value][target]}
            if kind is WrapKind.JOINT:
                words["coef"] = next(coefs)
            if side >= 0:
                words["sidesite"] = names["site"][side]
            _add(element, kind.value, words)


def _write_equalities(part: ET.Element, sys: System) -> None:
    own, names = sys.equalities, _names(sys)
    for k, (name, kind) in enumerate(zip(own.names, own.kinds, strict=True)):
        words = {"name": name, "active": bool(own.active[k] > 0)}
        words |= attributes("equality", own, k)
        coupled = kind in (EqualityKind.JOINT, EqualityKind.TENDON)
        target = kind.name.lower() if coupled else "site" if own.at_sites[k] else "body"
        for number, index in enumerate(own.objects[k], start=1):
            if index >= 0 or target == "body":
                words[f"{target}{number}"] = names[target][index]
        first, second = own.anchors[k]
        if coupled:
            words["polycoef"] = own.coefficients[k]
        elif kind is EqualityKind.WELD:
            words["torquescale"] = own.torque_scale[k]
        if target == "body":
            weld = {"anchor": second, "relpose": [*first, *own.relative_quat[k]]}
            words |= weld if kind is EqualityKind.WELD else {"anchor": first}
        _add(part, kind.name.lower(), words)


def _write_actuators(part: ET.Element, sys: System) -> None:
    actuators = sys.actuators
    for k, name in enumerate(actuators.names):
        words = {"name": name, **_target(sys, k), **_laws(actuators, k)}
        words |= attributes("actuator", actuators, k) | _control_ranges(actuators, k)
        words["gear"] = actuators.gear[actuators.out_starts[k]]
        if actuators.activation[k] is Activation.NONE:
            del words["actlimited"], words["actrange"]
        if actuators.active and not actuators.enabled[k]:
            words["group"] = _OFF
        words |= _delay(sys, k)
        discrete = actuators.gains[k] is Gain.DISCRETE_PID
        element = _add(part, "plugin" if discrete else "general", words)
        if discrete:
            _check_discrete(actuators, k)
            for key, value in _settings(actuators, k).items():
                _add(element, "config", {"key": key, "value": value})


def _check_discrete(actuators: Actuators, k: int) -> None:
    name = f"Actuator {actuators.names[k]!r} of the plugin {PID_PLUGIN!r}"
    if (actuators.ctrl_starts[k], actuators.out_starts[k]) != (k, k):
        raise ValueError(
            f"{name} is listed after actuators with several controls or forces, or no "
            "control, where the plugin reads a wrong control. List it first."
        )
    if actuators.active and not actuators.enabled[k]:
        raise ValueError(
            f"{name} is disabled, but the plugin exerts its force in disabled groups as well. "
            "Remove or enable the actuator."
        )


def _settings(actuators: Actuators, k: int) -> dict[str, Any]:
    """Return the settings of the plugin of an actuator."""
    own, states = actuators.discrete_pids, actuators.states[k]
    assert own is not None, "there are discrete PID servos"
    row = own.owners.index(k)
    values = {key: getattr(own, name)[row] for key, name in DISCRETE_PID.items()}
    if ActivationState.INTEGRAL not in states:
        values["ki"] = 0.0
    if ActivationState.SLEW not in states:
        del values["slewmax"]
    if np.isinf(values["imax"]):
        del values["imax"]
    return values


def _delay(sys: System, k: int) -> dict[str, Any]:
    """Return the delay of an actuator, the only model that MJCF has."""
    own = [x for x in sys.actuator_models if k in x.actuators]
    if not own:
        return {}
    model, name = own[0].model, sys.actuators.names[k]
    if len(own) > 1 or not isinstance(model, Delay):
        kinds = ", ".join(type(x.model).__name__ for x in own)
        raise ValueError(
            f"MJCF has one delay per actuator and no other model, but actuator {name!r} has "
            f"{kinds}. Write `sys.without_actuator_models()`."
        )
    discrete = sys.actuators.gains[k] is Gain.DISCRETE_PID
    if discrete and sys.actuators.activation[k] is Activation.NONE:
        raise ValueError(
            f"Actuator {name!r} has a delay, which the plugin {PID_PLUGIN!r} ignores without "
            "activation. Write `sys.without_actuator_models()`."
        )
    row = () if own[0].shared else own[0].actuators.index(k)
    delay = float(model.delay[row])
    if delay < float(sys.dt):
        raise ValueError(
            f"Actuator {name!r} has a delay of {delay} s; in MuJoCo a delay lasts at least "
            f"one time step, {float(sys.dt)} s."
        )
    kind = INTERPOLATIONS[model.interpolation]
    return {"delay": delay, "nsample": model.num_samples, "interp": kind}


def _target(sys: System, k: int) -> dict[str, Any]:
    actuators, names = sys.actuators, _names(sys)
    kind, (first, second) = actuators.transmissions[k], actuators.targets[k]
    if actuators.joints[k] >= 0:
        in_parent = kind is Transmission.JOINT_IN_PARENT
        return {"jointinparent" if in_parent else "joint": names["joint"][first]}
    if kind in (Transmission.BODY, Transmission.TENDON):
        return {kind.value: names[kind.value][first]}
    sites = names["site"]
    if kind is Transmission.SLIDER_CRANK:
        assert actuators.crank_length is not None, "there are slider-cranks"
        length = actuators.crank_length[k]
        ends = {"cranksite": sites[first], "slidersite": sites[second]}
        return ends | {"cranklength": length}
    return {"site": sites[first]} | ({"refsite": sites[second]} if second >= 0 else {})


def _laws(actuators: Actuators, k: int) -> dict[str, Any]:
    numbers = law_parameters(actuators, k)
    if actuators.gains[k] is Gain.DISCRETE_PID:
        marks = [state is ActivationState.STARTED for state in actuators.states[k]]
        return {
            "plugin": PID_PLUGIN,
            "dyntype": actuators.activation[k].value,
            "dynprm": numbers["dynprm"],
            "actdim": len(marks) - sum(marks),
        }
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


def _control_ranges(actuators: Actuators, k: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    signals, first = actuators.inputs[k], actuators.ctrl_starts[k]
    is_pid = actuators.gains[k] is Gain.PID
    own = {Control.VELOCITY: "velrange", Control.FORCE: "ffrange"} if is_pid else {}
    for j, signal in enumerate(signals, start=first):
        if signal in own:
            limited = actuators.ctrl_limited[j]
            out[own[signal]] = actuators.ctrl_range[j] if limited else [0.0, 0.0]
    if signals and signals[0] not in own:
        out["ctrllimited"] = actuators.ctrl_limited[first]
        out["ctrlrange"] = actuators.ctrl_range[first]
    return out


_FRAMES = tuple(kind for kind in SensorKind if kind.value.startswith("frame"))
_TWO_ENDED = (SensorKind.CONTACT, SensorKind.DISTANCE, SensorKind.NORMAL)
_TWO_ENDED += (SensorKind.FROM_TO,)


def _write_sensors(part: ET.Element, sys: System) -> None:
    sensors = sys.sensors
    for k, kind in enumerate(sensors.kinds):
        words: dict[str, Any] = {"name": sensors.names[k], **_attachment(sys, k)}
        if sensors.limited[k]:
            words["cutoff"] = sensors.cutoff[k]
        if kind is SensorKind.CONTACT:
            words["data"] = " ".join(data.value for data in sensors.contact_data[k])
            words["reduce"] = sensors.contact_reductions[k].value
            words["num"] = sensors.contact_slots[k]
        if kind is SensorKind.RANGEFINDER:
            words["data"] = " ".join(data.value for data in sensors.ray_data[k])
        _add(part, kind.value, words)


def _attachment(sys: System, k: int) -> dict[str, str]:
    sensors, names, out = sys.sensors, _names(sys), {}
    kind = sensors.kinds[k]
    ends = sensors.objects[k], sensors.references[k]
    for number, (end, index) in enumerate(ends, start=1):
        if end is SensorObject.NONE:
            continue
        name = names[end.value][index]
        if kind in _TWO_ENDED:
            words = {"site": "site", "xbody": f"subtree{number}"}
            out[words.get(end.value, f"{end.value}{number}")] = name
        elif kind in _FRAMES or (kind is SensorKind.INSIDE_SITE and number == 1):
            role = "obj" if number == 1 else "ref"
            out |= {f"{role}type": end.value, f"{role}name": name}
        else:
            out[end.value] = name
    return out


def _write_assets(root: ET.Element, sys: System) -> None:
    part = ET.SubElement(root, "asset")
    for mesh, name in enumerate(sys.meshes.names):
        _write_mesh(part, sys.meshes, mesh, name)
    for field, name in enumerate(sys.height_fields.names):
        _write_height_field(part, sys.height_fields, field, name)


def _write_distance_fields(root: ET.Element, sys: System) -> None:
    """Write instances of plugins, from which MuJoCo makes meshes of their shapes."""
    geoms, given = sys.geoms, {}
    for geom, kind in enumerate(geoms.kinds):
        if not isinstance(kind, AbstractDistanceField):
            continue
        found = plugin_of(kind, geoms.size[geom])
        if found is None:
            require_known(kind, "have no MJCF")
            continue
        given.setdefault((kind.starts, kind.iterations), geoms.names[geom])
        name, settings = found
        plugin = _add(_add(root, "extension", {}), "plugin", {"plugin": name})
        instance = _add(plugin, "instance", {"name": geoms.names[geom]})
        for key, value in settings.items():
            _add(instance, "config", {"key": key, "value": value})
        mesh = _add(_add(root, "asset", {}), "mesh", {"name": _field_mesh(sys, geom)})
        _add(mesh, "plugin", {"instance": geoms.names[geom]})
    if len(given) > 1:
        raise ValueError(
            "MJCF has one `sdf_initpoints` and `sdf_iterations`, but the distance fields "
            f"{', '.join(map(repr, given.values()))} have different `starts` or "
            f"`iterations`: {', '.join(map(str, given))}. Make them equal."
        )
    for starts, iterations in given:
        words = {"sdf_initpoints": starts, "sdf_iterations": iterations}
        _add(root, "option", words)


def _field_mesh(sys: System, geom: int) -> str:
    """Return a name for the mesh of a distance field that no other mesh has."""
    name = sys.geoms.names[geom]
    while name in sys.meshes.names:
        name += "_"
    return name


def _write_mesh(part: ET.Element, meshes: Meshes, mesh: int, name: str) -> None:
    hull, others = np.asarray(meshes.hull(mesh)), np.asarray(meshes.others(mesh))
    own = np.concatenate([hull, others])
    surfaces = meshes.surfaces
    start = surfaces.span(mesh)[0] + meshes.hulls.span(mesh)[0]
    order = surfaces.order[start : start + len(own)]
    faces = np.argsort(order)[surfaces.triangles(mesh)]
    fans = [
        (polygon[0], polygon[k], polygon[k + 1])
        for polygon in meshes.hulls.polygons(mesh)
        for k in range(1, len(polygon) - 1)
    ]
    limited = len(hull) and _is_outside(hull, np.array(fans, int), own)
    most = {"maxhullvert": len(hull)} if limited else {}
    words = {
        "name": name,
        "vertex": own[order],
        "face": " ".join(map(str, faces.ravel().tolist())),
        "inertia": _inertia_mode(own[order], faces, most),
    }
    _add(part, "mesh", words | most)


def _is_outside(hull: np.ndarray, faces: np.ndarray, points: np.ndarray) -> bool:
    """Test if points lie outside a hull whose number of vertices was limited."""
    mujoco = engine()
    spec = mujoco.MjSpec()
    # Without faces, a mesh becomes its hull. Only vertices of the full hull can be outside.
    shell = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    spec.add_mesh(name="mesh", inertia=shell, uservert=points.ravel())
    points = points[np.unique(compile_source(spec).model.mesh_face)]
    tolerance = 1e-6 * np.ptp(hull, axis=0).max()
    a, b, c = hull[faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    # In blocks, because hulls may be large.
    return any(
        np.any(np.max(points @ n.T, axis=0) > np.max(hull @ n.T, axis=0) + tolerance)
        for n in np.array_split(normals, 1 + len(normals) // 64)
        if len(n)
    )


# Larger displacements of a mesh, relative to its size, are not due to single precision.
_PLACED = 1e-5


def _inertia_mode(points: np.ndarray, faces: np.ndarray, most: dict[str, int]) -> str:
    """Return the kind of inertia by which MuJoCo computed the frame of a mesh (MJCF:
    `inertia`): the one with which it compiles the mesh in its frame to itself.

    A compiled model does not contain it."""
    mujoco, errors = engine(), {}
    for mode in ("legacy", "exact", "shell", "convex"):
        spec = mujoco.MjSpec()
        kind = mujoco.mjtMeshInertia.__members__[f"mjMESH_INERTIA_{mode.upper()}"]
        vertices = {"uservert": points.ravel(), "userface": faces.ravel()}
        spec.add_mesh(name="mesh", inertia=kind, **vertices, **most)
        try:
            model = compile_source(spec).model
        except ValueError:
            continue  # This kind needs a volume, or a closed surface.
        shift = np.linalg.norm(model.mesh_pos[0]) / np.ptp(points, axis=0).max()
        errors[mode] = shift + np.linalg.norm(model.mesh_quat[0, 1:])
        if errors[mode] < _PLACED:
            return mode
    return min(errors, key=lambda mode: errors[mode], default="legacy")


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
    _add(
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
