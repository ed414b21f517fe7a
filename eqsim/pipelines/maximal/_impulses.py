"""Contacts between rigid bodies by impulses, and the removal of violations after a
step.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...collision.plan import ContactPlan
from ...collision.points import ContactPoints
from ...constraint import Friction
from ...constraint.joint_rows import limited_balls, limited_joints
from ...kinematics.coordinates import move_coordinates
from ...model import GeomKind, System, Tree
from ...model.arrays import accumulate, concatenate, put, take
from ...spatial import Force, Mat3, Motion, outside, positive_part, safe_sqrt, Vec3
from ...spatial.clamps import at_least, at_most
from ...spatial.vectors import force_at
from ._joints import ball_limit_gap, limit_gaps
from ._rigid_bodies import (
    Bodies,
    body_layout,
    InverseInertia,
    Mechanism,
    of_bodies,
    Projection,
)


# Contacts between rigid bodies by impulses.
#
# Contact points and normals are detected once, at the start of a step. During its
# substeps, normals are constant, and points move with the bodies (Macklin et al., *Small
# steps in physics simulation*, 2019, section 4). For spheres and capsules, the center
# moves instead of the surface point, so they roll without sinking in.
#
# A contact has a normal impulse that prevents penetration, and a Coulomb friction
# impulse. Each is the requested change of relative velocity divided by the generalized
# inverse masses of the two bodies (Müller et al., *Detailed rigid body simulation with
# extended position based dynamics*, 2020, equations 2 and 3). A body with several
# contacts is split among them as in `_joints.py`, here in proportion to the
# requested changes, so impulses are continuous when a contact begins.


_ROUND = (GeomKind.SPHERE, GeomKind.CAPSULE)
_PUSH_OUT = 20.0


class ContactFrames(NamedTuple):
    """The possible contacts of a step, `(npoint, *batch)`. Pairs are ordered by body.

    - `bodies`: the two bodies of each point; -1 is the world.
    - `local`: the point relative to the centers of mass, in the frames of the bodies;
        for round shapes, their center.
    - `reach`: distance from `local` to the surface, along the normal.
    - `arm`: the point relative to the centers of mass, at the start of the step.
    - `com`: centers of mass at the start of the step.
    - `frame`: rows are the normal, from the first body to the second, and the two
        friction axes.
    - `dist`: distance of the surfaces at the start of the step, minus the margin.
    - `valid`: true if the point exists.
    """

    bodies: tuple[tuple[int, ...], tuple[int, ...]]
    local: tuple[Vec3, Vec3]
    reach: tuple[Any, Any]
    arm: tuple[Vec3, Vec3]
    com: tuple[Vec3, Vec3]
    frame: Mat3
    dist: Any
    valid: Any
    friction: Friction


def contact_frames(
    sys: System,
    tree: Tree,
    plan: ContactPlan,
    bodies: Bodies,
    origin: Vec3,
    points: ContactPoints,
    friction: Friction,
) -> ContactFrames:
    """Collect the possible contacts at the start of a step.

    **Arguments:**

    - `origin`: origin of each body's tree, in the world.
    """
    sides = [[body_layout(tree).index[pair[k]] for pair in plan.nodes] for k in (0, 1)]
    reach = _radii(sys, plan, 0), -_radii(sys, plan, 1)
    local, arms, coms = [], [], []
    for side, far in zip(sides, reach, strict=True):
        place = bodies.com, bodies.rot, bodies.com + origin
        com, rot, center = of_bodies(place, side)
        arm = points.pos - center
        local.append(rot.T @ (arm - (points.frame.rows[0] * far)))
        arms.append(arm)
        coms.append(com)
    pair = lambda values: (values[0], values[1])
    return ContactFrames(
        pair([tuple(side) for side in sides]),
        pair(local),
        reach,
        pair(arms),
        pair(coms),
        points.frame,
        points.dist - friction.margin,
        points.valid,
        friction,
    )


def _radii(sys: System, plan: ContactPlan, side: int):
    """Return the radii of the spheres and capsules on one side; zero for other
    shapes."""
    geoms = [plan.pairs[pair][side] for pair in plan.point_pairs]
    size = take(sys.geoms.size[:, 0], geoms)
    is_round = [sys.geoms.kinds[geom] in _ROUND for geom in geoms]
    return size * _column(is_round, size)


def _column(values, like):
    return np.array(values, like.dtype).reshape(-1, *(1 for _ in like.shape[1:]))


class ContactMotion(NamedTuple):
    """Distances and velocities of the surfaces.

    - `arms`: the points relative to the centers of mass of the two bodies.
    - `gap`: distance of the surfaces.
    - `velocity`: velocity of the second surface relative to the first, along the
        contact's axes.
    """

    arms: tuple[Vec3, Vec3]
    gap: Any
    velocity: Vec3


def contact_motion(contacts: ContactFrames, bodies: Bodies) -> ContactMotion:
    """Return distances and velocities of the surfaces for the current bodies."""
    normal = contacts.frame.rows[0]
    arms, moved = [], []
    for k, side in enumerate(contacts.bodies):
        com, rot = of_bodies((bodies.com, bodies.rot), side)
        arm = (rot @ contacts.local[k]) + (normal * contacts.reach[k])
        change = (arm - contacts.arm[k]) + (com - contacts.com[k])
        # The world does not move. It has no frame here, so its `arm` is not used.
        moves = _column([body >= 0 for body in side], arm.x) > 0
        moved.append(Vec3(*(jnp.where(moves, x, 0.0) for x in change)))
        arms.append(arm)
    gap, both = contacts.dist + normal.dot(moved[1] - moved[0]), (arms[0], arms[1])
    velocity = relative_velocity_along(contacts, both, bodies.velocity)
    return ContactMotion(both, gap, velocity)


def relative_velocity_along(
    contacts: ContactFrames, arms: tuple[Vec3, Vec3], velocity: Motion
) -> Vec3:
    """Return the velocity of the second bodies relative to the first at the
    contacts, along the contact axes, given the motions of all bodies about their
    centers of mass."""
    one, two = (
        of_bodies(velocity, side).at(arm)
        for side, arm in zip(contacts.bodies, arms, strict=True)
    )
    return contacts.frame @ (two - one)


def rebound_velocity(restitution, sys: System, velocity, h, otherwise):
    """Return the normal velocity after an impact at `velocity` (negative when
    approaching): `otherwise` without restitution, and below the speed that gravity
    produces in two substeps (Müller et al. 2020, section 3.6)."""
    share = restitution[None]
    rebounds = (share > 0.0) & (velocity < -2.0 * _gravity_speed(sys, h))
    return jnp.where(rebounds, -share * velocity, otherwise)


def push_out(sys: System, gap, share, h):
    """Split the speed `share * depth / h` at which a penetration is removed into two
    parts.

    **Returns:** the part that bodies keep as velocity, at most the speed that gravity
    produces in `_PUSH_OUT` substeps, and the rest, which only changes positions (split
    impulses: Catto, *Understanding constraints*, 2014).
    """
    wanted = share * positive_part(-gap) / h
    kept = at_most(wanted, _PUSH_OUT * _gravity_speed(sys, h))
    return kept, wanted - kept


def _gravity_speed(sys: System, h):
    """Return the speed that gravity produces in a substep."""
    g = Vec3(*(sys.gravity[k][None] for k in range(3)))
    return h * safe_sqrt(g.dot(g))


def contact_impulses(
    contacts: ContactFrames, motion: ContactMotion, inverse: InverseInertia, change
) -> Vec3:
    """Return the impulses of contacts with friction, along the contact axes.

    **Arguments:**

    - `change`: requested change of normal velocity of each point; without an impulse if
        it is not positive.
    """
    asked = jnp.where(contacts.valid, positive_part(change), 0.0)
    mass = _shared_masses(contacts, motion, inverse, asked)
    stick = Vec3(asked, -motion.velocity.y, -motion.velocity.z)
    impulse = Vec3(*(v * m for v, m in zip(stick, mass, strict=True)))
    return _within_friction_cone(contacts.friction, impulse)


def normal_impulses(
    contacts: ContactFrames, motion: ContactMotion, inverse: InverseInertia, change
) -> Vec3:
    """Return the impulses of contacts without friction; see `contact_impulses`."""
    asked = jnp.where(contacts.valid, positive_part(change), 0.0)
    normal = asked * _shared_masses(contacts, motion, inverse, asked).x
    return Vec3(normal, jnp.zeros_like(normal), jnp.zeros_like(normal))


def _within_friction_cone(friction: Friction, impulse: Vec3) -> Vec3:
    """Clip friction to Coulomb's cone; with two coefficients it is an ellipse."""
    normal, *across = impulse
    mu = friction.coefficients[:2]
    rubs = [
        jnp.where(m > 0.0, p / jnp.where(m > 0.0, m, 1.0), 0.0)
        for p, m in zip(across, mu, strict=True)
    ]
    length = safe_sqrt(rubs[0] ** 2 + rubs[1] ** 2)
    slips = length > normal
    scale = jnp.where(slips, normal / jnp.where(slips, length, 1.0), 1.0)
    one, two = (
        jnp.where(m > 0.0, p * scale, 0.0) for p, m in zip(across, mu, strict=True)
    )
    return Vec3(normal, one, two)


def velocity_correction(
    contacts: ContactFrames,
    motion: ContactMotion,
    inverse: InverseInertia,
    normal,
    velocity,
) -> Vec3:
    """Return the impulses that change the normal velocity of contacts with a normal
    impulse `normal` to `velocity`; they remove at most that impulse."""
    mass = _shared_masses(contacts, motion, inverse, normal).x
    change = at_least(-normal, (velocity - motion.velocity.x) * mass)
    return Vec3(change, jnp.zeros_like(change), jnp.zeros_like(change))


def _shared_masses(
    contacts: ContactFrames, motion: ContactMotion, inverse: InverseInertia, asked
) -> Vec3:
    """Return the effective masses of contacts along their axes. Bodies are split in
    proportion to the requested changes; zero if a contact requests no change."""
    ease = []
    for side, arm in zip(contacts.bodies, motion.arms, strict=True):
        whole = accumulate(asked, side, inverse.mass.shape[0])
        own, whole = of_bodies((inverse, whole), side)
        ease.append([whole * _inverse_mass(own, arm, a) for a in contacts.frame.rows])
    some, masses = asked > 0.0, []
    for one, two in zip(*ease, strict=True):
        masses.append(jnp.where(some, asked / jnp.where(some, one + two, 1.0), 0.0))
    return Vec3(*masses)


def _inverse_mass(inverse: InverseInertia, arm: Vec3, axis: Vec3):
    r"""Return $1/m + (r \times n)^T I^{-1} (r \times n)$."""
    turn = arm.cross(axis)
    return inverse.mass + turn.dot(inverse.rotational @ turn)


def on_bodies(
    contacts: ContactFrames,
    motion: ContactMotion,
    inverse: InverseInertia,
    impulse: Vec3,
) -> Force:
    """Sum impulses along the contact axes on all bodies."""
    vector = contacts.frame.T @ impulse
    parts = [force_at(a, v) for a, v in zip(motion.arms, (-vector, vector))]
    sides = [body for side in contacts.bodies for body in side]
    return accumulate(concatenate(parts), sides, inverse.mass.shape[0])


# Removal of penetrations and violations of joint limits without a change of
# velocities.
#
# If a step starts with two overlapping bodies, or with a joint beyond its limit, the
# violation must be removed. Impulses would leave a velocity that launches the robot.
# Instead, coordinates are displaced at the end of the step, after the projection (Cline
# and Pai, *Post-stabilization for rigid body simulation with contact and constraints*,
# 2003). The displacement is that of impulses $p \ge 0$ along the normals of contacts and
# against limits,
#
# $$M \delta = J^T p, \qquad (J \delta)_i = a_i \text{ where } a_i > 0,$$
#
# where $a$ are the requested displacements of the violated constraints. Joints stay
# satisfied, and the center of mass moves only by impulses of the world. The impulses are
# computed by one proportional scaling of a first guess, $p_i \leftarrow p_i\, a_i / (J
# M^{-1} J^T p)_i$, which is exact for one constraint and for several identical ones; all
# of them are then scaled down if they would move further than requested. The remaining
# violation is removed in later steps.


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
    return move_coordinates(kinds, q, alpha[None] * change)


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
