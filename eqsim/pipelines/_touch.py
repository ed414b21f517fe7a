r"""Contacts between bodies, by impulses.

Points and normals are found once, at the start of a step; then normals stay, and points
move with the bodies (Macklin et al., *Small steps in physics simulation*, 2019, section
4: collisions are detected once, for all substeps). Of a sphere or capsule it is the
middle that moves, so that it rolls without sinking in.

Each point has an impulse along the normal that keeps the shapes apart, and one across
that dry friction allows: at most $\mu$ times the former. Bodies with several contacts
are split among them, as in `_links.py`, here in proportion to the velocities that they
ask for: so nothing jumps when one more begins.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..contact._detect import ContactPoints
from ..contact._parameters import Friction
from ..contact._plan import ContactPlan
from ..model import accumulate, concatenate, GeomKind, System, take
from ..spatial import Force, force_at, Mat3, Motion, safe_sqrt, Vec3
from ._bodies import Bodies, Layout, Mobility, with_world


_ROUND = (GeomKind.SPHERE, GeomKind.CAPSULE)


class Touch(NamedTuple):
    """Possible contacts of one step, `(npoint, *batch)`.

    - `local`: the point in the frames of the two bodies, about their centers of mass; of
        round shapes their middle.
    - `reach`: from there to the surface, along the normal.
    - `arm`: the point in world axes, at the start of the step.
    - `start`: centers of mass at the start of the step.
    - `axes`: normal, from the first body to the second, and the two friction axes.
    - `dist`: distance of the surfaces at the start of the step, less the margin.
    """

    local: tuple[Vec3, Vec3]
    reach: tuple[Any, Any]
    arm: tuple[Vec3, Vec3]
    start: tuple[Vec3, Vec3]
    axes: tuple[Vec3, Vec3, Vec3]
    dist: Any
    valid: Any
    friction: Friction


def sides(layout: Layout, plan: ContactPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two bodies of each point; -1 is the world."""
    ends = [tuple(layout.index[node] for node in pair) for pair in plan.nodes]
    return tuple(a for a, _ in ends), tuple(b for _, b in ends)


def touch(
    sys: System,
    plan: ContactPlan,
    ends,
    bodies: Bodies,
    origin: Vec3,
    points: ContactPoints,
    friction: Friction,
) -> Touch:
    """The possible contacts at the start of a step.

    **Arguments:**

    - `ends`: see `sides`.
    - `origin`: of the tree of each body, in the world.
    """
    com, rot, where = with_world((bodies.com, bodies.rot, bodies.com + origin))
    frame = points.frame
    axes = Vec3(*frame[0:3]), Vec3(*frame[3:6]), Vec3(*frame[6:9])
    reach = _radii(sys, plan, 0), -_radii(sys, plan, 1)
    local, arms, starts = [], [], []
    for side, far in zip(ends, reach, strict=True):
        rows = [body + 1 for body in side]
        arm = points.pos - take(where, rows)
        arms.append(arm)
        local.append(take(rot, rows).T @ (arm - (axes[0] * far)))
        starts.append(take(com, rows))
    pair = lambda values: (values[0], values[1])
    dist = points.dist - friction.margin
    places = pair(local), reach, pair(arms), pair(starts)
    return Touch(*places, axes, dist, points.valid, friction)


def _radii(sys: System, plan: ContactPlan, side: int):
    """Radii of the spheres and capsules on one side of each point; zero for others."""
    geoms = [plan.pairs[pair][side] for pair in plan.point_pairs]
    size = take(sys.geoms.size[:, 0], geoms)
    is_round = [sys.geoms.kinds[geom] in _ROUND for geom in geoms]
    flags = np.array(is_round, size.dtype).reshape(-1, *(1 for _ in size.shape[1:]))
    return size * flags


class Approach(NamedTuple):
    """Contacts as they are now.

    - `arms`: the points about the centers of mass of the two bodies.
    - `gap`: distance of the surfaces.
    - `speed`: of the second surface against the first, along the three axes.
    """

    arms: tuple[Vec3, Vec3]
    gap: Any
    speed: tuple[Any, Any, Any]


def approach(ends, contacts: Touch, bodies: Bodies) -> Approach:
    """Distances and velocities of the surfaces now."""
    com, rot, velocity = with_world(bodies)
    arms, moved, speeds = [], [], []
    for k, side in enumerate(ends):
        rows = tuple(body + 1 for body in side)
        which = contacts.local[k], contacts.axes[0], contacts.reach[k]
        arm = _arm(rows, rot, *which)
        arms.append(arm)
        moved.append(_moved(rows, com, arm, contacts.arm[k], contacts.start[k]))
        speeds.append(_speed(rows, velocity, arm))
    gap = contacts.dist + _along(contacts.axes[0], moved)
    speed = [_along(axis, speeds) for axis in contacts.axes]
    return Approach((arms[0], arms[1]), gap, (speed[0], speed[1], speed[2]))


def _arm(rows, rot: Mat3, local: Vec3, normal: Vec3, reach) -> Vec3:
    return (take(rot, rows) @ local) + (normal * reach)


def _moved(rows, com: Vec3, arm: Vec3, arm_before: Vec3, com_before: Vec3) -> Vec3:
    """How far points have moved. The world has no frame here, and does not move."""
    still = np.array([row == 0 for row in rows])
    still = still.reshape(-1, *(1 for _ in arm.x.shape[1:]))
    change = (arm - arm_before) + (take(com, rows) - com_before)
    return Vec3(*(jnp.where(still, 0.0, x) for x in change))


def _speed(rows, velocity: Motion, arm: Vec3) -> Vec3:
    return take(velocity, rows).at(arm)


def _along(axis: Vec3, sides: list[Vec3]):
    """The difference of the two sides along an axis."""
    return axis | (sides[1] - sides[0])


def rebound(restitution, sys: System, speed, h, otherwise):
    """The speed at which surfaces leave each other that met at `speed`, negative where
    they approach: `otherwise` without restitution, and below the speed that gravity
    gives in two substeps (Müller et al., *Detailed rigid body simulation with extended
    position based dynamics*, 2020, section 3.6)."""
    g = Vec3(*(sys.gravity[k][None] for k in range(3)))
    share, slow = restitution[None], 2.0 * h * safe_sqrt(g | g)
    return jnp.where((share > 0.0) & (speed < -slow), -share * speed, otherwise)


def push_apart(
    ends, contacts: Touch, now: Approach, mobility: Mobility, wanted
) -> tuple[tuple[Any, Any, Any], Force]:
    """Impulses of contacts and their friction.

    **Arguments:**

    - `wanted`: the change of the normal velocity of each point; no impulse where it is
        not positive.

    **Returns:** impulses along the three axes of each point, and on the bodies.
    """
    asked = jnp.where(contacts.valid, jnp.maximum(wanted, 0.0), 0.0)
    shares = _shares(ends, contacts, now, mobility, asked)
    impulses = _rub(contacts.friction, now.speed, asked, shares)
    return impulses, _on_bodies(ends, contacts, now, mobility, impulses)


def _rub(friction: Friction, speed, asked, shares: list) -> tuple[Any, Any, Any]:
    """Impulses along the normal and across it, within the cone of Coulomb."""
    normal = asked * shares[0]
    mu = friction.coefficient1, friction.coefficient2
    pushes = [-s * w for s, w in zip(speed[1:], shares[1:], strict=True)]
    # With two coefficients the cone is an ellipse across.
    rubs = [
        jnp.where(m > 0.0, p / jnp.where(m > 0.0, m, 1.0), 0.0)
        for p, m in zip(pushes, mu, strict=True)
    ]
    length = safe_sqrt(rubs[0] ** 2 + rubs[1] ** 2)
    slips = length > normal
    scale = jnp.where(slips, normal / jnp.where(slips, length, 1.0), 1.0)
    across = [
        jnp.where(m > 0.0, p * scale, 0.0) for p, m in zip(pushes, mu, strict=True)
    ]
    return normal, across[0], across[1]


def bounce(
    ends, contacts: Touch, now: Approach, mobility: Mobility, normal, wanted
) -> tuple[Any, Force]:
    """Impulses along the normals that bring contacts with an impulse `normal` to the
    normal velocity `wanted`; none takes back more than that impulse.

    **Returns:** impulses along the normals, and on the bodies.
    """
    shares = _shares(ends, contacts, now, mobility, normal)
    change = jnp.maximum((wanted - now.speed[0]) * shares[0], -normal)
    none = jnp.zeros_like(change)
    return change, _on_bodies(ends, contacts, now, mobility, (change, none, none))


def _shares(ends, contacts: Touch, now: Approach, mobility: Mobility, asked):
    """Impulse per change of velocity of each contact along its axes, of bodies of which
    each contact has the part that it asks for: zero where it asks for nothing."""
    wholes = [accumulate(asked, side, mobility.mass.shape[0]) for side in ends]
    easy = [with_world((mobility, whole)) for whole in wholes]
    shares = []
    for axis in contacts.axes:
        weights = [
            _ease(tuple(body + 1 for body in side), *one, arm, axis)
            for side, one, arm in zip(ends, easy, now.arms, strict=True)
        ]
        shares.append(_share(asked, weights))
    return shares


def _ease(rows, mobility: Mobility, whole, arm: Vec3, axis: Vec3):
    """How easily a point of a body moves along an axis, times what is asked of it."""
    own, whole = take((mobility, whole), rows)
    turn = arm ^ axis
    return whole * (own.mass + (turn | (own.inertia @ turn)))


def _share(asked, weights: list):
    some, weight = asked > 0.0, weights[0] + weights[1]
    return jnp.where(some, asked / jnp.where(some, weight, 1.0), 0.0)


def _on_bodies(ends, contacts, now: Approach, mobility: Mobility, impulses) -> Force:
    push = in_world(contacts.axes, impulses)
    forces = [_force(arm, push, sign) for arm, sign in zip(now.arms, (-1.0, 1.0))]
    count = mobility.mass.shape[0]
    return accumulate(
        concatenate(forces), [body for side in ends for body in side], count
    )


def in_world(axes, impulses) -> Vec3:
    """Impulses along the three axes of points as vectors, on the second bodies."""
    parts = [axis * p for axis, p in zip(axes, impulses, strict=True)]
    return parts[0] + parts[1] + parts[2]


def _force(arm: Vec3, push: Vec3, sign: float) -> Force:
    return force_at(arm, push * sign)
