"""Evolution strategies of evosax as an agent of eqsim."""

from ._agent import (
    Candidates as Candidates,
    EvolutionState as EvolutionState,
    EvolutionStrategy as EvolutionStrategy,
    Strategy as Strategy,
)


# Version of eqsim's plugin API.
__eqsim_api__ = "1.0"
