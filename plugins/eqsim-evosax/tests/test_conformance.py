"""All that eqsim asks of an agent, for each strategy."""

import pytest
from eqsim_evosax import EvolutionStrategy

from eqsim import testing


@pytest.mark.parametrize(
    "strategy",
    (
        "cma_es",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("open_es", "pgpe", "ars")),
    ),
)
def test_agent(strategy):
    agent = EvolutionStrategy(
        strategy,
        population=32,
        episode_length=2,
        hidden=(8,),
        noise=0.2,
        learning_rate=0.05,
    )
    testing.check_conformance(agent)
