"""Names of MuJoCo's elements, with made-up names for those that have none."""

from typing import Any


_COUNTS = {
    "body": "nbody",
    "joint": "njnt",
    "geom": "ngeom",
    "site": "nsite",
    "actuator": "nactuator",
    "tendon": "ntendon",
    "equality": "neq",
    "sensor": "nsensor",
    "key": "nkey",
    "pair": "npair",
    "skin": "nskin",
    "plugin": "nplugin",
}


def element_names(model: Any, kind: str) -> tuple[str, ...]:
    """The names of all elements of one kind; joint 3 without a name is `joint3`.

    **Arguments:**

    - `model`: a `mujoco.MjModel`.
    - `kind`: MuJoCo's accessor, such as `"joint"`, `"geom"`, `"tendon"`.
    """
    elements = range(getattr(model, _COUNTS[kind]))
    return _filled([getattr(model, kind)(index).name for index in elements], kind)


def link_names(model: Any) -> tuple[str, ...]:
    """The names of all links: MuJoCo's bodies without the world, counted from 0."""
    return _filled([model.body(index).name for index in range(1, model.nbody)], "link")


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
