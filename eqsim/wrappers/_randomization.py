"""A different robot in every episode."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_shape
from ..envs import AbstractEnv, check_action, reset_options, ResetOptions, Timestep
from ..model import System, validate
from ._wrapper import (
    AbstractStateful,
    AbstractStateless,
    check_env,
    layers,
    Lifetime,
    vector_size,
)


class RandomizedState(eqx.Module):
    """`changed`: those numbers of the robot that differ between episodes; the rest of
    this `System` is empty."""

    inner: Any
    changed: System


class DomainRandomization(AbstractStateful):
    """Draws the robot anew at every reset, within the compiled step.

    Only what `randomize` changes is carried by the state, so that in a batch all else is
    stored once; what follows from it (inverse weights, for instance) follows. The robot
    of an episode is `env.robot(state)`. Derivatives by these numbers are those by
    `state.changed`.

    A batch of environments, made by `eqx.filter_vmap`, is the plain way to the same end
    where robots stay as they are: see `env_axes` of `eqsim.rollout`.

    **Arguments:**

    - `env`: the environment.
    - `randomize`: `(key, sys) -> sys`, which changes numbers but neither shapes, types
        nor structure; for instance with `eqx.tree_at`, or one of `eqsim.randomize`.
        A number counts as unchanged if `randomize` returns the very array that it got.
    - `observe_context`: whether `env.context(state)` stands at the end of each
        observation, as in meta-learning.

    `reset` takes two options more: `sys`, a robot that differs from `env.sys` in such
    numbers only, and `context`, these numbers as a vector.

    **Raises:** `ValueError` if `randomize` changes a shape, a type or the structure of
    the robot, or makes one whose numbers make no sense; if `env` resets itself, or has
    random robots already.
    """

    env: AbstractEnv
    randomize: Callable[[PRNGKeyArray, System], System]
    observe_context: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_env(self, self.env)
        if any(isinstance(held, DomainRandomization) for held in layers(self.env)):
            raise ValueError(
                "`DomainRandomization` is around another one. Make one of both, by "
                "`eqsim.randomize.chain`."
            )
        if self.observe_context:
            vector_size(self, self.env)
        if not callable(self.randomize):
            raise TypeError(
                f"`randomize` is {self.randomize!r}: a function (key, sys) -> sys is "
                "expected."
            )
        leaves = jtu.tree_leaves((self.env.sys, self.randomize))
        known = not any(isinstance(x, Tracer) for x in leaves)
        if known and self.env.sys.dt.ndim == 0:
            # One example shows what no key can mend. A batch of robots is not looked into.
            validate(self._drawn(jr.key(0)))

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def robot(self, state: RandomizedState) -> System:
        """The robot of the present episode."""
        return robot(self, state)

    def context(self, state: RandomizedState) -> Float[Array, " ncontext"]:
        """The numbers of the robot that differ between episodes, as one vector."""
        return _vector(state.changed, self.env.physics(state.inner).q.dtype)

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[RandomizedState, Timestep]:
        options = reset_options(options)
        key_sys, key_reset = jr.split(key)
        changed = _changed(self.env.sys, self._drawn(key_sys))
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
        _check_same(self.env.sys, new, "`randomize`")
        return new

    def _report(self, state: RandomizedState, timestep: Timestep):
        if self.observe_context:
            obs = jnp.concatenate([timestep.obs, self.context(state)])
            timestep = eqx.tree_at(lambda t: t.obs, timestep, obs)
        return state, timestep


def robot(env: AbstractEnv, state: Any) -> System:
    """The robot of the present episode: `env.sys`, with what `DomainRandomization` has
    changed, anywhere among the wrappers of eqsim.

    **Arguments:**

    - `env`: an environment, with wrappers or without.
    - `state`: of it.
    """
    sys = env.sys
    while isinstance(env, AbstractStateful | AbstractStateless):
        if isinstance(env, DomainRandomization):
            sys = eqx.combine(state.changed, sys)
        if isinstance(env, AbstractStateful):
            state = state.inner
        env = env.env
    return sys


def _check_same(old: System, new: Any, who: str) -> None:
    """The same structure, shapes and types."""
    if not isinstance(new, System):
        raise ValueError(f"{who} gives {type(new).__name__}: a `System` is expected.")
    if jtu.tree_structure(old) != jtu.tree_structure(new):
        raise ValueError(
            f"{who} gives another structure of the robot{_difference(old, new)}. Only "
            "numbers can differ between episodes."
        )
    leaves = jtu.tree_leaves_with_path(old)
    for (path, x), y in zip(leaves, jtu.tree_leaves(new), strict=True):
        found = jnp.shape(y), jnp.result_type(y)
        if found != (x.shape, x.dtype):
            raise ValueError(
                f"{who} gives `sys{jtu.keystr(path)}` as an array of shape {found[0]} and type "
                f"{found[1]}; it was {x.shape} and {x.dtype}, and must stay so."
            )


def _difference(old: System, new: System) -> str:
    """Which field has another structure, if that can be told."""
    path = _differing(old, new, "sys")
    return "" if path is None else f" (`{path}`)"


def _differing(old: Any, new: Any, path: str) -> str | None:
    """The path of the first field, as deep as possible, whose structure differs."""
    if jtu.tree_structure(old) == jtu.tree_structure(new):
        return None
    if not isinstance(old, eqx.Module) or type(old) is not type(new):
        return path
    for field in dataclasses.fields(old):
        pair = vars(old)[field.name], vars(new)[field.name]
        inner = f"{path}.{field.name}"
        if not field.metadata.get("static", False):
            found = _differing(*pair, inner)
            if found is not None:
                return found
        elif pair[0] != pair[1]:
            return inner
    return path


def _changed(old: System, new: System) -> System:
    """What `randomize` returned, without what it returned as it was."""
    return jtu.tree_map(lambda x, y: None if x is y else jnp.asarray(y), old, new)


def _of_robot(old: System, changed: System, given: System) -> System:
    """Of a given robot, what differs between episodes."""
    _check_same(old, given, "`options.sys`")
    none = lambda x: x is None
    # Not the leaves of `changed`: optional fields may be None too.
    carried = jtu.tree_structure(old).flatten_up_to(changed)
    leaves = jtu.tree_leaves_with_path(old)
    for (path, x), y, kept in zip(leaves, jtu.tree_leaves(given), carried, strict=True):
        traced = isinstance(x, Tracer) or isinstance(y, Tracer)
        if kept is None and x is not y and traced:
            raise ValueError(
                f"`options.sys{jtu.keystr(path)}` cannot be compared with that of the "
                "environment while JAX traces. Edit `env.sys` with `eqx.tree_at`, so that the "
                "rest stays the same arrays, or pass `options.context`."
            )
        if kept is None and x is not y and not np.array_equal(x, y):
            raise ValueError(
                f"`options.sys{jtu.keystr(path)}` differs from that of the environment, but "
                "`randomize` leaves it as it is, so that it is the same in every episode."
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
