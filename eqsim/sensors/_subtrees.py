"""Sensors of subtrees: momentum, and force and torque between a link and its parent."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.frames import attached_frames, carriers
from ..kinematics.link_motion import Pose, take_poses
from ..model import SensorKind, System, tree
from ..model.arrays import take, take_or_zero
from ..spatial import Vec3
from ..spatial.vectors import congruence, diagonal, stack, Sym3
from ._frame_sensors import accelerations_at, object_link, object_poses
from .sensor_inputs import SensorInputs


@ft.lru_cache(maxsize=256)
def subtrees(parents: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return the links of the subtree of each link, itself included; -1 is the world,
    whose subtree contains all links."""
    found: dict[int, tuple[int, ...]] = {-1: tuple(range(len(parents)))}
    for link in range(len(parents)):
        own = {link}
        own |= {k for k in range(link + 1, len(parents)) if _below(parents, k, link)}
        found[link] = tuple(sorted(own))
    return found


def _below(parents: tuple[int, ...], link: int, above: int) -> bool:
    while link > above:
        link = parents[link]
    return link == above


class MovingBodies(NamedTuple):
    """Rigid bodies of some links, in world axes.

    - `mass`: mass, kg.
    - `center`: center of mass.
    - `inertia`: inertia about the center of mass.
    - `ang`, `lin`: angular velocity, and velocity of the center.
    """

    mass: Any
    center: Vec3
    inertia: Sym3
    ang: Vec3
    lin: Vec3


def moving_bodies(sys: System, now: SensorInputs, links: Sequence[int]) -> MovingBodies:
    """Compute masses, inertias and velocities of links."""
    own = sys.links
    mass, com, quat, moments = take(
        (own.mass, own.com, own.inertia_quat, own.inertia), links
    )
    nodes = carriers(tree(sys), links)
    pose: Pose = take_poses(now.data.kin.pose, nodes) @ attached_frames(
        now.data.fixed, links, com, quat
    )
    velocity, origin = take_or_zero(
        (now.data.velocities.velocity, now.data.kin.origin), nodes
    )
    axes = diagonal(*(moments[:, k] for k in range(3)))
    return MovingBodies(
        mass=mass + jnp.zeros_like(pose.pos.x),
        center=pose.pos,
        inertia=congruence(pose.rot, axes),
        ang=velocity.ang,
        lin=velocity.at(pose.pos - origin),
    )


class _Total(NamedTuple):
    """Bodies of a subtree, their mass, and center of mass; `(1, *batch)`."""

    bodies: MovingBodies
    mass: Any
    center: Vec3


def _total(sys: System, now: SensorInputs, sensor: int) -> _Total | None:
    """Return the sums over the subtree of a sensor; None if it has no link."""
    link = sys.sensors.objects[sensor][1]
    links = subtrees(sys.links.parents)[link]
    if not links:
        return None
    bodies = moving_bodies(sys, now, links)
    mass = jnp.sum(bodies.mass, axis=0, keepdims=True)
    some = mass >= 1e-15
    mean = _sum(bodies.center * bodies.mass) * (1.0 / jnp.where(some, mass, 1.0))
    if link < 0:
        first = Vec3(*(jnp.zeros_like(mass) for _ in range(3)))
    else:
        first = take(bodies.center, [links.index(link)])
    center = Vec3(*(jnp.where(some, a, b) for a, b in zip(mean, first, strict=True)))
    return _Total(bodies, mass, center)


def _sum(v: Vec3) -> Vec3:
    return Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in v))


def _mean_velocity(total: _Total) -> Vec3:
    momentum = _sum(total.bodies.lin * total.bodies.mass)
    return momentum * (1.0 / jnp.maximum(total.mass, 1e-15))


def _of_subtrees(measure: Callable[[_Total], Vec3]) -> Callable:
    def sensor(sys: System, now: SensorInputs, chosen: Sequence[int]):
        rows = []
        for k in chosen:
            total = _total(sys, now, k)
            zero = jnp.zeros_like(now.data.q[:3])
            rows.append(zero if total is None else stack(measure(total))[0])
        return jnp.stack(rows)

    return sensor


def _angular_momentum(total: _Total) -> Vec3:
    bodies, mean = total.bodies, _mean_velocity(total)
    apart = (bodies.lin - mean) * bodies.mass
    spin = bodies.inertia @ bodies.ang
    return _sum(spin + (bodies.center - total.center).cross(apart))


SUBTREE_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.SUBTREE_CENTER: _of_subtrees(lambda total: total.center),
    SensorKind.SUBTREE_VELOCITY: _of_subtrees(_mean_velocity),
    SensorKind.SUBTREE_ANGULAR_MOMENTUM: _of_subtrees(_angular_momentum),
}


def _inertial(sys: System, now: SensorInputs, links: Sequence[int], point: Vec3):
    """Compute the rates of the momenta of links about a point: force and torque."""
    bodies = moving_bodies(sys, now, links)
    nodes = carriers(tree(sys), links)
    rate = accelerations_at(sys, now, nodes, bodies.center)
    force = rate.lin * bodies.mass
    spin = bodies.ang.cross(bodies.inertia @ bodies.ang)
    torque = (bodies.inertia @ rate.ang) + spin
    return _sum_wrenches(force, torque + (bodies.center - point).cross(force))


def _sum_wrenches(force: Vec3, torque: Vec3) -> tuple[Vec3, Vec3]:
    add = lambda v: Vec3(*(jnp.sum(x, axis=0, keepdims=True) for x in v))
    return add(force), add(torque)


def interactions(
    sys: System, now: SensorInputs, chosen: Sequence[int]
) -> list[tuple[Vec3, Vec3]]:
    """Compute force and torque at the site of each sensor, in the axes of the site."""
    found = []
    for k in chosen:
        site = sys.sensors.objects[k]
        pose = object_poses(sys, now, [site])
        links = subtrees(sys.links.parents)[object_link(sys, site)]
        zero = Vec3(*(jnp.zeros_like(x) for x in pose.pos))
        total = _inertial(sys, now, links, pose.pos) if links else (zero, zero)
        for each in now.forces.wrenches:
            own = [i for i, link in enumerate(each.links) if link in links]
            if own:
                pos, force, torque = take((each.pos, each.force, each.torque), own)
                outer = _sum_wrenches(force, torque + (pos - pose.pos).cross(force))
                total = (total[0] - outer[0], total[1] - outer[1])
        back = pose.rot.T
        found.append((back @ total[0], back @ total[1]))
    return found


def forces(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute interaction forces, `(n, 3, *batch)`."""
    found = interactions(sys, now, chosen)
    return jnp.concatenate([stack(force) for force, _ in found])


def torques(sys: System, now: SensorInputs, chosen: Sequence[int]):
    """Compute interaction torques, `(n, 3, *batch)`."""
    found = interactions(sys, now, chosen)
    return jnp.concatenate([stack(torque) for _, torque in found])


INTERACTION_SENSORS: dict[SensorKind, Callable] = {
    SensorKind.FORCE: forces,
    SensorKind.TORQUE: torques,
}
