"""Rigid bodies in maximal coordinates, and the models that these pipelines refuse.

One body stands for each link with joints. First bodies and the projection to joint
coordinates; then constants of a step; then checks of models and settings.
"""

import dataclasses
import functools as ft
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer

from ..._errors import check_count
from ..._primitive import AbstractPattern, AbstractPatterned, Pattern
from ...collision import contact_plan
from ...collision.detection import geom_frames, GeomFrames
from ...constraint import Friction
from ...constraint.contact_rows import contact_dimensions, contact_friction
from ...dynamics.actuation import actuation_constants
from ...dynamics.articulated import (
    Factor,
    factor,
    node_bodies,
    node_inertias,
    NodeBodies,
    solve,
)
from ...dynamics.fluid import Ellipsoids
from ...dynamics.motors import MuscleScale
from ...dynamics.passive import armature, fluid_ellipsoids
from ...dynamics.tendon_forces import tendon_constants, TendonConstants
from ...kinematics.coordinates import move_coordinates
from ...kinematics.link_motion import (
    dof_order,
    Frames,
    frames,
    Kinematics,
    kinematics,
    Pose,
)
from ...model import JointKind, System, Tree, tree
from ...model.arrays import concatenate, put, take
from ...spatial import exponential, Force, Mat3, Motion, quaternion_matrix, Vec3
from ...spatial.vectors import cholesky_factor, cholesky_solve, congruence, Sym3
from .._pipeline import AbstractPrepared


# Rigid bodies in maximal coordinates: one body for each link with joints, and the
# joints that connect them.
#
# Positions are those of centers of mass, relative to the origin of the tree at the start
# of the step. They stay accurate in single precision at any distance from the origin.


@dataclasses.dataclass(frozen=True)
class BodyLayout:
    """The node that carries each body: the last node of each link with joints."""

    nodes: tuple[int, ...]

    @ft.cached_property
    def index(self) -> dict[int, int]:
        """Return the body of each node; -1, the world, maps to -1."""
        return {node: body for body, node in enumerate(self.nodes)} | {-1: -1}


@ft.lru_cache(maxsize=256)
def body_layout(tree: Tree) -> BodyLayout:
    """Return the bodies of a tree, in the order of their nodes."""
    return BodyLayout(tuple(sorted({node for node in tree.link_nodes if node >= 0})))


@dataclasses.dataclass(frozen=True)
class JointAxes:
    """One motion axis of each link of a group: the same kind of joint in all."""

    nodes: tuple[int, ...]
    kind: JointKind
    axis: int


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """Links with the same kinds of joints, whose blocks are solved in parallel.

    - `bodies`, `parents`: the two bodies of each block; -1 is the world.
    - `axes`: motion axes, from the parent to the link.
    - `shares`: for both bodies, the number of blocks in the same pass that contain it.
    """

    bodies: tuple[int, ...]
    parents: tuple[int, ...]
    axes: tuple[JointAxes, ...]
    shares: tuple[tuple[int, ...], tuple[int, ...]]


@ft.lru_cache(maxsize=256)
def joint_groups(tree: Tree, by_depth: bool) -> tuple[tuple[JointGroup, ...], ...]:
    """Return the passes over all joints, and the groups of each pass: a single pass, or
    one for each depth of the tree of links, starting at the roots."""
    index, chains, depth = body_layout(tree).index, {}, {}
    for body, node in enumerate(body_layout(tree).nodes):
        chain = [node]
        while not tree.first[chain[0]]:
            chain.insert(0, tree.parents[chain[0]])
        parent = index[tree.parents[chain[0]]]
        depth[body] = 0 if parent < 0 else depth[parent] + 1
        if tree.kinds[node] is not JointKind.FREE:
            chains[body] = (parent, chain)
    levels = sorted({depth[body] for body in chains}) if by_depth else [None]
    return tuple(
        _alike({b: c for b, c in chains.items() if level in (None, depth[b])}, tree)
        for level in levels
    )


def _alike(chains: dict, tree: Tree) -> tuple[JointGroup, ...]:
    """Group the links of a pass by their kinds of joints."""
    parts = [*chains, *(parent for parent, _ in chains.values())]
    alike: dict[Any, list[int]] = {}
    for body, (_, chain) in chains.items():
        kinds = tuple((tree.kinds[node], tree.axes[node]) for node in chain)
        alike.setdefault(kinds, []).append(body)
    found = []
    for kinds, bodies in alike.items():
        parents = tuple(chains[body][0] for body in bodies)
        axes = tuple(
            JointAxes(tuple(chains[body][1][k] for body in bodies), kind, axis)
            for k, (kind, axis) in enumerate(kinds)
        )
        count = lambda ends: tuple(1 if b < 0 else parts.count(b) for b in ends)
        shares = count(bodies), count(parents)
        found.append(JointGroup(tuple(bodies), parents, axes, shares))
    return tuple(found)


class BodyParameters(NamedTuple):
    """State-independent parameters of the bodies, in the frames of their nodes.

    - `mass`, `com`, `inertia`: mass, center of mass, inertia about it.
    - `inverse_mass`, `inverse_inertia`: their inverses.
    """

    mass: Any
    com: Vec3
    inertia: Sym3
    inverse_mass: Any
    inverse_inertia: Sym3


class Bodies(NamedTuple):
    """Poses and velocities of the bodies, in world axes.

    - `com`: center of mass, relative to the tree's origin at the start of the step.
    - `rot`: orientation of the frame of the body's node.
    - `velocity`: angular velocity, and velocity of the center of mass.
    """

    com: Vec3
    rot: Mat3
    velocity: Motion


class InverseInertia(NamedTuple):
    """Inverse mass, and inverse rotational inertia in world axes."""

    mass: Any
    rotational: Sym3

    def __matmul__(self, impulse: Force) -> Motion:
        return Motion(self.rotational @ impulse.ang, impulse.lin * self.mass)


def body_parameters(tree: Tree, nodes: NodeBodies) -> BodyParameters:
    """Select the bodies among the inertias of all nodes, and invert these."""
    mass, com, inertia = take(nodes, body_layout(tree).nodes)
    factored, one, zero = cholesky_factor(inertia), jnp.ones_like(mass), mass * 0.0
    x = cholesky_solve(factored, Vec3(one, zero, zero))
    y = cholesky_solve(factored, Vec3(zero, one, zero))
    z = cholesky_solve(factored, Vec3(zero, zero, one))
    inverse = Sym3(x.x, y.y, z.z, y.x, z.x, z.y)
    return BodyParameters(mass, com, inertia, 1.0 / mass, inverse)


def place_bodies(
    tree: Tree, parameters: BodyParameters, kin: Kinematics, velocity: Motion
) -> Bodies:
    """Compute the bodies by forward kinematics; `velocity` is that of the nodes about
    the origins of their trees."""
    pose, arm, velocity = take((kin.pose, kin.arm, velocity), body_layout(tree).nodes)
    com = arm + (pose.rot @ parameters.com)
    return Bodies(com, pose.rot, Motion(velocity.ang, velocity.at(com)))


def inverse_inertia(parameters: BodyParameters, bodies: Bodies) -> InverseInertia:
    """Return the inverse inertias of the bodies in their current orientations."""
    rotational = congruence(bodies.rot, parameters.inverse_inertia)
    mass = parameters.inverse_mass + jnp.zeros_like(rotational.xx)
    return InverseInertia(mass, rotational)


def node_frames(parameters: BodyParameters, bodies: Bodies) -> Pose:
    """Return the frames of the bodies' nodes, relative to the origins of the trees."""
    return Pose(bodies.rot, bodies.com - (bodies.rot @ parameters.com))


def of_bodies(values, index):
    """Return the rows of `values` for the bodies in `index`; zeros for -1, the
    world."""
    zero = jtu.tree_map(lambda x: jnp.zeros_like(x[:1]), values)
    return take(concatenate([zero, values]), [body + 1 for body in index])


def apply_impulse(inverse: InverseInertia, bodies: Bodies, impulse: Force) -> Bodies:
    """Change velocities by impulses about the centers of mass."""
    return bodies._replace(velocity=bodies.velocity + (inverse @ impulse))


def apply_correction(
    inverse: InverseInertia, bodies: Bodies, impulse: Force, h
) -> Bodies:
    r"""Change velocities by impulses, $\Delta V = I^{-1} F$, and poses by
    $h\,\Delta V$."""
    com, rot, velocity = bodies
    change = inverse @ impulse
    rot = _rotated(rot, change.ang, h)
    return Bodies(com + (change.lin * h), rot, velocity + change)


def move_freely(parameters: BodyParameters, bodies: Bodies, h) -> Bodies:
    r"""Move bodies at their velocities for a time `h`.

    The angular momentum $R I R^T \omega$ is conserved to rounding. The change of
    $\omega$ that this implies is the effect of the gyroscopic torque.
    """
    com, rot, (ang, lin) = bodies
    momentum = rot @ (parameters.inertia @ (rot.T @ ang))
    rot = _rotated(rot, ang, h)
    ang = rot @ (parameters.inverse_inertia @ (rot.T @ momentum))
    return Bodies(com + (lin * h), rot, Motion(ang, lin))


def _rotated(rot: Mat3, ang: Vec3, h) -> Mat3:
    """Rotate orientations at an angular velocity in world axes for a time `h`."""
    return quaternion_matrix(exponential(ang * h)) @ rot


def small_rotation(rot: Mat3, reference: Mat3) -> Vec3:
    r"""Return the rotation vector of $R R_0^T$ to third order, smooth everywhere."""
    x, y, z = (b.cross(a) for a, b in zip(rot.columns, reference.columns, strict=True))
    return (x + y + z) * 0.5


class Mechanism(NamedTuple):
    """The articulated robot at the initial coordinates of a projection.

    - `kin`, `factored`: its kinematics, and its factorized joint-space inertia.
    - `com`: centers of mass of the bodies, about the origins of their trees.
    """

    tree: Tree
    kin: Kinematics
    factored: Factor
    com: Vec3

    def respond(self, tau, impulse: Force | None) -> tuple[Any, Motion]:
        r"""Solve $M x = \tau + J^T F$ for impulses about the centers of mass of the
        bodies; return $x$ and the motions of the bodies, also about their centers of
        mass."""
        nodes, force = body_layout(self.tree).nodes, None
        if impulse is not None:
            moment = impulse.ang + self.com.cross(impulse.lin)
            force = put(Force(moment, impulse.lin), nodes, self.tree.size)
        x, motion = solve(self.tree, self.kin, self.factored, tau, force)
        motion = take(motion, nodes)
        return x, Motion(motion.ang, motion.at(self.com))

    def joint_inertia(self, sys: System):
        """Return the inertia about each axis of a joint with a fixed parent; zero for
        free joints."""
        inverse = concatenate([level.inverse for level in self.factored.joints])
        dofs = dof_order(self.tree).single
        return put(1.0 / inverse, dofs, sys.nv)


class Projection(NamedTuple):
    """The result of `project_to_joints`.

    - `q`, `qd`: coordinates and velocities.
    - `moved`: displacement of each body, about its center of mass.
    """

    q: Any
    qd: Any
    moved: Motion


def project_to_joints(
    sys: System,
    frames: Frames,
    nodes: NodeBodies,
    parameters: BodyParameters,
    origin: Vec3,
    bodies: Bodies,
    q,
    qd,
) -> tuple[Mechanism, Projection]:
    r"""Return the joint coordinates and velocities nearest to the bodies.

    With the joint-space inertia $M$ and the Jacobians $J_b$ of the bodies, coordinates
    take one Gauss-Newton step, $M \delta = \sum_b J_b^T I_b e_b$ with the displacement
    $e_b$ of each body from forward kinematics, and velocities solve $M \dot q = \sum_b
    J_b^T I_b V_b + A\,\dot q_0$ with the armature $A$. These least squares weight bodies
    by their inertia, so they conserve momentum to first order in $\delta$.

    **Arguments:**

    - `origin`: origin of each body's tree, in the world.
    - `q`, `qd`: the coordinates to start from, and the rates $\dot q_0$.
    """
    which = body_layout(tree(sys)).nodes
    kin = kinematics(sys, tree(sys), frames, q)
    rotor = armature(sys) + jnp.zeros_like(qd)
    factored = factor(tree(sys), kin, node_inertias(nodes, kin), rotor)
    pose, arm, here = take((kin.pose, kin.arm, kin.origin), which)
    com = arm + (pose.rot @ parameters.com)
    mechanism = Mechanism(tree(sys), kin, factored, com)

    inertia = congruence(pose.rot, parameters.inertia)
    momentum = lambda v: Force(inertia @ v.ang, v.lin * parameters.mass)
    turn = small_rotation(bodies.rot, pose.rot)
    error = Motion(turn, (bodies.com + (origin - here)) - com)
    change, moved = mechanism.respond(jnp.zeros_like(qd), momentum(error))
    rates, _ = mechanism.respond(rotor * qd, momentum(bodies.velocity))
    new = move_coordinates(sys.joints.kinds, q, change)
    return mechanism, Projection(new, rates, moved - error)


# Constants of a step in maximal coordinates, which depend on the robot but not on the
# state.


class BodyConstants(AbstractPatterned):
    """Quantities that depend on a `System` but not on the state.

    - `frames`: constant frames of kinematics.
    - `nodes`: inertias in the frames of the nodes.
    - `bodies`: masses and inertias of the bodies, in the frames of their links.
    - `geoms`: frames of the shapes.
    - `friction`: friction coefficients of the contact points, None if there are none.
    - `muscles`: peak forces and optimal lengths of muscles; None if there are none.
    - `tendons`: constants of the tendons, None if there are none.
    - `fluid`: shapes with fluid forces on ellipsoids; None if there are none.
    - `pattern`: assumptions about these values, see `Pattern`.
    """

    frames: Frames
    nodes: NodeBodies
    bodies: BodyParameters
    geoms: GeomFrames
    friction: Friction | None
    muscles: MuscleScale | None
    tendons: TendonConstants | None
    fluid: Ellipsoids | None
    pattern: AbstractPattern = eqx.field(static=True, default=Pattern())


class PreparedBodies(AbstractPrepared):
    """A robot, and all quantities that depend on the robot alone.

    `Spring.prepare` and `Positional.prepare` compute it. It takes the place of `sys` in
    `step` and the other methods, which otherwise prepare the robot in every call.

    - `sys`: the robot.
    - `constants`: derived quantities, such as masses and inertias of the bodies.
    """

    sys: System
    constants: BodyConstants


def derive_bodies(sys: System) -> BodyConstants:
    """Compute the constants of a system (batch axes last)."""
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    lumped = node_bodies(sys, nodes, fixed)
    parameters, geoms = body_parameters(nodes, lumped), geom_frames(sys, fixed)
    friction = contact_friction(sys, plan) if plan.size else None
    return BodyConstants(
        frames=fixed,
        nodes=lumped,
        bodies=parameters,
        geoms=geoms,
        friction=friction,
        muscles=actuation_constants(sys, nodes, fixed, lumped).muscles,
        tendons=tendon_constants(sys, nodes, fixed),
        fluid=fluid_ellipsoids(sys, nodes, fixed),
    )


# Checks of models and settings that pipelines in maximal coordinates do not
# support.


_SHARES = ("stiffness", "damping", "erp", "relaxation", "restitution")


def check_substeps(substeps: int) -> None:
    """Check that there is at least one substep."""
    check_count("substeps", substeps)


def check_parameters(pipeline: eqx.Module) -> None:
    """Check that known parameters of a pipeline are finite and not negative."""
    for path, leaf in jtu.tree_leaves_with_path(eqx.filter(pipeline, eqx.is_array)):
        if isinstance(leaf, Tracer):
            continue
        name = f"{type(pipeline).__name__}{jtu.keystr(path)}"
        value = np.asarray(leaf)
        if path[-1].name in _SHARES and np.any(value > 1.0):
            raise ValueError(f"`{name}` must be at most 1, got {leaf}.")
        if not np.all(np.isfinite(value) & (value >= 0.0)):
            raise ValueError(f"`{name}` must be finite and not negative, got {leaf}.")


def check_model(sys: System) -> None:
    """Reject models that maximal coordinates cannot represent."""
    nodes, links, joints = tree(sys), sys.links, sys.joints
    known = lambda x: not isinstance(x, Tracer)
    if known(links.mass) and known(links.inertia):
        mass, inertia = np.asarray(links.mass), np.asarray(links.inertia)
        for node in body_layout(nodes).nodes:
            riders = np.array(nodes.link_nodes) == node
            heavy = np.all(np.sum(mass[..., riders], axis=-1) > 0)
            turns = np.any(np.all(inertia[..., riders, :] > 0, axis=-1), axis=-1)
            if not (heavy and np.all(turns)):
                name = links.names[nodes.links[node]]
                raise ValueError(
                    f"Link {name!r} moves but has no mass or no inertia. Give it both, "
                    "or use `Generalized`, which needs neither where a joint has "
                    "armature."
                )
    _check_actuators(sys)
    _check_tendons(sys)
    _check_constraints(sys)
    for j, kind in enumerate(joints.kinds):
        dofs = slice(joints.v_starts[j], joints.v_starts[j] + 6)
        if kind is JointKind.FREE and any(joints.has_friction[dofs]):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has frictionloss. Set `has_friction` to "
                "False there, or use `Generalized`, which supports it."
            )
        rotor = armature(sys) if kind is JointKind.FREE else None
        if rotor is None or not known(rotor):
            continue
        rotor = np.asarray(rotor)[..., dofs]
        if np.any(rotor != 0.0):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has armature {rotor}. Set it to "
                "zero, or use `Generalized`, which supports it."
            )


def _check_actuators(sys: System) -> None:
    """Reject actuators that need constraints or joint forces of the whole robot."""
    actuators, joints = sys.actuators, sys.joints
    others = [n for n, joint in zip(actuators.names, actuators.joints) if joint < 0]
    if others:
        raise ValueError(
            f"Actuator {others[0]!r} does not act on a joint. Use `Generalized`, which "
            "supports it."
        )
    for own in sys.actuator_models:
        if own.num_states:
            raise ValueError(
                f"The actuator model {type(own.model).__name__} of actuator "
                f"{actuators.names[own.actuators[0]]!r} has memory, which is kept per time "
                "step, not per substep. Use `Generalized`, which supports it."
            )
    powered = sys.nactuator > 0 and actuators.active
    for j, name in enumerate(joints.names):
        if joints.actuator_gravity[j] and (joints.force_limited[j] or not powered):
            raise ValueError(
                f"Actuators compensate gravity at joint {name!r} within limits. Set "
                "`actuator_gravity` to False, or use `Generalized`, which supports it."
            )


def _check_tendons(sys: System) -> None:
    """Reject tendons with constraints or inertia."""
    tendons = sys.tendons
    for word, marks in (
        ("a limit", tendons.limited),
        ("dry friction", tendons.has_friction),
        ("armature", tendons.has_armature),
    ):
        for name, has in zip(tendons.names, marks):
            if has:
                raise ValueError(
                    f"Tendon {name!r} has {word}. Remove it, or use `Generalized`, which "
                    "supports it."
                )


def _check_constraints(sys: System) -> None:
    """Reject equality constraints, surfaces that move or adhere, and torsional and rolling
    friction."""
    for name in sys.equalities.names:
        raise ValueError(
            f"Equality constraint {name!r} cannot be simulated in maximal coordinates. "
            "Remove it, or use `Generalized`, which supports it."
        )
    if sys.geoms.surface_velocity is not None:
        raise ValueError(
            "Surfaces of shapes move. Set `Geoms.surface_velocity` to None, or use "
            "`Generalized`, which supports it."
        )
    if sys.geoms.adhesion is not None or sys.pairs.adhesion is not None:
        raise ValueError(
            "Contacts adhere. Set `Geoms.adhesion` and `Pairs.adhesion` to None, or use "
            "`Generalized`, which supports it."
        )
    plan = contact_plan(sys)
    for size, pair in zip(contact_dimensions(sys, plan), plan.point_pairs):
        if size > 3:
            one, two = (sys.geoms.names[k] for k in plan.pairs[pair][:2])
            raise ValueError(
                f"Contacts of shape {one!r} with {two!r} have torsional friction (condim "
                f"{size}). Set `condim` to 3, or use `Generalized`, which supports it."
            )
