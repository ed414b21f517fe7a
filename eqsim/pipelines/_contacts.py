"""Contacts in the form that all pipelines return."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from ..collision import contact_plan
from ..kinematics._center_of_mass import tree_centers
from ..kinematics._forward import frames, kinematics
from ..model import check_state, System, tree
from ..model._gather import accumulate, concatenate, take
from ..spatial import Force, force_at, vec3
from ..spatial._vector import stack


class Contacts(eqx.Module):
    r"""All points that could touch, whether or not they do.

    **Arguments:**

    - `geoms`: the two shapes of each point.
    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: point midway between the surfaces, in the world, m.
    - `frame`: rows are the normal, from the first shape to the second, and the two
        friction axes, in the world.
    - `force`: force on the second shape, in the world, N; zero if there is no contact.
    - `torque`: torque about the point on the second shape, N m (`condim` 4 and 6); None
        if the pipeline has no torsional and rolling friction.
    """

    geoms: tuple[tuple[int, int], ...] = eqx.field(static=True)
    dist: Float[Array, " ncon"]
    pos: Float[Array, "ncon 3"]
    frame: Float[Array, "ncon 3 3"]
    force: Float[Array, "ncon 3"]
    torque: Float[Array, "ncon 3"] | None = None


def contact_wrenches(
    sys: System, q: Float[Array, " nq"], contacts: Contacts
) -> Float[Array, "nlink 6"]:
    r"""Sum the contact forces on each link to one force and torque.

    $\tau_i = \sum_k \pm ((p_k - c) \times f_k + \tau_k), \quad f_i = \sum_k \pm f_k$,
    over the contacts $k$ of the shapes of link $i$, with the center of mass $c$ of the
    tree of link $i$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `contacts`: contacts from `pipeline.contacts` at these coordinates.

    **Returns:** torque (N m), then force (N), in world axes (MuJoCo: `cfrc_ext` without
    the world, if only contacts act from outside).
    """
    check_state(sys, q)
    return _contact_wrenches(sys, q, contacts)


def _contact_wrenches_fn(sys: System, q, contacts: Contacts):
    ends = [[sys.geoms.links[pair[k]] for pair in contacts.geoms] for k in (0, 1)]
    if not contacts.geoms:
        return jnp.zeros((sys.nlink, 6, *q.shape[1:]), q.dtype)
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    centers = tree_centers(sys, nodes, fixed, kinematics(sys, nodes, fixed, q))
    pos, force = vec3(contacts.pos), vec3(contacts.force)
    twist = None if contacts.torque is None else vec3(contacts.torque)
    parts, links = [], []
    for side, sign in zip(ends, (-1.0, 1.0), strict=True):
        moved = [k for k, link in enumerate(side) if link >= 0]
        on = [side[k] for k in moved]
        links += on
        arm, push = take(pos, moved) - take(centers, on), take(force * sign, moved)
        part = force_at(arm, push)
        if twist is not None:
            part = Force(part.ang + take(twist * sign, moved), part.lin)
        parts.append(part)
    total = accumulate(concatenate(parts), links, sys.nlink)
    return jnp.concatenate([stack(total.ang), stack(total.lin)], axis=1)


_contact_wrenches = batch_last(_contact_wrenches_fn)


def report(sys: System, dtype, points: Callable) -> Contacts:
    """Return the contacts of a system; `points` computes their arrays, if there are
    any."""
    plan = contact_plan(sys)
    geoms = tuple(plan.pairs[pair][:2] for pair in plan.point_pairs)
    if geoms:
        return Contacts(geoms, *points())
    none = jnp.zeros((0, 3, 3), dtype)
    return Contacts(geoms, none[:, 0, 0], none[:, 0], none, none[:, 0])
