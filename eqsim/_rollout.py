"""The only loop over `env.step` in eqsim."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from ._errors import RESULTS
from ._loops import scan
from ._partitioning import TILE
from .envs import AbstractEnv, Timestep
from .model import State, validate


class Trajectory(eqx.Module):
    """What happened, with a leading axis of time (behind an axis of environments).

    **Arguments:**

    - `state`: before each step.
    - `action`: of each step.
    - `timestep`: what each step reported.
    - `last`: the state after the last step, without axis of time.
    """

    state: State
    action: Float[Array, "..."]
    timestep: Timestep
    last: State


def rollout(
    env: AbstractEnv,
    policy: Callable[[Float[Array, " nobs"], PRNGKeyArray], Float[Array, " nu"]],
    key: Key[Array, "..."],
    length: int,
    *,
    state: State | None = None,
    env_axes: PyTree = None,
    collect: Callable[[State, Array, Timestep], Any] | None = None,
    checkpoint_every: int | None = None,
    throw: bool = True,
) -> Any:
    """Runs a policy in an environment.

    It is compiled, once for all numbers. A batch of keys runs a batch of environments,
    spread over all devices of the default backend if their number divides the batch
    (`jax.config.update("jax_num_cpu_devices", n)`, before JAX is first used, makes `n`
    devices of a CPU). Inside another transformation it is an ordinary function.

    **Arguments:**

    - `policy`: `(obs, key) -> action`; a function, or a module with `__call__`.
    - `key`: one key, or an array of them: one environment per key.
    - `length`: number of control steps.
    - `state`: where to start (one per key); by default `env.reset`.
    - `env_axes`: which leaves of `env` differ between environments, as the `in_axes` of
        `eqx.filter_vmap`: `eqx.if_array(0)` for an environment made by
        `eqx.filter_vmap`. By default all share one.
    - `collect`: `(state, action, timestep) -> Any`, what to keep of each step; by
        default everything.
    - `checkpoint_every`: saves memory in reverse mode: only the states before every so
        many steps (a divisor of `length`) are kept, and the steps in between are taken
        twice. Memory is least near the square root of `length`.
    - `throw`: whether to raise an error if a last state is not finite; without effect
        inside another transformation.

    **Returns:** a `Trajectory`; with `collect`, the pair of what was kept and the last
    state.

    **Raises:** `ValueError` if the length is not positive, shapes are wrong, or a
    number of the robot makes no sense; `FloatingPointError` if a state has become NaN
    or infinite.
    """
    if length < 1:
        raise ValueError(f"A rollout of length {length}; at least one step is needed.")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"`key` has type {key.dtype}: a key of `jax.random.key` is expected, not one "
            "of the older `jax.random.PRNGKey`."
        )
    if key.ndim == 0 and env_axes is not None:
        raise ValueError(
            "`env_axes` tells how environments differ, but one key runs one environment. "
            "Pass as many keys as environments."
        )
    if key.ndim > 1 or key.size == 0:
        raise ValueError(
            f"`key` has shape {key.shape}: one key or a vector of keys is expected. "
            "Use `eqx.filter_vmap` for more axes."
        )
    _check_axes(env, env_axes, key.shape)
    keep = _Kept(collect, checkpoint_every)
    args = (env, policy, key, state)
    if any(isinstance(leaf, Tracer) for leaf in jtu.tree_leaves(args)):
        keep = keep._replace(whole=len(jax.devices()) > 1)
        return _batched(env, policy, key, state, length, env_axes, keep)
    validate(env.sys)
    out = _compiled(env, policy, key, state, length, env_axes, keep)
    last = out.last if isinstance(out, Trajectory) else out[1]
    if throw and not isinstance(last.q, Tracer):
        _raise_if_not_finite(last)
    return out


class _Kept(NamedTuple):
    """What is kept of a rollout: for the user, for reverse mode, and of a batch that may
    lie on several devices, which tiles would tear apart."""

    collect: Callable[[State, Array, Timestep], Any] | None
    checkpoint_every: int | None
    whole: bool = False


def _check_axes(env, env_axes, batch: tuple[int, ...]) -> None:
    axes = jtu.tree_leaves(_axes(env, env_axes))
    leaves = jtu.tree_leaves_with_path(eqx.filter(env, eqx.is_array))
    for (path, leaf), axis in zip(leaves, axes, strict=True):
        if axis is not _SHARED and leaf.shape[axis : axis + 1 or None] != batch:
            raise ValueError(
                f"`env{jtu.keystr(path)}` has shape {leaf.shape}: by `env_axes`, its axis "
                f"{axis} counts the environments, of which `key` asks for {batch[0]}."
            )


def _raise_if_not_finite(last: State) -> None:
    finite = jnp.all(jnp.isfinite(last.q), -1) & jnp.all(jnp.isfinite(last.qd), -1)
    if not bool(jnp.all(finite)):
        where = ""
        if finite.ndim:
            bad = jnp.flatnonzero(~finite)
            where = f"In {bad.size} of {finite.size} environments, first {bad[0]}: "
        raise FloatingPointError(where + RESULTS[RESULTS.nonfinite_state])


@eqx.filter_jit
def _compiled(env, policy, key, state, length, env_axes, keep):
    devices = jax.devices()
    if key.ndim == 0 or len(devices) == 1 or key.shape[0] % len(devices):
        return _batched(env, policy, key, state, length, env_axes, keep)
    # Each device solves its own batch, so that none waits for another's contacts.
    mesh = jax.make_mesh((len(devices),), ("batch",), (AxisType.Auto,))
    split, whole = PartitionSpec("batch"), PartitionSpec()
    own, shared = _split(env, env_axes)
    dynamic, static = eqx.partition((shared, policy), eqx.is_array)

    def local(own, dynamic, key, state):
        shared, policy = eqx.combine(dynamic, static)
        return _tiled(own, shared, policy, key, state, length, keep)

    specs = (split, whole, split, split)
    run = jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False
    )
    return run(own, dynamic, key, state)


_SHARED = object()


def _split(env, env_axes):
    """The arrays of `env` of which each environment has its own, with the axis of
    environments in front; and the rest."""
    arrays, static = eqx.partition(env, eqx.is_array)
    axes = _axes(env, env_axes)
    front = lambda x, axis: None if axis is _SHARED else jnp.moveaxis(x, axis, 0)
    own = jtu.tree_map(front, arrays, axes)
    shared = jtu.tree_map(lambda x, axis: x if axis is _SHARED else None, arrays, axes)
    return own, eqx.combine(shared, static)


def _axes(env, env_axes):
    """The axis of environments of each array of `env`, or `_SHARED`."""
    arrays = eqx.filter(env, eqx.is_array)
    if callable(env_axes):
        axis = lambda x: _SHARED if env_axes(x) is None else env_axes(x)
        return jtu.tree_map(axis, arrays)
    if env_axes is None or isinstance(env_axes, int):
        return jtu.tree_map(lambda _: _SHARED if env_axes is None else env_axes, arrays)
    is_none = lambda x: x is None
    return jtu.tree_map(
        lambda axis, part: _axes(part, axis), env_axes, env, is_leaf=is_none
    )


def _batched(env, policy, key, state, length, env_axes, keep):
    if key.ndim == 0:
        return _single(env, policy, key, state, length, keep)
    return _tiled(*_split(env, env_axes), policy, key, state, length, keep)


def _tiled(own, shared, policy, key, state, length, keep):
    """On a CPU, long batches go tile by tile through time: so the numbers of robots
    that differ stay in the cache of a core."""

    def run(own, key, state):
        env = eqx.combine(own, shared)
        return _single(env, policy, key, state, length, keep)

    each, args, size = jax.vmap(run), (own, key, state), key.shape[0]
    on_cpu = jax.default_backend() == "cpu"
    if keep.whole or not on_cpu or size <= TILE or size % TILE:
        return each(*args)
    tiles = jtu.tree_map(lambda x: x.reshape(size // TILE, TILE, *x.shape[1:]), args)
    out = lax.map(lambda tile: each(*tile), tiles)
    return jtu.tree_map(lambda x: x.reshape(size, *x.shape[2:]), out)


def _single(env, policy, key, state, length, keep):
    key_reset, key_policy = jr.split(key)
    if state is None:
        state, _ = env.reset(key_reset)

    def step(state, key):
        action = policy(env.observe(state), key)
        new, timestep = env.step(state, action)
        if keep.collect is not None:
            return new, keep.collect(state, action, timestep)
        return new, (state, action, timestep)

    every = keep.checkpoint_every
    last, kept = scan(step, state, jr.split(key_policy, length), None, every)
    if keep.collect is not None:
        return kept, last
    states, actions, timesteps = kept
    return Trajectory(states, actions, timesteps, last)
