"""Goal-conditioned agents, which learn from goals in hindsight."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv

from ..blocks.collecting import Transition
from ..data.goals import DESIRED, goal_of, Hindsight, OBSERVATION, observation_of
from .bc import BC
from .iql import IQL
from .offline_agent import AbstractOfflineAgent, check_memoryless, shapes_of


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
        return self.create(key, *shapes_of(self, env))

    def create(self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"]) -> Any:
        """Create the initial state for observations of a dataset."""
        seen = {OBSERVATION: observation_of(obs), DESIRED: goal_of(obs)}
        return self.agent.create(key, seen, bounds)

    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
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


class GCBC(AbstractGoalAgent):
    """Goal-conditioned behavior cloning: imitation of the actions in the dataset, with a
    goal drawn uniformly from the later observations of the same trajectory.

    **Arguments:**

    - `agent`: behavior cloning agent. `hindsight`: distribution of goals.

    ??? cite "Reference"
        Ghosh et al., *Learning to reach goals via iterated supervised learning*, 2021,
        algorithm 1; defaults: Park et al., *OGBench*, 2024, appendix D.
    """

    agent: BC = eqx.field(default_factory=BC)
    hindsight: Hindsight = eqx.field(
        default_factory=lambda: Hindsight(False, 0.0, 1.0, 0.0)
    )


class GCIQL(AbstractGoalAgent):
    """Goal-conditioned implicit Q-learning: values that count the steps to a goal, and a
    policy that minimizes them.

    Differences from OGBench: the policy learns by weights (equation 7 of IQL), and not by
    derivatives of values, which is OGBench's default; values and policy learn from the
    same goals; and a goal is reached by the step that leads to it.

    **Arguments:**

    - `agent`: agent that learns values. `hindsight`: distribution of goals.

    ??? cite "Reference"
        Park et al., *OGBench: benchmarking offline goal-conditioned RL*, 2024, appendices C
        and D; Kostrikov, Nair, Levine, *Offline reinforcement learning with implicit
        Q-learning*, 2022.
    """

    agent: IQL = eqx.field(default_factory=lambda: IQL(expectile=0.9))
    hindsight: Hindsight = eqx.field(default_factory=Hindsight)
