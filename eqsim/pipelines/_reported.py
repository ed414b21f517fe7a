"""Contacts of `Generalized` with their forces, for reports and sensors; batch axes last."""

from typing import NamedTuple

import jax.numpy as jnp

from ..collision import split_plan
from ..constraint import Contact, contact_wrenches_in_world
from ..constraint._contact import (
    contact_report,
    ContactConstants,
    ContactReport,
    DensePoints,
    report_facts,
    ReportedContacts,
)
from ..constraint._contact_rows import with_world
from ..constraint._costs import onset, Residual
from ..constraint._listed_contacts import ListedContacts
from ..constraint._newton import node_motion
from ..constraint._rows import AbstractRows
from ..kinematics._center_of_mass import tree_centers
from ..model import System, tree
from ..model._gather import accumulate, concatenate, take, take_or_zero
from ..spatial import Force, force_at, Vec3
from ._forward import Constants, Forward, Method


def reported_contacts(
    sys: System,
    method: Method,
    constants: Constants,
    now: Forward,
    forces: list[Residual],
    size: int,
) -> ContactReport | None:
    """Return the deepest contacts, with their forces at the solution; None if no shapes
    can touch.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    - `size`: number of rows of the report.
    """
    own = _contact_rows(method, constants, now, forces)
    if not size or own is None:
        return None
    motion = node_motion(tree(sys), now.kin, now.solution.qdd)
    motion = with_world(motion, now.solution.qdd.shape[1:])
    listed = tuple(each for each in own.rows if isinstance(each, ListedContacts))
    dense = _dense_points(sys, constants, now, own)
    given = ReportedContacts(dense, listed, motion)
    return contact_report(report_facts(sys, size), given)


class _ContactRows(NamedTuple):
    """Rows of contacts, their forces, and constants of their kind."""

    rows: tuple[AbstractRows, ...]
    forces: list[Residual]
    constants: ContactConstants


def _contact_rows(
    method: Method, constants: Constants, now: Forward, forces: list[Residual]
) -> _ContactRows | None:
    """Return the rows of contacts; None if there are none."""
    start = 0
    kinds = zip(method.constraints, constants.constraints, now.counts, strict=True)
    for kind, fixed, count in kinds:
        if isinstance(kind, Contact) and count:
            own = slice(start, start + count)
            return _ContactRows(now.problem.rows[own], forces[own], fixed)
        start += count
    return None


def _dense_points(
    sys: System, constants: Constants, now: Forward, own: _ContactRows
) -> DensePoints | None:
    """Return the points that are always computed; None if there are none."""
    plan, parameters = split_plan(sys)[0], own.constants.parameters
    if not plan.size:
        return None
    points, width = now.points, constants.onset_width
    assert points is not None and parameters is not None, "a plan with pairs has points"
    wrenches = contact_wrenches_in_world(sys, plan, own.rows, own.forces)
    begun = onset(points.dist - parameters.friction.margin, width)
    return DensePoints(points, begun.exists & points.valid, *wrenches)


def summed_wrenches(
    sys: System,
    method: Method,
    constants: Constants,
    now: Forward,
    forces: list[Residual],
) -> Force:
    """Sum the forces of all contacts on each link, about the center of mass of its tree,
    `(nlink, *batch)`.

    **Arguments:**

    - `forces`: forces of all rows of constraints.
    """
    nodes, like = tree(sys), now.solution.qdd
    zero = jnp.zeros((sys.nlink, *like.shape[1:]), like.dtype)
    total = Force(*2 * (Vec3(zero, zero, zero),))
    own = _contact_rows(method, constants, now, forces)
    if own is None:
        return total
    centers = tree_centers(sys, nodes, constants.frames, now.kin)
    dense = _dense_points(sys, constants, now, own)
    if dense is not None:
        total = total + _dense_wrenches(sys, dense, centers)
    origins = take_or_zero(now.kin.origin, nodes.link_nodes)
    for each, force in zip(own.rows, own.forces, strict=True):
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
