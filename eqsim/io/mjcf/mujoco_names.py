"""MuJoCo, imported when a file is read, and names, flags and plugins of its models."""

import functools as ft
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


def engine() -> Any:
    """Return the module `mujoco`, whose names type checkers do not know."""
    import mujoco

    return mujoco


def kind_names(enumeration: str, numbers: Any) -> np.ndarray:
    """Return MuJoCo's names of members of one of its enumerations, without prefix:
    `kind_names("mjtGain", [0])` is `["fixed"]`."""
    members = getattr(engine(), enumeration).__members__.items()
    names = {
        int(k): name.split("_", 1)[1].lower() for name, k in members if "_" in name
    }
    return np.array([names[int(k)] for k in numbers], str)


# Kinds of elements whose arrays have another prefix in `mujoco.MjModel`.
_PREFIXES = {"joint": "jnt", "equality": "eq"}


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
    owners = getattr(model, f"{_PREFIXES.get(kind, kind)}_bodyid", None)
    if owners is None:
        return tuple(f'"{name}"' for name in names)
    bodies = element_names(model, "body")
    return tuple(
        f'"{name}"' if own else f'"{name}" of body "{bodies[body]}"'
        for name, own, body in zip(names, given, owners)
    )


def _given(model: Any, kind: str) -> list[str]:
    mujoco = engine()
    number = mujoco.mjtObj.__members__[f"mjOBJ_{kind.upper()}"]
    count = getattr(model, f"n{_PREFIXES.get(kind, kind)}")
    return [mujoco.mj_id2name(model, number, k) or "" for k in range(count)]


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
    - `gravity`, `actuation`, `clampctrl`, `filterparent`, `refsafe`, `eulerdamp`: flags
        with the meaning of MJCF.
    """

    contact: bool
    limit: bool
    frictionloss: bool
    equality: bool
    spring: bool
    damper: bool
    gravity: bool
    actuation: bool
    clampctrl: bool
    filterparent: bool
    refsafe: bool
    eulerdamp: bool

    @property
    def passive(self) -> bool:
        """True if there are gravity compensation and fluid forces."""
        return self.spring or self.damper


def read_flags(model: Any) -> Flags:
    """Read the flags of a `mujoco.MjModel`."""
    bits = engine().mjtDisableBit.__members__
    off = {
        name
        for name in Flags._fields
        if model.opt.disableflags & int(bits[f"mjDSBL_{name.upper()}"])
    }
    if model.opt.disableflags & int(bits["mjDSBL_CONSTRAINT"]):
        off |= {"contact", "limit", "frictionloss", "equality"}
    return Flags(*(name not in off for name in Flags._fields))


@ft.cache
def plugin_number(name: str, user: str = "") -> int:
    """Return MuJoCo's number of a plugin of its own, which depends on what has been loaded
    into the process.

    **Arguments:**

    - `user`: elements that use the instance "one", if the plugin needs any.
    """
    text = (
        f'<mujoco><extension><plugin plugin="{name}"><instance name="one"/></plugin>'
        f"</extension>{user}</mujoco>"
    )
    return int(engine().MjModel.from_xml_string(text).plugin[0])


def plugin_settings(model: Any, instance: int, keys: Iterable[str]) -> dict[str, str]:
    """Return the settings of an instance of a plugin by key, empty ones left out.

    **Arguments:**

    - `keys`: keys of the plugin, in its order.
    """
    start = int(model.plugin_attradr[instance])
    words = bytes(model.plugin_attr[start:].astype(np.uint8)).split(b"\0")
    # More words belong to other instances.
    return {key: word.decode("latin-1") for key, word in zip(keys, words) if word}
