"""Contacts in the form that all pipelines return."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._batching import batch_last
from .._errors import check_count
from ..collision import contact_plan
from ..constraint._contact import ContactReport
from ..kinematics._center_of_mass import tree_centers
from ..kinematics._forward import frames, kinematics
from ..model import check_state, State, System, tree
from ..spatial._vector import stack


class Contacts(eqx.Module):
    r"""Contacts of a state, the deepest first.

    There is room for `ncon` of them, the smaller of the pipeline's `max_contacts` and the
    number of points at which the robot could touch. Rows that are not used have shapes -1,
    infinite distances, and zeros. Under `vmap`, all fields have leading batch axes.

    **Arguments:**

    - `geoms`: the two shapes of each contact.
    - `dist`: distance of the surfaces, m; negative in penetration.
    - `pos`: point midway between the surfaces, in the world, m.
    - `frame`: rows are the normal, from the first shape to the second, and the two
        friction axes, in the world.
    - `force`: force on the second shape, in the world, N.
    - `torque`: torque about the point on the second shape, N m (`condim` 4 and 6); None
        if the pipeline has no torsional and rolling friction.
    - `count`: number of all contacts (MuJoCo: `ncon`). If it is larger than `ncon`, the
        contacts with the smallest depth have no row: increase `max_contacts`. Contacts
        beyond `HeightFields.capacity` are not counted, see `Solved.converged`.
    """

    geoms: Int[Array, "ncon 2"]
    dist: Float[Array, " ncon"]
    pos: Float[Array, "ncon 3"]
    frame: Float[Array, "ncon 3 3"]
    force: Float[Array, "ncon 3"]
    torque: Float[Array, "ncon 3"] | None
    count: Int[Array, ""]

    @property
    def exists(self) -> Bool[Array, "*batch ncon"]:
        """True for rows that are used."""
        return self.geoms[..., 0] >= 0

    def between(self, sys: System, one: int, two: int) -> Bool[Array, "*batch ncon"]:
        """Return which contacts are between two links, in either order.

        **Arguments:**

        - `sys`: the robot.
        - `one`, `two`: numbers of the links (`sys.link(name).index`); -1: the world.
        """
        first, second = (self._links(sys, side) for side in (0, 1))
        either = (first == one) & (second == two) | (first == two) & (second == one)
        return either & self.exists

    def of_link(self, sys: System, link: int) -> Bool[Array, "*batch ncon"]:
        """Return which contacts a link has, see `between`."""
        first, second = (self._links(sys, side) for side in (0, 1))
        return ((first == link) | (second == link)) & self.exists

    def _links(self, sys: System, side: int):
        links = jnp.asarray(np.array([*sys.geoms.links, -1], np.int32))
        return links[self.geoms[..., side]]


def contact_wrenches(
    sys: System, q: Float[Array, " nq"], contacts: Contacts
) -> Float[Array, "nlink 6"]:
    r"""Sum contact forces on each link to one force and torque.

    $\tau_i = \sum_k \pm ((p_k - c) \times f_k + \tau_k), \quad f_i = \sum_k \pm f_k$,
    over the contacts $k$ of the shapes of link $i$, with the center of mass $c$ of the
    tree of link $i$. `pipeline.contact_wrenches` sums all contacts of a state.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `contacts`: contacts from `pipeline.contacts` at these coordinates.

    **Returns:** torque (N m), then force (N), in world axes (MuJoCo: `cfrc_ext` without
    the world, if only contacts act from outside).
    """
    check_state(sys, q)
    total = jnp.zeros((sys.nlink, 6), q.dtype)
    if not sys.nlink:
        return total
    centers = _tree_centers(sys, q)
    for side, sign in ((0, -1.0), (1, 1.0)):
        link = contacts._links(sys, side)
        moved = (link >= 0) & contacts.exists
        force = sign * contacts.force
        torque = jnp.cross(contacts.pos - centers[link], force)
        if contacts.torque is not None:
            torque = torque + sign * contacts.torque
        wrench = jnp.concatenate([torque, force], axis=1)
        total = total.at[link].add(jnp.where(moved[:, None], wrench, 0.0))
    return total


def _tree_centers_fn(sys: System, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    centers = tree_centers(sys, nodes, fixed, kinematics(sys, nodes, fixed, q))
    return stack(centers)


_tree_centers = batch_last(_tree_centers_fn)


def deepest_contacts(
    geoms: Sequence[tuple[int, int]],
    exists: Bool[Array, " n"],
    dist: Float[Array, " n"],
    pos: Float[Array, "n 3"],
    frame: Float[Array, "n 3 3"],
    force: Float[Array, "n 3"],
    torque: Float[Array, "n 3"] | None = None,
    *,
    max_contacts: int,
) -> Contacts:
    """Return the deepest contacts of a list of points, for pipelines that compute all
    points that could touch.

    **Arguments:**

    - `geoms`: the two shapes of each point.
    - `exists`: true where there is a contact.
    - `dist`, `pos`, `frame`, `force`, `torque`: see `Contacts`.
    - `max_contacts`: largest number of rows.
    """
    depth = jnp.where(exists, dist, jnp.inf)
    order = jnp.argsort(jax.lax.stop_gradient(depth))[:max_contacts]
    ends, used = jnp.asarray(np.array(geoms, np.int32).reshape(-1, 2)), exists[order]

    def row(x, unused=0):
        return jnp.where(used.reshape(-1, *(1 for _ in x.shape[1:])), x[order], unused)

    return Contacts(
        geoms=row(ends, -1),
        dist=depth[order],
        pos=row(pos),
        frame=row(frame),
        force=row(force),
        torque=None if torque is None else row(torque),
        count=jnp.sum(exists, dtype=jnp.int32),
    )


def contact_arrays(report: ContactReport | None) -> tuple:
    """Return the arrays of a report of contacts, with batch axes last: see
    `make_contacts`."""
    if report is None:
        return ()
    own = report.values
    axes = own.normal, own.tangent, own.normal ^ own.tangent
    frame = jnp.stack([stack(axis) for axis in axes], axis=1)
    values = stack(own.pos), frame, stack(own.force), stack(own.torque)
    return report.pair, report.count, own.dist, *values


def make_contacts(sys: System, state: State, arrays: tuple) -> Contacts:
    """Return contacts from the arrays of a report, without batch axes."""
    if not arrays:
        return no_contacts(state.q.dtype)
    pair, count, dist, pos, frame, force, torque = arrays
    ends = [pair[:2] for pair in contact_plan(sys).pairs]
    geoms = jnp.asarray(np.array([*ends, (-1, -1)], np.int32))[pair]
    return Contacts(geoms, dist, pos, frame, force, torque, count)


def no_contacts(dtype) -> Contacts:
    """Return contacts of a robot that cannot touch anything."""
    none = jnp.zeros((0, 3, 3), dtype)
    geoms = jnp.zeros((0, 2), jnp.int32)
    rows = none[:, 0, 0], none[:, 0], none, none[:, 0], none[:, 0]
    return Contacts(geoms, *rows, jnp.zeros((), jnp.int32))


MOST_REPORTED = 64
"""Default of the largest number of contacts that a pipeline reports."""


def num_reported(sys: System, max_contacts: int | None) -> int:
    """Return the number of rows of reports.

    **Arguments:**

    - `max_contacts`: largest number; None for the default.
    """
    most = MOST_REPORTED if max_contacts is None else max_contacts
    return min(most, contact_plan(sys).size)


def check_max_contacts(pipeline: Any) -> None:
    """Check the largest number of contacts that a pipeline reports."""
    name = f"{type(pipeline).__name__}.max_contacts"
    check_count(name, pipeline.max_contacts, 0, or_none=str(MOST_REPORTED))
