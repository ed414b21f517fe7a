import equinox as eqx

from ..data import Hindsight
from ._goal_agent import AbstractGoalAgent
from ._iql import IQL


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
