"""Ready changes for the environments of eqsim."""

from ..model import System
from ._random import AbstractRandomizer, chain, masses, scale


def _damping(sys: System):
    return sys.joints.damping


def _friction(sys: System):
    return sys.geoms.friction


def _gear(sys: System):
    return sys.actuators.gear


def _gravity(sys: System):
    return sys.gravity


def _armature(sys: System):
    return sys.joints.armature


def _medium(sys: System):
    return sys.density, sys.viscosity


_BODY = (masses(0.8, 1.2), scale(_damping, 0.7, 1.3), scale(_gear, 0.85, 1.15))
_GROUND = scale(_friction, 0.6, 1.4, shared=True)

_WALKER = {
    "default": chain(*_BODY, _GROUND),
    "friction": scale(_friction, 0.3, 2.0, shared=True),
    "hard": chain(
        masses(0.5, 1.5),
        scale(_damping, 0.3, 2.0),
        scale(_gear, 0.6, 1.4),
        scale(_armature, 0.5, 2.0),
        scale(_gravity, 0.9, 1.1, shared=True),
        scale(_friction, 0.3, 2.0, shared=True),
    ),
}
_PLAIN = {
    "default": chain(*_BODY),
    "hard": chain(
        masses(0.5, 2.0),
        scale(_damping, 0.3, 3.0),
        scale(_gear, 0.6, 1.4),
        scale(_gravity, 0.9, 1.1, shared=True),
    ),
}
_SWIMMER = {
    "default": chain(*_BODY, scale(_medium, 0.8, 1.2)),
    "medium": scale(_medium, 0.3, 2.0),
    "hard": chain(_PLAIN["hard"], scale(_medium, 0.3, 2.0)),
}
_COMMON = {
    "masses": masses(0.5, 1.5),
    "motors": scale(_gear, 0.6, 1.4),
    "gravity": scale(_gravity, 0.8, 1.2, shared=True),
}
_SPECIAL = {
    "swimmer": _SWIMMER,
    "inverted_pendulum": _PLAIN,
    "inverted_double_pendulum": _PLAIN,
    "reacher": _PLAIN,
    "fast": _PLAIN,
}


def presets(name: str = "") -> dict[str, AbstractRandomizer]:
    """Ready changes for an environment, by name.

    `default` is moderate: masses (with inertias) by 20 %, damping by 30 %, gears by 15
    %, friction by 40 %. `hard` goes to a factor of about two. `masses`, `motors`,
    `gravity`, and where there is ground `friction`, change one thing.

    **Arguments:**

    - `name`: of the environment; variants such as `ant_uni` have those of `ant`, and
        environments of other packages the general ones.
    """
    base = name.removesuffix("_uni").removesuffix("_omni")
    return _COMMON | _SPECIAL.get(base, _WALKER)
