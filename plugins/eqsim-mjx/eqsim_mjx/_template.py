"""Static structure of a robot for MJX.

An `mjx.Model` has static parts: limited joints, colliding shapes, the size of the
problem. They are determined by the structure of a `System`, which is static. A robot of
the same structure with placeholder values is compiled by MuJoCo once, and the actual
values are filled in at every step (`_numbers.py`). Values of the robot are not stored,
and may be traced.
"""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from eqsim import System
from eqsim.io import write_mjcf
from eqsim.model import (
    Activation,
    Bias,
    candidate_pairs,
    Cone,
    Gain,
    Integrator,
    JointKind,
)

from ._mjx import mjx, mujoco
from ._placeholder import placeholder, WITH_DATA


class Settings(NamedTuple):
    """Static settings of MJX's solver."""

    iterations: int
    ls_iterations: int


class Template(NamedTuple):
    """MJX's structures for all robots of one structure.

    - `model`, `data`: NumPy arrays with placeholder values.
    - `geoms`, `pairs`: shape and pair of the `System` at each index of MJX's model.
    - `friction`: degrees of freedom with dry friction.
    - `ball_limits`, `limits`: limited joints, spherical and others.
    """

    model: Any
    data: Any
    geoms: np.ndarray
    pairs: np.ndarray
    friction: np.ndarray
    ball_limits: np.ndarray
    limits: np.ndarray


def template(sys: System, settings: Settings) -> Template:
    """Return the template of a robot, created on the first call for each structure.

    **Raises:** `ValueError` if MJX or MJCF does not support such a robot.
    """
    leaves, structure = jtu.tree_flatten(sys)
    shapes = tuple(jnp.shape(leaf) for leaf in leaves)
    # Part of the cache key: MJX computes in the default precision.
    return _template(structure, shapes, settings, jnp.result_type(float).name)


@ft.lru_cache(maxsize=64)
def _template(structure: Any, shapes: Any, settings: Settings, dtype: str) -> Template:
    del dtype
    sys = jtu.tree_unflatten(structure, [np.zeros(shape) for shape in shapes])
    _refuse(sys)
    # The first call may be within `jit`; cached values must not be traced.
    with jax.ensure_compile_time_eval():
        compiled = _compile(placeholder(sys), settings)
        model, data = _put(compiled)
    ball = np.array([kind is JointKind.SPHERICAL for kind in sys.joints.kinds], bool)
    limited = np.array(sys.joints.limited, bool)
    return Template(
        model=jtu.tree_map(np.asarray, model),
        data=jtu.tree_map(np.asarray, data),
        geoms=_geom_order(compiled, sys),
        pairs=_pair_order(compiled, sys),
        friction=np.flatnonzero(sys.joints.has_friction),
        ball_limits=np.flatnonzero(ball & limited),
        limits=np.flatnonzero(~ball & limited),
    )


def _refuse_parts(sys: System) -> None:
    """Reject parts and options that are not passed on to MJX."""
    condims = (*sys.geoms.condim, *sys.pairs.condim)
    touching = {geom for pair in candidate_pairs(sys) for geom in pair[:2]}
    kinds = {sys.geoms.kinds[geom] for geom in touching}
    for word, found in (
        ("contacts of meshes or height fields", not kinds.isdisjoint(WITH_DATA)),
        ("equality constraints", bool(sys.equalities.names)),
        ("an elliptic friction cone", sys.cone is not Cone.PYRAMIDAL),
        ("torsional friction (condim 4 or 6)", any(size > 3 for size in condims)),
        ("fluid forces on ellipsoids", any(sys.geoms.fluid)),
        ("attached actuator models", bool(sys.actuator_models)),
        ("the noslip solver", sys.noslip_iterations > 0),
        ("moving surfaces of shapes", sys.geoms.surface_velocity is not None),
        (
            "contacts with adhesion or gaps",
            any(
                numbers is not None
                for part in (sys.geoms, sys.pairs)
                for numbers in (part.adhesion, part.gap)
            ),
        ),
        (
            "an implicit integrator",
            sys.integrator not in (Integrator.EULER, Integrator.RK4),
        ),
    ):
        if found:
            raise ValueError(
                f"The robot has {word}, which this pipeline does not pass on to MJX. Use "
                "`eqsim.Generalized`, which supports it."
            )


def _refuse(sys: System) -> None:
    """Reject parameters that MJX would ignore, or that are not passed on to it."""
    _refuse_parts(sys)
    early = [n for n, e in zip(sys.actuators.names, sys.actuators.act_early) if e]
    if early:
        raise ValueError(
            f"Actuators {', '.join(map(repr, early))} have `act_early` set, which MJX "
            "ignores. Set it to False, or use `eqsim.Generalized`, which supports it."
        )
    actuators, joints = sys.actuators, sys.joints
    simple = {Activation.NONE, Activation.INTEGRATOR, Activation.FILTER}
    simple |= {Activation.FILTER_EXACT}
    facts = zip(actuators.names, actuators.joints, actuators.gains, actuators.biases)
    rare = [
        name
        for k, (name, joint, gain, bias) in enumerate(facts)
        if joint < 0
        or gain is not Gain.AFFINE
        or bias is not Bias.AFFINE
        or actuators.activation[k] not in simple
        or actuators.wraps[k]
        or not actuators.enabled[k]
    ]
    passive = (actuators.damping, actuators.damping_poly, actuators.armature)
    if rare or any(numbers is not None for numbers in passive):
        raise ValueError(
            f"Actuators {', '.join(map(repr, rare or actuators.names))} are no motors or "
            "servos on joints, or have damping or armature, which this pipeline does not "
            "pass on to MJX. Use `eqsim.Generalized`, which supports them."
        )
    polynomials = (joints.stiffness_poly, joints.damping_poly)
    limits = any(joints.force_limited) or any(joints.actuator_gravity)
    if limits or any(numbers is not None for numbers in polynomials):
        raise ValueError(
            "Joints have polynomial springs or dampers, or limits of actuator forces, "
            "which this pipeline does not pass on to MJX. Use `eqsim.Generalized`, which "
            "supports them."
        )
    tendons = sys.tendons
    flags = (tendons.has_spring, tendons.has_damping, tendons.has_friction)
    flags += (tendons.has_armature, tendons.limited)
    pulling = [n for n, *own in zip(tendons.names, *flags, strict=True) if any(own)]
    if pulling:
        raise ValueError(
            f"Tendons {', '.join(map(repr, pulling))} have springs, dampers, friction, "
            "armature or limits, which this pipeline does not pass on to MJX. Use "
            "`eqsim.Generalized`, which supports them."
        )


def _compile(sys: System, settings: Settings) -> Any:
    text = write_mjcf(sys)
    try:
        model = mujoco.MjModel.from_xml_string(text)
    except (ValueError, mujoco.FatalError) as error:
        raise ValueError(
            f"MuJoCo cannot compile a robot of this structure. It says: {error}"
        ) from error
    model.opt.iterations = settings.iterations
    model.opt.ls_iterations = settings.ls_iterations
    return model


def _put(compiled: Any) -> tuple[Any, Any]:
    try:
        model = mjx.put_model(compiled, impl="jax")
        return model, mjx.make_data(model)
    except NotImplementedError as error:
        raise ValueError(
            f"MJX cannot simulate a robot of this structure: {error}. Exclude what it "
            "lacks, or use `eqsim.Generalized`."
        ) from error


def _geom_order(compiled: Any, sys: System) -> np.ndarray:
    names = sys.geoms.names
    order = [names.index(compiled.geom(k).name) for k in range(compiled.ngeom)]
    return np.array(order, int)


def _pair_order(compiled: Any, sys: System) -> np.ndarray:
    """Return the order of explicit pairs. MuJoCo sorts pairs; pairs of the same two
    shapes keep their order."""
    left, order = list(enumerate(sys.pairs.geoms)), []
    geoms = _geom_order(compiled, sys)
    for one, two in zip(compiled.pair_geom1, compiled.pair_geom2):
        ends = {int(geoms[one]), int(geoms[two])}
        place = next(k for k, (_, pair) in enumerate(left) if set(pair) == ends)
        order.append(left.pop(place)[0])
    return np.array(order, int)
