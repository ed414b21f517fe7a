"""The interface of pipelines, and what they report: contacts and solutions."""

import abc
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
from ..constraint.contact import ContactReport
from ..kinematics.frames import tree_centers
from ..kinematics.link_motion import frames, kinematics
from ..model import check_state, State, System, tree
from ..spatial.vectors import stack


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


@batch_last
def _tree_centers(sys: System, q):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    centers = tree_centers(sys, nodes, fixed, kinematics(sys, nodes, fixed, q))
    return stack(centers)


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
    axes = own.normal, own.tangent, own.normal.cross(own.tangent)
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


class Solved(eqx.Module):
    """The solution of the equations of motion in one state.

    `Generalized` solves them at that state. `Spring` and `Positional` apply impulses in
    substeps: all quantities are means over the step that starts there.

    **Arguments:**

    - `qdd`: joint accelerations (MuJoCo: `qacc`), rad/s$^2$ and m/s$^2$.
    - `contacts`: contact points with their forces.
    - `constraint_force`: joint forces of all constraints (MuJoCo: `qfrc_constraint` plus
        `qfrc_adhesion`), N m and N.
    - `actuator_force`: force of each actuator (MuJoCo: `actuator_force`), N or N m.
    - `converged`: true if the solver has converged, and in pipelines that do not
        iterate to a tolerance. If false, all of the above are approximate: allow more
        steps with `Generalized(solver=Newton(...))`, or check for `solref` and `solimp`
        that the time step cannot resolve. Always false if an input is not finite, or if
        a shape has more contacts with a height field than `HeightFields.capacity`,
        which must then be increased.
    """

    qdd: Float[Array, " nv"]
    contacts: Contacts
    constraint_force: Float[Array, " nv"]
    actuator_force: Float[Array, " nout"]
    converged: Bool[Array, ""]


class AbstractPrepared(eqx.Module):
    """A robot with quantities that depend on it and on a pipeline alone.

    - `sys`: the robot.
    """

    sys: eqx.AbstractVar[System]


class AbstractPipeline(eqx.Module):
    """A physics engine that advances a `State` by one time step `sys.dt`."""

    @abc.abstractmethod
    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        """Create a state at given coordinates (default: the reference pose) and
        velocities (default: zero), which are converted to the precision of the robot."""

    def init_keyframe(self, sys: System, name: str) -> State:
        """Create a state at a keyframe of the robot, including its activations.

        The corresponding controls are `sys.keyframe(name).ctrl`.
        """
        key = sys.keyframe(name)
        state = self.init(sys, key.q, key.qd)
        check_state(sys, act=key.act)
        return eqx.tree_at(lambda s: s.act, state, key.act.astype(state.act.dtype))

    @abc.abstractmethod
    def step(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> State:
        """Compute the state after one time step.

        **Arguments:**

        - `ctrl`: input of the actuators.
        - `external`: torque (N m) and force (N) on each link at its center of mass, in
            world axes.
        """

    @abc.abstractmethod
    def solve(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Solved:
        """Compute accelerations and forces in a state.

        **Arguments:** as for `step`.
        """

    @abc.abstractmethod
    def advance(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        """Take a step, and return the accelerations and forces at its start.

        **Arguments:** as for `step`.

        **Returns:** the results of `step` and `solve`. An integrator with one stage solves the
        equations of motion once for both.
        """

    def contacts(
        self,
        sys: System | AbstractPrepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Contacts:
        """Compute contact points and forces in a state: a part of `solve`.

        **Arguments:** as for `step`.
        """
        parts = self._parts(("contacts",), sys, state, ctrl, external)
        return parts["contacts"]

    def contact_wrenches(
        self,
        sys: System | AbstractPrepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, "nlink 6"]:
        """Compute the force and torque of all contacts on each link in a state, see
        `eqsim.pipelines.contact_wrenches`.

        **Arguments:** as for `step`.
        """
        parts = self._parts(("contact_wrenches",), sys, state, ctrl, external)
        return parts["contact_wrenches"]

    def constraint_forces(
        self,
        sys: System | AbstractPrepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Compute the joint forces of all constraints in a state, N m and N: a part of
        `solve`.

        **Arguments:** as for `step`.
        """
        parts = self._parts(("constraint_force",), sys, state, ctrl, external)
        return parts["constraint_force"]

    def acceleration(
        self,
        sys: System | AbstractPrepared,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Compute joint accelerations in a state, rad/s$^2$ and m/s$^2$: a part of
        `solve`.

        **Arguments:** as for `step`.
        """
        return self._parts(("qdd",), sys, state, ctrl, external)["qdd"]

    def _parts(
        self,
        wanted: tuple[str, ...],
        sys: System | AbstractPrepared,
        state: State,
        ctrl,
        external,
    ) -> dict[str, Any]:
        """Compute parts of the solution: fields of `Solved`, and `contact_wrenches`."""
        robot = sys.sys if isinstance(sys, AbstractPrepared) else sys
        solved = self.solve(robot, state, ctrl, external)
        found = dict(vars(solved))
        if "contact_wrenches" in wanted:
            wrenches = contact_wrenches(robot, state.q, solved.contacts)
            found["contact_wrenches"] = wrenches
        return {name: found[name] for name in wanted}


def first_state(sys: System, q, qd) -> State:
    """Create a state at given coordinates and velocities, by default the reference pose
    at rest, in the precision of the robot."""
    dtype = sys.joints.ref.dtype
    q = jnp.asarray(sys.joints.ref if q is None else q, dtype)
    qd = jnp.zeros(sys.nv, dtype) if qd is None else jnp.asarray(qd, dtype)
    return State(q, qd, jnp.zeros(sys.na, dtype))
