"""Recordings of policies in environments."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from eqsim import AbstractEnv

from ..blocks import collect, reset_batch, Running, training_env, Transition
from ._about import About
from ._behavior import clipped_policy, Policy
from ._dataset import Dataset
from ._steps import Steps


# Bytes of observations that are on the device at once.
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
    """Steps of a policy, in environments side by side: first all of one, then those of
    the next.

    What is observed may be a vector, a picture, or a dictionary of them. Actions outside
    the bounds of the robot are moved to them before they are taken. Where the recording
    stops, an episode is cut off: it is over, and not at its end.

    **Arguments:**

    - `env`: of one episode, with all its wrappers; see `training_env`.
    - `policy`: `(obs, key) -> action`, in the units of the robot; a PyTree, such as
        `RandomPolicy(env.action_range)`, or a controller with memory.
        `eqsim.agent_policy` returns the policy of an agent.
    - `key`: of all that is random.
    - `steps`: how many to record, exactly.
    - `num_envs`: how many environments; by default at most 64, and so few that each takes
        as many steps as an episode can have.
    - `episode_length`, `pool_size`: see `training_env`.
    - `name`: of the environment, to be written down in `about`.

    **Raises:** `ValueError` if a number makes no sense, actions have no bounds, the
    environment resets itself, or a number that is recorded is not finite.
    """
    steps = _count(steps)
    if num_envs is None:
        num_envs = max(1, min(64, steps // max(episode_length, 1)))
    if not 1 <= num_envs <= steps:
        raise ValueError(
            f"`num_envs` is {num_envs}: at least 1, and at most one for each of the "
            f"{steps} steps, is expected."
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


def _count(steps: int | float) -> int:
    if not math.isfinite(steps) or steps != int(steps) or steps < 1:
        raise ValueError(f"`steps` is {steps}: a whole number from 1 on is expected.")
    return int(steps)


def _bounds(env: AbstractEnv) -> Float[np.ndarray, "nu 2"]:
    bounds = np.asarray(env.action_range)
    if not np.all(np.isfinite(bounds)):
        raise ValueError(
            f"Actions of `{type(env).__name__}` are between {bounds.tolist()}: a recording "
            "needs bounds of all of them. Limit them in the model (`ctrlrange`)."
        )
    return bounds


def _piece_length(running: Running, length: int) -> int:
    """Steps of each environment that are taken at once: equally many each time."""
    size = sum(x.nbytes for x in jtu.tree_leaves(running.obs))
    # Before and after the step, and as it was observed.
    longest = max(1, _MOST // max(3 * size, 1))
    return math.ceil(length / math.ceil(length / longest))


@eqx.filter_jit
def _piece(env, policy, running: Running, key, length: int):
    running, steps, _ = collect(env, policy, running, key, length)
    return running, steps


def _empty(like: Transition, length: int) -> Steps:
    """Room on the host for all steps."""
    shape = lambda x: (x.shape[0], length, *x.shape[2:])
    empty = lambda tree: jtu.tree_map(lambda x: np.empty(shape(x), x.dtype), tree)
    return Steps(*map(empty, vars(like).values()))


def _fill(rows: Steps, found: Transition, at: int) -> None:
    for to, x in zip(jtu.tree_leaves(rows), jtu.tree_leaves(jax.device_get(found))):
        number = min(x.shape[1], to.shape[1] - at)
        to[:, at : at + number] = x[:, :number]
