"""Contacts of `Generalized` with their forces, for reports and sensors; batch axes last."""

import jax.numpy as jnp

from ..collision import split_plan
from ..constraint import Contact, contact_wrenches_in_world, RobotData
from ..constraint._contact import (
    contact_report,
    ContactReport,
    DensePoints,
    report_facts,
    ReportedContacts,
)
from ..constraint._contact_rows import with_world
from ..constraint._costs import onset
from ..constraint._listed_contacts import ListedContacts
from ..constraint._newton import ByKind, node_motion
from ..kinematics._center_of_mass import tree_centers
from ..model import System, tree
from ..model._gather import accumulate, concatenate, take, take_or_zero
from ..spatial import Force, force_at, Vec3
from ._forward import contact_constants, Prepared


def reported_contacts(
    prepared: Prepared, now: RobotData, forces: ByKind, size: int
) -> ContactReport | None:
    """Return the deepest contacts, with their forces at the solution; None if no shapes
    can touch.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    - `size`: number of rows of the report.
    """
    sys, rows = prepared.sys, _of_contacts(now.problem.rows)
    if not size or not rows:
        return None
    motion = node_motion(tree(sys), now.kin, now.solution.qdd)
    motion = with_world(motion, now.solution.qdd.shape[1:])
    listed = tuple(each for each in rows if isinstance(each, ListedContacts))
    dense = _dense_points(prepared, now, forces)
    given = ReportedContacts(dense, listed, motion)
    return contact_report(report_facts(sys, size), given)


def _of_contacts(by_kind: ByKind) -> tuple:
    """Return the entries of contacts, also those of subclasses."""
    kinds = (kind for kind in by_kind if issubclass(kind, Contact))
    return tuple(entry for kind in kinds for entry in by_kind[kind])


def _dense_points(
    prepared: Prepared, now: RobotData, forces: ByKind
) -> DensePoints | None:
    """Return the points that are always computed; None if there are none."""
    sys, own = prepared.sys, contact_constants(prepared)
    plan = split_plan(sys)[0]
    if not plan.size:
        return None
    points, parameters = now.points, own.parameters
    assert points is not None and parameters is not None, "a plan with pairs has points"
    rows, forces_on_rows = map(_of_contacts, (now.problem.rows, forces))
    wrenches = contact_wrenches_in_world(sys, plan, rows, forces_on_rows)
    begun = onset(points.dist - parameters.friction.margin, now.onset_width)
    return DensePoints(points, begun.exists & points.valid, *wrenches)


def summed_wrenches(prepared: Prepared, now: RobotData, forces: ByKind) -> Force:
    """Sum the forces of all contacts on each link, about the center of mass of its tree,
    `(nlink, *batch)`.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    """
    sys, like = prepared.sys, now.solution.qdd
    nodes, rows = tree(sys), _of_contacts(now.problem.rows)
    zero = jnp.zeros((sys.nlink, *like.shape[1:]), like.dtype)
    total = Force(*2 * (Vec3(zero, zero, zero),))
    if not rows:
        return total
    centers = tree_centers(sys, nodes, now.fixed, now.kin)
    dense = _dense_points(prepared, now, forces)
    if dense is not None:
        total = total + _dense_wrenches(sys, dense, centers)
    origins = take_or_zero(now.kin.origin, nodes.link_nodes)
    for each, force in zip(rows, _of_contacts(forces), strict=True):
        if isinstance(each, ListedContacts):
            ang, lin = take(force[0], range(sys.nlink))
            total = total + Force(ang - ((centers - origins) ^ lin), lin)
    return total


def _dense_wrenches(sys: System, dense: DensePoints, centers) -> Force:
    plan, parts, links = split_plan(sys)[0], [], []
    for side, sign in ((0, -1.0), (1, 1.0)):
        own = [sys.geoms.links[plan.pairs[pair][side]] for pair in plan.point_pairs]
        moved = [k for k, link in enumerate(own) if link >= 0]
        on = [own[k] for k in moved]
        pos, push, twist = take((dense.points.pos, dense.force, dense.torque), moved)
        part = force_at(pos - take(centers, on), push * sign)
        parts.append(Force(part.ang + twist * sign, part.lin))
        links += on
    return accumulate(concatenate(parts), links, sys.nlink)
