"""MuJoCo, imported when a file is read, and names and flags of its models."""

from typing import Any, NamedTuple

import numpy as np

from ...model import Keyframes


def engine() -> Any:
    """Return the module `mujoco`, whose names type checkers do not know."""
    import mujoco

    return mujoco


# For each kind of element, its count, its object type, and the array of its bodies.
_KINDS = {
    "body": ("nbody", "mjOBJ_BODY", None),
    "joint": ("njnt", "mjOBJ_JOINT", "jnt_bodyid"),
    "geom": ("ngeom", "mjOBJ_GEOM", "geom_bodyid"),
    "site": ("nsite", "mjOBJ_SITE", "site_bodyid"),
    "actuator": ("nactuator", "mjOBJ_ACTUATOR", None),
    "tendon": ("ntendon", "mjOBJ_TENDON", None),
    "equality": ("neq", "mjOBJ_EQUALITY", None),
    "sensor": ("nsensor", "mjOBJ_SENSOR", None),
    "key": ("nkey", "mjOBJ_KEY", None),
    "pair": ("npair", "mjOBJ_PAIR", None),
    "flex": ("nflex", "mjOBJ_FLEX", None),
    "mesh": ("nmesh", "mjOBJ_MESH", None),
    "hfield": ("nhfield", "mjOBJ_HFIELD", None),
    "skin": ("nskin", "mjOBJ_SKIN", None),
}


def element_names(model: Any, kind: str) -> tuple[str, ...]:
    """Return the names of all elements of one kind; joint 3 without a name is `joint3`.

    **Arguments:**

    - `model`: a `mujoco.MjModel`.
    - `kind`: kind of element, such as `"joint"`, `"geom"`, `"tendon"`.
    """
    return _filled(_given(model, kind), kind)


def link_names(model: Any) -> tuple[str, ...]:
    """Return the names of all links: MuJoCo's bodies without the world, counted from
    0."""
    return _filled(_given(model, "body")[1:], "link")


def described(model: Any, kind: str) -> tuple[str, ...]:
    """Return the names of all elements of one kind for messages: quoted, and with the
    body if the name is generated."""
    given, names = _given(model, kind), element_names(model, kind)
    where = _KINDS[kind][2]
    if where is None:
        return tuple(f'"{name}"' for name in names)
    bodies, owners = element_names(model, "body"), getattr(model, where)
    return tuple(
        f'"{name}"' if own else f'"{name}" of body "{bodies[body]}"'
        for name, own, body in zip(names, given, owners)
    )


def _given(model: Any, kind: str) -> list[str]:
    mujoco = engine()
    count, kind_of_object, _ = _KINDS[kind]
    number = getattr(mujoco.mjtObj, kind_of_object)
    names = (mujoco.mj_id2name(model, number, k) for k in range(getattr(model, count)))
    return [name or "" for name in names]


def _filled(given: list[str], kind: str) -> tuple[str, ...]:
    taken = set(given)
    names = []
    for index, name in enumerate(given):
        if not name:
            name = f"{kind}{index}"
            while name in taken:
                name += "_"
            taken.add(name)
        names.append(name)
    return tuple(names)


class Flags(NamedTuple):
    """The parts of the simulation that a model's flags enable.

    **Arguments:**

    - `contact`, `limit`, `frictionloss`, `equality`: kinds of constraints.
    - `spring`, `damper`: joint springs and dampers.
    - `passive`: gravity compensation and fluid forces.
    - `gravity`, `actuation`, `clampctrl`, `filterparent`, `refsafe`, `eulerdamp`: flags
        with the meaning of MJCF.
    """

    contact: bool
    limit: bool
    frictionloss: bool
    equality: bool
    spring: bool
    damper: bool
    passive: bool
    gravity: bool
    actuation: bool
    clampctrl: bool
    filterparent: bool
    refsafe: bool
    eulerdamp: bool


def read_flags(model: Any) -> Flags:
    """Read the flags of a `mujoco.MjModel`."""
    mujoco = engine()
    bit = mujoco.mjtDisableBit

    def on(*bits) -> bool:
        return not any(model.opt.disableflags & int(each) for each in bits)

    return Flags(
        contact=on(bit.mjDSBL_CONTACT, bit.mjDSBL_CONSTRAINT),
        limit=on(bit.mjDSBL_LIMIT, bit.mjDSBL_CONSTRAINT),
        frictionloss=on(bit.mjDSBL_FRICTIONLOSS, bit.mjDSBL_CONSTRAINT),
        equality=on(bit.mjDSBL_EQUALITY, bit.mjDSBL_CONSTRAINT),
        spring=on(bit.mjDSBL_SPRING),
        damper=on(bit.mjDSBL_DAMPER),
        passive=on(bit.mjDSBL_SPRING) or on(bit.mjDSBL_DAMPER),
        gravity=on(bit.mjDSBL_GRAVITY),
        actuation=on(bit.mjDSBL_ACTUATION),
        clampctrl=on(bit.mjDSBL_CLAMPCTRL),
        filterparent=on(bit.mjDSBL_FILTERPARENT),
        refsafe=on(bit.mjDSBL_REFSAFE),
        eulerdamp=on(bit.mjDSBL_EULERDAMP),
    )


def read_keyframes(model: Any) -> Keyframes:
    """Convert the keyframes of a `mujoco.MjModel`, without their times."""
    return Keyframes(
        names=element_names(model, "key"),
        q=np.array(model.key_qpos),
        qd=np.array(model.key_qvel),
        act=np.array(model.key_act),
        ctrl=np.array(model.key_ctrl),
    )
