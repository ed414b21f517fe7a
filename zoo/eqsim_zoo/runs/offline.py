"""Agents that learn from datasets in the loop of online agents: `Offline` around the
agent, `Recorded` around an environment that has a dataset.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Mapping
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
from eqsim.wrappers import (
    AbstractStateless,
    Lifetime,
    nested_envs,
    RunningStatistics,
)

from ..agents.goal_agents import AbstractGoalAgent
from ..agents.offline_agent import (
    AbstractLevelAgent,
    AbstractOfflineAgent,
    check_levels,
    check_memoryless,
    Levels,
)
from ..blocks.hyperparameters import check_positive, static
from ..blocks.networks import mean_metrics
from ..blocks.observations import observation_statistics
from ..blocks.parallel import check_divisible, shard_batch
from ..blocks.policies import unscale_action
from ..blocks.replay import AbstractOffPolicy, OffPolicyState
from ..data.dataset import Dataset
from ..data.goals import check_hindsight, GoalData
from ..data.packing import check_fits, to_device


class Recorded(AbstractStateless):
    """An environment with a dataset.

    **Arguments:**

    - `env`: environment.
    - `data`: dataset.
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
    """State of `Offline`. `learned`: state of the agent. `key`: random key."""

    learned: Any
    key: PRNGKeyArray


class Offline(AbstractOnlineAgent):
    """Adapter that trains an agent on a dataset in the loop for online agents.

    A `Run` with `data` trains `Offline(agent)`. The source of `init` and `iterate` is a
    `Dataset` or a `Recorded` environment, of which only the dataset is used. One update
    counts as one step.

    **Arguments:**

    - `agent`: agent whose `update` takes a `Transition`.
    - `batch_size`: transitions per update; None for the `batch_size` of an off-policy
        agent, and 256 for others.
    - `num_updates`: updates per iteration.

    **Raises:** `ValueError` if a size is not positive, or the agent has a memory.
    """

    agent: AbstractAgent
    batch_size: int | None = static(None)
    num_updates: int = static(10)

    def __check_init__(self):
        check_positive(self, "num_updates")
        if self.batch_size is not None:
            check_positive(self, "batch_size")
        check_memoryless(self, self.agent)

    @property
    def update_size(self) -> int:
        """Number of transitions per update."""
        if self.batch_size is not None:
            return self.batch_size
        agent = self.agent
        return agent.batch_size if isinstance(agent, AbstractOffPolicy) else 256

    @staticmethod
    def __eqsim_wrap__(env: AbstractEnv) -> AbstractEnv:
        """Add a small dataset of arbitrary steps, for the conformance kit."""
        return Recorded(env, _arbitrary_steps(env))

    def init(self, key: PRNGKeyArray, env: AbstractEnv | Dataset) -> OfflineState:
        """Return the initial state, with observation statistics of the dataset if there
        is one."""
        sized = dataclasses.replace(self, batch_size=self.update_size)
        check_divisible(sized, "batch_size")
        key, key_agent = jr.split(key)
        if isinstance(env, Dataset):
            return OfflineState(
                _prepared(self, _create(self, key_agent, env), env), key
            )
        learned = self.agent.init(key_agent, env)
        recorded = [layer for layer in nested_envs(env) if isinstance(layer, Recorded)]
        if recorded:
            learned = _prepared(self, learned, recorded[0].data)
        return OfflineState(learned, key)

    def act(
        self, state: OfflineState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
        return self.agent.act(state.learned, obs, key=key)

    def update(
        self, state: OfflineState, batch: Any
    ) -> tuple[OfflineState, dict[str, Float[Array, "..."]]]:
        learned = state.learned
        if isinstance(learned, OffPolicyState):  # `update` takes the learner alone.
            learner, metrics = self.agent.update(learned.learner, batch)
            learned = OffPolicyState(learner, learned.memory)
        else:
            learned, metrics = self.agent.update(learned, batch)
        return dataclasses.replace(state, learned=learned), metrics

    def iterate(
        self, state: OfflineState, env: AbstractEnv | Dataset
    ) -> tuple[OfflineState, dict[str, Float[Array, "..."]]]:
        """Take `num_updates` updates.

        **Returns:** the new state, and the mean metrics.
        """
        dataset = recording(self, env)
        data = sampling_source(self.agent, dataset)

        def once(state, key):
            return self.update(state, shard_batch(data.sample(key, self.update_size)))

        key, *keys = jr.split(state.key, 1 + self.num_updates)
        start = dataclasses.replace(state, key=key)
        state, metrics = lax.scan(once, start, jnp.stack(keys))
        dtype = dataset.bounds.dtype
        return state, mean_metrics(metrics) | {
            "steps": jnp.full((), self.num_updates, dtype)
        }


def _arbitrary_steps(env: AbstractEnv) -> Dataset:
    """Return steps with the first observation of an environment and random actions."""
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
    """Return the dataset of a source.

    **Raises:** `ValueError` if there is none.
    """
    if isinstance(source, Dataset):
        return source
    for layer in nested_envs(source):
        if isinstance(layer, Recorded):
            return layer.data
    raise ValueError(
        f"`{type(agent).__name__}` needs a dataset, but `{type(source).__name__}` has none. "
        "Pass `data` to `Run`."
    )


def _create(agent: Offline, key: PRNGKeyArray, data: Dataset) -> Any:
    """Return the initial state of an agent for a dataset without an environment."""
    held = agent.agent
    if not isinstance(held, AbstractOfflineAgent | AbstractGoalAgent):
        raise ValueError(
            f"`{type(held).__name__}` needs an environment for its initial state, also with "
            "a dataset. Pass `env`."
        )
    row = eqx.filter_eval_shape(lambda d: d.rows(jnp.zeros((), jnp.int32)), data)
    return held.create(key, row.obs, data.bounds)


def as_learner(agent: AbstractAgent) -> AbstractOnlineAgent:
    """Wrap an agent in `Offline`, unless it is one."""
    return agent if isinstance(agent, Offline) else Offline(agent)


def kind_of(agent: AbstractAgent) -> type:
    """Return the class of an agent; of `Offline`, that of the agent that it trains."""
    return type(agent.agent if isinstance(agent, Offline) else agent)


def offline_maker(make: Callable[..., AbstractAgent]) -> Callable[..., Offline]:
    """Return a factory of `Offline` around the agent that `make` returns."""
    return ft.partial(Offline, agent=make())


def sampling_source(agent: AbstractAgent, data: Dataset) -> Dataset | GoalData:
    """Return the dataset from which an agent samples batches."""
    if isinstance(agent, AbstractGoalAgent):
        return GoalData(data, agent.hindsight)
    return data


def check_data(agent: AbstractAgent, env: AbstractEnv | None, data: Dataset) -> None:
    """Raise `ValueError` unless an agent can be trained on a dataset, and the dataset fits
    the environment."""
    if env is not None:
        check_fits(data, env)
    if isinstance(agent, AbstractOnlineAgent) and not isinstance(
        agent, AbstractOffPolicy
    ):
        raise ValueError(
            f"`{type(agent).__name__}` is on-policy and cannot be trained on a dataset. Use "
            "an offline or off-policy agent."
        )
    if isinstance(agent, AbstractGoalAgent):
        check_hindsight(agent.hindsight)
    held = agent.agent if isinstance(agent, AbstractGoalAgent) else agent
    if isinstance(held, AbstractLevelAgent) and held.levels:
        action = np.asarray(unscale_action(data.bounds, to_device(data.action)))
        check_levels(held, Levels(held.levels, action.shape[1]), action)


def _prepared(agent: Offline, learned: Any, data: Dataset) -> Any:
    """Return a state with observation statistics of the whole dataset."""
    held = agent.agent
    if isinstance(held, AbstractGoalAgent):
        held = held.agent
    normalizes = isinstance(held, AbstractOfflineAgent | AbstractOffPolicy)
    if not normalizes or not held.normalize_observations:
        return learned
    statistics = observation_statistics(sampling_source(agent.agent, data).vectors())
    if isinstance(learned, OffPolicyState):
        alone = isinstance(learned.learner.statistics, RunningStatistics)
        found = statistics["obs"] if alone else statistics
        return eqx.tree_at(lambda s: s.learner.statistics, learned, found)
    return eqx.tree_at(lambda s: s.statistics, learned, statistics)
