"""Contact points with their forces, for reports and sensors of `Generalized`."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..collision import contact_plan, ContactPoints, split_plan
from ..constraint import Contact, contact_wrenches_in_world, Moment
from ..constraint._contact import ContactConstants, point_rows
from ..constraint._contact_parameters import contact_parameters
from ..constraint._problem import node_motion
from ..model import System, tree
from ..spatial import Vec3
from ._forward import Constants, every_point, Forward, Method


class Reported(NamedTuple):
    """All points that could touch.

    - `points`: the points, in the order of `ContactPlan`.
    - `exists`: true where there is a contact.
    - `force`, `torque`: on the second shape, in the world.
    """

    points: ContactPoints
    exists: jnp.ndarray
    force: Vec3
    torque: Vec3


def reported_contacts(
    sys: System, method: Method, constants: Constants, now: Forward, q, qd
) -> Reported | None:
    """Return all points that could touch, with their forces at the solution; None if no
    shapes can touch."""
    plan, fixed, points = contact_plan(sys), constants.frames, now.points
    if not plan.size:
        return None
    if split_plan(sys)[1] is not None:
        points = every_point(sys, fixed, now.kin, constants.onset_width)
    assert points is not None, "a plan with pairs has points"
    zero = jnp.zeros_like(points.dist)
    none = Vec3(zero, zero, zero)
    found = Reported(points, jnp.zeros_like(points.valid), none, none)
    for kind, own in zip(method.constraints, constants.constraints, strict=True):
        if isinstance(kind, Contact) and own is not None:
            state = (fixed, now.kin, now.velocities, q, qd, points, None)
            moment = Moment(*state, constants.onset_width)
            found = _with_forces(sys, found, moment, own, now.solution.qdd)
    return found


def _with_forces(
    sys: System, found: Reported, now: Moment, constants: ContactConstants, qdd
) -> Reported:
    plan, points = contact_plan(sys), found.points
    parameters = contact_parameters(sys, plan, constants.weights)
    rows = point_rows(sys, plan, parameters, now)
    motion = node_motion(tree(sys), now.kin, qdd)
    forces = []
    for own in rows:
        x = own.residuals(motion, qdd)
        pieces = own.pieces(jtu.tree_map(lax.stop_gradient, x))
        forces.append(own.forces(pieces, x))
    exists = points.valid & (points.dist < parameters.friction.margin)
    return Reported(points, exists, *contact_wrenches_in_world(sys, rows, forces))
