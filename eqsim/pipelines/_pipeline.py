import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import check_state, State, System
from ._contacts import contact_wrenches, Contacts
from ._solved import Solved


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

        **Returns:** the results of `step` and `solve`, from a single solution of the
        equations of motion.
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
