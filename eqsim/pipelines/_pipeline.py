import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..model import State, System


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
        - `external`: torque (N m) and force (N) on each link at its centre of mass, in
            world axes.
        """
