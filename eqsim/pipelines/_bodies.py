r"""Maximal coordinates: every link with joints is a rigid body of its own.

Positions are those of centers of mass, relative to the origin of the tree at the start
of a step: so they stay small and exact in single precision, however far a robot goes.
"""

import dataclasses
import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu

from ..dynamics._inertia import NodeBodies
from ..kinematics._forward import Kinematics, Pose
from ..model import concatenate, put, take, Tree
from ..spatial import (
    cholesky_factor,
    cholesky_solve,
    congruence,
    exponential,
    Force,
    Mat3,
    Motion,
    quaternion_matrix,
    Sym3,
    Vec3,
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which nodes are bodies: the last one of each link that has joints."""

    nodes: tuple[int, ...]

    @ft.cached_property
    def index(self) -> dict[int, int]:
        """The body of a node; the world, -1, is no body."""
        return {node: body for body, node in enumerate(self.nodes)} | {-1: -1}


@ft.lru_cache(maxsize=256)
def layout(tree: Tree) -> Layout:
    """The bodies of a tree, in the order of their nodes."""
    return Layout(tuple(sorted({node for node in tree.link_nodes if node >= 0})))


class BodyNumbers(NamedTuple):
    """What does not depend on the state, in the frame of each body's node.

    - `mass`, `com`, `inertia`: mass, center of mass, inertia about it.
    - `inverse_mass`, `inverse_inertia`: their inverses.
    """

    mass: Any
    com: Vec3
    inertia: Sym3
    inverse_mass: Any
    inverse_inertia: Sym3


class Bodies(NamedTuple):
    """Where bodies are and how they move, in world axes.

    - `com`: center of mass, relative to the tree's origin at the start of the step.
    - `rot`: orientation of the frame of the body's node.
    - `velocity`: angular velocity, and velocity of the center of mass.
    """

    com: Vec3
    rot: Mat3
    velocity: Motion


class Mobility(NamedTuple):
    """Inverse mass, and inverse inertia in world axes."""

    mass: Any
    inertia: Sym3


def body_numbers(tree: Tree, bodies: NodeBodies) -> BodyNumbers:
    """The rigid bodies that ride on the last nodes of the links."""
    mass, com, inertia = take(bodies, layout(tree).nodes)
    factor, one, zero = cholesky_factor(inertia), jnp.ones_like(mass), mass * 0.0
    x = cholesky_solve(factor, Vec3(one, zero, zero))
    y = cholesky_solve(factor, Vec3(zero, one, zero))
    z = cholesky_solve(factor, Vec3(zero, zero, one))
    inverse = Sym3(x.x, y.y, z.z, y.x, z.x, z.y)
    return BodyNumbers(mass, com, inertia, 1.0 / mass, inverse)


def place_bodies(tree: Tree, numbers: BodyNumbers, kin: Kinematics, velocity) -> Bodies:
    """The bodies at the start of a step; `velocity` is about the origins of trees."""
    pose, arm, velocity = take((kin.pose, kin.arm, velocity), layout(tree).nodes)
    com = arm + (pose.rot @ numbers.com)
    return Bodies(com, pose.rot, Motion(velocity.ang, velocity.at(com)))


def mobility(numbers: BodyNumbers, bodies: Bodies) -> Mobility:
    """How easily bodies move, where they are now."""
    inertia = congruence(bodies.rot, numbers.inverse_inertia)
    return Mobility(numbers.inverse_mass + jnp.zeros_like(inertia.xx), inertia)


def frame_poses(numbers: BodyNumbers, bodies: Bodies) -> Pose:
    """Frames of the bodies' nodes, relative to the origins of their trees."""
    return Pose(bodies.rot, bodies.com - (bodies.rot @ numbers.com))


def with_world(values):
    """Rows of bodies with a row of zeros in front, for the world."""
    zero = jtu.tree_map(lambda x: jnp.zeros_like(x[:1]), values)
    return concatenate([zero, values])


def kick(mobility: Mobility, bodies: Bodies, impulse: Force) -> Bodies:
    """Changes velocities by impulses about the centers of mass."""
    ang = bodies.velocity.ang + (mobility.inertia @ impulse.ang)
    lin = bodies.velocity.lin + (impulse.lin * mobility.mass)
    return bodies._replace(velocity=Motion(ang, lin))


def correct(mobility: Mobility, bodies: Bodies, impulse: Force, h) -> Bodies:
    """Changes velocities by impulses, and poses as if they had acted for a step `h`."""
    change, com, velocity = _change(mobility, bodies, impulse, h)
    return Bodies(com, _turned(bodies.rot, change.ang, h), velocity)


def _change(mobility: Mobility, bodies: Bodies, impulse: Force, h):
    change = Motion(mobility.inertia @ impulse.ang, impulse.lin * mobility.mass)
    return change, bodies.com + (change.lin * h), bodies.velocity + change


def drift(numbers: BodyNumbers, bodies: Bodies, h) -> Bodies:
    r"""Moves bodies for a time `h` at their velocities.

    The angular momentum $R I R^T \omega$ stays as it is, so that a body that turns
    freely keeps it to rounding; the gyroscopic torque is what that does to $\omega$.
    """
    com, rot, (ang, lin) = bodies
    momentum = _in_axes(rot, numbers.inertia, ang)
    rot = _turned(rot, ang, h)
    ang = _in_axes(rot, numbers.inverse_inertia, momentum)
    return Bodies(com + (lin * h), rot, Motion(ang, lin))


def _in_axes(rot: Mat3, tensor: Sym3, vector: Vec3) -> Vec3:
    """$R S R^T v$."""
    return rot @ (tensor @ (rot.T @ vector))


def _turned(rot: Mat3, ang: Vec3, h) -> Mat3:
    """Orientations after a time `h` at an angular velocity in world axes."""
    return _composed(_turn(ang, h), rot)


def _turn(ang: Vec3, h):
    return exponential(ang * h)


def _composed(turn, rot: Mat3) -> Mat3:
    return quaternion_matrix(turn) @ rot


def small_rotation(rot: Mat3, reference: Mat3) -> Vec3:
    r"""The rotation vector of $R R_0^T$ to third order, smooth everywhere."""
    pairs = [b ^ a for a, b in zip(rot.columns, reference.columns, strict=True)]
    return (pairs[0] + pairs[1] + pairs[2]) * 0.5


def to_nodes(tree: Tree, values):
    """Rows of bodies at their nodes; nodes between joints of one link are zero."""
    return put(values, layout(tree).nodes, tree.size)
