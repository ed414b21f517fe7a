"""What agents share that learn from a memory: to fill it, and to learn from it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import ScaleAction, Statistics

from ._actions import check_bounded
from ._collect import begin, collect, count_steps, rows_of, Running
from ._fields import check_positive
from ._parallel import by_rows, check_shares, whole
from ._policies import Explorer
from ._replay import Replay, Transition
from ._statistics import updated


class Memory(eqx.Module):
    """What an agent has seen.

    **Arguments:**

    - `running`: the environments.
    - `replay`: transitions, with actions between -1 and 1.
    - `steps`: control steps taken.
    """

    running: Running
    replay: Replay
    steps: Int[Array, ""]


def check_off_policy(agent: Any) -> None:
    """Raises `ValueError` unless the sizes of an agent fit each other."""
    check_positive(agent, "num_envs", "unroll_length", "batch_size", "capacity")
    name, rows = type(agent).__name__, agent.num_envs * agent.unroll_length
    if agent.batch_size > agent.capacity:
        raise ValueError(
            f"`{name}.batch_size` is {agent.batch_size}, but the memory has a `capacity` of "
            f"{agent.capacity}: enlarge it, or take smaller batches."
        )
    if rows > agent.capacity:
        raise ValueError(
            f"`{name}` collects {rows} transitions per iteration (`num_envs` times "
            f"`unroll_length`), but the memory has a `capacity` of {agent.capacity}."
        )
    if agent.num_updates < 0:
        raise ValueError(f"`{name}.num_updates` is {agent.num_updates}: at least 0.")


def remember(agent: Any, env: AbstractEnv, key: PRNGKeyArray) -> Memory:
    """An empty memory.

    **Raises:** `ValueError` if the agent can not act in that environment.
    """
    check_bounded(agent, env)
    check_shares(agent, "num_envs", "batch_size")
    running = begin(agent, env, key, agent.num_envs)
    obs, no = running.obs[0], jnp.zeros((), bool)
    action = jnp.zeros(env.sys.nu, obs.dtype)
    example = Transition(obs, action, running.timestep.reward[0], obs, no, no)
    rows = agent.num_envs * agent.unroll_length
    replay = Replay.create(example, agent.capacity, rows)
    return Memory(running, whole(replay), jnp.zeros((), jnp.int32))


def iterate(
    agent: Any, state: Any, env: AbstractEnv, policy: Any, noise: Float[Array, ""]
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Acts, remembers, and learns `num_updates` times, once there is enough to learn from.

    **Arguments:**

    - `state`: with `memory`, `statistics` and `key`; what `agent.update` changes beside
        these is learned.
    - `policy`: what acts, see `Explorer`.
    - `noise`: of a deterministic one.
    """
    key, key_act, key_learn = jr.split(state.key, 3)
    memory: Memory = state.memory
    random = memory.steps < agent.random_steps
    explorer = Explorer(policy, state.statistics, noise, random)
    running, steps, report = collect(
        ScaleAction(env), explorer, memory.running, key_act, agent.unroll_length
    )
    rows = whole(rows_of(steps))
    replay = memory.replay.add(rows)
    count = count_steps(report, memory.steps)
    statistics: Statistics | None = state.statistics
    if statistics is not None:
        statistics = updated(statistics, rows.obs)

    def learn(state):
        def once(state, key):
            batch = by_rows(replay.sample(key, agent.batch_size))
            return agent.update(state, batch)

        state, metrics = lax.scan(once, state, jr.split(key_learn, agent.num_updates))
        return state, jtu.tree_map(jnp.mean, metrics)

    # The memory stays outside of the loop: nothing in it is changed there.
    place = lambda s: (s.memory, s.statistics, s.key)
    bare = eqx.tree_at(place, state, (None, statistics, key))
    if agent.num_updates:
        zeros = jtu.tree_map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn, bare)[1]
        )
        enough = (replay.size >= agent.batch_size) & (count > agent.random_steps)
        bare, metrics = lax.cond(enough, learn, lambda state: (state, zeros), bare)
        report = report | metrics
    memory = Memory(running, replay, count)
    new = eqx.tree_at(lambda s: s.memory, bare, memory, is_leaf=lambda x: x is None)
    return new, report
