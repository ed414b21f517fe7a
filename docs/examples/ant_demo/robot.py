"""Gymnasium's ant, in MuJoCo C and in eqsim, with five parameters to identify."""

import dataclasses
import importlib.util
import pathlib
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Float

import eqsim


class Parameter(NamedTuple):
    """A parameter of the robot: its value in the file and that of the recorded ant."""

    name: str
    unit: str
    nominal: float
    hidden: float


GEARED = 3  # the actuator whose gear is changed; it drives ankle_1
HIDDEN = (1.25, 0.80, 1.40, 0.80, 0.70)
"""Parameters of the recorded ant relative to those of the file."""


def model_file() -> pathlib.Path:
    """Return the path of `ant.xml` in Gymnasium's package, which is not imported."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise ImportError("The ant comes with Gymnasium: `pip install gymnasium`.")
    return pathlib.Path(spec.origin).parent / "envs" / "mujoco" / "assets" / "ant.xml"


def mujoco_model(scales=(1.0,) * len(HIDDEN), *, bare: bool = False) -> mujoco.MjModel:
    """Create the ant in MuJoCo C, with its five parameters multiplied by `scales`.

    It integrates by Euler, because `mjd_transitionFD` does not support RK4, and solves
    for contact forces until convergence.

    **Arguments:**

    - `bare`: without textures, so that thousands of copies fit in memory.
    """
    torso, legs, damping, gear, friction = scales
    spec = _spec()
    for geom in spec.geoms:
        geom.friction[0] *= friction
        if geom.name != "floor":
            geom.density *= torso if geom.name == "torso_geom" else legs
    for joint in spec.joints:
        joint.damping *= damping
    spec.actuators[GEARED].gear[0] *= gear
    if bare:
        for geom in spec.geoms:
            geom.material = ""
        for part in [*spec.materials, *spec.textures]:
            spec.delete(part)
    model = spec.compile()
    model.opt.iterations, model.opt.tolerance = 100, 1e-12
    return model


def eqsim_system() -> eqsim.System:
    """Load the ant in eqsim, integrated by Euler."""
    sys = eqsim.load_mjcf(model_file())
    return dataclasses.replace(sys, integrator=eqsim.model.Integrator.EULER)


def changed(sys: eqsim.System, scales: Float[Array, "5"]) -> eqsim.System:
    """Return the robot of `mujoco_model(scales)` in eqsim, differentiable in
    `scales`."""
    torso, legs, damping, gear, friction = scales
    is_torso = np.array([name == "torso" for name in sys.links.names])
    bodies = jnp.where(is_torso, torso, legs)
    where = lambda s: (
        s.links.mass,
        s.links.inertia,
        s.joints.damping,
        s.actuators.gear,
        s.geoms.friction,
    )
    new = (
        sys.links.mass * bodies,
        sys.links.inertia * bodies[:, None],
        sys.joints.damping * damping,
        sys.actuators.gear.at[GEARED].multiply(gear),
        sys.geoms.friction.at[:, 0].multiply(friction),
    )
    return eqx.tree_at(where, sys, new)


def parameters(sys: eqsim.System) -> list[Parameter]:
    """Return the five parameters in their units."""
    mass = np.asarray(sys.links.mass)
    nominal = (
        ("torso mass", "kg", mass[0]),
        ("legs, total mass", "kg", mass[1:].sum()),
        ("joint damping", "N m s/rad", sys.joints.damping[-1]),
        ("gear of ankle_1", "N m", sys.actuators.gear[GEARED, 0]),
        ("sliding friction", "1", sys.geoms.friction[0, 0]),
    )
    return [
        Parameter(name, unit, float(value), float(value) * scale)
        for (name, unit, value), scale in zip(nominal, HIDDEN, strict=True)
    ]


def _spec() -> mujoco.MjSpec:
    spec = mujoco.MjSpec.from_file(str(model_file()))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return spec
