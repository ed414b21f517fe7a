"""Randomization presets for eqsim's environments."""

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


_WITHOUT_GRAVITY = ("point_mass", "pusher", "reacher", "swimmer")
_WITHOUT_CONTACT = (
    "point_mass",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "reacher",
    "swimmer",
)


def presets(name: str = "") -> dict[str, AbstractRandomizer]:
    """Return the randomization presets of an environment, by name.

    `default` is moderate: masses (with inertias) by 20 %, damping by 30 %, gears by 15
    %, friction by 40 %. `hard` uses factors up to about 2. `masses` and `motors` change
    one group of parameters; `gravity`, `friction` and `medium` do as well, and exist
    only for robots that they affect.

    **Arguments:**

    - `name`: name of the environment. Variants such as `ant_uni` have the presets of
        `ant`; environments of other packages have the general ones.
    """
    base = name.removesuffix("_uni").removesuffix("_omni")
    motors, gravity = scale(_gear, 0.6, 1.4), scale(_gravity, 0.8, 1.2, shared=True)
    single: dict[str, AbstractRandomizer] = {
        "masses": masses(0.5, 1.5),
        "motors": motors,
    }
    slight = [masses(0.8, 1.2), scale(_damping, 0.7, 1.3), scale(_gear, 0.85, 1.15)]
    wide = [masses(0.5, 1.5), scale(_damping, 0.3, 2.0), scale(_armature, 0.5, 2.0)]
    wide.append(motors)
    if base not in _WITHOUT_GRAVITY:
        single["gravity"] = gravity
        wide.append(scale(_gravity, 0.9, 1.1, shared=True))
    if base not in _WITHOUT_CONTACT:
        single["friction"] = scale(_friction, 0.3, 2.0, shared=True)
        slight.append(scale(_friction, 0.6, 1.4, shared=True))
        wide.append(single["friction"])
    if base == "swimmer":
        single["medium"] = scale(_medium, 0.3, 2.0)
        slight.append(scale(_medium, 0.8, 1.2))
        wide.append(single["medium"])
    return single | {"default": chain(*slight), "hard": chain(*wide)}
