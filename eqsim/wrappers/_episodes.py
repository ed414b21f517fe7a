"""Wrappers about episodes: their length, their resets, and their robots.

`TimeLimit` truncates an episode, `AutoReset` starts the next one, `pool_resets` computes resets
in advance, and `DomainRandomization` draws another robot for each episode.
"""

import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._errors import check_count, check_key, check_shape, is_key
from ..envs import AbstractEnv, check_action, reset_options, ResetOptions, Timestep
from ..model import System, validate
from ..model.changes import changed_parameters, with_same_structure
from ._wrapper import (
    AbstractStateful,
    AbstractStateless,
    AbstractWrapper,
    check_env,
    Lifetime,
    nested_envs,
    next_episode,
    Options,
    refuse_run,
    vector_size,
)


class TimeLimitState(eqx.Module):
    """State of `TimeLimit`. `count`: number of steps in this episode."""

    inner: Any
    count: Int[Array, ""]


def _as_count(n: Any) -> Any:
    """Convert an integer to an array; arrays of integers are returned unchanged."""
    if not isinstance(n, jax.Array | np.ndarray):
        check_count("TimeLimit.length", n)
        return jnp.asarray(n, jnp.int32)
    if not jnp.issubdtype(n.dtype, jnp.integer):
        raise ValueError(
            f"`TimeLimit.length` must be an integer of at least 1, got {n}."
        )
    return n


class TimeLimit(AbstractStateful):
    """Time limit: sets `truncated` after `length` steps of an episode.

    **Arguments:**

    - `env`: the environment.
    - `length`: number of control steps; an array leaf, so it can be batched and changed
        without recompiling.

    **Raises:** `ValueError` if the length is not positive, or `env` resets itself.
    """

    env: AbstractEnv
    length: Int[Array, ""] = eqx.field(converter=_as_count)

    def __check_init__(self):
        if not isinstance(self.length, Tracer) and not np.all(
            np.asarray(self.length) >= 1
        ):
            raise ValueError(
                f"`TimeLimit.length` must be at least 1, got {self.length}."
            )

    lifetime = Lifetime.EPISODE

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[TimeLimitState, Timestep]:
        inner, timestep = self.env.reset(key, options)
        return TimeLimitState(inner, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, state: TimeLimitState, action: Float[Array, " nu"]
    ) -> tuple[TimeLimitState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        count = state.count + 1
        over = (count >= self.length) & ~timestep.terminated
        truncated = timestep.truncated | over
        timestep = eqx.tree_at(lambda t: t.truncated, timestep, truncated)
        return TimeLimitState(inner, count), timestep


class ResetMode(enum.Enum):
    """Time at which `AutoReset` starts the next episode: in the step that ends an
    episode, or in the following step, whose action is ignored."""

    SAME_STEP = enum.auto()
    NEXT_STEP = enum.auto()


class AutoResetState(eqx.Module):
    """State of `AutoReset`. `key`: key for the next resets. `over`: true if the next
    step is a reset."""

    inner: Any
    key: PRNGKeyArray
    over: Bool[Array, ""]


class AutoReset(AbstractStateful):
    """Auto-reset: starts a new episode, with a new key, when an episode has ended.

    `timestep.final_obs` is the observation after the action, before any reset. Use it
    instead of `obs` as the next observation of a transition. Reward, terms,
    `terminated`, `truncated` and `descriptor` also belong to the action.

    **Arguments:**

    - `env`: environment, including all wrappers whose state belongs to one episode.
    - `mode`: with `ResetMode.SAME_STEP`, `obs` already belongs to the new episode. With
        `ResetMode.NEXT_STEP`, `obs` belongs to the old episode; the next step ignores
        its action, resets, and returns `first=True` and zero reward.

    In a batch, every environment computes a full reset in every step, and keeps it only
    if its episode has ended. If resets are expensive, `pool_resets` computes them in
    advance. Options of `reset` apply only to the first episode; a curriculum
    (`TerrainCurriculum`) gives those of the others.

    **Raises:** `ValueError` if `env` contains a wrapper whose state must not be reset
    with the episode.
    """

    env: AbstractEnv
    mode: ResetMode = eqx.field(static=True, default=ResetMode.SAME_STEP)

    def __check_init__(self):
        refuse_run(self)

    lifetime = Lifetime.RUN

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[AutoResetState, Timestep]:
        check_key(key)
        key_reset, key = jr.split(key)
        inner, timestep = self.env.reset(key_reset, options)
        return AutoResetState(inner, key, jnp.zeros((), bool)), _final(timestep)

    def step(
        self, state: AutoResetState, action: Float[Array, " nu"]
    ) -> tuple[AutoResetState, Timestep]:
        check_action(self, action)
        key_reset, key = jr.split(state.key)
        step = lambda: self.env.step(state.inner, action)
        fresh = lambda last: next_episode(self.env, key_reset, last)
        no = jnp.zeros((), bool)
        if self.mode is ResetMode.NEXT_STEP:
            inner, timestep = lax.cond(state.over, lambda: fresh(state.inner), step)
            over = timestep.done & ~timestep.first
            return AutoResetState(inner, key, over), _final(timestep)
        inner, timestep = step()
        new, obs = lax.cond(
            timestep.done,
            lambda: _pair(*fresh(inner)),
            lambda: (inner, timestep.obs),
        )
        timestep = eqx.tree_at(lambda t: t.obs, _final(timestep), obs)
        return AutoResetState(new, key, no), timestep


def _pair(state, timestep: Timestep):
    return state, timestep.obs


def _final(timestep: Timestep) -> Timestep:
    where = lambda t: t.final_obs
    return eqx.tree_at(where, timestep, timestep.obs, is_leaf=lambda x: x is None)


class PooledResets(AbstractStateless):
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

    lifetime = Lifetime.EPISODE

    def reset(self, key: PRNGKeyArray, options: Options = None) -> tuple[Any, Timestep]:
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
    is drawn from the pool, including the robots of `DomainRandomization`. Resets with
    options, such as those by `TerrainCurriculum`, are not drawn from the pool.

    !!! example

        ```python
        env = AutoReset(pool_resets(TimeLimit(env, 1000), key, 64))
        ```

    **Arguments:**

    - `env`: environment of one episode, including all its wrappers.
    - `size`: number of resets.

    **Returns:** the environment with `PooledResets` among its wrappers. If
    `DomainRandomization` is around a wrapper with a random key, `env` itself: starts in the
    pool would be those of another robot. Write `NoisyObservation(DomainRandomization(env))`.

    **Raises:** `ValueError` if the size is not positive, or a wrapper within the pool has
    a state that is kept over episodes.
    """
    check_count("size", size)
    depth = _depth(env)
    outside = [*nested_envs(env)][:depth]
    if any(isinstance(layer, DomainRandomization) for layer in outside):
        return env
    where = lambda env: _inner(env, depth)
    inside = where(env)
    starts = eqx.filter_jit(eqx.filter_vmap(inside.reset))(jr.split(key, size))
    pooled = PooledResets(inside, starts)
    return pooled if depth == 0 else eqx.tree_at(where, env, pooled)


def _depth(env: AbstractEnv) -> int:
    """Return the number of wrappers outside the pool."""
    keys = [_num_keys(layer.reset) for layer in nested_envs(env)]
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


class RandomizedState(eqx.Module):
    """State of `DomainRandomization`. `changed`: parameters of the robot that differ
    between episodes; all other parts of this `System` are empty."""

    inner: Any
    changed: System


class DomainRandomization(AbstractStateful):
    """Draws a new robot at every reset, within the compiled step.

    The state carries only the parameters that `randomize` changes; all others are
    stored once per batch. Derived quantities such as inverse weights are recomputed.
    `env.robot(state)` returns the `System` of the current episode. To differentiate
    with respect to the randomized parameters, differentiate with respect to
    `state.changed`.

    If robots do not change between episodes, use a batch of environments made by
    `eqx.filter_vmap` instead: see `env_axes` of `eqsim.rollout`.

    **Arguments:**

    - `env`: the environment.
    - `randomize`: function `(key, sys) -> sys` that changes values, but neither shapes,
        types nor structure; for instance with `eqx.tree_at`, or from `eqsim.randomize`.
        A parameter counts as unchanged if the returned robot contains the identical
        array object.
    - `observe_context`: true to append `env.context(state)` to each observation, as in
        meta-learning.

    `reset` accepts two more options: `sys`, a robot that differs from `env.sys` only in
    randomized parameters, and `context`, these parameters as a vector.

    **Raises:** `ValueError` if `randomize` changes a shape, a type or the structure of
    the robot, or returns invalid parameters; if `env` resets itself, or is randomized
    already.
    """

    env: AbstractEnv
    randomize: Callable[[PRNGKeyArray, System], System]
    observe_context: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_env(self, self.env)
        if any(isinstance(held, DomainRandomization) for held in nested_envs(self.env)):
            raise ValueError(
                "`DomainRandomization` contains another one. Combine both with "
                "`eqsim.randomize.chain`."
            )
        if self.observe_context:
            vector_size(self, self.env)
        if not callable(self.randomize):
            raise TypeError(
                "`randomize` must be a function (key, sys) -> sys, got "
                f"{self.randomize!r}."
            )
        leaves = jtu.tree_leaves((self.env.sys, self.randomize))
        known = not any(isinstance(x, Tracer) for x in leaves)
        if known and self.env.sys.dt.ndim == 0:
            # Errors that occur for every key show in one example. A batch of robots
            # is not checked.
            validate(self._drawn(jr.key(0)))

    lifetime = Lifetime.EPISODE

    def robot(self, state: RandomizedState) -> System:
        """Return the robot of the current episode."""
        return episode_robot(self, state)

    def context(self, state: RandomizedState) -> Float[Array, " ncontext"]:
        """Return the randomized parameters of the robot as one vector."""
        return _vector(state.changed, self.env.physics(state.inner).q.dtype)

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[RandomizedState, Timestep]:
        options = reset_options(options)
        check_key(key)
        key_sys, key_reset = jr.split(key)
        changed = changed_parameters(self.env.sys, self._drawn(key_sys))
        if options.sys is not None and options.context is not None:
            raise ValueError(
                "`options` have both `sys` and `context`: pass one of them."
            )
        if options.sys is not None:
            changed = _of_robot(self.env.sys, changed, options.sys)
        if options.context is not None:
            changed = _of_vector(changed, options.context)
        inner, timestep = self._with(changed).reset(
            key_reset,
            ResetOptions(
                options.q, options.qd, patch=options.patch, start=options.start
            ),
        )
        return self._report(RandomizedState(inner, changed), timestep)

    def step(
        self, state: RandomizedState, action: Float[Array, " nu"]
    ) -> tuple[RandomizedState, Timestep]:
        check_action(self, action)
        inner, timestep = self._with(state.changed).step(state.inner, action)
        return self._report(RandomizedState(inner, state.changed), timestep)

    def _with(self, changed: System) -> AbstractEnv:
        sys = eqx.combine(changed, self.env.sys)
        return eqx.tree_at(lambda env: env.sys, self.env, sys)

    def _drawn(self, key) -> System:
        new = self.randomize(key, self.env.sys)
        return with_same_structure(self.env.sys, new, "`randomize`")

    def _report(self, state: RandomizedState, timestep: Timestep):
        if self.observe_context:
            obs = jnp.concatenate([timestep.obs, self.context(state)])
            timestep = eqx.tree_at(lambda t: t.obs, timestep, obs)
        return state, timestep


def episode_robot(env: AbstractEnv, state: Any) -> System:
    """Return the robot of the current episode: `env.sys`, with the changes of
    `DomainRandomization` anywhere among the wrappers.

    **Arguments:**

    - `env`: an environment, with wrappers or without.
    - `state`: state of the environment.
    """
    sys = env.sys
    while isinstance(env, AbstractWrapper):
        if isinstance(env, DomainRandomization):
            sys = eqx.combine(state.changed, sys)
        if isinstance(env, AbstractStateful):
            state = state.inner
        env = env.env
    return sys


def _of_robot(old: System, changed: System, given: System) -> System:
    """Return the randomized parameters of a given robot."""
    given = with_same_structure(old, given, "`options.sys`")
    none = lambda x: x is None
    # Not by the leaves of `changed`, because optional fields may be None too.
    carried = jtu.tree_structure(old).flatten_up_to(changed)
    leaves = jtu.tree_leaves_with_path(old)
    for (path, x), y, kept in zip(leaves, jtu.tree_leaves(given), carried, strict=True):
        traced = isinstance(x, Tracer) or isinstance(y, Tracer)
        if kept is None and x is not y and traced:
            raise ValueError(
                f"`options.sys{jtu.keystr(path)}` cannot be compared with that of the "
                "environment under tracing. Change `env.sys` with `eqx.tree_at`, which keeps "
                "all other arrays, or pass `options.context`."
            )
        if kept is None and x is not y and not np.array_equal(x, y):
            raise ValueError(
                f"`options.sys{jtu.keystr(path)}` differs from that of the environment, but "
                "only parameters that `randomize` changes may differ."
            )
    return jtu.tree_map(
        lambda kept, y: None if kept is None else y, changed, given, is_leaf=none
    )


def _vector(changed: System, dtype) -> Array:
    leaves = [x.reshape(-1).astype(dtype) for x in jtu.tree_leaves(changed)]
    return jnp.concatenate([*leaves, jnp.zeros(0, dtype)])


def _of_vector(changed: System, vector) -> System:
    leaves, treedef = jtu.tree_flatten(changed)
    check_shape("options.context", vector, {"ncontext": sum(x.size for x in leaves)})
    ends = np.cumsum([x.size for x in leaves])[:-1]
    parts = jnp.split(vector, ends) if leaves else []
    return jtu.tree_unflatten(
        treedef,
        [part.reshape(x.shape).astype(x.dtype) for part, x in zip(parts, leaves)],
    )
