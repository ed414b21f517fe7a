"""What `Spring` and `Positional` share: a step in maximal coordinates."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from .._staging import stage
from ..contact._detect import detect
from ..contact._parameters import contact_friction, Friction, geom_frames, GeomFrames
from ..contact._plan import contact_plan
from ..dynamics._actuation import actuation, next_activation
from ..dynamics._articulated import factor, solve
from ..dynamics._inertia import node_bodies, node_inertias, NodeBodies
from ..dynamics._passive import (
    at_centers,
    compensation_forces,
    fluid_forces,
    spring_forces,
)
from ..kinematics._forward import (
    Frames,
    frames,
    joint_motion,
    Kinematics,
    kinematics,
)
from ..kinematics._manifold import advance
from ..kinematics._recursion import descend
from ..model import (
    accumulate,
    check_finite,
    check_state,
    concatenate,
    State,
    System,
    take,
    Tree,
    tree,
)
from ..spatial import Force, Motion, stack, Vec3, vec3
from ._bodies import (
    Bodies,
    body_numbers,
    BodyNumbers,
    layout,
    place_bodies,
    small_rotation,
    to_nodes,
)
from ._checks import check_model, check_numbers
from ._groups import Group, group_dofs, groups
from ._links import joint_errors, Place, place
from ._pipeline import AbstractPipeline, check_input, first_state
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
    - `load`: force and torque on each body at its centre of mass: weight, what carries
        it, the medium, external forces.
    - `contacts`: what could touch.
    """

    sys: System
    constants: Constants
    h: Any
    origin: Vec3
    load: Force
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


class Moving(NamedTuple):
    """What changes from substep to substep: the bodies, and beside them the coordinates
    and velocities of the joints, which armature, actuators, springs and limits read.
    The error of a joint is how far these two descriptions are apart."""

    bodies: Bodies
    q: Any
    qd: Any
    act: Any


class AbstractMaximal(AbstractPipeline):
    """A pipeline in maximal coordinates: links are bodies of their own, and joints are
    what acts between them.

    A step places the bodies by forward kinematics, makes `substeps` substeps, and goes
    back to coordinates: to those at which the robot as a mechanism is nearest to the
    bodies, measured by their masses, which keeps momentum to first order. Subclasses
    say what a substep is.
    """

    substeps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def substep(self, world: World, now: Moving, tau: Array) -> Moving:
        """One substep, with batch axes last.

        **Arguments:**

        - `now`: after the loads of the substep have acted on the velocities.
        - `tau`: forces of actuators and springs along the joints, `(nv, *batch)`.
        """

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        check_state(sys, q, qd)
        check_numbers(self)
        check_finite(sys)
        check_model(sys)
        return first_state(sys, q, qd)

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        q, qd, act = _step(*_arguments(self, sys, state, ctrl, external))
        return State(q, qd, act if sys.na else state.act, state.aux)

    def joint_drift(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, "nlink 6"]:
        """How far joints are apart at the end of a step, before it goes back to
        coordinates: the rotation (rad) and the displacement (m) of each link from where
        its joints put it, in world axes; zero for links without joints, and with free
        ones."""
        return _drift(*_arguments(self, sys, state, ctrl, external))


def _arguments(pipeline: AbstractMaximal, sys: System, state: State, ctrl, external):
    check_input(sys, state, ctrl, external)
    kept = jtu.tree_map(
        lambda x: x.astype(state.q.dtype) if eqx.is_inexact_array(x) else x, pipeline
    )
    return kept, sys, _derive(sys), state.q, state.qd, state.act, ctrl, external


def _derive_fn(sys: System) -> Constants:
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


def _step_fn(pipeline, sys: System, constants: Constants, *state_and_input):
    q, qd, act, ctrl, external = full_batch(state_and_input, sys, constants, pipeline)
    world, end = _advance(pipeline, sys, constants, q, qd, act, ctrl, external)
    return *_project(world, end), end.act


def _drift_fn(pipeline, sys: System, constants: Constants, *state_and_input):
    q, qd, act, ctrl, external = full_batch(state_and_input, sys, constants, pipeline)
    world, end = _advance(pipeline, sys, constants, q, qd, act, ctrl, external)
    nodes, links, errors = tree(sys), [], []
    for group in groups(nodes, False)[0]:
        at = world.place(group, end.bodies, end.q)
        errors.append(joint_errors(constants.bodies, group, end.bodies, at))
        links += [nodes.links[layout(nodes).nodes[body]] for body in group.bodies]
    if not links:
        return jnp.zeros((sys.nlink, 6, *q.shape[1:]), q.dtype)
    error = accumulate(concatenate(errors), links, sys.nlink)
    return jnp.concatenate([stack(error.ang), stack(error.lin)], axis=1)


_derive = batch_last(_derive_fn)
_step = batch_last(_step_fn)
_drift = batch_last(_drift_fn)


def _advance(
    pipeline: AbstractMaximal,
    sys: System,
    constants: Constants,
    q,
    qd,
    act,
    ctrl,
    external,
) -> tuple[World, Moving]:
    """All substeps of a step."""
    nodes = tree(sys)
    kin = kinematics(sys, nodes, constants.frames, q)
    velocity = descend(nodes, joint_motion(nodes, kin, qd))
    bodies = place_bodies(nodes, constants.bodies, kin, velocity)
    origin = take(kin.origin, layout(nodes).nodes)
    load = _load(sys, nodes, constants, kin, velocity, external, bodies.com)
    contacts = _contacts(sys, nodes, constants, kin, bodies, origin)
    h = sys.dt[None] / pipeline.substeps
    small = eqx.tree_at(lambda s: s.dt, sys, sys.dt / pipeline.substeps)
    world = World(small, constants, h, origin, load, contacts)

    def one(now: Moving, _):
        drive = actuation(small, now.q, now.qd, now.act, ctrl)
        tau = drive.tau + spring_forces(small, now.q)
        pushed = now._replace(bodies=_push(world, now, tau))
        later = pipeline.substep(world, pushed, tau)
        act = next_activation(small, now.act, drive.act_rate, small.dt)
        return later._replace(act=act), None

    batch = lambda x: jnp.broadcast_to(x, (x.shape[0], *q.shape[1:]))
    bodies = jtu.tree_map(batch, bodies)
    return world, lax.scan(one, Moving(bodies, q, qd, act), length=pipeline.substeps)[0]


def _load(sys, nodes: Tree, constants, kin, velocity, external, com: Vec3) -> Force:
    """Forces that are held for a step, at the centres of mass of the bodies."""
    fixed = constants.frames
    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity)
    if external is not None:
        torque, push = vec3(external[:, :3]), vec3(external[:, 3:])
        force = force + at_centers(sys, nodes, fixed, kin, push, torque)
    return _to_bodies(sys, nodes, constants.bodies, force, com)


@stage
def _to_bodies(sys: System, nodes: Tree, numbers: BodyNumbers, force, com) -> Force:
    ang, lin = take(force, layout(nodes).nodes)
    weight = Vec3(*(sys.gravity[k][None] * numbers.mass for k in range(3)))
    return Force(ang - (com ^ lin), lin + weight)


def _contacts(sys, nodes: Tree, constants, kin: Kinematics, bodies, origin):
    plan = contact_plan(sys)
    if not plan.size:
        return None
    carriers = [-1 if k < 0 else nodes.link_nodes[k] for k in sys.geoms.links]
    points = detect(sys, plan, constants.geoms, kin, carriers)
    ends = sides(layout(nodes), plan)
    return touch(sys, plan, ends, bodies, origin, points, constants.friction)


def _push(world: World, now: Moving, tau) -> Bodies:
    """Velocities after the loads of a substep, and what acts along free joints."""
    free = _free_forces(world.sys, world.tree, world.constants.bodies, now, tau)
    return _fall(world.constants.bodies, now.bodies, world.load + free, world.h)


@stage
def _free_forces(sys: System, nodes: Tree, numbers, now: Moving, tau) -> Force:
    n = nodes.num_free
    index = [layout(nodes).index[node] for node in range(n)]
    tau = tau - sys.joints.damping * now.qd
    column = lambda k: take(tau, [dof + k for dof in nodes.dofs[:n]])
    rot, com = take((now.bodies.rot, numbers.com), index)
    push = Vec3(column(0), column(1), column(2))
    torque = (rot @ Vec3(column(3), column(4), column(5))) - ((rot @ com) ^ push)
    return accumulate(Force(torque, push), index, len(layout(nodes).nodes))


@stage
def _fall(numbers: BodyNumbers, bodies: Bodies, load: Force, h) -> Bodies:
    rot = bodies.rot
    turn = rot @ (numbers.inverse_inertia @ (rot.T @ load.ang))
    ang = bodies.velocity.ang + (turn * h)
    lin = bodies.velocity.lin + (load.lin * (h * numbers.inverse_mass))
    return bodies._replace(velocity=Motion(ang, lin))


@stage
def all_rates(nodes: Tree, parts: list, bodies: Bodies, numbers: BodyNumbers):
    """Velocities of all joints, in the order of `qd`.

    **Arguments:**

    - `parts`: groups and their rates, axis by axis; free joints follow their bodies.
    """
    n = nodes.num_free
    index = [layout(nodes).index[node] for node in range(n)]
    rot, velocity, com = take((bodies.rot, bodies.velocity, numbers.com), index)
    lin = velocity.at(-(rot @ com))
    rows = [*lin, *(rot.T @ velocity.ang)]
    dofs = [dof + k for k in range(6) for dof in nodes.dofs[:n]]
    for group, rates in parts:
        rows += rates
        dofs += group_dofs(nodes, group)
    rows = concatenate([row for row in rows if row.shape[0]])
    return take(rows, sorted(range(len(dofs)), key=dofs.__getitem__))


def total(impulses: list[Force]) -> Force:
    """The sum of impulses on all bodies."""
    return jtu.tree_map(lambda *xs: sum(xs[1:], xs[0]), *impulses)


@stage
def between(group: Group, bodies: Bodies, impulse: Force) -> Force:
    """Impulses on all bodies, from those on the links of a group."""
    n = bodies.com.x.shape[0]
    own = accumulate(impulse, group.bodies, n)
    com = take(bodies.com, group.bodies)
    kept = [k for k, parent in enumerate(group.parents) if parent >= 0]
    if not kept:
        return own
    parents = [group.parents[k] for k in kept]
    arm = take(com, kept) - take(bodies.com, parents)
    push = take(impulse, kept)
    back = Force(push.ang + (arm ^ push.lin), push.lin)
    return own - accumulate(back, parents, n)


def _project(world: World, end: Moving):
    """The coordinates and velocities that are nearest to what the bodies do.

    With $M$ the joint-space matrix and $J_b$ the Jacobians of the bodies, one step of
    Gauss-Newton from the kept coordinates, $M \\delta = \\sum_b J_b^T I_b e_b$ with the
    displacements $e_b$, and $M \\dot q = \\sum_b J_b^T I_b V_b + A \\dot q_\\mathrm{kept}$
    with the armature $A$: the least squares in which bodies count by their masses. They
    leave momentum as it is, but for the small change of coordinates between them.
    """
    sys, nodes, constants = world.sys, world.tree, world.constants
    kin = kinematics(sys, nodes, constants.frames, end.q)
    inertia = node_inertias(constants.nodes, kin)
    armature = sys.joints.armature + jnp.zeros_like(end.qd)
    factored = factor(nodes, kin, inertia, armature)
    error, motion = _momenta(
        nodes, constants.bodies, kin, inertia, world.origin, end.bodies
    )
    change, _ = solve(nodes, kin, factored, jnp.zeros_like(end.qd), error)
    qd, _ = solve(nodes, kin, factored, armature * end.qd, motion)
    return advance(sys.joints.kinds, end.q, change), qd


@stage
def _momenta(nodes, numbers, kin: Kinematics, inertia, origin, bodies: Bodies):
    """Inertia times displacement, and momentum, of each node about its tree's origin."""
    which = layout(nodes).nodes
    pose, arm, here, own = take((kin.pose, kin.arm, kin.origin, inertia), which)
    com = arm + (pose.rot @ numbers.com)
    shift = (bodies.com + (origin - here)) - com
    ang = small_rotation(bodies.rot, pose.rot)
    error = own @ Motion(ang, shift - (ang ^ com))
    spin, lin = bodies.velocity
    motion = own @ Motion(spin, lin - (spin ^ com))
    return to_nodes(nodes, error), to_nodes(nodes, motion)
