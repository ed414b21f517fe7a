"""Table of the fields of a `System` that are copies of MuJoCo's.

Loading copies the arrays of `mujoco.MjModel` (`read_fields`), writing the attributes of MJCF
(`attributes`), and the page of supported features lists them (`attribute_list`). Fields that
are not copies (poses of free bodies, meshes, height fields, paths of tendons, targets and
laws of actuators) are code in the readers and in `_write`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .mujoco_names import Flags


class Field(NamedTuple):
    """A field of a part of a `System`, and where MuJoCo has it.

    - `name`: field of the part. A field `*_poly` has the higher coefficients of a
        polynomial, which follow the linear one in the same attribute.
    - `attribute`: attribute in MJCF.
    - `array`: array in `mujoco.MjModel`, or number in `mujoco.MjOption`.
    - `flag`: member of `Flags` without which the field is zero. Empty: none.
    - `optional`: true for a field that is None if all numbers are zero.
    """

    name: str
    attribute: str
    array: str
    flag: str = ""
    optional: bool = False


FIELDS: dict[str, tuple[Field, ...]] = {
    "option": (
        Field("dt", "timestep", "timestep"),
        Field("gravity", "gravity", "gravity", "gravity"),
        Field("wind", "wind", "wind"),
        Field("density", "density", "density", "passive"),
        Field("viscosity", "viscosity", "viscosity", "passive"),
        Field("impratio", "impratio", "impratio"),
    ),
    "body": (
        Field("pos", "pos", "body_pos"),
        Field("quat", "quat", "body_quat"),
        Field("gravity_compensation", "gravcomp", "body_gravcomp", "passive"),
    ),
    "inertial": (
        Field("mass", "mass", "body_mass"),
        Field("com", "pos", "body_ipos"),
        Field("inertia", "diaginertia", "body_inertia"),
        Field("inertia_quat", "quat", "body_iquat"),
    ),
    "joint": (
        Field("anchor", "pos", "jnt_pos"),
        Field("axis", "axis", "jnt_axis"),
        Field("limited", "limited", "jnt_limited", "limit"),
        Field("range", "range", "jnt_range"),
        Field("limit_margin", "margin", "jnt_margin"),
        Field("limit_solref", "solreflimit", "jnt_solref"),
        Field("limit_solimp", "solimplimit", "jnt_solimp"),
        Field("stiffness", "stiffness", "jnt_stiffness", "spring"),
        Field("stiffness_poly", "stiffness", "jnt_stiffnesspoly", "spring", True),
        Field("damping", "damping", "dof_damping", "damper"),
        Field("damping_poly", "damping", "dof_dampingpoly", "damper", True),
        Field("armature", "armature", "dof_armature"),
        Field("frictionloss", "frictionloss", "dof_frictionloss", "frictionloss"),
        Field("friction_solref", "solreffriction", "dof_solref"),
        Field("friction_solimp", "solimpfriction", "dof_solimp"),
        Field("force_limited", "actuatorfrclimited", "jnt_actfrclimited"),
        Field("force_range", "actuatorfrcrange", "jnt_actfrcrange"),
        Field("actuator_gravity", "actuatorgravcomp", "jnt_actgravcomp", "passive"),
    ),
    "geom": (
        Field("pos", "pos", "geom_pos"),
        Field("quat", "quat", "geom_quat"),
        Field("size", "size", "geom_size"),
        Field("contype", "contype", "geom_contype", "contact"),
        Field("conaffinity", "conaffinity", "geom_conaffinity", "contact"),
        Field("condim", "condim", "geom_condim"),
        Field("priority", "priority", "geom_priority"),
        Field("friction", "friction", "geom_friction"),
        Field("solref", "solref", "geom_solref"),
        Field("solimp", "solimp", "geom_solimp"),
        Field("solmix", "solmix", "geom_solmix"),
        Field("margin", "margin", "geom_margin"),
        Field("gap", "gap", "geom_gap", "", True),
        Field("surface_velocity", "surfacevel", "geom_surfacevel", "", True),
        Field("adhesion", "adhesion", "geom_adhesion", "", True),
    ),
    "pair": (
        Field("condim", "condim", "pair_dim"),
        Field("friction", "friction", "pair_friction"),
        Field("solref", "solref", "pair_solref"),
        Field("solref_friction", "solreffriction", "pair_solreffriction"),
        Field("solimp", "solimp", "pair_solimp"),
        Field("margin", "margin", "pair_margin"),
        Field("gap", "gap", "pair_gap", "", True),
        Field("adhesion", "adhesion", "pair_adhesion", "", True),
    ),
    "site": (
        Field("pos", "pos", "site_pos"),
        Field("quat", "quat", "site_quat"),
        Field("size", "size", "site_size"),
    ),
    "tendon": (
        Field("limited", "limited", "tendon_limited", "limit"),
        Field("range", "range", "tendon_range"),
        Field("limit_margin", "margin", "tendon_margin"),
        Field("limit_solref", "solreflimit", "tendon_solref_lim"),
        Field("limit_solimp", "solimplimit", "tendon_solimp_lim"),
        Field("stiffness", "stiffness", "tendon_stiffness", "spring"),
        Field("stiffness_poly", "stiffness", "tendon_stiffnesspoly", "spring"),
        Field("damping", "damping", "tendon_damping", "damper"),
        Field("damping_poly", "damping", "tendon_dampingpoly", "damper"),
        Field("armature", "armature", "tendon_armature"),
        Field("frictionloss", "frictionloss", "tendon_frictionloss", "frictionloss"),
        Field("friction_solref", "solreffriction", "tendon_solref_fri"),
        Field("friction_solimp", "solimpfriction", "tendon_solimp_fri"),
        Field("actuator_force_limited", "actuatorfrclimited", "tendon_actfrclimited"),
        Field("actuator_force_range", "actuatorfrcrange", "tendon_actfrcrange"),
    ),
    "equality": (
        Field("solref", "solref", "eq_solref"),
        Field("solimp", "solimp", "eq_solimp"),
    ),
    "actuator": (
        Field("force_limited", "forcelimited", "actuator_forcelimited"),
        Field("force_range", "forcerange", "actuator_forcerange"),
        Field("act_limited", "actlimited", "actuator_actlimited"),
        Field("act_range", "actrange", "actuator_actrange"),
        Field("act_early", "actearly", "actuator_actearly"),
        Field("damping", "damping", "actuator_damping", "damper", True),
        Field("damping_poly", "damping", "actuator_dampingpoly", "damper", True),
        Field("armature", "armature", "actuator_armature", "", True),
    ),
    "key": (
        Field("q", "qpos", "key_qpos"),
        Field("qd", "qvel", "key_qvel"),
        Field("act", "act", "key_act"),
        Field("ctrl", "ctrl", "key_ctrl"),
    ),
}
"""For each element of MJCF, the fields that are copies of its attributes."""


LAWS: dict[str, dict[str, tuple[str, int]]] = {
    "muscle_activations": {
        "rise": ("dynprm", 0),
        "fall": ("dynprm", 1),
        "smoothing": ("dynprm", 2),
    },
    "motors": {
        "resistance": ("gainprm", 0),
        "torque_constant": ("gainprm", 1),
        "temperature_coefficient": ("gainprm", 2),
        "reference_temperature": ("gainprm", 3),
        "proportional": ("gainprm", 4),
        "integral": ("gainprm", 5),
        "derivative": ("gainprm", 6),
        "max_voltage": ("gainprm", 7),
        "time_constant": ("dynprm", 0),
        "max_current_rate": ("dynprm", 1),
        "thermal_resistance": ("dynprm", 2),
        "thermal_capacitance": ("dynprm", 3),
        "ambient_temperature": ("dynprm", 4),
        "bristle_stiffness": ("dynprm", 5),
        "bristle_damping": ("dynprm", 6),
        "max_slew": ("dynprm", 7),
        "max_integral": ("dynprm", 8),
        "cogging": ("biasprm", 0),
        "cogging_periods": ("biasprm", 1),
        "cogging_phase": ("biasprm", 2),
        "coulomb_friction": ("biasprm", 3),
        "static_friction": ("biasprm", 4),
        "stribeck_velocity": ("biasprm", 5),
    },
    "pids": {
        "integral_gain": ("gainprm", 0),
        "max_integral": ("dynprm", 0),
        "max_slew": ("dynprm", 1),
    },
}
"""Columns of the parameters of force laws, for each field of `Actuators` with such laws; those
of `mj_fwdActuation` and `mjs_setToDCMotor`."""

DISCRETE_PID = {
    "kp": "proportional",
    "ki": "integral",
    "kd": "derivative",
    "imax": "max_integral",
    "slewmax": "max_slew",
}
"""Fields of `DiscretePIDs` by the keys of the plugin `mujoco.pid`, in its order."""

MUSCLE = (
    "force",
    "scale",
    "shortest",
    "longest",
    "max_speed",
    "max_passive",
    "max_lengthening",
)
"""Fields of `Muscles` in the columns of `gainprm` and `biasprm` after `range`, the first two
(`mju_muscleGain`)."""


def read_fields(kind: str, source: Any, flags: Flags, rows: Any = ...) -> dict:
    """Return the fields of a part, by name: arrays, or tuples of integers or booleans.

    **Arguments:**

    - `kind`: element of MJCF, key of `FIELDS`.
    - `source`: a `mujoco.MjModel`, or its options.
    - `rows`: index of the elements that are kept.
    """
    out: dict[str, Any] = {}
    for field in FIELDS[kind]:
        values = np.array(getattr(source, field.array))[rows]
        if field.flag:
            values = values * getattr(flags, field.flag)
        if field.optional and not np.any(values):
            out[field.name] = None
        else:
            is_real = values.dtype.kind == "f"
            out[field.name] = values if is_real else as_tuple(values)
    return out


def as_tuple(values: np.ndarray) -> tuple:
    """Return integers or booleans as a static field of a part."""
    return tuple(values.tolist())


def attributes(
    kind: str,
    part: Any,
    index: Any,
    of_dofs: Callable[[str, np.ndarray], Any] | None = None,
) -> dict[str, Any]:
    """Return the attributes of one element that are fields of a part, by name.

    **Arguments:**

    - `kind`: element of MJCF, key of `FIELDS`.
    - `part`: the part of a system, with NumPy arrays.
    - `index`: index of the element in the part.
    - `of_dofs`: function of the name and the values of a field with one entry for each
        degree of freedom that returns the value of this element.
    """
    out: dict[str, Any] = {}
    for field in FIELDS[kind]:
        values = getattr(part, field.name)
        if values is None:
            continue
        if of_dofs is not None and field.array.startswith("dof_"):
            value = of_dofs(field.name, values)
        else:
            value = values[index]
        if field.name.endswith("_poly"):
            value = np.append(out.get(field.attribute, 0.0), value)
        if np.size(value):
            out[field.attribute] = value
    return out


def attribute_list(*kinds: str) -> str:
    """Return the attributes of elements in Markdown, without repetitions."""
    names = [field.attribute for kind in kinds for field in FIELDS[kind]]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))
