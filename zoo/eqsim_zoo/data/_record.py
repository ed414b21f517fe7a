"""Recording of datasets."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.bridges import check_count

from ..blocks import collect, Running, training_env, Transition
from ..blocks._collect import reset_batch
from ..blocks._hyperparameters import number_of_steps
from ._about import About
from ._behavior import clipped_policy, Policy
from ._dataset import Dataset
from ._steps import Steps


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
    if num_envs is None:
        num_envs = max(1, min(64, steps // max(episode_length, 1)))
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
