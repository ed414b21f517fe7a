"""Laws of agents, which act and learn on `eqsim.testing.probes`.

First the kit: an agent, its compiled programs, and states that are computed when a law first
needs them. Then the laws of programs (compiled, batched, repeated), of actions, and of
learning. `LAWS` lists them all. The docstring of a law is its requirement, and advice for the
case that it fails.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._errors import is_key
from .._policies import AbstractAgent, AbstractOnlineAgent, AbstractRecurrentAgent
from ..envs import AbstractEnv
from .comparisons import (
    counted_jit,
    moved,
    no_trace,
    NotApplicable,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_no_static_float,
    require_rebuild,
    require_round_trip,
    rounding,
    row_of,
    same_shapes,
    tree_allclose,
)
from .probes import (
    action_reward,
    constant_reward,
    delayed_reward,
    observed_action_reward,
    observed_reward,
    Probe,
)


@counted_jit
def first_state(agent, key, env):
    """Initialize the agent, compiled."""
    return agent.init(key, env)


@counted_jit
def iterate(agent, state, env):
    """Run one iteration of learning, compiled."""
    return agent.iterate(state, env)


@eqx.filter_jit
def act(agent, state, obs, key):
    """Compute an action, compiled."""
    return agent.act(state, obs, key=key)


@eqx.filter_jit
def mean_reward(agent, state, env):
    """Compute the mean reward of deterministic actions in a probe."""
    return env.mean_reward(lambda obs: agent.act(state, obs))


WRAP = "__eqsim_wrap__"
"""Static method of an agent class that wraps an environment so that the agent can act
in it. The agent then learns from another reward than that of the probe."""


class AgentKit:
    """An agent, and quantities that are computed when a check first needs them."""

    def __init__(
        self, agent: AbstractAgent, iterations: int, build: Callable[[], Any] | None
    ):
        self.agent, self.iterations, self.build = agent, iterations, build
        self.keys = jr.split(jr.key(0), 3)

    @ft.cached_property
    def wrap(self) -> Callable[[AbstractEnv], AbstractEnv] | None:
        """Return the function that wraps a probe for this agent; None if it needs no
        wrapper."""
        for cls in type(self.agent).__mro__:
            if WRAP in vars(cls):
                return vars(cls)[WRAP].__func__
        return None

    def probe(self, probe: Probe) -> AbstractEnv:
        """Return a probe with the wrappers that the agent needs."""
        return probe if self.wrap is None else self.wrap(probe)

    @ft.cached_property
    def env(self) -> AbstractEnv:
        """A probe whose reward depends on the action."""
        return self.probe(action_reward())

    @ft.cached_property
    def observed(self) -> AbstractEnv:
        """A probe whose best action depends on the observation."""
        return self.probe(observed_action_reward())

    def online(self) -> AbstractOnlineAgent:
        """Return the agent, if it collects its own data."""
        if not isinstance(self.agent, AbstractOnlineAgent):
            raise NotApplicable(
                f"`{type(self.agent).__name__}` has no `iterate`, and the batches of its "
                "`update` are unknown"
            )
        return self.agent

    @ft.cached_property
    def first(self) -> Any:
        """The state of the untrained agent."""
        return first_state(self.agent, self.keys[0], self.env)

    @ft.cached_property
    def second(self) -> tuple[Any, dict[str, Array]]:
        """State and metrics after one iteration."""
        return iterate(self.online(), self.first, self.env)

    @property
    def state(self) -> Any:
        """A state, after one iteration if the agent has `iterate`."""
        online = isinstance(self.agent, AbstractOnlineAgent)
        return self.second[0] if online else self.first

    @ft.cached_property
    def obs(self) -> Float[Array, " nobs"]:
        """An observation."""
        return self.env.reset(self.keys[0])[1].obs


# --- Laws ---


def jit(kit: AgentKit) -> None:
    """`init`, `act` and `iterate` compile.

    Avoid Python numbers, NumPy and `if` on arrays in these methods.
    """
    assert kit.state is not None
    act(kit.agent, kit.first, kit.obs, None)


def structure(kit: AgentKit) -> None:
    """`iterate` returns the structure, shapes and types of the state that `init` returns.

    Create everything that learning needs in `init`, and give arrays a `dtype`.
    """
    agent = kit.online()
    state = eqx.filter_eval_shape(agent.init, kit.keys[0], kit.env)
    new, _ = eqx.filter_eval_shape(agent.iterate, state, kit.env)
    require(same_shapes(state, new), f"the state: {same_shapes(state, new)}")


def deterministic(kit: AgentKit) -> None:
    """Equal keys give equal states, and `act` without a key is deterministic, also when
    compiled again.

    Draw all random numbers with `jax.random`, from the key of `init`, stored in the
    state, and from the key of `act`.
    """
    key, env, agent = kit.keys[0], kit.env, kit.agent
    again = eqx.filter_jit(lambda agent: agent.init(key, env))(agent)
    require_equal("two states from one key", again, kit.first, rounding(again))
    first = act(agent, kit.first, kit.obs, None)
    afresh = eqx.filter_jit(lambda agent, state: agent.act(state, kit.obs))
    for action in (act(agent, kit.first, kit.obs, None), afresh(agent, kit.first)):
        require_equal("two actions without key", action, first, rounding(first))


def keys(kit: AgentKit) -> None:
    """Different keys give different states, before or after learning.

    Use the key of `init` for everything that draws random numbers.
    """
    numbers = lambda tree: [
        x for x in jtu.tree_leaves(tree) if eqx.is_array(x) and not is_key(x)
    ]
    other = first_state(kit.agent, kit.keys[1], kit.env)
    pairs = [(kit.first, other)]
    if kit.state is not kit.first:
        pairs.append((kit.state, iterate(kit.online(), other, kit.env)[0]))
    same = (tree_allclose(numbers(x), numbers(y), rtol=0.0, atol=0.0) for x, y in pairs)
    require(not all(same), "two keys give the same state")


def action(kit: AgentKit) -> None:
    """`act` gives one finite number per actuator.

    Return an array of shape (nu,), without a batch axis.
    """
    for key in (None, kit.keys[0]):
        found, nu = act(kit.agent, kit.first, kit.obs, key), kit.env.sys.nu
        fits = found.shape == (nu,) and jnp.issubdtype(found.dtype, jnp.floating)
        require(fits, f"an action is {found.dtype}{list(found.shape)}, not ({nu},)")
        require_finite("an action: ", found)


def bounds(kit: AgentKit) -> None:
    """Actions are within `env.action_range` where that is finite.

    Squash or clip the output of the policy; store the required part of the range in the
    state.
    """
    low, high = np.asarray(kit.env.action_range).T
    for scale in (1.0, 100.0):
        for key in (None, *jr.split(kit.keys[1], 20)):
            found = np.asarray(act(kit.agent, kit.first, scale * kit.obs, key))
            inside = np.all((found >= low - 1e-6) & (found <= high + 1e-6))
            drawn = "" if key is None else ", drawn with a key,"
            require(inside, f"the action {found}{drawn} is not within {low} and {high}")


def memory(kit: AgentKit) -> None:
    """The controller of an agent with memory acts first as `act` does, and keeps the
    structure, shapes and types of its memory. An agent without memory passes.

    Let `act` act with the memory of `controller(state).init`, and give arrays a `dtype`.
    """
    agent, key = kit.agent, kit.keys[2]
    if not isinstance(agent, AbstractRecurrentAgent):
        return
    physics = kit.env.physics(kit.env.reset(kit.keys[0])[0])

    @eqx.filter_jit
    def first(agent, state, sample):
        controller = agent.controller(state, sample=sample)
        memory = controller.init(physics, key)
        return memory, *controller.act(memory, physics, kit.obs, key)

    for sample, name in ((False, "the first action"), (True, "the first sample")):
        old, new, found = first(agent, kit.state, sample)
        require(same_shapes(old, new), f"the memory: {same_shapes(old, new)}")
        expected = act(agent, kit.state, kit.obs, key if sample else None)
        require_equal(name, found, expected, rounding(expected))


def vmap(kit: AgentKit) -> None:
    """A batch of seeds learns the same as each seed alone.

    Look for code that depends on the size of an array, and for counters that are not
    arrays.
    """
    agent, env = kit.online(), kit.env
    together = _seeds(agent, kit.keys, env)
    for k, key in enumerate(kit.keys):
        alone = iterate(agent, first_state(agent, key, env), env)
        row = row_of(together, k)
        require_equal(f"seed {k} of a batch", row, alone, 100 * rounding(alone))


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, None))
def _seeds(agent, key, env):
    return agent.iterate(agent.init(key, env), env)


def hyperparameters(kit: AgentKit) -> None:
    """Real-valued hyperparameters are not static.

    Give each of them a field with an array converter, so that `eqx.filter_vmap` can
    batch agents; only sizes and flags are static.
    """
    require_no_static_float(kit.agent)


def retrace(kit: AgentKit) -> None:
    """New iterations, seeds, hyperparameters and parameters of the environment do not
    recompile.

    Give every number of the agent a field with an array converter, and use arrays as
    counters.
    """
    require_arrays("agent", kit.agent)
    require_arrays("state", kit.first)
    # Both are compiled, also if the caches were cleared since other checks did it.
    state = first_state(kit.online(), kit.keys[0], kit.env)
    state, _ = iterate(kit.online(), state, kit.env)
    other = moved(kit.online(), 1.0009765625)
    with no_trace(first_state, "another key and other hyper-parameters"):
        first = first_state(other, kit.keys[2], kit.observed)
    with no_trace(iterate, "other states, hyper-parameters and numbers"):
        for start in (state, first):
            iterate(other, start, kit.observed)


def serialization(kit: AgentKit) -> None:
    """Saving and loading agent and state does not change them.

    Store only arrays and static fields in the agent and its state.
    """
    require_round_trip("the agent", kit.agent)
    require_round_trip("the state", kit.state)


def rebuild(kit: AgentKit) -> None:
    """Two agents that are built alike share compiled programs.

    Static fields must be equal by value: use module-level functions instead of a new
    `lambda`, and tuples instead of lists.
    """
    require_rebuild(kit.agent, kit.build)


def metrics(kit: AgentKit) -> None:
    """`iterate` returns metrics as numbers by name.

    Return a dictionary whose keys are strings and whose values are arrays.
    """
    _, found = kit.second
    fits = isinstance(found, dict) and all(
        isinstance(name, str) and eqx.is_inexact_array(x) for name, x in found.items()
    )
    require(fits, f"`iterate` reports {found!r}: a dictionary of floats is expected")


def finite(kit: AgentKit) -> None:
    """States and metrics stay finite for constant, random and delayed rewards.

    Check for standard deviations of constant values, and for logarithms.
    """
    agent = kit.online()
    for env in map(kit.probe, (constant_reward(), observed_reward(), delayed_reward())):
        state = first_state(agent, kit.keys[0], env)
        for turn in range(5):
            state, report = iterate(agent, state, env)
            require_finite(f"after iteration {turn}, the state", state)
            require_finite(f"after iteration {turn}, metrics", report)


def learns_action(kit: AgentKit) -> None:
    """The mean reward of `eqsim.testing.probes.action_reward` comes within 10 % of the
    best.

    Check the sign of the objective, advantages, and step sizes; or increase the budget:
    `check_conformance(agent, iterations=...)`.
    """
    _learns(kit, action_reward())


def learns_observation(kit: AgentKit) -> None:
    """The mean reward of `eqsim.testing.probes.observed_action_reward` comes within 10 %
    of the best.

    Check the observations of the policy and the value function: order, time, scale; or
    increase the budget: `check_conformance(agent, iterations=...)`.
    """
    _learns(kit, observed_action_reward())


def _learns(kit: AgentKit, env: Probe) -> None:
    agent, reward = kit.online(), -np.inf
    if kit.wrap is not None:
        raise NotApplicable("the agent does not learn the reward of a probe")
    state = first_state(agent, kit.keys[0], env)
    for _ in range(kit.iterations):
        state, _ = iterate(agent, state, env)
        reward = float(mean_reward(agent, state, env))
        if reward >= 0.9:
            return
    raise AssertionError(
        f"after {kit.iterations} iterations the mean reward is {reward:.3g}; the best is 1, "
        "and 0.9 is expected"
    )


# A law with the names of those that must hold for it to be meaningful, causes first.
_ALIKE = "jit", "structure"
_LEARNS = *_ALIKE, "finite"
LAWS = {
    jit: (),
    structure: ("jit",),
    deterministic: ("jit",),
    keys: ("jit", "deterministic"),
    action: ("jit",),
    bounds: ("action",),
    memory: ("action",),
    hyperparameters: (),
    serialization: ("jit",),
    rebuild: (),
    vmap: (*_ALIKE, "deterministic"),
    retrace: _ALIKE,
    metrics: ("jit",),
    finite: _ALIKE,
    learns_action: (*_LEARNS, "action"),
    learns_observation: (*_LEARNS, "learns_action"),
}
