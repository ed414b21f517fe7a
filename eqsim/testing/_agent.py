"""Checks of agents."""

from collections.abc import Callable, Iterator, Mapping

from .._policies import AbstractAgent
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
    Law(laws.memory, ("action",)),
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
    """Return the checks of an agent, ordered so that causes come before consequences.

    The agent acts and learns on `eqsim.testing.probes`. For an agent without `iterate`,
    checks of learning are not applicable. An agent that needs wrappers around a probe
    declares a static method `__eqsim_wrap__(env)` in its class, which applies them;
    checks of learning are then not applicable. See `env_checks`.

    **Arguments:**

    - `agent`: the agent.
    - `iterations`: number of calls of `iterate` to learn a probe.
    - `build`: function that builds an equal agent; by default, its class is called
        without arguments, if possible.

    **Raises:** `TypeError` if it is not an agent; `ValueError` if `iterations` is not
    positive.
    """
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"An `AbstractAgent` is expected, but got {agent!r}.")
    if iterations < 1:
        raise ValueError(f"`iterations` must be at least 1, got {iterations}.")
    return bind(AgentKit(agent, iterations, build), LAWS)


def check_agent(
    agent: AbstractAgent,
    expected_failures: Mapping[str, str] = {},
    *,
    iterations: int = 200,
    build: Callable[[], AbstractAgent] | None = None,
) -> Report:
    """Check that an agent conforms to the interface, respects action bounds, and
    learns.

    **Arguments:**

    - `agent`, `iterations`, `build`: arguments of `agent_checks`.
    - `expected_failures`: reasons by name of check, in addition to those of the class
        attribute `__eqsim_expected_failures__`.

    **Returns:** the outcome of each check.

    **Raises:** `ConformanceError`, which lists every failure with advice, if a check
    fails or passes unexpectedly; `ValueError` if a name is unknown.
    """
    checks = agent_checks(agent, iterations=iterations, build=build)
    return run_checks(agent, checks, expected_failures)
