"""Resets that are computed in advance."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count, check_key, is_key
from ..envs import AbstractEnv, ResetOptions, Timestep
from ._wrapper import AbstractPassThrough, AbstractWrapper, layers, Lifetime


class PooledResets(AbstractPassThrough):
    """Draws each reset from a pool of resets that were computed in advance.

    `pool_resets` computes the pool and places this wrapper. A reset with options is not
    drawn from the pool. Random keys in a state are replaced, so that episodes from the
    same start differ. The pool is constant: derivatives of start states by parameters
    of the robot are zero.

    **Arguments:**

    - `env`: environment of one episode.
    - `starts`: states and timesteps of resets, with a batch axis.
    """

    env: AbstractEnv
    starts: tuple[Any, Timestep]

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        if options is not None:
            return self.env.reset(key, options)
        check_key(key)
        key_index, key_state = jr.split(key)
        index = jr.randint(key_index, (), 0, self.starts[1].reward.shape[0])
        state, timestep = jtu.tree_map(lambda x: x[index], self.starts)
        return _with_new_keys(state, key_state), timestep

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        return self.env.step(state, action)


def pool_resets(env: AbstractEnv, key: PRNGKeyArray, size: int) -> AbstractEnv:
    """Compute resets in advance, for environments whose resets are expensive.

    In a batch, `AutoReset` computes a full reset of every environment in every step,
    and keeps it only if the episode has ended. A pool replaces most of it by a lookup.

    The pool is placed inside all wrappers whose state contains a random key, such as
    `Skills` and `NoisyObservation`: they draw again in every episode. Everything within
    is drawn from the pool, including the robots of `DomainRandomization`.

    !!! example

        ```python
        env = AutoReset(pool_resets(TimeLimit(env, 1000), key, 64))
        ```

    **Arguments:**

    - `env`: environment of one episode, including all its wrappers.
    - `size`: number of resets.

    **Returns:** the environment with `PooledResets` among its wrappers.

    **Raises:** `ValueError` if the size is not positive, or a wrapper within the pool has
    a state that is kept over episodes.
    """
    check_count("size", size)
    depth = _depth(env)
    where = lambda env: _inner(env, depth)
    inside = where(env)
    starts = eqx.filter_jit(eqx.filter_vmap(inside.reset))(jr.split(key, size))
    pooled = PooledResets(inside, starts)
    return pooled if depth == 0 else eqx.tree_at(where, env, pooled)


def _depth(env: AbstractEnv) -> int:
    """Return the number of wrappers outside the pool."""
    keys = [_num_keys(layer.reset) for layer in layers(env)]
    drawing = [k for k in range(len(keys) - 1) if keys[k] > keys[k + 1]]
    return max(drawing) + 1 if drawing else 0


def _num_keys(reset: Callable) -> int:
    state, _ = eqx.filter_eval_shape(reset, jr.key(0))
    return sum(is_key(x) for x in jtu.tree_leaves(state))


def _inner(env: AbstractEnv, depth: int) -> AbstractEnv:
    for _ in range(depth):
        assert isinstance(env, AbstractWrapper)
        env = env.env
    return env


def _with_new_keys(state: Any, key: PRNGKeyArray) -> Any:
    leaves, treedef = jtu.tree_flatten(state)
    new = [jr.fold_in(key, k) if is_key(x) else x for k, x in enumerate(leaves)]
    return jtu.tree_unflatten(treedef, new)
