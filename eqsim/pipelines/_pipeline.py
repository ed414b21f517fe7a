import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_shape
from ..model import check_state, State, System
from ._contacts import Contacts
from ._solved import Solved


class AbstractPipeline(eqx.Module):
    """A physics engine: what happens to a `State` in one time step `sys.dt`."""

    @abc.abstractmethod
    def init(
        self,
        sys: System,
        q: Float[Array, " nq"] | None = None,
        qd: Float[Array, " nv"] | None = None,
    ) -> State:
        """A state at given coordinates (default: the reference pose) and velocities
        (default: at rest)."""

    def init_keyframe(self, sys: System, name: str) -> State:
        """A state at a keyframe of the robot, with its activations.

        The controls that go with it are `sys.keyframe(name).ctrl`.
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
        """The state one time step later.

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
        """Accelerations and forces in a state.

        **Arguments:** as of `step`.
        """

    @abc.abstractmethod
    def advance(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> tuple[State, Solved]:
        """A step, and the accelerations and forces in the state where it begins.

        **Arguments:** as of `step`.

        **Returns:** what `step` and `solve` return. The equations of motion are solved
        once for both.
        """

    def contacts(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Contacts:
        """Where shapes touch in a state, and with what force: part of `solve`.

        **Arguments:** as of `step`.
        """
        return self.solve(sys, state, ctrl, external).contacts

    def constraint_forces(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Joint forces of all constraints in a state, N m and N: part of `solve`.

        **Arguments:** as of `step`.
        """
        return self.solve(sys, state, ctrl, external).constraint_force

    def acceleration(
        self,
        sys: System,
        state: State,
        ctrl: Float[Array, " nu"],
        external: Float[Array, "nlink 6"] | None = None,
    ) -> Float[Array, " nv"]:
        """Joint accelerations in a state, rad/s$^2$ and m/s$^2$: part of `solve`.

        **Arguments:** as of `step`.
        """
        return self.solve(sys, state, ctrl, external).qdd


def check_input(sys: System, state: State, ctrl, external) -> None:
    """Checks the shapes of what a step is given."""
    check_state(sys, state.q, state.qd, ctrl, state.act)
    if external is not None:
        check_shape("external", external, {"nlink": sys.nlink, "6": 6})


def first_state(sys: System, q, qd) -> State:
    """A state at given coordinates and velocities, or the reference pose at rest."""
    q = jnp.asarray(sys.joints.ref if q is None else q)
    qd = jnp.zeros(sys.nv, q.dtype) if qd is None else qd
    return State(q, qd, jnp.zeros(sys.na, q.dtype))
