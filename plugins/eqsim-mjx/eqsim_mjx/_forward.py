r"""Accelerations of MJX, differentiated at the solution.

MJX's solver is a loop with an unknown number of iterations, which does not support
reverse mode; forward mode gives the derivative of the last iteration, not of the
solution. The cost that it minimizes is piecewise quadratic. Given the active rows, the
accelerations solve

$$(M + J^T W J)\,\ddot q = \tau + J^T (W a + s),$$

with the weights $W$ and the reference accelerations $a$ of the active rows, and the
forces $s$ of slipping dry friction. The solver therefore only determines the active
rows, and this equation is solved and differentiated, in both modes and to any order.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve

from eqsim import State, System
from eqsim.kinematics import difference
from eqsim.model import JointKind

from ._mjx import mjx
from ._numbers import turning
from ._rows import soften
from ._template import Template


class Forward(NamedTuple):
    """The dynamics of a state.

    - `data`: MJX's data, with accelerations and constraint forces.
    - `force`: force of each row.
    """

    data: Any
    force: Any


def forward(
    sys: System, template: Template, model: Any, state: State, ctrl: Any, external: Any
) -> Forward:
    """Compute accelerations and forces in a state. The only quantity used from an
    earlier step is the initial guess of the solver, `state.aux`."""
    data = jtu.tree_map(jnp.asarray, template.data)
    data = data.replace(
        qpos=state.q,
        qvel=state.qd,
        act=state.act,
        ctrl=ctrl,
        qacc_warmstart=jnp.zeros_like(state.qd) if state.aux is None else state.aux,
        qfrc_applied=_springs(sys, state.q),
        xfrc_applied=_wrenches(data.xfrc_applied, external),
    )
    data = mjx.fwd_position(model, data)
    data = data.replace(actuator_length=_lengths(sys, data, state.q))
    data = mjx.fwd_velocity(model, data)
    data = mjx.fwd_actuation(model, data)
    data = mjx.fwd_acceleration(model, data)
    if data._impl.efc_J.shape[0] == 0:
        none = jnp.zeros_like(state.qd)
        data = data.replace(qacc=data.qacc_smooth, qfrc_constraint=none)
        return Forward(data, none[:0])
    weight, target = soften(sys, template, model, data)
    rows = {"_impl.efc_D": weight, "_impl.efc_aref": target}
    return _solve(template, model, data.tree_replace(rows))


def _solve(template: Template, model: Any, data: Any) -> Forward:
    still = jtu.tree_map(lax.stop_gradient, (model, data))
    found = mjx.solve(*still)
    rows = data._impl
    matrix, weight, loss = rows.efc_J, rows.efc_D, rows.efc_frictionloss
    gap = matrix @ found.qacc - rows.efc_aref
    friction = jnp.arange(gap.shape[0]) < template.friction.size
    most = loss / weight
    slips_down, slips_up = friction & (gap <= -most), friction & (gap >= most)
    acts = jnp.where(friction, ~(slips_down | slips_up), gap < 0.0)
    slip = jnp.where(slips_down, loss, 0.0) - jnp.where(slips_up, loss, 0.0)
    weight = jnp.where(acts, weight, 0.0)
    inertia = mjx.full_m(model, data) + (matrix.T * weight) @ matrix
    push = data.qfrc_smooth + matrix.T @ (weight * rows.efc_aref + slip)
    qacc = cho_solve(cho_factor(0.5 * (inertia + inertia.T)), push)
    force = slip - weight * (matrix @ qacc - rows.efc_aref)
    return Forward(data.replace(qacc=qacc, qfrc_constraint=matrix.T @ force), force)


def _springs(sys: System, q: Any) -> Any:
    """Compute the springs of ball and free joints, for which MJX's derivative is zero
    at rest."""
    turns = turning(sys)
    if not turns.any():
        return jnp.zeros(sys.nv, q.dtype)
    stretch = difference(sys, sys.joints.spring_ref, q)
    stiffness = jnp.where(turns, sys.joints.stiffness, 0.0)
    counts = [kind.nv for kind in sys.joints.kinds]
    index = [j for j, count in enumerate(counts) for _ in range(count)]
    return -stiffness[jnp.array(index)] * stretch


def _lengths(sys: System, data: Any, q: Any) -> Any:
    """Compute lengths of actuators, without MJX's zero derivative for spherical
    joints."""
    lengths, actuators, joints = data.actuator_length, sys.actuators, sys.joints
    for k, j in enumerate(actuators.joints):
        if joints.kinds[j] is JointKind.SPHERICAL:
            start = joints.q_starts[j]
            still = q.at[start : start + 4].set(jnp.array([1.0, 0.0, 0.0, 0.0]))
            turn = difference(sys, still, q)[joints.v_starts[j] :][:3]
            lengths = lengths.at[k].set(jnp.sum(turn * actuators.gear[k, :3]))
    return lengths


def _wrenches(none: Any, external: Any) -> Any:
    """Convert wrenches: MuJoCo has the force first, and the world as a body."""
    if external is None:
        return none
    return none.at[1:].set(jnp.concatenate([external[:, 3:], external[:, :3]], axis=1))
