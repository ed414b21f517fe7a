r"""Force and torque sensors: interaction between a link and its parent.

The forces on a subtree sum to the rates of its momenta: $f = \sum_i m_i a_i - \sum
f_\mathrm{ext}$, where $a_i$ is the acceleration of a center of mass relative to free
fall, and $f_\mathrm{ext}$ are contacts, equality constraints between links, and
external forces. Actuators, springs and limits act within the joints, and are part of
the result, as are, like in MuJoCo, gravity compensation and fluid forces.

Source: MuJoCo, `mj_rnePostConstraint`.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from ..kinematics._poses import carriers
from ..model import SensorKind, System, tree
from ..model._gather import take
from ..spatial import Vec3
from ..spatial._vector import stack
from ._frames import accelerations_at, object_link, object_poses
from ._inputs import SensorInputs
from ._subtrees import moving_bodies, subtrees


def _inertial(sys: System, now: SensorInputs, links: Sequence[int], point: Vec3):
    """Compute the rates of the momenta of links about a point: force and torque."""
    bodies = moving_bodies(sys, now, links)
    nodes = carriers(tree(sys), links)
    rate = accelerations_at(sys, now, nodes, bodies.center)
    force = rate.lin * bodies.mass
    spin = bodies.ang ^ (bodies.inertia @ bodies.ang)
    torque = (bodies.inertia @ rate.ang) + spin
    return _total(force, torque + ((bodies.center - point) ^ force))


def _total(force: Vec3, torque: Vec3) -> tuple[Vec3, Vec3]:
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
                outer = _total(force, torque + ((pos - pose.pos) ^ force))
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
