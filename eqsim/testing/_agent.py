"""What holds for every agent."""

from collections.abc import Callable, Iterator, Mapping

from .._agent import AbstractAgent
from . import _agent_laws as laws
from ._agent_kit import AgentKit
from ._check import bind, Check, Law, Report, run_checks


_ALIKE = "jit", "structure"
_LEARNS = *_ALIKE, "finite"
LAWS = (
    Law(laws.jit),
    Law(laws.structure, ("jit",)),
    Law(laws.deterministic, ("jit",)),
    Law(laws.keys, ("jit", "deterministic")),
    Law(laws.action, ("jit",)),
    Law(laws.bounds, ("action",)),
    Law(laws.hyperparameters),
    Law(laws.serialization, ("jit",)),
    Law(laws.rebuild),
    Law(laws.vmap, (*_ALIKE, "deterministic")),
    Law(laws.retrace, _ALIKE),
    Law(laws.metrics, ("jit",)),
    Law(laws.finite, _ALIKE),
    Law(laws.learns_action, (*_LEARNS, "action")),
    Law(laws.learns_observation, (*_LEARNS, "learns_action")),
)


def agent_checks(
    agent: AbstractAgent,
    *,
    iterations: int = 200,
    build: Callable[[], AbstractAgent] | None = None,
) -> Iterator[Check]:
    """The checks of an agent, in an order in which causes come before what follows.

    It acts and learns on `eqsim.testing.probes`. For an agent without `iterate`, checks
    of learning are not applicable. An agent that takes no probe as it is declares in its
    class a static method `__eqsim_wrap__(env)`, which puts it in the wrappers that it
    needs; it is then not asked to solve probes. See `env_checks`.

    **Arguments:**

    - `agent`: the agent.
    - `iterations`: calls of `iterate` in which it learns a probe.
    - `build`: makes the same agent once more; by default its class is called without
        arguments, if that is possible.

    **Raises:** `TypeError` if it is no agent; `ValueError` if the budget is not positive.
    """
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"An `AbstractAgent` is expected, but got {agent!r}.")
    if iterations < 1:
        raise ValueError(f"`iterations` is {iterations}: at least 1 is expected.")
    return bind(AgentKit(agent, iterations, build), LAWS)


def check_agent(
    agent: AbstractAgent,
    expected_failures: Mapping[str, str] = {},
    *,
    iterations: int = 200,
    build: Callable[[], AbstractAgent] | None = None,
) -> Report:
    """Checks that an agent is a value like any other, acts within bounds, and learns.

    **Arguments:**

    - `agent`, `iterations`, `build`: as of `agent_checks`.
    - `expected_failures`: reasons by name of check, besides what the class of `agent`
        declares in `__eqsim_expected_failures__`.

    **Returns:** what became of each check.

    **Raises:** `ConformanceError`, which lists every failure and what to do, if a check
    fails, or passes though it is expected to fail; `ValueError` if a name is unknown.
    """
    checks = agent_checks(agent, iterations=iterations, build=build)
    return run_checks(agent, checks, expected_failures)
