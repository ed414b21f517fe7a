import equinox as eqx

from ..data import Hindsight
from ._bc import BC
from ._goal_agent import AbstractGoalAgent


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
