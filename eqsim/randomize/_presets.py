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


_WITHOUT_GROUND = (
    "fast",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "reacher",
)


def presets(name: str = "") -> dict[str, AbstractRandomizer]:
    """Ready changes for an environment, by name.

    `default` is moderate: masses (with inertias) by 20 %, damping by 30 %, gears by 15
    %, friction by 40 %. `hard` goes to a factor of about two. `masses`, `motors`,
    `gravity`, and where there is ground `friction`, or `medium`, change one thing.

    **Arguments:**

    - `name`: of the environment; variants such as `ant_uni` have those of `ant`, and
        environments of other packages the general ones.
    """
    base = name.removesuffix("_uni").removesuffix("_omni")
    body = masses(0.8, 1.2), scale(_damping, 0.7, 1.3), scale(_gear, 0.85, 1.15)
    motors, gravity = scale(_gear, 0.6, 1.4), scale(_gravity, 0.8, 1.2, shared=True)
    hard = (
        masses(0.5, 1.5),
        scale(_damping, 0.3, 2.0),
        scale(_armature, 0.5, 2.0),
        motors,
        scale(_gravity, 0.9, 1.1, shared=True),
    )
    common: dict[str, AbstractRandomizer] = {
        "masses": masses(0.5, 1.5),
        "motors": motors,
        "gravity": gravity,
    }

    def both(*more: AbstractRandomizer) -> dict[str, AbstractRandomizer]:
        slight, wide = more[:1], more[1:]
        return common | {"default": chain(*body, *slight), "hard": chain(*hard, *wide)}

    if base in _WITHOUT_GROUND:
        return both()
    if base == "swimmer":
        wide = scale(_medium, 0.3, 2.0)
        return both(scale(_medium, 0.8, 1.2), wide) | {"medium": wide}
    wide = scale(_friction, 0.3, 2.0, shared=True)
    return both(scale(_friction, 0.6, 1.4, shared=True), wide) | {"friction": wide}
