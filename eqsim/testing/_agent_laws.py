"""Checks of agents: as programs, and as learners."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from ._agent_kit import act, AgentKit, first_state, iterate, mean_reward
from ._check import NotApplicable
from ._compare import is_key, same_shapes, tree_allclose
from ._tools import (
    moved,
    no_trace,
    require,
    require_arrays,
    require_equal,
    require_finite,
    require_no_static_float,
    require_rebuild,
    require_round_trip,
    rounding,
)
from .probes import (
    action_reward,
    constant_reward,
    delayed_reward,
    observed_action_reward,
    observed_reward,
    Probe,
)


def jit(kit: AgentKit) -> None:
    """`init`, `act` and `iterate` compile.

    Keep numbers of Python, NumPy and `if` on arrays out of them.
    """
    assert kit.state is not None
    act(kit.agent, kit.first, kit.obs, None)


def structure(kit: AgentKit) -> None:
    """`iterate` returns the structure, shapes and types of the state that `init` returns.

    Make in `init` all that learning will need, and give arrays a `dtype`.
    """
    agent = kit.online()
    state = eqx.filter_eval_shape(agent.init, kit.keys[0], kit.env)
    new, _ = eqx.filter_eval_shape(agent.iterate, state, kit.env)
    require(same_shapes(state, new), f"the state: {same_shapes(state, new)}")


def deterministic(kit: AgentKit) -> None:
    """Equal keys give equal states, compiled once or twice, and `act` without a key the
    same action each time.

    Draw all random numbers with `jax.random` from the key of `init`, which the state
    carries on, and that of `act`.
    """
    key, env, agent = kit.keys[0], kit.env, kit.agent
    again = eqx.filter_jit(lambda agent: agent.init(key, env))(agent)
    require_equal("two states by one key", again, kit.first, rounding(again))
    first = act(agent, kit.first, kit.obs, None)
    afresh = eqx.filter_jit(lambda agent, state: agent.act(state, kit.obs))
    for action in (act(agent, kit.first, kit.obs, None), afresh(agent, kit.first)):
        require_equal("two actions without key", action, first, rounding(first))


def keys(kit: AgentKit) -> None:
    """Another key gives another state, before or after it has learned.

    Hand the key of `init` on to all that draws random numbers.
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

    Return an array of shape (nu,), without an axis for a batch.
    """
    for key in (None, kit.keys[0]):
        found, nu = act(kit.agent, kit.first, kit.obs, key), kit.env.sys.nu
        fits = found.shape == (nu,) and jnp.issubdtype(found.dtype, jnp.floating)
        require(fits, f"an action is {found.dtype}{list(found.shape)}, not ({nu},)")
        require_finite("an action: ", found)


def bounds(kit: AgentKit) -> None:
    """Actions are within `env.action_range` where that is finite.

    Squash or clip what the policy gives; keep what you need of the range in the state.
    """
    low, high = np.asarray(kit.env.action_range).T
    for scale in (1.0, 100.0):
        for key in (None, *jr.split(kit.keys[1], 20)):
            found = np.asarray(act(kit.agent, kit.first, scale * kit.obs, key))
            inside = np.all((found >= low - 1e-6) & (found <= high + 1e-6))
            drawn = "" if key is None else ", drawn by a key,"
            require(inside, f"the action {found}{drawn} is not within {low} and {high}")


def vmap(kit: AgentKit) -> None:
    """A batch of seeds learns what each learns alone.

    Look for code that reads the size of an array, and for counters that are not arrays.
    """
    agent, env = kit.online(), kit.env
    together = _seeds(agent, kit.keys, env)
    for k, key in enumerate(kit.keys):
        alone = iterate(agent, first_state(agent, key, env), env)
        row = jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, together)
        require_equal(f"seed {k} of a batch", row, alone, 100 * rounding(alone))


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0, None))
def _seeds(agent, key, env):
    return agent.iterate(agent.init(key, env), env)


def hyperparameters(kit: AgentKit) -> None:
    """Hyper-parameters that are real numbers are not static.

    Give each a field with an array converter, so that `eqx.filter_vmap` makes a fleet of
    agents; only sizes and flags are static.
    """
    require_no_static_float(kit.agent)


def retrace(kit: AgentKit) -> None:
    """Turn after turn, seed after seed, with other hyper-parameters and other numbers of
    the environment, nothing is compiled again.

    Give every number of the agent a field with an array converter, and count in arrays.
    """
    require_arrays("agent", kit.agent)
    require_arrays("state", kit.first)
    state, _ = kit.second
    other = moved(kit.online(), 1.0009765625)
    with no_trace(first_state, "another key and other hyper-parameters"):
        first = first_state(other, kit.keys[2], kit.observed)
    with no_trace(iterate, "other states, hyper-parameters and numbers"):
        for start in (state, first):
            iterate(other, start, kit.observed)


def serialization(kit: AgentKit) -> None:
    """Agent and state are the same after they were written and read.

    Keep nothing but arrays, and static fields, in the agent and its state.
    """
    require_round_trip("the agent", kit.agent)
    require_round_trip("the state", kit.state)


def rebuild(kit: AgentKit) -> None:
    """Two agents that are built alike share what is compiled.

    Static fields must be equal by value: functions of a module instead of a `lambda`
    made anew, tuples instead of lists.
    """
    require_rebuild(kit.agent, kit.build)


def metrics(kit: AgentKit) -> None:
    """`iterate` reports numbers by name.

    Return a dictionary whose keys are texts and whose values are arrays.
    """
    _, found = kit.second
    fits = isinstance(found, dict) and all(
        isinstance(name, str) and eqx.is_inexact_array(x) for name, x in found.items()
    )
    require(fits, f"`iterate` reports {found!r}: a dictionary of floats is expected")


def finite(kit: AgentKit) -> None:
    """States and reports stay finite, whatever the reward: constant, random or late.

    Look at standard deviations of what is always the same, and at logarithms.
    """
    agent = kit.online()
    for env in map(kit.probe, (constant_reward(), observed_reward(), delayed_reward())):
        state = first_state(agent, kit.keys[0], env)
        for turn in range(5):
            state, report = iterate(agent, state, env)
            require_finite(f"after turn {turn}, the state", state)
            require_finite(f"after turn {turn}, the report", report)


def learns_action(kit: AgentKit) -> None:
    """The mean reward of `eqsim.testing.probes.action_reward` comes within 10 % of the
    best.

    Look at the sign of what is ascended, at advantages, and at step sizes; or state a
    larger budget: `check_agent(agent, iterations=...)`.
    """
    _learns(kit, action_reward())


def learns_observation(kit: AgentKit) -> None:
    """The mean reward of `eqsim.testing.probes.observed_action_reward` comes within 10 %
    of the best.

    Look at how observations reach the policy and the value function: order, time, scale;
    or state a larger budget: `check_agent(agent, iterations=...)`.
    """
    _learns(kit, observed_action_reward())


def _learns(kit: AgentKit, env: Probe) -> None:
    agent, reward = kit.online(), -np.inf
    if kit.wrap is not None:
        raise NotApplicable("what it learns is not the reward of a probe")
    state = first_state(agent, kit.keys[0], env)
    for _ in range(kit.iterations):
        state, _ = iterate(agent, state, env)
        reward = float(mean_reward(agent, state, env))
        if reward >= 0.9:
            return
    raise AssertionError(
        f"after {kit.iterations} turns the mean reward is {reward:.3g}; the best is 1, "
        "and 0.9 is expected"
    )
