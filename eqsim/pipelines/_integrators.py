r"""Integrators of `Generalized`, from accelerations to the next state; batch axes are last.

Implicit integrators solve $(M - h D)\,\ddot q' = M \ddot q$ with the derivative $D$ of
smooth forces with respect to velocity, that is $\ddot q' = \ddot q + (M - h D)^{-1} h
D\, \ddot q$ (MuJoCo documentation, *Computation*, "Numerical integration"). Free bodies that
carry no other moving body are integrated by themselves.
"""

import abc
import functools as ft
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..constraint import RobotData
from ..dynamics.articulated import factor, project, solve
from ..dynamics.force_laws import advance_activation
from ..dynamics.joint_space import (
    joint_space_entries,
    joint_space_matrix,
    linear_solver,
    lower_entries,
)
from ..dynamics.tendon_forces import (
    apply_updates,
    armature_updates,
    has_tendon_armature,
    tendon_inertia,
    tendon_inertia_times,
)
from ..dynamics.velocity_derivatives import (
    damping_matrix,
    eliminate,
    free_gyroscopic,
    implicit_joint_damping,
    smooth_damping,
    SmoothDamping,
    substitute,
    symmetric_damping,
    transposed,
)
from ..kinematics.coordinates import move_coordinates
from ..kinematics.link_motion import (
    add,
    ascend,
    descend,
    dof_axes,
    joint_motion,
    split_dofs,
)
from ..model import Integrator, JointKind, System, Tree, tree
from ..model.arrays import concatenate, take
from ..spatial import Force, Mat3, Motion, Vec3
from ..spatial.rotations import rotation_rate
from ..spatial.vectors import (
    ArticulatedInertia,
    congruence,
    diagonal,
    full_matrix6,
    Matrix6,
    solve6,
)
from .forward_dynamics import forward_dynamics, Prepared, StepInputs


def with_free_bodies(sys: System, now: RobotData, qdd, damping: SmoothDamping, jac):
    """Replace the accelerations of free bodies that carry no other moving body by those
    of the full implicit step with all of $D$ (MuJoCo: `mjd_freeMhat`)."""
    nodes = tree(sys)
    chosen = _lone_free_nodes(nodes)
    if not chosen:
        return qdd
    h, problem, rot = sys.dt[None], now.problem, take(now.kin.pose.rot, chosen)
    inertia, velocity = take((problem.inertia, now.velocities.velocity), chosen)
    on_joint = lambda values: _on_free_joints(nodes, chosen, rot, values)
    in_world = lambda matrix: _coupling_of_free_joints(nodes, chosen, rot, matrix)
    extra = free_gyroscopic(inertia, velocity) + on_joint(damping.joints)
    if damping.nodes is not None:
        extra = extra + take(damping.nodes, chosen)
    if damping.coupling is not None:
        extra = extra + in_world(damping.coupling)
    extra = extra * h
    mass = full_matrix6(inertia.articulated()) + on_joint(problem.armature)
    if jac is not None:
        mass = mass + in_world(tendon_inertia(sys, jac))
    total, before = mass + extra, _motion(nodes, chosen, rot, now.solution.qdd)
    change = lax.custom_linear_solve(
        lambda v: _motion_of(total @ v),
        _motion_of(extra @ before),
        lambda _, b: solve6(total, Force(*b)),
        lambda _, b: solve6(total.T, Force(*b)),
    )
    after, dofs = before - change, [dof for i in chosen for dof in _dofs(nodes, i)]
    found = jnp.concatenate([*after.lin, *(rot.T @ after.ang)])
    # One direction after another, each for all bodies.
    rows = [k * len(chosen) + i for i in range(len(chosen)) for k in range(6)]
    place = {dof: sys.nv + k for dof, k in zip(dofs, rows, strict=True)}
    return take(concatenate([qdd, found]), [place.get(d, d) for d in range(sys.nv)])


def _motion_of(force: Force) -> Motion:
    """Return a force as the components of a motion, the space in which the 6x6 systems
    are solved."""
    return Motion(*force)


def _dofs(nodes: Tree, node: int) -> range:
    return range(nodes.dofs[node], nodes.dofs[node] + 6)


def _on_free_joints(nodes: Tree, chosen, rot, values) -> Matrix6:
    """Return values of degrees of freedom as matrices of free bodies."""
    lin, ang, _ = split_dofs(nodes, values)
    lin, ang = take((lin, ang), chosen)
    none = jtu.tree_map(jnp.zeros_like, rot)
    inertia = ArticulatedInertia(congruence(rot, diagonal(*ang)), none, diagonal(*lin))
    return full_matrix6(inertia)


def _coupling_of_free_joints(nodes: Tree, chosen, rot, coupling) -> Matrix6:
    """Return the entries of a joint-space matrix that belong to free bodies."""
    nv = coupling.shape[0]
    flat = coupling.reshape(nv * nv, *coupling.shape[2:])
    at = lambda i, j: take(
        flat, [(nodes.dofs[k] + i) * nv + nodes.dofs[k] + j for k in chosen]
    )
    block = lambda i, j: Mat3(*(at(i + a, j + b) for a in range(3) for b in range(3)))
    lin_ang, ang_lin = block(0, 3) @ rot.T, rot @ block(3, 0)
    return Matrix6((rot @ block(3, 3)) @ rot.T, ang_lin, lin_ang, block(0, 0))


def _motion(nodes: Tree, chosen, rot, values) -> Motion:
    """Return accelerations of free bodies in world axes."""
    lin, ang, _ = split_dofs(nodes, values)
    lin, ang = take((lin, ang), chosen)
    return Motion(rot @ ang, lin)


@ft.lru_cache(maxsize=256)
def _lone_free_nodes(nodes: Tree) -> tuple[int, ...]:
    """List the free nodes without nodes below them."""
    return tuple(i for i in range(nodes.num_free) if i not in nodes.parents)


StateArrays = tuple[Any, Any, Any]
"""Coordinates, velocities and activations, with batch axes last."""


class AbstractIntegrator(eqx.Module):
    """Integration method of `Generalized`, from accelerations to the next state."""

    @abc.abstractmethod
    def step(self, prepared: Prepared, inputs: StepInputs) -> StateArrays:
        """Compute the next coordinates, velocities and activations, with batch axes last.

        **Arguments:**

        - `prepared`: the robot and its derived quantities.
        - `inputs`: state and inputs at the start of the step.
        """

    @abc.abstractmethod
    def advance(
        self, prepared: Prepared, inputs: StepInputs
    ) -> tuple[StateArrays, RobotData]:
        """Do the same, and also return the record of the start of the step."""


class AbstractOneSolve(AbstractIntegrator):
    """An integrator that only needs the accelerations at the start of the step."""

    @abc.abstractmethod
    def move(self, prepared: Prepared, now: RobotData) -> StateArrays:
        """Compute the next coordinates, velocities and activations.

        **Arguments:**

        - `prepared`: the robot and its derived quantities.
        - `now`: the robot at the start, with its accelerations.
        """

    def step(self, prepared: Prepared, inputs: StepInputs) -> StateArrays:
        """Compute the next coordinates, velocities and activations."""
        return self.advance(prepared, inputs)[0]

    def advance(
        self, prepared: Prepared, inputs: StepInputs
    ) -> tuple[StateArrays, RobotData]:
        """Do the same, and also return the record of the start of the step."""
        now = forward_dynamics(prepared, inputs)
        return self.move(prepared, now), now


class Euler(AbstractOneSolve):
    """Semi-implicit Euler, with implicit joint damping unless `System.implicit_damping`
    is false."""

    def move(self, prepared: Prepared, now: RobotData) -> StateArrays:
        """Compute the next coordinates, velocities and activations."""
        sys, qdd = prepared.sys, now.solution.qdd
        if sys.implicit_damping:
            damping = implicit_joint_damping(sys, now.qd)
            qdd = _with_symmetric(sys, now, qdd, damping)
        return _advanced(sys, now, qdd)


class ImplicitFast(AbstractOneSolve):
    r"""Implicit in velocity, without Coriolis forces.

    $D$ is the symmetric part of the derivative of joint damping, actuator forces and
    fluid forces. If these act on single joints or links, a step costs as much as one of
    `Euler` with damping. For free bodies without joints below them, $D$ is not
    symmetrized and includes gyroscopic forces, so that fast spins gain no energy.
    """

    def move(self, prepared: Prepared, now: RobotData) -> StateArrays:
        """Compute the next coordinates, velocities and activations."""
        sys, damping = prepared.sys, _damping(prepared, now)
        qdd = _with_symmetric(sys, now, now.solution.qdd, damping)
        jac = _armature_jacobian(sys, now)
        qdd = with_free_bodies(sys, now, qdd, damping, jac)
        return _advanced(sys, now, qdd)


class Implicit(AbstractOneSolve):
    """Implicit in velocity: all forces of `ImplicitFast`, and Coriolis, centrifugal and
    gyroscopic forces."""

    def move(self, prepared: Prepared, now: RobotData) -> StateArrays:
        """Compute the next coordinates, velocities and activations."""
        sys, damping = prepared.sys, _damping(prepared, now)
        qdd = _with_all(sys, now, now.solution.qdd, damping)
        return _advanced(sys, now, qdd)


class RungeKutta4(AbstractIntegrator):
    """Runge-Kutta of order four on the manifold (Munthe-Kaas 1999), as in MuJoCo 4:
    stages are tangent vectors at `q`. Delays of controls are read at the time of a stage."""

    def step(self, prepared: Prepared, inputs: StepInputs) -> StateArrays:
        """Compute the next coordinates, velocities and activations."""
        sys, (q, qd, act, *_) = prepared.sys, inputs
        h = sys.dt[None]

        def stage(carry, numbers):
            (weight, share, begin), (place, shift, mean) = numbers, carry
            at = inputs._replace(q=place[0], qd=place[1], act=place[2])
            if sys.actuator_models:
                at = at._replace(elapsed=begin * sys.dt)
            now = forward_dynamics(prepared, at)
            drive, turned = now.drive, _tangent_rate(sys, shift, place[1])
            rate = (turned, now.solution.qdd, drive.act_rate)
            mean = jtu.tree_map(lambda x, y: x + weight * y, mean, rate)
            shift = share * h * rate[0]
            place = (
                move_coordinates(sys.joints.kinds, q, shift),
                qd + share * h * rate[1],
                act + share * h * rate[2],
            )
            kept = drive.length, drive.velocity, drive.model_states
            return (place, shift, mean), kept

        weights = jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], q.dtype)
        shares = jnp.array([0.5, 0.5, 1.0, 0.0], q.dtype)
        begins = jnp.array([0.0, 0.5, 0.5, 1.0], q.dtype)
        rest = jnp.zeros_like(qd)
        start = ((q, qd, act), rest, (rest, rest, jnp.zeros_like(act)))
        (_, _, mean), ends = lax.scan(stage, start, (weights, shares, begins))
        # As in MuJoCo, lengths are those of the last stage, and velocities those of the
        # first. Attached models advance once, with the inputs of the first stage.
        length, velocity = ends[0][-1], ends[1][0]
        states = {number: own[0] for number, own in ends[2].items()}
        act = advance_activation(sys, act, mean[2], length, velocity, states)
        return move_coordinates(sys.joints.kinds, q, h * mean[0]), qd + h * mean[1], act

    def advance(
        self, prepared: Prepared, inputs: StepInputs
    ) -> tuple[StateArrays, RobotData]:
        """Do the same, and also return the record of the start of the step, which is
        computed once more because the stages are one loop."""
        now = forward_dynamics(prepared, inputs)
        return self.step(prepared, inputs), now


def integrator_of(sys: System) -> AbstractIntegrator:
    """Return the integrator that a system specifies."""
    kinds = {
        Integrator.EULER: Euler,
        Integrator.RK4: RungeKutta4,
        Integrator.IMPLICIT: Implicit,
        Integrator.IMPLICIT_FAST: ImplicitFast,
    }
    return kinds[sys.integrator]()


def _advanced(sys: System, now: RobotData, qdd) -> StateArrays:
    """Take a step with given accelerations; coordinates are integrated with the new
    velocity."""
    qd, drive = now.qd + sys.dt[None] * qdd, now.drive
    act = advance_activation(
        sys,
        now.act,
        drive.act_rate,
        drive.length,
        drive.velocity,
        drive.model_states,
    )
    return move_coordinates(sys.joints.kinds, now.q, sys.dt[None] * qd), qd, act


def _damping(prepared: Prepared, now: RobotData) -> SmoothDamping:
    return smooth_damping(
        prepared.sys,
        tree(prepared.sys),
        now.qd,
        fixed=now.fixed,
        kin=now.kin,
        velocity=now.velocities.velocity,
        shapes=prepared.constants.fluid,
        drive=now.drive,
        tendons=now.tendons,
    )


def _with_symmetric(sys: System, now: RobotData, qdd, damping: SmoothDamping):
    r"""Compute $\ddot q + (M - h D)^{-1} h D\, \ddot q$ with the symmetric part of $D$."""
    nodes, problem, h = tree(sys), now.problem, sys.dt[None]
    kin, inertia = problem.kin, problem.inertia
    joints, stiffness, coupling = symmetric_damping(sys, nodes, kin, damping)
    extra, armature = h * joints, problem.armature + h * joints
    if stiffness is not None:
        stiffness = jtu.tree_map(lambda x: h * x, stiffness)
    if coupling is not None:
        coupling = h[None] * coupling
    jac = _armature_jacobian(sys, now)

    def product(v, mass, own):
        motion = descend(nodes, joint_motion(nodes, kin, v))
        force = None if mass is None else mass @ motion
        if stiffness is not None:
            force = add(stiffness @ motion, force)
        out = own * v
        if force is not None:
            out = out + project(nodes, kin, ascend(nodes, force))
        if coupling is not None:
            out = out + jnp.sum(coupling * v[None], axis=1)
        return out

    def times(v):
        out = product(v, inertia, armature)
        return out if jac is None else out + tendon_inertia_times(sys, jac, v)

    inverse = _inverse(sys, nodes, kin, inertia, stiffness, armature, coupling, jac)
    right = product(qdd, None, extra)
    change = lax.custom_linear_solve(times, right, inverse, symmetric=True)
    return qdd - change


def _armature_jacobian(sys: System, now: RobotData):
    """Return the Jacobian of the tendons if one has armature, else None."""
    if not has_tendon_armature(sys) or now.tendons is None:
        return None
    return now.tendons.jac


def _inverse(sys, nodes: Tree, kin, inertia, stiffness, armature, coupling, jac):
    """Factorize the symmetric matrix of `_with_symmetric`."""
    if coupling is None:
        factored = factor(nodes, kin, inertia, armature, stiffness)
        invert = lambda b: solve(nodes, kin, factored, b, None)
        updates = [] if jac is None else armature_updates(sys, jac, invert)
        return lambda _, b: apply_updates(updates, *invert(b))[0]
    total = add(inertia.articulated(), stiffness)
    mass = joint_space_entries(nodes, dof_axes(nodes, kin), total, armature)
    if jac is not None:
        coupling = coupling + tendon_inertia(sys, jac)
    invert = linear_solver(sys.nv, [mass, lower_entries(coupling)])
    return lambda _, b: invert(b)


def _with_all(sys: System, now: RobotData, qdd, damping: SmoothDamping):
    r"""Compute $\ddot q + (M - h D)^{-1} h D\, \ddot q$ with all of $D$."""
    nodes, problem, h = tree(sys), now.problem, sys.dt[None, None]
    axes, velocity = dof_axes(nodes, problem.kin), now.velocities.velocity
    extra = damping_matrix(nodes, axes, problem.inertia, velocity, damping.nodes)
    if damping.coupling is not None:
        extra = extra + damping.coupling
    eye = jnp.eye(sys.nv, dtype=extra.dtype)
    eye = eye.reshape(*eye.shape, *(1 for _ in extra.shape[2:]))
    extra = h * (extra + eye * damping.joints[None])
    inertia = problem.inertia.articulated()
    mass = joint_space_matrix(nodes, axes, inertia, problem.armature)
    jac = _armature_jacobian(sys, now)
    matrix = mass + extra
    if jac is not None:
        matrix = matrix + tendon_inertia(sys, jac)
    factored = eliminate(matrix)
    change = lax.custom_linear_solve(
        lambda v: jnp.sum(matrix * v[None], axis=1),
        jnp.sum(extra * qdd[None], axis=1),
        lambda _, b: substitute(factored, b),
        lambda _, b: substitute(transposed(factored), b),
    )
    return qdd - change


def _tangent_rate(sys: System, shift, qd):
    """Compute the rate of the tangent vector `shift` at velocity `qd`; it differs from
    `qd` for rotations."""
    joints = sys.joints
    parts = [] if joints.kinds else [qd]
    for kind, at in zip(joints.kinds, joints.v_starts):
        if kind.nv == 1:
            parts.append(qd[at : at + 1])
            continue
        if kind is JointKind.FREE:
            parts.append(qd[at : at + 3])
            at += 3
        three = lambda x: Vec3(*(x[at + k : at + k + 1] for k in range(3)))
        parts += rotation_rate(three(shift), three(qd))
    return jnp.concatenate(parts)
