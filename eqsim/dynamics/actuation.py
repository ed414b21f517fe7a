r"""Actuators: from control signals to joint forces, with activation dynamics.

Their inputs from the mechanism are moments of sites, tendons and contacts, gravity
compensation, and the strength of muscles: if no peak force is given, it follows from the
joint accelerations $|M^{-1} m|$ that unit forces cause at the reference coordinates, with the
moment $m = \partial\ell/\partial q$ (MuJoCo: `actuator_acc0`). They are computed from the
primary parameters whenever a pipeline is called.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..kinematics.coordinates import dof_joints
from ..kinematics.link_motion import ascend, Frames, frames, Kinematics, kinematics
from ..model import ActivationState, Gain, System, Tree, tree
from ..model.arrays import per_row, take
from ..spatial import safe_sqrt
from .actuator_slots import addresses
from .articulated import factor, node_bodies, node_inertias, NodeBodies, project, solve
from .attached_models import (
    join_activations,
    model_controls,
    model_forces,
    ModelStates,
    split_activations,
)
from .force_laws import (
    add_mechanical_forces,
    clip_forces,
    clip_rows,
    clip_tendon_forces,
    law_forces,
    law_velocity_gain,
    LawInputs,
    next_activation,
    Signals,
    signals,
)
from .motors import muscle_scale, MuscleScale
from .passive import armature, compensation_forces
from .tendon_forces import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    ArmatureUpdate,
    has_tendon_armature,
)
from .transmission import (
    Moments,
    other_rows,
    OtherRows,
    Touching,
    transmission,
    transmission_frames,
    TransmissionFrames,
)


class ActuationInputs(NamedTuple):
    """Inputs of actuators besides coordinates, velocities, activations and controls.

    - `others`: moments and lengths of actuators on other things than joints; None if
        there are none.
    - `muscles`: peak forces and optimal lengths; None if there are none.
    - `compensation`: gravity compensation as joint forces, `(nv, *batch)`; None if no
        joint has it as an actuator force.
    - `elapsed`: time since the start of the time step at a stage of `RK4`, s; None with
        other integrators.
    """

    others: OtherRows | None = None
    muscles: MuscleScale | None = None
    compensation: Any = None
    elapsed: Any = None


class Actuation(NamedTuple):
    """The state of all actuators.

    - `moments`: the moment matrix.
    - `length`, `velocity`, `force`: values of each actuator, `(nout, *batch)`.
    - `tau`: joint forces, with gravity compensation where it is one, `(nv, *batch)`.
    - `act_rate`: rates of the activations, `(na, *batch)`; zero for state variables of
        models.
    - `laws`: inputs of the force laws.
    - `limited_force`: forces before cogging and friction of DC motors and before attached
        models, to which ranges do not apply.
    - `model_states`: state variables of attached models at the end of the step.
    """

    moments: Moments | None
    length: Any
    velocity: Any
    force: Any
    tau: Any
    act_rate: Any
    laws: LawInputs | None
    limited_force: Any
    model_states: ModelStates


def actuation(
    sys: System, q, qd, act, ctrl, inputs: ActuationInputs = ActuationInputs()
) -> Actuation:
    """Compute the forces of all actuators.

    **Arguments:** `q (nq, *batch)`, `qd (nv, *batch)`, `act (na, *batch)`,
    `ctrl (nu, *batch)`.
    """
    actuators = sys.actuators
    if sys.nactuator == 0:
        none, rest = qd[:0], jnp.zeros_like(qd)
        rate = jnp.zeros_like(act)
        return Actuation(None, none, none, none, rest, rate, None, none, {})
    moments, length = transmission(sys, q, inputs.others)
    if not actuators.active:
        return _inactive(sys, moments, length, qd, act)
    velocity = moments.rates(qd, sys.nout)
    states: ModelStates = {}
    changed: ModelStates = {}
    if sys.actuator_models:
        act, states = split_activations(sys, act)
        ctrl, changed = model_controls(
            sys, states, ctrl, length, velocity, inputs.elapsed
        )
    ctrl = clip_rows(ctrl, actuators.ctrl_range, actuators.ctrl_limited)
    now = signals(sys, act, ctrl, length, velocity)
    ready = _early(sys, act, now, velocity)
    laws = LawInputs(ready, now, length, velocity, inputs.muscles, states)
    force = clip_forces(sys, clip_tendon_forces(sys, law_forces(sys, laws)))
    total = add_mechanical_forces(sys, force, act, length, velocity)
    rate, new = now.rate, states
    if sys.actuator_models:
        total, moved = model_forces(sys, states, now.ctrl, total, length, velocity)
        new = changed | moved
        rate = join_activations(rate, {k: jnp.zeros_like(x) for k, x in new.items()})
    tau = moments.joint_forces(total, sys.nv)
    tau = _add_compensation(sys, tau, inputs.compensation)
    tau = _clip_joint_forces(sys, tau)
    return Actuation(moments, length, velocity, total, tau, rate, laws, force, new)


def _inactive(sys: System, moments: Moments, length, qd, act) -> Actuation:
    rest = jnp.zeros_like(length)
    tau, rate = jnp.zeros_like(qd), jnp.zeros_like(act)
    return Actuation(moments, length, rest, rest, tau, rate, None, rest, {})


def _early(sys: System, act, now: Signals, velocity):
    """Return the activations that forces read: now, or at the end of the step."""
    actuators = sys.actuators
    early = [
        mark and (gain is not Gain.DISCRETE_PID or state is ActivationState.SIGNAL)
        for mark, gain, states in zip(
            actuators.act_early, actuators.gains, actuators.states
        )
        for state in states
    ]
    if not any(early):
        return act
    share = per_row(early, act)
    return act + share * (next_activation(sys, act, now.rate, velocity) - act)


def _add_compensation(sys: System, tau, compensation):
    """Add gravity compensation where it counts as an actuator force."""
    if compensation is None:
        return tau
    return tau + actuator_compensation(sys, compensation)


def actuator_compensation(sys: System, compensation):
    """Return the part of gravity compensation, as joint forces, that counts as an
    actuator force."""
    joints = sys.joints
    marks = [joints.actuator_gravity[j] for j in dof_joints(joints.kinds)]
    return jnp.where(per_row(marks, compensation) > 0, compensation, 0.0)


def _clip_joint_forces(sys: System, tau):
    joints = sys.joints
    if joints.force_range is None or not any(joints.force_limited):
        return tau
    index = dof_joints(joints.kinds)
    limited = tuple(joints.force_limited[j] for j in index)
    return clip_rows(tau, take(joints.force_range, index), limited)


def velocity_gain(sys: System, now: Actuation):
    r"""Compute the derivatives of actuator forces by their velocities,
    $\partial f/\partial\dot\ell$, as MuJoCo takes them for implicit integration
    (`mjd_actuator_vel`): of affine gains and biases, muscles, servos of orientation and
    DC motors; zero where a force is at the end of its range, or the total force on its
    joint or tendon is. Of DC motors it leaves out the change of friction with the decay
    of bristles.

    **Arguments:**

    - `now`: the actuators at a state.

    **Returns:** one number per force, `(nout, *batch)`.
    """
    if now.laws is None:
        return jnp.zeros_like(now.force)
    return law_velocity_gain(sys, now.laws, now.limited_force, now.tau)


# Strength of muscles.


def muscle_scales(
    sys: System,
    tree: Tree,
    fixed: Frames,
    bodies: NodeBodies,
    local: TransmissionFrames | None,
) -> MuscleScale | None:
    """Compute peak forces and optimal lengths of muscles; None if there are none."""
    muscles = sys.actuators.muscles
    if muscles is None:
        return None
    rows = [i for i, mark in enumerate(muscles.scaled) if mark]
    if not rows:
        return muscle_scale(muscles, None)
    outs = addresses(sys.actuators.structure).out
    index = [outs[muscles.owners[i]] for i in rows]
    unit = _unit_accelerations(sys, tree, fixed, bodies, local, index)
    return muscle_scale(muscles, unit)


def _unit_accelerations(sys: System, tree: Tree, fixed: Frames, bodies, local, outs):
    q = sys.joints.ref
    kin = kinematics(sys, tree, fixed, q)
    factored = factor(tree, kin, node_inertias(bodies, kin), armature(sys))
    invert = lambda tau: solve(tree, kin, factored, tau, None)
    updates: list[ArmatureUpdate] = []
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, tree, fixed, kin, q)
        updates = armature_updates(sys, jac, invert)
    moments, _ = transmission(sys, q, other_rows(sys, tree, local, kin, q, None))
    zero = jnp.zeros_like(q[:1])

    def norm(_, unit):
        tau = moments.joint_forces(unit, sys.nv)
        batch = jnp.broadcast_shapes(tau.shape[1:], kin.arm.x.shape[1:])
        tau = jnp.broadcast_to(tau, (sys.nv, *batch))
        qdd, _ = apply_updates(updates, *invert(tau))
        return None, safe_sqrt(jnp.sum(qdd * qdd, axis=0))

    units = jnp.eye(sys.nout, dtype=q.dtype)[jnp.array(outs)]
    units = units.reshape(*units.shape, *(1 for _ in q.shape[1:])) + zero[None]
    return lax.scan(norm, None, units)[1]


# Inputs from the mechanism.


class ActuationConstants(NamedTuple):
    """Quantities that depend on a `System` but not on the state.

    - `muscles`: peak forces and optimal lengths; None if there are no muscles.
    - `frames`: frames of sites and tendons; None if all actuators act on joints.
    """

    muscles: MuscleScale | None
    frames: TransmissionFrames | None


def actuation_constants(
    sys: System, tree: Tree, fixed: Frames, bodies: NodeBodies
) -> ActuationConstants:
    """Compute the constants of the actuators of a system."""
    local = transmission_frames(sys, fixed)
    return ActuationConstants(muscle_scales(sys, tree, fixed, bodies, local), local)


def actuation_inputs(
    sys: System,
    tree: Tree,
    fixed: Frames,
    constants: ActuationConstants,
    kin: Kinematics,
    q,
    touching: Touching | None = None,
) -> ActuationInputs:
    """Compute what actuators read of the mechanism at a state.

    **Arguments:**

    - `touching`: contact points, for actuators on links; None if there are none.
    """
    return ActuationInputs(
        other_rows(sys, tree, constants.frames, kin, q, touching),
        constants.muscles,
        gravity_compensation(sys, tree, fixed, kin),
    )


def gravity_compensation(sys: System, tree: Tree, fixed: Frames, kin: Kinematics):
    """Compute gravity compensation as joint forces, `(nv, *batch)`; None if no joint
    counts it as an actuator force."""
    if not any(sys.joints.actuator_gravity):
        return None
    force = compensation_forces(sys, tree, fixed, kin)
    return project(tree, kin, ascend(tree, force))


def actuation_at(sys: System, q, qd, act, ctrl) -> Actuation:
    """Compute the forces of all actuators without anything computed before, and without
    contacts."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    bodies = node_bodies(sys, nodes, fixed)
    constants = actuation_constants(sys, nodes, fixed, bodies)
    inputs = actuation_inputs(sys, nodes, fixed, constants, kin, q)
    return actuation(sys, q, qd, act, ctrl, inputs)
