"""Policies to record: functions `(obs, key) -> action` or controllers with memory, with
actions in the units of the robot."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractController, AbstractEnv, State
from eqsim.bridges import check_count

from ..blocks.collecting import collect, reset_batch, Running, training_env, Transition
from ..blocks.hyperparameters import number_of_steps
from .dataset import About, Dataset
from .packing import Steps


Policy = Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController


class RandomPolicy(eqx.Module):
    """Policy with uniformly distributed actions, independent of the observation.

    **Arguments:**

    - `bounds`: lower and upper bounds of actions, such as `env.action_range`.
    """

    bounds: Float[Array, "nu 2"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        return jr.uniform(key, low.shape, low.dtype, low, high)


def noisy_policy(
    policy: Policy, bounds: Float[Array, "nu 2"], noise: Float[Array, ""] | float
) -> Policy:
    """Add normal noise to the actions of a policy, clipped to bounds.

    **Arguments:**

    - `policy`: function or controller.
    - `bounds`: bounds of actions.
    - `noise`: standard deviation, where half the distance between the bounds is 1; 0
        only clips actions.
    """
    return _changed(policy, _Noise(bounds, noise))


def clipped_policy(policy: Policy, bounds: Float[Array, "nu 2"]) -> Policy:
    """Clip the actions of a policy to bounds."""
    return _changed(policy, _Clip(bounds))


class _Noise(eqx.Module):
    """Normal noise on actions between bounds."""

    bounds: Float[Array, "nu 2"]
    noise: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(
        self, action: Float[Array, " nu"], key: PRNGKeyArray
    ) -> Float[Array, " nu"]:
        low, high = self.bounds.T
        normal = jr.normal(key, action.shape, action.dtype)
        deviation = self.noise.astype(action.dtype) * 0.5 * (high - low)
        return jnp.clip(action + deviation * normal, low, high)


class _Clip(eqx.Module):
    """Bounds of actions."""

    bounds: Float[Array, "nu 2"]

    def __call__(
        self, action: Float[Array, " nu"], key: PRNGKeyArray
    ) -> Float[Array, " nu"]:
        low, high = self.bounds.astype(action.dtype).T
        return jnp.clip(action, low, high)


def _changed(policy: Policy, change: Callable[[Any, Any], Array]) -> Policy:
    if isinstance(policy, AbstractController):
        return _ChangedController(policy, change)
    return _ChangedPolicy(policy, change)


class _ChangedPolicy(eqx.Module):
    """Policy whose actions are changed by a function of action and key."""

    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]]
    change: Callable[[Any, Any], Array]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        key_policy, key_change = jr.split(key)
        return self.change(self.policy(obs, key_policy), key_change)


class _ChangedController(AbstractController):
    """Controller whose actions are changed by a function of action and key."""

    controller: AbstractController
    change: Callable[[Any, Any], Array]

    def init(self, state: State, key: PRNGKeyArray) -> Any:
        return self.controller.init(state, key)

    def act(
        self, memory: Any, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " nu"]]:
        key_policy, key_change = jr.split(key)
        memory, action = self.controller.act(memory, state, obs, key_policy)
        return memory, self.change(action, key_change)


# Limit of the bytes of observations on the device.
_MOST = 2**28


def record(
    env: AbstractEnv,
    policy: Policy,
    key: PRNGKeyArray,
    *,
    steps: int | float,
    num_envs: int | None = None,
    episode_length: int = 1000,
    pool_size: int = 1024,
    name: str | None = None,
) -> Dataset:
    """Record steps of a policy in a batch of environments, ordered by environment.

    Observations may be vectors, images or dictionaries of them. Actions are clipped to
    their bounds before they are applied. Episodes that are unfinished at the end of the
    recording are truncated.

    **Arguments:**

    - `env`: environment without auto-reset, with all other wrappers; see `training_env`.
    - `policy`: `(obs, key) -> action`, in physical units; a PyTree, such as
        `RandomPolicy(env.action_range)`, or a controller with memory.
        `eqsim.agent_policy` returns the policy of an agent.
    - `key`: random key.
    - `steps`: number of steps in the dataset.
    - `num_envs`: batch size; by default at most 64, and small enough that each
        environment takes at least `episode_length` steps.
    - `episode_length`, `pool_size`: see `training_env`.
    - `name`: name of the environment, for `about`.

    **Raises:** `ValueError` if a size is out of range, actions have no bounds, the
    environment has auto-reset, or a recorded value is not finite.
    """
    steps = number_of_steps("steps", steps)
    num_envs = default_envs(steps, episode_length) if num_envs is None else num_envs
    check_count("num_envs", num_envs)
    if num_envs > steps:
        raise ValueError(
            f"`num_envs` is {num_envs}; expected a number from 1 to the number of steps, "
            f"{steps}."
        )
    bounds = _bounds(env)
    key, key_pool, key_reset = jr.split(key, 3)
    whole = training_env(env, episode_length, pool_size, key_pool)
    inside = clipped_policy(policy, jnp.asarray(bounds))
    running = reset_batch(whole, key_reset, num_envs)
    length = math.ceil(steps / num_envs)
    piece = _piece_length(running, length)
    rows = None
    for number, at in enumerate(range(0, length, piece)):
        key_piece = jr.fold_in(key, number)
        running, found = _piece(whole, inside, running, key_piece, piece)
        rows = _empty(found, length) if rows is None else rows
        _fill(rows, found, at)
    assert rows is not None
    rows.truncated[:, -1] = ~rows.terminated[:, -1]
    flat = jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:])[:steps], rows)
    return Dataset.of(flat, bounds=bounds, about=About(env=name))


def default_envs(steps: int, episode_length: int) -> int:
    """Return the default batch size of `record`."""
    return max(1, min(64, steps // max(episode_length, 1)))


def measured_returns(
    data: Dataset, num_envs: int | None, episode_length: int
) -> Float[np.ndarray, " episodes"]:
    """Return the returns of the episodes that began at least `episode_length` steps before
    the end of the recording of their environment.

    Only their mean is unbiased: of the episodes that began later, long ones are cut off more
    often than short ones, so that short ones are too frequent among all that ended.

    **Arguments:**

    - `data`: dataset of one call of `record`.
    - `num_envs`, `episode_length`: those of that call.
    """
    num_envs = num_envs or default_envs(len(data), episode_length)
    each = math.ceil(len(data) / num_envs)
    begin = np.append(0, data.ends()[:-1] + 1)
    last = begin + episode_length
    early = (begin % each + episode_length <= each) & (last <= len(data))
    return data.returns()[early]


def _bounds(env: AbstractEnv) -> Float[np.ndarray, "nu 2"]:
    bounds = np.asarray(env.action_range)
    if not np.all(np.isfinite(bounds)):
        raise ValueError(
            f"The action bounds of `{type(env).__name__}` are {bounds.tolist()}; datasets "
            "need finite ones. Set `ctrlrange` in the model."
        )
    return bounds


def _piece_length(running: Running, length: int) -> int:
    """Return the number of steps per compiled call, the same for all calls."""
    size = sum(x.nbytes for x in jtu.tree_leaves(running.obs))
    # Observations before and after the step, and the final ones.
    longest = max(1, _MOST // max(3 * size, 1))
    return math.ceil(length / math.ceil(length / longest))


@eqx.filter_jit
def _piece(env, policy, running: Running, key, length: int):
    running, steps, _ = collect(env, policy, running, key, length)
    return running, steps


def _empty(like: Transition, length: int) -> Steps:
    """Allocate arrays on the host for all steps."""
    shape = lambda x: (x.shape[0], length, *x.shape[2:])
    empty = lambda tree: jtu.tree_map(lambda x: np.empty(shape(x), x.dtype), tree)
    return Steps(*map(empty, vars(like).values()))


def _fill(rows: Steps, found: Transition, at: int) -> None:
    for to, x in zip(jtu.tree_leaves(rows), jtu.tree_leaves(jax.device_get(found))):
        number = min(x.shape[1], to.shape[1] - at)
        to[:, at : at + number] = x[:, :number]
