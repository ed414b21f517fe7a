"""Goal-conditioned agents, which learn from goals in hindsight."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv

from ..blocks import Transition
from ..data import DESIRED, goal_of, Hindsight, OBSERVATION, observation_of
from ._offline import AbstractOfflineAgent, check_memoryless, shown


class AbstractGoalAgent(AbstractAgent):
    """An agent that is told where to go: it sees `observation` and `desired_goal`, and
    what it holds learns from steps with goals in hindsight.

    Its `update` takes a `Transition` out of `GoalData`.
    """

    agent: eqx.AbstractVar[AbstractOfflineAgent]
    hindsight: eqx.AbstractVar[Hindsight]

    def __check_init__(self):
        check_memoryless(self, self.agent)

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        """Create the initial state. If the environment has no goals, observations are
        used as goals."""
        return self.create(key, *shown(self, env))

    def create(self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"]) -> Any:
        """Create the initial state for observations of a dataset."""
        seen = {OBSERVATION: observation_of(obs), DESIRED: goal_of(obs)}
        return self.agent.create(key, seen, bounds)

    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        if not isinstance(obs, dict) or not {OBSERVATION, DESIRED} <= {*obs}:
            raise ValueError(
                f"`{type(self).__name__}` needs an observation with {OBSERVATION!r} "
                f"and {DESIRED!r}, got "
                f"{sorted(obs) if isinstance(obs, dict) else type(obs).__name__}. Use "
                "`wrappers.Reach(env)`, or pass a dictionary."
            )
        seen = {OBSERVATION: obs[OBSERVATION], DESIRED: obs[DESIRED]}
        return self.agent.act(state, seen, key=key)

    def update(
        self, state: Any, batch: Transition
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Learn from a batched `Transition` of `GoalData`, see `update` of `agent`."""
        return self.agent.update(state, batch)
