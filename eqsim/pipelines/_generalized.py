r"""MuJoCo's model in joint coordinates."""

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from .._batching import batch_last, full_batch
from ..collision import ContactPoints
from ..constraint import AbstractConstraint, ALL, Newton
from ..dynamics._activation import advance_activation
from ..dynamics._articulated import factor, project, solve
from ..dynamics._joint_parameters import damping
from ..dynamics._tendons import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    has_tendon_armature,
    tendon_inertia_times,
)
from ..kinematics._forward import joint_motion
from ..kinematics._manifold import advance
from ..kinematics._recursion import ascend, descend
from ..model import (
    check_finite,
    check_state,
    Integrator,
    JointKind,
    State,
    System,
    tree,
)
from ..model._fields import as_array
from ..spatial import rotation_rate, stack, Vec3
from ._contacts import Contacts, report
from ._forward import (
    Constants,
    contact_forces,
    derive,
    Forward,
    forward,
    Method,
    solved_constraint_forces,
    solved_forces,
)
from ._pipeline import AbstractPipeline, check_input, first_state
from ._solved import Solved


class Generalized(AbstractPipeline):
    r"""MuJoCo's physics in joint coordinates, differentiable by every parameter.

    Smooth dynamics, soft constraints and integrators are MuJoCo's (see its
    documentation, *Computation*), so that `q` and `qd` follow `mj_step` on the same
    file with a converged Newton solver. The solver iterates until it has converged (at
    most 50 steps; most states need 2 to 5), and derivatives are taken implicitly at the
    solution.

    **Arguments:**

    - `smoothing`: width $w$ of the onset of contacts, m. Without one, the default, the
        model is MuJoCo's: a shape that does not touch has no contact force and no contact
        gradient. With $w > 0$ a contact at distance $r$ has the weight $D/(1 + e^{r/w})$
        and the distance $-w \log(1 + e^{-r/w})$: a force acts within a few widths before
        the surface, and in penetration the model tends to MuJoCo's, with a shift of at
        most $w \log 2$. The width is an array: it can be annealed down to 0, where the
        model is MuJoCo's too, batched and differentiated without recompiling.
    - `solver`: settings of the solver.
    - `constraints`: kinds of constraints that are simulated; see
        `eqsim.constraint.AbstractConstraint` for how to add one.
    """

    smoothing: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)
    solver: Newton = Newton()
    constraints: tuple[AbstractConstraint, ...] = ALL

    def __check_init__(self):
        _check_smoothing(self.smoothing)

    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        check_state(sys, q, qd)
        check_finite(sys)
        _check_smoothing(self.smoothing)
        return first_state(sys, q, qd)

    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        q, qd, act = _step(*_arguments(self, sys, state, ctrl, external))
        # A zero-size output drops its sharding, so keep the input's.
        return State(q, qd, act if sys.na else state.act, state.aux)

    def solve(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Solve for accelerations and forces in a state, before integration.

        **Arguments:** as of `step`.
        """
        arguments = _arguments(self, sys, state, ctrl, external)
        qdd, constraint, actuator, converged, points = _solve(*arguments)
        contacts = report(sys, state.q.dtype, lambda: points)
        return Solved(qdd, contacts, constraint, actuator, converged)

    def acceleration(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        r"""Compute joint accelerations $\ddot q$ (MuJoCo: `qacc`), before integration."""
        return self.solve(sys, state, ctrl, external).qdd

    def contacts(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Contacts:
        return self.solve(sys, state, ctrl, external).contacts

    def constraint_forces(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        return self.solve(sys, state, ctrl, external).constraint_force


def _check_smoothing(smoothing) -> None:
    if isinstance(smoothing, Tracer) or not eqx.is_array(smoothing):
        return
    width = np.asarray(smoothing)
    if width.shape or not (np.isfinite(width) and width >= 0.0):
        raise ValueError(
            f"`Generalized.smoothing` is {smoothing}: one width in meters is expected, zero "
            "for the exact model."
        )


def _arguments(pipeline: Generalized, sys: System, state: State, ctrl, external):
    check_input(sys, state, ctrl, external)
    smoothing = pipeline.smoothing
    if smoothing is not None:
        smoothing = smoothing.astype(state.q.dtype)
    method = Method(pipeline.constraints, pipeline.solver, smoothing)
    constants = _derive(sys, method)
    return sys, method, constants, state.q, state.qd, state.act, ctrl, external


def _derive_fn(sys, method):
    return derive(sys, method)


def _step_fn(sys, method, constants, *state_and_input):
    full = full_batch(state_and_input, sys, constants)
    step = _euler if sys.integrator is Integrator.EULER else _rk4
    return step(sys, method, constants, *full)


def _solve_fn(sys, method, constants, *state_and_input):
    full = full_batch(state_and_input, sys, constants)
    now = forward(sys, method, constants, *full)
    forces = solved_forces(sys, now)
    constraint = solved_constraint_forces(sys, now, forces)
    solution, points = now.solution, ()
    if now.points is not None:
        points = _contact_arrays(now.points, *contact_forces(sys, method, now, forces))
    return solution.qdd, constraint, now.drive.force, solution.converged, points


def _contact_arrays(points: ContactPoints, force: Vec3, torque: Vec3):
    rows = [stack(Vec3(*points.frame[3 * k : 3 * k + 3])) for k in range(3)]
    frame = jnp.stack(rows, axis=1)
    return points.dist, stack(points.pos), frame, stack(force), stack(torque)


_derive = batch_last(_derive_fn)
_solve = batch_last(_solve_fn)
_step = batch_last(_step_fn)


def _euler(
    sys: System, method: Method, constants: Constants, q, qd, act, ctrl, external
):
    """Step by semi-implicit Euler; joint damping is implicit."""
    now = forward(sys, method, constants, q, qd, act, ctrl, external)
    qdd = now.solution.qdd
    if sys.implicit_damping:
        qdd = _damped(sys, constants, now, q, qd, qdd)
    qd = qd + sys.dt[None] * qdd
    drive = now.drive
    rates = drive.act_rate, drive.length, drive.velocity
    act = advance_activation(sys, act, *rates)
    return advance(sys.joints.kinds, q, sys.dt[None] * qd), qd, act


def _damped(sys: System, constants: Constants, now: Forward, q, qd, qdd):
    r"""Compute $(M + h D)^{-1} M \ddot q = \ddot q - (M + h D)^{-1} h D \ddot q$, where
    $D$ is the slope of damping at the velocity `qd`."""
    nodes, problem = tree(sys), now.problem
    jac = None
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, nodes, constants.frames, problem.kin, q)
    extra = sys.dt[None] * damping(sys).slope(qd)
    armature = problem.armature + extra

    def times(v):
        motion = descend(nodes, joint_motion(nodes, problem.kin, v))
        force = ascend(nodes, problem.inertia @ motion)
        out = project(nodes, problem.kin, force) + armature * v
        return out if jac is None else out + tendon_inertia_times(sys, jac, v)

    factored = factor(nodes, problem.kin, problem.inertia, armature)
    invert = lambda b: solve(nodes, problem.kin, factored, b, None)
    updates = [] if jac is None else armature_updates(sys, jac, invert)
    inverse = lambda _, b: apply_updates(updates, *invert(b))[0]
    change = lax.custom_linear_solve(times, extra * qdd, inverse, symmetric=True)
    return qdd - change


def _rk4(sys: System, method: Method, constants: Constants, q, qd, act, ctrl, external):
    """Step by Runge-Kutta of order four on the manifold (Munthe-Kaas 1999), as in
    MuJoCo 4: stages are tangent vectors at `q`."""
    h = sys.dt[None]

    def stage(carry, numbers):
        (weight, share), (place, shift, mean) = numbers, carry
        now = forward(
            sys, method, constants, place[0], place[1], place[2], ctrl, external
        )
        drive = now.drive
        rate = (_tangent_rate(sys, shift, place[1]), now.solution.qdd, drive.act_rate)
        mean = jtu.tree_map(lambda x, y: x + weight * y, mean, rate)
        shift = share * h * rate[0]
        place = (
            advance(sys.joints.kinds, q, shift),
            qd + share * h * rate[1],
            act + share * h * rate[2],
        )
        return (place, shift, mean), (drive.length, drive.velocity)

    weights = jnp.array([1 / 6, 1 / 3, 1 / 3, 1 / 6], q.dtype)
    shares = jnp.array([0.5, 0.5, 1.0, 0.0], q.dtype)
    rest = jnp.zeros_like(qd)
    start = ((q, qd, act), rest, (rest, rest, jnp.zeros_like(act)))
    (_, _, mean), ends = lax.scan(stage, start, (weights, shares))
    # As in MuJoCo, lengths are those of the last stage, and velocities of the first.
    length, velocity = ends[0][-1], ends[1][0]
    act = advance_activation(sys, act, mean[2], length, velocity)
    return advance(sys.joints.kinds, q, h * mean[0]), qd + h * mean[1], act


def _tangent_rate(sys: System, shift, qd):
    """Compute the rate of the tangent vector `shift` at velocity `qd`; it differs from
    `qd` for rotations."""
    parts, joints = [], sys.joints
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
