"""Observations that only a simulation has."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from ..envs import AbstractEnv, Timestep
from ..model import State, System
from ._randomization import robot
from ._wrapper import AbstractReport, check_env


class PrivilegedObservation(AbstractReport):
    """Adds an observation that is known in simulation only, such as true velocities, or the
    parameters of a randomized robot.

    The observation is a dictionary of `obs`, that of `env`, and `privileged`; if that of
    `env` is a dictionary, `privileged` is added to it. Critics may learn from it while
    actors do not see it, see `actor_parts` of the agents of `eqsim_zoo`.

    **Arguments:**

    - `env`: the environment.
    - `observe`: `(sys, state) -> vector`, where `sys` is the robot of the current episode,
        also with `DomainRandomization`, and `state` that of its physics. A function of a
        module, so that two environments share compiled programs.

    **Raises:** `ValueError` if `env` resets itself, or its observation already has a
    part called `privileged`.

    ??? cite "Reference"
        Pinto et al., *Asymmetric actor critic for image-based robot learning*, 2018,
        section 4.
    """

    env: AbstractEnv
    observe: Callable[[System, State], Float[Array, " nprivileged"]] = eqx.field(
        static=True
    )

    def __check_init__(self):
        check_env(self, self.env)

    def report(
        self, state, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        known = self.observe(robot(self.env, state), self.physics(state))
        obs = timestep.obs if isinstance(timestep.obs, dict) else {"obs": timestep.obs}
        if "privileged" in obs:
            raise ValueError(
                "The observation already has a part `privileged`: wrap the environment in "
                "one `PrivilegedObservation`."
            )
        new = {**obs, "privileged": known}
        return eqx.tree_at(lambda t: t.obs, timestep, new)
