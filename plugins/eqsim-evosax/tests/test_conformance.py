"""All that eqsim asks of an agent, for each strategy."""

import pytest
from eqsim_evosax import EvolutionStrategy

from eqsim import testing


SLOW = pytest.mark.slow
STRATEGIES = [
    "cma_es",
    *(pytest.param(x, marks=SLOW) for x in "open_es pgpe ars".split()),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_agent(strategy):
    agent = EvolutionStrategy(
        strategy,
        population=32,
        episode_length=2,
        hidden=(8,),
        noise=0.2,
        learning_rate=0.05,
    )
    testing.check_agent(agent)
