"""Domain randomization: a different robot in every episode."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_key, check_shape
from ..envs import AbstractEnv, check_action, reset_options, ResetOptions, Timestep
from ..model import System, validate
from ..model.changes import changed_parameters, with_same_structure
from ._wrapper import (
    AbstractStateful,
    AbstractStateless,
    check_env,
    layers,
    Lifetime,
    vector_size,
)


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
        if any(isinstance(held, DomainRandomization) for held in layers(self.env)):
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

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def robot(self, state: RandomizedState) -> System:
        """Return the robot of the current episode."""
        return robot(self, state)

    def context(self, state: RandomizedState) -> Float[Array, " ncontext"]:
        """Return the randomized parameters of the robot as one vector."""
        return _vector(state.changed, self.env.physics(state.inner).q.dtype)

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
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
            key_reset, ResetOptions(options.q, options.qd)
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


def robot(env: AbstractEnv, state: Any) -> System:
    """Return the robot of the current episode: `env.sys`, with the changes of
    `DomainRandomization` anywhere among the wrappers.

    **Arguments:**

    - `env`: an environment, with wrappers or without.
    - `state`: state of the environment.
    """
    sys = env.sys
    while isinstance(env, AbstractStateful | AbstractStateless):
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
