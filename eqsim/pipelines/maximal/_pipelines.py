"""The pipelines `Spring` and `Positional`: a step in maximal coordinates.

Both share `AbstractMaximal`: forward kinematics to bodies, substeps, and the projection of
the bodies back to joint coordinates. They differ in how a substep treats constraints.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float

from ..._batching import batch_last, full_batch
from ...collision import contact_plan, detect
from ...collision.points import ContactPoints
from ...dynamics.actuation import actuation, ActuationInputs
from ...dynamics.articulated import project
from ...dynamics.force_laws import advance_activation
from ...dynamics.passive import (
    at_centers,
    compensation_forces,
    damping,
    fluid_forces,
    spring_forces,
)
from ...dynamics.tendon_forces import passive_tendon_forces, passive_tendons
from ...kinematics.coordinates import move_coordinates
from ...kinematics.link_motion import ascend, descend, joint_motion, kinematics
from ...model import check_finite, check_state, check_step, State, System, tree
from ...model.arrays import accumulate, as_array, concatenate, take
from ...spatial import Force, positive_part, Vec3
from ...spatial.clamps import at_least, at_most
from ...spatial.vectors import force_at, stack, vec3
from .._pipeline import (
    AbstractPipeline,
    check_max_contacts,
    Contacts,
    deepest_contacts,
    first_state,
    no_contacts,
    num_reported,
    Solved,
)
from ..forward_dynamics import step_inputs, StepInputs
from ._impulses import (
    contact_frames,
    contact_impulses,
    contact_motion,
    ContactFrames,
    ContactMotion,
    on_bodies,
    push_out,
    rebound_velocity,
    remove_violations,
    velocity_correction,
)
from ._joints import (
    joint_errors,
    joint_frames,
    joint_impulses,
    joint_rates,
    joint_terms,
    JointFrames,
    JointSolution,
    net_impulse,
    relative_velocity,
    solve_joints,
)
from ._rigid_bodies import (
    apply_correction,
    apply_impulse,
    Bodies,
    body_layout,
    BodyConstants,
    check_model,
    check_parameters,
    check_substeps,
    derive_bodies,
    inverse_inertia,
    InverseInertia,
    joint_groups,
    JointGroup,
    move_freely,
    place_bodies,
    PreparedBodies,
    project_to_joints,
)


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


_derive = batch_last(derive_bodies)


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
    check_step(robot, state, ctrl, external)
    if isinstance(sys, System):
        sys = PreparedBodies(sys, _derive(sys))
    pipeline = jtu.tree_map(
        lambda x: x.astype(state.q.dtype) if eqx.is_inexact_array(x) else x, pipeline
    )
    return pipeline, sys, step_inputs(state, ctrl, external)


def _start(substeps: int, prepared: PreparedBodies, inputs: StepInputs):
    """Compute the bodies, and collect the quantities that are constant over the
    substeps."""
    sys, constants = prepared.sys, prepared.constants
    q, qd, act, _, external, _ = inputs
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
    load = Force(ang - bodies.com.cross(lin), lin + weight)

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
        sys,
        state.act,
        drive.act_rate,
        drive.length,
        drive.velocity,
        drive.model_states,
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
    force = Force((rot @ torque) - (rot @ com).cross(push), push)
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


@batch_last
def _step(pipeline, prepared: PreparedBodies, inputs: StepInputs):
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


@batch_last
def _advance(pipeline, prepared: PreparedBodies, inputs: StepInputs):
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


@batch_last
def _joint_drift(pipeline, prepared: PreparedBodies, inputs: StepInputs):
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


class Spring(AbstractMaximal):
    r"""Joints are stiff springs and dampers, and contacts are impulses.

    All joints act in parallel, each as if it were alone, followed by all contacts, in
    semi-implicit Euler substeps of $h = \mathrm{dt}/\mathrm{substeps}$. This is fast,
    and accurate only in the limit of many substeps. A joint with an error $e$ of its
    bodies, which grows at $\dot e$, acts with the impulse

    $$F = -m\,(\kappa\,e/h + \zeta\,\dot e),$$

    where $m$ is the effective mass of the two links, a matrix of size 6. The spring
    constant is $\kappa m/h^2$ and the damping constant $\zeta m/h$, the stiffest that
    such substeps can follow, for light and heavy links; both increase with smaller
    substeps. $\kappa$ and $\zeta$ are the fractions of an error, and of its rate, that
    one substep removes, as in Catto, *Soft constraints*, 2011, at impulse level. Bodies
    of several joints are split among them (see `_joints.py`). Along joint
    axes, armature, damping, springs, limits and dry friction are implicit.

    A contact closer than its surfaces gets the impulse that makes the surfaces touch at
    the end of the substep, with Coulomb friction, and with restitution above the speed
    that gravity produces in two substeps. In each substep, a fraction `erp` of a
    penetration is removed: by impulses up to the speed that gravity produces in a few
    substeps (Baumgarte 1972), and beyond that at the end of the step by a change of
    coordinates without a change of velocities (Cline and Pai 2003). The same holds for
    violations of limits.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry
    friction and shapes, and `impratio`, which soften constraints in `Generalized`, are
    not used, nor are `safe_solref`, `integrator`, `implicit_damping` and
    `noslip_iterations`. Free joints may have neither armature nor dry friction; their
    damping and springs are explicit.
    Fluid forces, gravity compensation, external forces, and contact points are those at
    the start of a step.

    **Arguments:**

    - `substeps`: number of substeps per time step.
    - `stiffness`: fraction $\kappa$, between 0 and 1.
    - `damping`: fraction $\zeta$, between 0 and 1.
    - `erp`: fraction of a penetration, or of a violation of a limit, that is removed
        per substep.
    - `restitution`: ratio of the speeds after and before an impact; at 0 there is no
        rebound, and the derivative with respect to it is zero.
    - `max_contacts`: largest number of contacts that `solve` and `contacts` report: the
        deepest ones. None: 64. It does not limit the physics.
    """

    substeps: int = eqx.field(static=True, default=8)
    stiffness: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)
    damping: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    erp: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    max_contacts: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_contacts(self)

    @property
    def violation_share(self) -> Array:
        return self.erp

    def substep(
        self, step: StepData, state: MaximalState, tau: Array
    ) -> tuple[MaximalState, ConstraintImpulses]:
        sys, h, contacts = step.sys, step.h, step.contacts
        nodes, parameters, bodies = tree(sys), step.constants.bodies, state.bodies
        inverse, forces = inverse_inertia(parameters, bodies), None
        joints = [
            self._solve_joints(step, state, inverse, group, tau)
            for group in joint_groups(nodes, False)[0]
        ]
        if joints:
            bodies = apply_impulse(inverse, bodies, net_impulse(joints, bodies))
        if contacts is not None:
            motion = contact_motion(contacts, bodies)
            change = self._contact_velocity(sys, motion, h) - motion.velocity.x
            impulse = contact_impulses(contacts, motion, inverse, change)
            on_all = on_bodies(contacts, motion, inverse, impulse)
            bodies = apply_impulse(inverse, bodies, on_all)
            forces = contacts.frame.T @ impulse
        qd = joint_rates(nodes, joints, bodies, parameters)
        q = move_coordinates(sys.joints.kinds, state.q, h * qd)
        new = MaximalState(move_freely(parameters, bodies, h), q, qd, state.act)
        return new, ConstraintImpulses(joint_impulses(nodes, joints, tau), forces)

    def _solve_joints(
        self,
        step: StepData,
        state: MaximalState,
        inverse: InverseInertia,
        group: JointGroup,
        tau: Array,
    ) -> JointSolution:
        r"""Remove the velocity $\kappa\,e/h + \zeta\,(V - S \dot q)$ in each joint."""
        q, qd, bodies, h = state.q, state.qd, state.bodies, step.h
        at = step.joint_frames(group, bodies, q)
        terms = joint_terms(step.sys, tree(step.sys), group, q, qd, tau, h)
        error = joint_errors(step.constants.bodies, group, bodies, at)
        apart = relative_velocity(group, bodies)
        for axis, term in zip(at.axes, terms.axes, strict=True):
            apart = apart - (axis * term.rate)
        remove = error * (self.stiffness[None] / h) + apart * self.damping[None]
        return solve_joints(group, bodies, inverse, at.axes, remove, terms)

    def _contact_velocity(self, sys: System, motion: ContactMotion, h):
        """Return the normal velocity of each contact at the end of the substep."""
        velocity, gap = motion.velocity.x, motion.gap
        out, _ = push_out(sys, gap, self.erp[None], h)
        meet = jnp.where(gap > 0.0, -gap / h, out)
        back = rebound_velocity(self.restitution, sys, velocity, h, meet)
        return jnp.where(meet > velocity, at_least(meet, back), meet)


class Positional(AbstractMaximal):
    r"""Extended position-based dynamics (XPBD): small steps with one iteration each.

    A substep of $h = \mathrm{dt}/\mathrm{substeps}$ first moves the bodies freely, and
    then corrects their poses, joint by joint, to satisfy joints and contacts:

    - One iteration in each of many substeps: Macklin et al., *Small steps in physics
      simulation*, 2019, algorithm 1.
    - Correction of a joint: the multiplier of Macklin, Müller and Chentanez, *XPBD*,
        2016, equation 18, $(K + \alpha/h^2)\,\lambda = -e$, with the compliance
        $\alpha$, for all directions of the joints of a link in one block; $K$ is the
        sum of the generalized inverse masses of Müller et al., *Detailed rigid body
        simulation with extended position based dynamics*, 2020, equations 2 to 5.
        Armature, damping, springs, limits and dry friction of the joints are solved in
        the same block (see `_joints.py`), as in implicit Euler.
    - Order: by the depth of links, from the roots, where each depth uses the
        corrections of the previous ones (Gauss-Seidel). Links at one depth that share a
        parent split it.
    - Contacts: normal correction and static friction of positions (2020, section 3.5);
        restitution, and removal of the speed caused by corrections, for velocities
        (2020, section 3.6, equation 34). A correction gives bodies at most the speed
        that gravity produces in a few substeps. Larger penetrations, and violations of
        limits, are removed at the end of the step by a change of coordinates without a
        change of velocities (Cline and Pai 2003).
    - Velocities are changed with the corrections by $\Delta x/h$ and $\Delta\theta/h$.
        For translations, this is the difference of positions over $h$ (2020, algorithm
        2) without its cancellation; for rotations, it is to second order in $h$.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry
    friction and shapes, and `impratio`, which soften constraints in `Generalized`, are
    not used, nor are `safe_solref`, `integrator`, `implicit_damping` and
    `noslip_iterations`. Free joints may have neither armature nor dry friction; their
    damping and springs are explicit.
    Fluid forces, gravity compensation, external forces, and contact points are those at
    the start of a step.

    **Arguments:**

    - `substeps`: number of substeps per time step.
    - `compliance`: compliance of joints in translation, m/N. At 0 they are rigid. It is
        also in series with the forces along joint axes.
    - `angular_compliance`: compliance of joints in rotation, rad/(N m).
    - `relaxation`: fraction of a penetration, or of a violation of a limit, that is
        removed per substep.
    - `restitution`: ratio of the speeds after and before an impact; at 0 there is no
        rebound, and the derivative with respect to it is zero.
    - `max_contacts`: largest number of contacts that `solve` and `contacts` report: the
        deepest ones. None: 64. It does not limit the physics.
    """

    substeps: int = eqx.field(static=True, default=8)
    compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    angular_compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    relaxation: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    max_contacts: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_contacts(self)

    @property
    def violation_share(self) -> Array:
        return self.relaxation

    def substep(
        self, step: StepData, state: MaximalState, tau: Array
    ) -> tuple[MaximalState, ConstraintImpulses]:
        sys, h, parameters = step.sys, step.h, step.constants.bodies
        nodes, q, qd = tree(sys), state.q, state.qd
        bodies = move_freely(parameters, state.bodies, h)
        inverse = inverse_inertia(parameters, bodies)
        # Coordinates of the joints if their rates stayed constant.
        ahead = move_coordinates(sys.joints.kinds, q, h * qd)
        soft = self.compliance[None] / h**2, self.angular_compliance[None] / h**2
        joints, forces = [], None
        for level in joint_groups(nodes, True):
            solved = []
            for group in level:
                at = step.joint_frames(group, bodies, ahead)
                terms = joint_terms(sys, nodes, group, q, qd, tau, h)
                remove = joint_errors(parameters, group, bodies, at) * (1.0 / h)
                solved.append(
                    solve_joints(group, bodies, inverse, at.axes, remove, terms, soft)
                )
            bodies = apply_correction(inverse, bodies, net_impulse(solved, bodies), h)
            joints += solved
        if step.contacts is not None:
            before = state.bodies, bodies
            bodies, forces = self._solve_contacts(step, step.contacts, *before, inverse)
        qd = joint_rates(nodes, joints, bodies, parameters)
        q = move_coordinates(sys.joints.kinds, q, h * qd)
        impulses = ConstraintImpulses(joint_impulses(nodes, joints, tau), forces)
        return MaximalState(bodies, q, qd, state.act), impulses

    def _solve_contacts(
        self,
        step: StepData,
        contacts: ContactFrames,
        before: Bodies,
        bodies: Bodies,
        inverse: InverseInertia,
    ):
        """Correct poses, then velocities; `before` contains the bodies before the
        substep."""
        h = step.h
        motion = contact_motion(contacts, bodies)
        share, approach = self.relaxation[None], positive_part(-motion.velocity.x)
        out, _ = push_out(step.sys, motion.gap + approach * h, share, h)
        change = at_most(-share * motion.gap / h, share * approach + out)
        impulse = contact_impulses(contacts, motion, inverse, change)
        on_all = on_bodies(contacts, motion, inverse, impulse)
        bodies = apply_correction(inverse, bodies, on_all, h)

        met = contact_motion(contacts, before).velocity.x
        motion = contact_motion(contacts, bodies)
        # The remaining approach velocity closes the gap; separation is due to the
        # correction.
        slow = -positive_part(-motion.velocity.x)
        back = rebound_velocity(self.restitution, step.sys, met, h, slow)
        more = velocity_correction(contacts, motion, inverse, impulse.x, back)
        on_all = on_bodies(contacts, motion, inverse, more)
        bodies = apply_impulse(inverse, bodies, on_all)
        return bodies, contacts.frame.T @ (impulse + more)
