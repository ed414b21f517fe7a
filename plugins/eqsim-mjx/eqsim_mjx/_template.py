"""Static structure of a robot for MJX.

An `mjx.Model` has static parts: limited joints, colliding shapes, the size of the
problem. They are determined by the structure of a `System`, which is static. A robot of
the same structure with placeholder values is compiled by MuJoCo once, and the actual
values are filled in at every step (`_numbers.py`). Values of the robot are not stored,
and may be traced.

The compiled robot has placeholder values that MuJoCo's compiler accepts.

The compiler derives static facts from some values: that a body is simple, that there is
no gravity compensation or dry friction. The placeholder values are chosen such that
these facts depend only on the structure of the `System`.
"""

import contextlib
import dataclasses
import functools as ft
import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import mujoco as _mujoco
import numpy as np

from eqsim import System
from eqsim.io import write_mjcf
from eqsim.model import (
    AbstractDistanceField,
    Activation,
    Actuators,
    Bias,
    candidate_pairs,
    Cone,
    Gain,
    GeomKind,
    Geoms,
    HeightFields,
    Integrator,
    JointKind,
    Joints,
    Links,
    Meshes,
    Pairs,
)


mujoco: Any = _mujoco

with contextlib.redirect_stdout(io.StringIO()):
    from mujoco import mjx as mjx


_SOLREF = (0.02, 1.0)
_SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
_QUAT = (1.0, 0.0, 0.0, 0.0)
WITH_DATA = (GeomKind.MESH, GeomKind.HFIELD)
"""Kinds of shapes with data in addition to sizes."""


def _rows(count: int, row) -> np.ndarray:
    return np.tile(np.asarray(row, float), (count, 1))


def placeholder(sys: System) -> System:
    """Return the robot; only the structure of `sys` is used."""
    medium = float(sys.has_fluid)
    return dataclasses.replace(
        sys,
        links=_links(sys.links),
        joints=_joints(sys.joints),
        geoms=_geoms(sys.geoms),
        pairs=_pairs(sys.pairs),
        actuators=_actuators(sys.actuators),
        meshes=Meshes.none(),
        height_fields=HeightFields.none(),
        gravity=np.array([0.0, 0.0, -1.0]),
        wind=np.full(3, medium),
        density=np.array(medium),
        viscosity=np.array(medium),
        impratio=np.array(1.0),
        dt=np.array(0.01),
    )


def _links(links: Links) -> Links:
    n = len(links.names)
    return dataclasses.replace(
        links,
        quat=_rows(n, _QUAT),
        mass=np.ones(n),
        com=_rows(n, (0.1, 0.2, 0.3)),
        inertia=np.ones((n, 3)),
        inertia_quat=_rows(n, _QUAT),
        gravity_compensation=np.ones(n),
    )


def _joints(joints: Joints) -> Joints:
    n, nv = len(joints.names), sum(kind.nv for kind in joints.kinds)
    rest = {
        JointKind.FREE: (0.0, 0.0, 0.0, *_QUAT),
        JointKind.SPHERICAL: _QUAT,
    }
    parts = [rest.get(kind, (0.0,)) for kind in joints.kinds]
    ref = np.array([number for part in parts for number in part])
    low = [0.0 if kind is JointKind.SPHERICAL else -1.0 for kind in joints.kinds]
    return dataclasses.replace(
        joints,
        axis=_rows(n, (0.6, 0.0, 0.8)),
        range=np.stack([np.array(low), np.ones(n)], axis=1),
        limit_solref=_rows(n, _SOLREF),
        limit_solimp=_rows(n, _SOLIMP),
        ref=ref,
        spring_ref=ref,
        armature=np.ones(nv),
        frictionloss=np.array(joints.has_friction, float),
        friction_solref=_rows(nv, _SOLREF),
        friction_solimp=_rows(nv, _SOLIMP),
    )


def _geoms(geoms: Geoms) -> Geoms:
    n = len(geoms.names)
    # Meshes and height fields do not collide here (see `_refuse_parts`), and the
    # compiler would check their values.
    kinds = (GeomKind.BOX if kind in WITH_DATA else kind for kind in geoms.kinds)
    return dataclasses.replace(
        geoms,
        kinds=tuple(kinds),
        data=(),
        quat=_rows(n, _QUAT),
        size=np.ones((n, 3)),
        friction=np.ones((n, 3)),
        solref=_rows(n, _SOLREF),
        solimp=_rows(n, _SOLIMP),
        solmix=np.ones(n),
    )


def _pairs(pairs: Pairs) -> Pairs:
    n = len(pairs.geoms)
    return dataclasses.replace(
        pairs,
        friction=np.ones((n, 5)),
        solref=_rows(n, _SOLREF),
        solimp=_rows(n, _SOLIMP),
    )


def _actuators(actuators: Actuators) -> Actuators:
    n = len(actuators.names)
    span = _rows(n, (-1.0, 1.0))
    return dataclasses.replace(
        actuators,
        gear=np.ones((n, 6)),
        # Not a position servo, whose gain equals the second coefficient of its bias.
        gain=_rows(n, (1.0, 0.3, 0.2)),
        bias=_rows(n, (0.1, 0.2, 0.3)),
        time_constant=np.ones(n),
        ctrl_range=span,
        force_range=span,
        act_range=span,
    )


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
        (
            "distance fields",
            any(isinstance(kind, AbstractDistanceField) for kind in sys.geoms.kinds),
        ),
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
