r"""Accelerations of MJX, differentiated at the solution.

MJX's solver is a loop with an unknown number of iterations, which does not support
reverse mode; forward mode gives the derivative of the last iteration, not of the
solution. The cost that it minimizes is piecewise quadratic. Given the active rows, the
accelerations solve

$$(M + J^T W J)\,\ddot q = \tau + J^T (W a + s),$$

with the weights $W$ and the reference accelerations $a$ of the active rows, and the
forces $s$ of slipping dry friction. The solver therefore only determines the active
rows, and this equation is solved and differentiated, in both modes and to any order.

The softness of constraints is the weight and reference acceleration of each row.

MJX computes both, but its formula for the impedance takes powers of negative numbers if
a constraint is beyond its width. These have no derivative with respect to the exponent,
which makes reverse mode fail. The same formula is implemented here with derivatives
everywhere.

With the violation $r$, its rate $J \dot q$, the impedance $d(r)$ and the inverse weight
$w$, a row has the weight and the reference acceleration

$$D = \frac{d}{w (1 - d)}, \qquad a = -b\,J \dot q - k\,d\,r.$$

Source: MuJoCo documentation, *Modeling*, "Solver parameters".
"""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve

from eqsim import State, System
from eqsim.kinematics import difference
from eqsim.model import JointKind

from ._numbers import turning
from ._template import mjx, Template


# MuJoCo's `mjMINIMP`, `mjMAXIMP`, `mjMINVAL`.
_LEAST, _MOST, _TINY = 0.0001, 0.9999, 1e-15


class _Numbers(NamedTuple):
    """Parameters per row."""

    solref: Any
    solimp: Any
    weight: Any


def soften(sys: System, template: Template, model: Any, data: Any) -> tuple[Any, Any]:
    """Return weight and reference acceleration of each row of `data`, whose rows have
    been computed."""
    rows = _numbers(sys, template, model, data)
    found = data._impl
    violation = found.efc_pos - found.efc_margin
    least, most, width, middle, power = rows.solimp.T
    least, most = (jnp.clip(x, _LEAST, _MOST) for x in (least, most))
    middle = jnp.clip(middle, _LEAST, _MOST)
    share = jnp.abs(violation) / jnp.maximum(width, _TINY)
    level = least + _rise(share, middle, jnp.maximum(power, 1.0)) * (most - least)
    stiffness, damping = _reference(sys, rows.solref, most)
    resistance = jnp.maximum(rows.weight * (1.0 - level) / level, _TINY)
    target = -damping * (found.efc_J @ data.qvel) - stiffness * level * violation
    return 1.0 / resistance, target


def _rise(share: Any, middle: Any, power: Any) -> Any:
    """Compute the impedance profile from 0 to 1 over the width: two powers that meet in
    between."""
    low, high = share < middle, share >= 1.0
    first = jnp.where(low, share, middle)
    second = jnp.where(low | high, middle, share)
    rising = first**power / middle ** (power - 1.0)
    settling = 1.0 - (1.0 - second) ** power / (1.0 - middle) ** (power - 1.0)
    return jnp.where(high, 1.0, jnp.where(low, rising, settling))


def _reference(sys: System, solref: Any, most: Any) -> tuple[Any, Any]:
    """Return stiffness and damping; negative values specify them directly."""
    time, ratio = solref.T
    given, given_damping = time <= 0.0, ratio <= 0.0
    time = jnp.maximum(time, 2.0 * sys.dt) if sys.safe_solref else time
    time = jnp.where(time > 0.0, time, 1.0)
    ratio = jnp.where(given_damping, 1.0, ratio)
    stiffness = 1.0 / (most * time * ratio) ** 2
    stiffness = jnp.where(given, -solref[:, 0] / most**2, stiffness)
    damping = jnp.where(given_damping, -solref[:, 1] / most, 2.0 / (most * time))
    return stiffness, damping


def _numbers(sys: System, template: Template, model: Any, data: Any) -> _Numbers:
    """Return the parameters in the order of MJX's rows: dry friction, limits of
    spherical joints, other limits, contacts by their dimension."""
    starts = np.array(sys.joints.v_starts, int)
    dofs, parts = template.friction, []
    weight = model.dof_invweight0
    parts.append((model.dof_solref[dofs], model.dof_solimp[dofs], weight[dofs]))
    for joints in (template.ball_limits, template.limits):
        own = weight[starts[joints]]
        parts.append((model.jnt_solref[joints], model.jnt_solimp[joints], own))
    contact = data._impl.contact
    if contact.dim.size:
        place = contact_of_row(contact.dim)
        own = _contact_weight(sys, model, contact)
        numbers = (contact.solref, contact.solimp, own)
        parts.append(tuple(x[place] for x in numbers))
    return _Numbers(*(jnp.concatenate(x) for x in zip(*parts, strict=True)))


def contact_of_row(dims: np.ndarray) -> np.ndarray:
    """Return the contact of each contact row: one row without friction, else two edges
    of a pyramid per direction."""
    return np.repeat(np.arange(dims.size), np.where(dims == 1, 1, 2 * (dims - 1)))


def _contact_weight(sys: System, model: Any, contact: Any) -> Any:
    bodies = jnp.asarray(model.geom_bodyid)[contact.geom]
    weight = jnp.sum(model.body_invweight0[bodies, 0], axis=1)
    friction = contact.friction[:, 0] ** 2
    edge = weight * (1.0 + friction) * 2.0 * friction / sys.impratio
    return jnp.where(contact.dim == 1, weight, edge)


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


def contact_geoms(template: Template) -> tuple[tuple[int, int], ...]:
    """Return the two shapes of the `System` at each point."""
    if template.data._impl.contact.dim.size == 0:
        return ()
    # Only the state-independent part of the collision is compiled.
    with jax.ensure_compile_time_eval():
        found = np.asarray(jax.jit(ft.partial(_geoms, template))())
    return tuple((int(template.geoms[a]), int(template.geoms[b])) for a, b in found)


def _geoms(template: Template) -> Any:
    model, data = jtu.tree_map(jnp.asarray, (template.model, template.data))
    found: Any = mjx.collision(model, data)
    return found._impl.contact.geom


def contacts_of(now: Forward) -> tuple[Any, Any, Any, Any, Any]:
    r"""Return whether there is a contact, distance, position, frame, and the force on the
    second shape, of each point.

    The edges of a pyramid are $n \pm \mu_k t_k$. Torsional and rolling friction are
    torques and are not part of the force.
    """
    contact = now.data._impl.contact
    dims = contact.dim
    if not dims.size:
        none = jnp.zeros((0, 3, 3), now.force.dtype)
        return none[:, 0, 0] > 0.0, none[:, 0, 0], none[:, 0], none, none[:, 0]
    owner = contact_of_row(dims)
    rows = now.force[now.force.shape[0] - owner.size :]
    normal = jnp.zeros(dims.size, rows.dtype).at[owner].add(rows)
    first = np.searchsorted(owner, np.arange(dims.size))
    edges = rows[np.minimum(first[:, None] + np.arange(4), owner.size - 1)]
    slides = (dims > 1)[:, None] * contact.friction[:, :2]
    sliding = (edges[:, 0::2] - edges[:, 1::2]) * slides
    local = jnp.concatenate([normal[:, None], sliding], axis=1)
    force = jnp.einsum("kij,ki->kj", contact.frame, local)
    exists = contact.dist < contact.includemargin
    return exists, contact.dist, contact.pos, contact.frame, force
