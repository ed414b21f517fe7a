"""A step in maximal coordinates before its first substep."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu

from ..contact._detect import ContactPoints, detect
from ..contact._parameters import contact_friction, Friction, geom_frames, GeomFrames
from ..contact._plan import contact_plan
from ..dynamics._inertia import node_bodies, NodeBodies
from ..dynamics._passive import at_centers, compensation_forces, fluid_forces
from ..kinematics._forward import (
    Frames,
    frames,
    joint_motion,
    Kinematics,
    kinematics,
)
from ..kinematics._recursion import descend
from ..model import accumulate, System, take, Tree, tree
from ..spatial import Force, Motion, Vec3, vec3
from ._bodies import Bodies, body_numbers, BodyNumbers, layout, place_bodies
from ._groups import Group
from ._links import Place, place
from ._touch import sides, Touch, touch


class Constants(NamedTuple):
    """What a step needs of a `System` and that does not depend on the state."""

    frames: Frames
    nodes: NodeBodies
    bodies: BodyNumbers
    geoms: GeomFrames
    friction: Friction | None


class World(NamedTuple):
    """What stays as it is during the substeps of a step.

    - `sys`: the robot, with the substep as its time step.
    - `h`: the substep.
    - `origin`: of the tree of each body, in the world.
    - `load`: force and torque on each body at its center of mass: weight, what carries
        it, the medium, external forces.
    - `points`, `contacts`: what could touch.
    """

    sys: System
    constants: Constants
    h: Any
    origin: Vec3
    load: Force
    points: ContactPoints | None
    contacts: Touch | None

    @property
    def tree(self) -> Tree:
        return tree(self.sys)

    @property
    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The two bodies of each possible contact."""
        return sides(layout(self.tree), contact_plan(self.sys))

    def place(self, group: Group, bodies: Bodies, q) -> Place:
        """Where the joints at coordinates `q` put the links of a group."""
        frames, numbers = self.constants.frames, self.constants.bodies
        where = group, bodies, self.origin
        return place(self.sys, self.tree, frames, numbers, *where, q)


class Impulses(NamedTuple):
    """What constraints have done in a substep.

    - `joints`: impulses of limits and dry friction along the joints, `(nv, *batch)`.
    - `points`: of contacts, on the second body of each point; None if there are none.
    """

    joints: Any
    points: Vec3 | None


class Moving(NamedTuple):
    """What changes from substep to substep: the bodies, and beside them the coordinates
    and velocities of the joints, which armature, actuators, springs and limits read.
    The error of a joint is how far these two descriptions are apart."""

    bodies: Bodies
    q: Any
    qd: Any
    act: Any


def derive(sys: System) -> Constants:
    """The constants of a system (batch axes last)."""
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    lumped = node_bodies(sys, nodes, fixed)
    return Constants(
        fixed,
        lumped,
        body_numbers(nodes, lumped),
        geom_frames(sys, fixed),
        contact_friction(sys, plan) if plan.size else None,
    )


def begin(
    substeps: int,
    sys: System,
    constants: Constants,
    q,
    qd,
    act,
    ctrl,
    external,
) -> tuple[World, Moving, Any]:
    """The start of a step, and the controls (batch axes last)."""
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, q)
    velocity = descend(nodes, joint_motion(nodes, kin, qd))
    bodies = place_bodies(nodes, constants.bodies, kin, velocity)
    origin = take(kin.origin, layout(nodes).nodes)
    load = _load(sys, nodes, constants, kin, velocity, external, bodies.com)
    touching = _touching(sys, nodes, constants, kin, bodies, origin)
    h = sys.dt[None] / substeps
    small = eqx.tree_at(lambda s: s.dt, sys, sys.dt / substeps)
    world = World(small, constants, h, origin, load, *touching)
    batch = lambda x: jnp.broadcast_to(x, (x.shape[0], *q.shape[1:]))
    return world, Moving(jtu.tree_map(batch, bodies), q, qd, act), ctrl


def _load(sys, nodes: Tree, constants, kin, velocity, external, com: Vec3) -> Force:
    """Forces that are held for a step, at the centers of mass of the bodies."""
    fixed = constants.frames
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity)
    if external is not None:
        torque, push = vec3(external[:, :3]), vec3(external[:, 3:])
        force = force + at_centers(sys, nodes, fixed, kin, push, torque)
    return _to_bodies(sys, nodes, constants.bodies, force, com)


def _to_bodies(sys: System, nodes: Tree, numbers: BodyNumbers, force, com) -> Force:
    ang, lin = take(force, layout(nodes).nodes)
    weight = Vec3(*(sys.gravity[k][None] * numbers.mass for k in range(3)))
    return Force(ang - (com ^ lin), lin + weight)


def _touching(sys, nodes: Tree, constants, kin: Kinematics, bodies, origin):
    plan = contact_plan(sys)
    if not plan.size:
        return None, None
    points = detect(sys, plan, constants.geoms, kin)
    ends = sides(layout(nodes), plan)
    return points, touch(sys, plan, ends, bodies, origin, points, constants.friction)


def push(world: World, now: Moving, tau) -> Bodies:
    """Velocities after the loads of a substep, and what acts along free joints."""
    free = _free_forces(world.sys, world.tree, world.constants.bodies, now, tau)
    return _fall(world.constants.bodies, now.bodies, world.load + free, world.h)


def _free_forces(sys: System, nodes: Tree, numbers, now: Moving, tau) -> Force:
    n = nodes.num_free
    index = [layout(nodes).index[node] for node in range(n)]
    tau = tau - sys.joints.damping * now.qd
    column = lambda k: take(tau, [dof + k for dof in nodes.dofs[:n]])
    rot, com = take((now.bodies.rot, numbers.com), index)
    push = Vec3(column(0), column(1), column(2))
    torque = (rot @ Vec3(column(3), column(4), column(5))) - ((rot @ com) ^ push)
    return accumulate(Force(torque, push), index, len(layout(nodes).nodes))


def _fall(numbers: BodyNumbers, bodies: Bodies, load: Force, h) -> Bodies:
    rot = bodies.rot
    turn = rot @ (numbers.inverse_inertia @ (rot.T @ load.ang))
    ang = bodies.velocity.ang + (turn * h)
    lin = bodies.velocity.lin + (load.lin * (h * numbers.inverse_mass))
    return bodies._replace(velocity=Motion(ang, lin))
