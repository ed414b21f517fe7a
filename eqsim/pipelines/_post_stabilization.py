r"""Removal of penetrations and violations of joint limits without a change of
velocities.

If a step starts with two overlapping bodies, or with a joint beyond its limit, the
violation must be removed. Impulses would leave a velocity that launches the robot.
Instead, coordinates are displaced at the end of the step, after the projection (Cline
and Pai, *Post-stabilization for rigid body simulation with contact and constraints*,
2003). The displacement is that of impulses $p \ge 0$ along the normals of contacts and
against limits,

$$M \delta = J^T p, \qquad (J \delta)_i = a_i \text{ where } a_i > 0,$$

where $a$ are the requested displacements of the violated constraints. Joints stay
satisfied, and the center of mass moves only by impulses of the world. The impulses are
computed by one proportional scaling of a first guess, $p_i \leftarrow p_i\, a_i / (J
M^{-1} J^T p)_i$, which is exact for one constraint and for several identical ones; all
of them are then scaled down if they would move further than requested. The remaining
violation is removed in later steps.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..constraint import limited_balls, limited_joints
from ..kinematics._manifold import advance
from ..model import System
from ..model._gather import put, take
from ..spatial import Motion, outside, positive_part, Vec3
from ._contact_impulses import (
    contact_motion,
    ContactFrames,
    ContactMotion,
    normal_impulses,
    on_bodies,
    push_out,
    relative_velocity_along,
)
from ._joint_constraints import ball_limit_gap, limit_gaps
from ._rigid_bodies import Bodies, InverseInertia, Mechanism, Projection


_LARGEST_SCALING = 16.0
"""Largest factor by which the scaling may enlarge an impulse."""


class _Amounts(NamedTuple):
    """One value for each inequality constraint: displacement or impulse.

    - `contacts`: values along the normals; empty without contacts.
    - `limits`: values of limited hinges and slides, positive in the direction of
        increasing `q`.
    - `balls`: values of limited spherical joints, positive in the direction of
        decreasing angle.
    """

    contacts: Any
    limits: Any
    balls: Any


class _Constraints(NamedTuple):
    contacts: ContactFrames | None
    motion: ContactMotion | None
    inverse: InverseInertia
    ball_axis: Vec3


def remove_violations(
    sys: System,
    mechanism: Mechanism,
    projection: Projection,
    contacts: ContactFrames | None,
    bodies: Bodies,
    inverse: InverseInertia,
    share,
    substeps: int,
):
    """Return projected coordinates without penetrations and violations of joint limits.

    **Arguments:**

    - `bodies`, `inverse`: the bodies before the projection, and their inverse inertias.
    - `share`: fraction of a violation that is removed in each of `substeps` substeps.
    """
    q, kinds = projection.q, sys.joints.kinds
    # Total removed by all substeps, each of which removes a fraction of the remainder,
    # over `share`.
    total = sum((1.0 - share) ** k for k in range(substeps))
    axis, gap = ball_limit_gap(sys, limited_balls(sys).joints, q)
    low, high = limit_gaps(sys, limited_joints(sys).joints, q)
    excess = -outside(0.0, low, high)
    motion, asked = None, q[:0]
    if contacts is not None:
        motion = contact_motion(contacts, bodies)
        moved = relative_velocity_along(contacts, motion.arms, projection.moved)
        h = sys.dt[None] / substeps
        asked = push_out(sys, motion.gap + moved.x, share, h)[1] * (total * h)
    all_ = _Constraints(contacts, motion, inverse, axis)
    part = share * total
    want = _Amounts(asked, part * excess, part * positive_part(-gap))
    impulse = _first_guess(sys, mechanism, all_, want)
    change, moved = _respond(sys, mechanism, all_, impulse)
    got = _measure(sys, all_, change, moved)
    impulse = _Amounts(*map(_scaled, impulse, want, got))
    change, moved = _respond(sys, mechanism, all_, impulse)
    got = _measure(sys, all_, change, moved)
    # Constraints that act together must not move further than each of them requests.
    dot = lambda x, y: sum(jnp.sum(a * b, axis=0) for a, b in zip(x, y, strict=True))
    work, most = dot(want, impulse), dot(got, impulse)
    alpha = jnp.where(most > work, work / jnp.where(most > work, most, 1.0), 1.0)
    return advance(kinds, q, alpha[None] * change)


def _first_guess(
    sys: System, mechanism: Mechanism, all_: _Constraints, want: _Amounts
) -> _Amounts:
    """Return impulses that produce the requested displacements of free bodies, and of
    joints with fixed parents."""
    contacts = want.contacts
    if all_.contacts is not None and all_.motion is not None:
        contacts = normal_impulses(
            all_.contacts, all_.motion, all_.inverse, want.contacts
        ).x
    inertia = mechanism.joint_inertia(sys)
    limited, balls = limited_joints(sys).dofs, limited_balls(sys).dofs
    three = [take(inertia, [dof + k for dof in balls]) for k in range(3)]
    about = sum(m * a * a for m, a in zip(three, all_.ball_axis, strict=True))
    return _Amounts(contacts, want.limits * take(inertia, limited), want.balls * about)


def _scaled(impulse, want, got):
    enough = got * want * _LARGEST_SCALING > want * want
    ratio = want / jnp.where(enough, got, 1.0)
    return impulse * jnp.where(enough, ratio, _LARGEST_SCALING)


def _respond(
    sys: System, mechanism: Mechanism, all_: _Constraints, impulse: _Amounts
) -> tuple[Any, Motion]:
    """Return the displacements of coordinates and bodies caused by impulses."""
    limited, balls = limited_joints(sys), limited_balls(sys)
    tau = put(impulse.limits, limited.dofs, sys.nv)
    for k, a in enumerate(all_.ball_axis):
        dofs = [dof + k for dof in balls.dofs]
        tau = tau - put(a * impulse.balls, dofs, sys.nv)
    force = None
    if all_.contacts is not None and all_.motion is not None:
        none = jnp.zeros_like(impulse.contacts)
        along = Vec3(impulse.contacts, none, none)
        force = on_bodies(all_.contacts, all_.motion, all_.inverse, along)
    return mechanism.respond(tau, force)


def _measure(sys: System, all_: _Constraints, change, moved: Motion) -> _Amounts:
    """Return the displacement of each constraint."""
    limited, balls, contacts = limited_joints(sys), limited_balls(sys), change[:0]
    if all_.contacts is not None and all_.motion is not None:
        arms = all_.motion.arms
        contacts = relative_velocity_along(all_.contacts, arms, moved).x
    three = [take(change, [dof + k for dof in balls.dofs]) for k in range(3)]
    balls = -sum(a * x for a, x in zip(all_.ball_axis, three, strict=True))
    return _Amounts(contacts, take(change, limited.dofs), balls)
