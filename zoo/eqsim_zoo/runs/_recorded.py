"""Agents that learn from datasets, for the loop that trains all agents."""

import dataclasses
import functools as ft
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv, AbstractOnlineAgent, Timestep
from eqsim.envs import ResetOptions
from eqsim.wrappers import AbstractPassThrough, layers, Lifetime

from ..agents._goal_agent import AbstractGoalAgent
from ..agents._offline import AbstractLevelAgent, AbstractOfflineAgent
from ..blocks import (
    AbstractOffPolicy,
    check_divisible,
    check_positive,
    mean_metrics,
    shard_batch,
    static,
    unscale,
)
from ..blocks._levels import check_levels, Levels
from ..data import check_fits, check_hindsight, Dataset, GoalData, to_device
from ..vision import observation_statistics


class Recorded(AbstractPassThrough):
    """An environment, and what was recorded in it.

    **Arguments:**

    - `env`: the environment.
    - `data`: the recording.
    """

    env: AbstractEnv
    data: Dataset

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.NONE

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        return self.env.reset(key, options)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        return self.env.step(state, action)


class OfflineState(eqx.Module):
    """`learned`: the state of the agent."""

    learned: Any
    key: PRNGKeyArray


class Offline(AbstractOnlineAgent):
    """An agent that learns from a dataset, for the loop that trains agents which collect.

    `train(agent, data)` trains `Offline(agent)`. The source of `init` and `iterate` is a
    `Dataset`, or a `Recorded` environment whose dataset is read and which is never
    stepped. A step is an update.

    **Arguments:**

    - `agent`: an agent whose `update` takes a `Transition`.
    - `batch_size`: rows per update.
    - `num_updates`: updates per iteration.

    **Raises:** `ValueError` if a size is not positive.
    """

    agent: AbstractAgent
    batch_size: int = static(256)
    num_updates: int = static(10)

    def __check_init__(self):
        check_positive(self, "batch_size", "num_updates")

    @staticmethod
    def __eqsim_wrap__(env: AbstractEnv) -> AbstractEnv:
        """How the conformance kit gives it something to learn from: a few steps without
        a meaning."""
        return Recorded(env, _meaningless(env))

    def init(self, key: PRNGKeyArray, env: AbstractEnv | Dataset) -> OfflineState:
        """The state before anything is learned, with statistics of the dataset if there is
        one."""
        check_divisible(self, "batch_size")
        key, key_agent = jr.split(key)
        if isinstance(env, Dataset):
            return OfflineState(
                _prepared(self, _create(self, key_agent, env), env), key
            )
        learned = self.agent.init(key_agent, env)
        recorded = [layer for layer in layers(env) if isinstance(layer, Recorded)]
        if recorded:
            learned = _prepared(self, learned, recorded[0].data)
        return OfflineState(learned, key)

    def act(
        self, state: OfflineState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        return self.agent.act(state.learned, obs, key=key)

    def update(
        self, state: OfflineState, batch: Any
    ) -> tuple[OfflineState, dict[str, Float[Array, "..."]]]:
        learned, metrics = self.agent.update(state.learned, batch)
        return dataclasses.replace(state, learned=learned), metrics

    def iterate(
        self, state: OfflineState, env: AbstractEnv | Dataset
    ) -> tuple[OfflineState, dict[str, Float[Array, "..."]]]:
        """Learns from `num_updates` batches.

        **Returns:** the new state, and the means of what the agent reports.
        """
        dataset = recording(self, env)
        data = drawn_from(self.agent, dataset)

        def once(state, key):
            return self.update(state, shard_batch(data.sample(key, self.batch_size)))

        key, *keys = jr.split(state.key, 1 + self.num_updates)
        start = dataclasses.replace(state, key=key)
        state, metrics = lax.scan(once, start, jnp.stack(keys))
        dtype = dataset.bounds.dtype
        return state, mean_metrics(metrics) | {
            "steps": jnp.full((), self.num_updates, dtype)
        }


def _meaningless(env: AbstractEnv) -> Dataset:
    """What an environment shows at first, again and again, and random actions."""
    number, keys = 32, jr.split(jr.key(0))
    _, timestep = env.reset(keys[0])
    obs = jtu.tree_map(
        lambda x: np.repeat(np.asarray(x)[None], number, 0), timestep.obs
    )
    low, high = np.asarray(env.action_range).T
    action = low + (high - low) * np.asarray(jr.uniform(keys[1], (number, len(low))))
    no, reward = np.zeros(number, bool), np.linspace(0.0, 1.0, number)
    return Dataset.create(
        obs, action, reward, obs, no, no, bounds=np.asarray(env.action_range)
    )


def recording(agent: eqx.Module, source: AbstractEnv | Dataset) -> Dataset:
    """The dataset of a source.

    **Raises:** `ValueError` if there is none.
    """
    if isinstance(source, Dataset):
        return source
    for layer in layers(source):
        if isinstance(layer, Recorded):
            return layer.data
    raise ValueError(
        f"`{type(agent).__name__}` learns from a dataset, but `{type(source).__name__}` has "
        "none. Write `train(agent, data)`, or `Recorded(env, data)`."
    )


def _create(agent: Offline, key: PRNGKeyArray, data: Dataset) -> Any:
    """The state of an agent for a dataset without an environment."""
    held = agent.agent
    if not isinstance(held, AbstractOfflineAgent | AbstractGoalAgent):
        raise ValueError(
            f"`{type(held).__name__}` needs an environment to begin with, also where it "
            "learns from a dataset: pass `eval_env`."
        )
    row = eqx.filter_eval_shape(lambda d: d.rows(jnp.zeros((), jnp.int32)), data)
    return held.create(key, row.obs, data.bounds)


def as_learner(agent: AbstractAgent) -> AbstractOnlineAgent:
    """`Offline(agent)` of an agent that is none."""
    return agent if isinstance(agent, Offline) else Offline(agent)


def offline_maker(make: Callable[..., AbstractAgent]) -> Callable[..., Offline]:
    """What makes `Offline` around an agent that `make` makes, from its fields."""
    return ft.partial(Offline, agent=make())


def learners(
    agent: AbstractAgent | Sequence[AbstractAgent],
    env: AbstractEnv | None,
    data: Dataset | None,
) -> Sequence[AbstractAgent]:
    """The agents that the loop trains: `Offline` agents where there is a dataset.

    **Raises:** `ValueError` if the agents cannot learn from the dataset.
    """
    agents = [agent] if isinstance(agent, AbstractAgent) else [*agent]
    if data is None:
        return agents
    for one in agents:
        check_data(one.agent if isinstance(one, Offline) else one, env, data)
    return [as_learner(one) for one in agents]


def drawn_from(agent: AbstractAgent, data: Dataset) -> Dataset | GoalData:
    """What an agent draws its batches from."""
    if isinstance(agent, AbstractGoalAgent):
        return GoalData(data, agent.hindsight)
    return data


def check_data(agent: AbstractAgent, env: AbstractEnv | None, data: Dataset) -> None:
    """Raises `ValueError` unless an agent can learn from a recording, and act in an
    environment as recorded."""
    if env is not None:
        check_fits(data, env)
    if isinstance(agent, AbstractOnlineAgent) and not isinstance(
        agent, AbstractOffPolicy
    ):
        raise ValueError(
            f"`{type(agent).__name__}` learns from what it has just done itself, and not "
            "from a recording: take one of `eqsim_zoo.offline`."
        )
    if isinstance(agent, AbstractGoalAgent):
        check_hindsight(agent.hindsight)
    held = agent.agent if isinstance(agent, AbstractGoalAgent) else agent
    if isinstance(held, AbstractLevelAgent) and held.levels:
        action = np.asarray(unscale(data.bounds, to_device(data.action)))
        check_levels(held, Levels(held.levels, action.shape[1]), action)


def _prepared(agent: Offline, learned: Any, data: Dataset) -> Any:
    """A state with statistics of all recordings."""
    held = agent.agent
    if isinstance(held, AbstractGoalAgent):
        held = held.agent
    if not isinstance(held, AbstractOfflineAgent) or not held.normalize_observations:
        return learned
    statistics = observation_statistics(drawn_from(agent.agent, data).vectors())
    return eqx.tree_at(lambda s: s.statistics, learned, statistics)
