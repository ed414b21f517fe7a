"""Common parts of `Spring` and `Positional`: a step in maximal coordinates."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from ..collision import contact_plan, ContactPoints, detect
from ..dynamics._actuation import actuation, ActuationInputs
from ..dynamics._articulated import project
from ..dynamics._force_laws import advance_activation
from ..dynamics._passive import (
    at_centers,
    compensation_forces,
    damping,
    fluid_forces,
    spring_forces,
)
from ..dynamics._tendons import passive_tendon_forces, passive_tendons
from ..kinematics._forward import ascend, descend, joint_motion, kinematics
from ..model import check_finite, check_state, State, System, tree
from ..model._gather import accumulate, concatenate, take
from ..spatial import Force, force_at, Vec3, vec3
from ..spatial._vector import stack
from ._body_constants import BodyConstants, derive_bodies, PreparedBodies
from ._contact_impulses import contact_frames, ContactFrames
from ._contacts import Contacts, deepest_contacts, no_contacts, num_reported
from ._forward import StepInputs
from ._joint_constraints import joint_errors, joint_frames, JointFrames
from ._maximal_checks import check_model, check_parameters
from ._pipeline import AbstractPipeline, first_state
from ._post_stabilization import remove_violations
from ._rigid_bodies import (
    apply_impulse,
    Bodies,
    body_layout,
    inverse_inertia,
    joint_groups,
    JointGroup,
    place_bodies,
    project_to_joints,
)
from ._solved import Solved


class StepData(NamedTuple):
    """Quantities that are constant over the substeps of a step.

    - `sys`: the robot, with the substep as its time step.
    - `h`: duration of a substep, s.
    - `origin`: origin of each body's tree, in the world.
    - `load`: force and torque on each body at its center of mass: weight, gravity
        compensation, fluid forces, external forces.
    - `points`, `contacts`: the possible contacts; None if there are none.
    """

    sys: System
    constants: BodyConstants
    h: Any
    origin: Vec3
    load: Force
    points: ContactPoints | None
    contacts: ContactFrames | None

    def joint_frames(self, group: JointGroup, bodies: Bodies, q) -> JointFrames:
        """Compute the poses of the links of a group from their parents, with joints at
        `q`."""
        nodes, constants = tree(self.sys), self.constants
        return joint_frames(
            self.sys,
            nodes,
            constants.frames,
            constants.bodies,
            group,
            bodies,
            self.origin,
            q,
        )


class MaximalState(NamedTuple):
    """State that changes in substeps: the bodies, and the coordinates and rates of the
    joints, which determine armature, actuator, spring and limit forces. The error of a
    joint is the difference between the two."""

    bodies: Bodies
    q: Any
    qd: Any
    act: Any


class ConstraintImpulses(NamedTuple):
    """The impulses of the constraints in a substep.

    - `joints`: impulses of limits and dry friction along the joints, `(nv, *batch)`.
    - `points`: impulses of contacts on the second body of each point; None if there are
        none.
    """

    joints: Any
    points: Vec3 | None


class AbstractMaximal(AbstractPipeline):
    """A pipeline in maximal coordinates, in which links are rigid bodies and joints are
    constraints.

    A step computes the bodies by forward kinematics, takes `substeps` substeps, and
    projects back to the nearest joint coordinates, weighted by inertia, which conserves
    momentum to first order. Subclasses define a substep.
    """

    substeps: eqx.AbstractVar[int]
    max_contacts: eqx.AbstractVar[int | None]

    @property
    @abc.abstractmethod
    def violation_share(self) -> Array:
        """Fraction of a penetration, or of a violation of a joint limit, that is
        removed per substep."""

    @abc.abstractmethod
    def substep(
        self, step: StepData, state: MaximalState, tau: Array
    ) -> tuple[MaximalState, ConstraintImpulses]:
        """Take one substep, with batch axes last.

        **Arguments:**

        - `state`: state after the loads of the substep have changed the velocities.
        - `tau`: forces of actuators and springs along the joints, `(nv, *batch)`.
        """

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        check_state(sys, q, qd)
        check_parameters(self)
        check_finite(sys)
        check_model(sys)
        return first_state(sys, q, qd)

    def prepare(self, sys: System) -> PreparedBodies:
        """Compute all quantities that depend on a robot alone, such as masses and inertias
        of its bodies. All methods accept the result in place of the robot.

        **Arguments:**

        - `sys`: the robot, or a batch of robots under `eqx.filter_vmap`.
        """
        check_state(sys)
        return PreparedBodies(sys, _derive(sys))

    def step(
        self,
        sys: System | PreparedBodies,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        pipeline, prepared, inputs = _prepared(self, sys, state, ctrl, external)
        q, qd, act = _step(pipeline, prepared, inputs)
        return State(q, qd, act if prepared.sys.na else state.act, state.aux)

    def solve(
        self,
        sys: System | PreparedBodies,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Compute accelerations and forces in a state: means over the substeps of the
        step that starts there. One substep does not suffice, because the weight of a
        body propagates to its contacts by one joint per substep.

        **Arguments:** as for `step`.
        """
        return self.advance(sys, state, ctrl, external)[1]

    def advance(
        self,
        sys: System | PreparedBodies,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        """Take a step, and return its mean accelerations and forces.

        **Arguments:** as for `step`.
        """
        pipeline, prepared, inputs = _prepared(self, sys, state, ctrl, external)
        (q, qd, act), solved = _advance(pipeline, prepared, inputs)
        qdd, constraint, actuator, done, points = solved
        contacts = self._reported(prepared.sys, state, points)
        new = State(q, qd, act if prepared.sys.na else state.act, state.aux)
        return new, Solved(qdd, contacts, constraint, actuator, done)

    def _reported(self, sys: System, state: State, arrays: tuple) -> Contacts:
        """Return the deepest contacts, given the arrays of all points."""
        if not arrays:
            return no_contacts(state.q.dtype)
        plan = contact_plan(sys)
        geoms = [plan.pairs[pair][:2] for pair in plan.point_pairs]
        number = num_reported(sys, self.max_contacts)
        return deepest_contacts(geoms, *arrays, max_contacts=number)

    def joint_drift(
        self,
        sys: System | PreparedBodies,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, "nlink 6"]:
        """Return joint errors at the end of a step, before the projection to
        coordinates: the rotation (rad) and displacement (m) of each link from the pose
        given by its joint, in world axes; zero for links without joints, and with free
        ones."""
        pipeline, prepared, inputs = _prepared(self, sys, state, ctrl, external)
        return _joint_drift(pipeline, prepared, inputs)


def _prepared(
    pipeline: AbstractMaximal,
    sys: System | PreparedBodies,
    state: State,
    ctrl,
    external,
) -> tuple[AbstractMaximal, PreparedBodies, StepInputs]:
    """Check the arguments of a step, prepare the robot unless it is, and convert the
    pipeline to the precision of the state."""
    robot = sys.sys if isinstance(sys, PreparedBodies) else sys
    check_state(robot, state.q, state.qd, ctrl, state.act, external)
    if isinstance(sys, System):
        sys = PreparedBodies(sys, _derive(sys))
    pipeline = jtu.tree_map(
        lambda x: x.astype(state.q.dtype) if eqx.is_inexact_array(x) else x, pipeline
    )
    inputs = StepInputs(state.q, state.qd, state.act, ctrl, external)
    return pipeline, sys, inputs


def _start(substeps: int, prepared: PreparedBodies, inputs: StepInputs):
    """Compute the bodies, and collect the quantities that are constant over the
    substeps."""
    sys, constants = prepared.sys, prepared.constants
    q, qd, act, _, external = inputs
    nodes, fixed, parameters = tree(sys), constants.frames, constants.bodies
    kin = kinematics(sys, nodes, fixed, q)
    velocity = descend(nodes, joint_motion(nodes, kin, qd))
    bodies = place_bodies(nodes, parameters, kin, velocity)

    force = compensation_forces(sys, nodes, fixed, kin)
    if sys.has_fluid:
        force = force + fluid_forces(sys, nodes, fixed, kin, velocity, constants.fluid)
    if external is not None:
        torque, push = vec3(external[:, :3]), vec3(external[:, 3:])
        force = force + at_centers(sys, nodes, fixed, kin, push, torque)
    origin, (ang, lin) = take((kin.origin, force), body_layout(nodes).nodes)
    weight = Vec3(*(sys.gravity[k][None] * parameters.mass for k in range(3)))
    load = Force(ang - (bodies.com ^ lin), lin + weight)

    points = contacts = None
    if constants.friction is not None:
        points = detect(sys, contact_plan(sys), constants.geoms, kin)
        contacts = contact_frames(
            sys, nodes, contact_plan(sys), bodies, origin, points, constants.friction
        )
    h = sys.dt[None] / substeps
    small = eqx.tree_at(lambda s: s.dt, sys, sys.dt / substeps)
    batch = lambda x: jnp.broadcast_to(x, (x.shape[0], *q.shape[1:]))
    first = MaximalState(jtu.tree_map(batch, bodies), q, qd, act)
    return StepData(small, constants, h, origin, load, points, contacts), first


def _substep(pipeline: AbstractMaximal, step: StepData, state: MaximalState, ctrl):
    sys, parameters = step.sys, step.constants.bodies
    inputs = ActuationInputs(muscles=step.constants.muscles)
    drive = actuation(sys, state.q, state.qd, state.act, ctrl, inputs)
    tau = drive.tau + spring_forces(sys, state.q)
    if any(passive_tendons(sys)):
        nodes, own = tree(sys), step.constants
        kin = kinematics(sys, nodes, own.frames, state.q)
        tau = tau + passive_tendon_forces(
            sys, nodes, own.tendons, kin, state.q, state.qd
        )
    impulse = (step.load + _free_forces(step, state, tau)) * step.h
    inverse = inverse_inertia(parameters, state.bodies)
    loaded = state._replace(bodies=apply_impulse(inverse, state.bodies, impulse))
    new, impulses = pipeline.substep(step, loaded, tau)
    act = advance_activation(
        sys, state.act, drive.act_rate, drive.length, drive.velocity
    )
    return new._replace(act=act), (impulses, drive.force * step.h)


def _free_forces(step: StepData, state: MaximalState, tau) -> Force:
    """Return the forces along free joints, including their damping, on all bodies."""
    nodes, layout = tree(step.sys), body_layout(tree(step.sys))
    index = [layout.index[node] for node in range(nodes.num_free)]
    tau = tau + damping(step.sys).force(state.qd)
    column = lambda k: take(tau, [dof + k for dof in nodes.dofs[: nodes.num_free]])
    rot, com = take((state.bodies.rot, step.constants.bodies.com), index)
    push, torque = Vec3(*map(column, range(3))), Vec3(*map(column, range(3, 6)))
    force = Force((rot @ torque) - ((rot @ com) ^ push), push)
    return accumulate(force, index, len(layout.nodes))


def _substeps(pipeline: AbstractMaximal, prepared: PreparedBodies, inputs: StepInputs):
    """Take all substeps of a step; return constant quantities, the last state, and mean
    forces of constraints and actuators in place of impulses."""
    inputs = full_batch(inputs, prepared, pipeline)
    step, first = _start(pipeline.substeps, prepared, inputs)
    # Reverse mode stores the states between substeps and recomputes the rest, because
    # storing and loading intermediate values takes longer, and much memory.
    one = jax.checkpoint(
        lambda state, _: _substep(pipeline, step, state, inputs.ctrl), prevent_cse=False
    )
    end, impulses = lax.scan(one, first, length=pipeline.substeps)
    return step, end, jtu.tree_map(lambda x: jnp.mean(x, axis=0) / step.h, impulses)


def _step_fn(pipeline, prepared: PreparedBodies, inputs: StepInputs):
    step, end, _ = _substeps(pipeline, prepared, inputs)
    return _end(pipeline, prepared, step, end)


def _end(
    pipeline: AbstractMaximal,
    prepared: PreparedBodies,
    step: StepData,
    end: MaximalState,
):
    """Return coordinates, velocities and activations at the end of a step."""
    sys, constants = prepared.sys, prepared.constants
    mechanism, projection = project_to_joints(
        sys,
        constants.frames,
        constants.nodes,
        constants.bodies,
        step.origin,
        end.bodies,
        end.q,
        end.qd,
    )
    q = projection.q
    if any(sys.joints.limited) or step.contacts is not None:
        inverse = inverse_inertia(constants.bodies, end.bodies)
        share, count = pipeline.violation_share[None], pipeline.substeps
        q = remove_violations(
            sys,
            mechanism,
            projection,
            step.contacts,
            end.bodies,
            inverse,
            share,
            count,
        )
    return q, projection.qd, end.act


def _advance_fn(pipeline, prepared: PreparedBodies, inputs: StepInputs):
    step, end, (forces, actuators) = _substeps(pipeline, prepared, inputs)
    sys, inputs = prepared.sys, full_batch(inputs, prepared, pipeline)
    new = _end(pipeline, prepared, step, end)
    qdd = (new[1] - inputs.qd) / sys.dt[None]
    total = _constraint_forces(sys, prepared.constants, step, forces, inputs.q)
    finite = lambda x: jnp.all(jnp.isfinite(x), axis=0)
    converged = finite(new[0]) & finite(new[1])
    if step.points is not None:
        converged = step.points.unless_crowded(converged)
    return new, (qdd, total, actuators, converged, _contact_arrays(step, forces))


def _contact_arrays(step: StepData, forces: ConstraintImpulses):
    points, force = step.points, forces.points
    if points is None or force is None:
        return ()
    frame = jnp.stack([stack(row) for row in points.frame.rows], axis=1)
    acts = (force.x != 0.0) | (force.y != 0.0) | (force.z != 0.0)
    assert step.contacts is not None, "a robot with points has contacts"
    exists = points.valid & ((step.contacts.dist < 0.0) | acts)
    return exists, points.dist, stack(points.pos), frame, stack(force)


def _constraint_forces(
    sys: System, constants: BodyConstants, step: StepData, forces: ConstraintImpulses, q
):
    """Return the joint forces of contacts, joint limits and dry friction."""
    total, nodes = forces.joints, tree(sys)
    if step.points is None or forces.points is None:
        return total
    kin = kinematics(sys, nodes, constants.frames, q)
    parts, where = [], []
    for k, force in enumerate((-forces.points, forces.points)):
        side = [pair[k] for pair in contact_plan(sys).nodes]
        moved = [i for i, node in enumerate(side) if node >= 0]
        on = [side[i] for i in moved]
        arm = take(step.points.pos, moved) - take(kin.origin, on)
        parts.append(force_at(arm, take(force, moved)))
        where += on
    pushed = accumulate(concatenate(parts), where, nodes.size)
    return total + project(nodes, kin, ascend(nodes, pushed))


def _joint_drift_fn(pipeline, prepared: PreparedBodies, inputs: StepInputs):
    step, end, _ = _substeps(pipeline, prepared, inputs)
    sys, constants = prepared.sys, prepared.constants
    nodes, links, errors = tree(sys), [], []
    for group in joint_groups(nodes, False)[0]:
        at = step.joint_frames(group, end.bodies, end.q)
        errors.append(joint_errors(constants.bodies, group, end.bodies, at))
        links += [nodes.links[body_layout(nodes).nodes[body]] for body in group.bodies]
    if not links:
        return jnp.zeros((sys.nlink, 6, *end.q.shape[1:]), end.q.dtype)
    error = accumulate(concatenate(errors), links, sys.nlink)
    return jnp.concatenate([stack(error.ang), stack(error.lin)], axis=1)


_advance = batch_last(_advance_fn)
_derive = batch_last(derive_bodies)
_step = batch_last(_step_fn)
_joint_drift = batch_last(_joint_drift_fn)
