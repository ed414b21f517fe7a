"""Rollouts: the only loop over `env.step` in eqsim, and the batch axes that it keeps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree, UInt32

from ._errors import (
    check_count,
    check_type,
    described,
    is_key,
    is_legacy_key,
    RESULTS,
    typed_key,
)
from ._loops import scan
from ._policies import AbstractController, renewed
from ._trajectory import Trajectory
from .envs import AbstractEnv, Timestep
from .model import validate


_SHARED = object()


def check_axes(env, env_axes, batch: tuple[int, ...]) -> None:
    """Raise `ValueError` unless the axes of environments have the sizes of `batch`."""
    axes = jtu.tree_leaves(_axes(env, env_axes))
    leaves = jtu.tree_leaves_with_path(eqx.filter(env, eqx.is_array))
    for (path, leaf), axis in zip(leaves, axes, strict=True):
        if axis is _SHARED:
            continue
        if tuple(leaf.shape[k] for k in _places(leaf, axis, len(batch))) != batch:
            raise ValueError(
                f"`env{jtu.keystr(path)}` has shape {leaf.shape}: its batch axes, which "
                f"`env_axes` places at axis {axis}, must have the shape of `key`, {batch}."
            )


def _places(leaf, axis: int, rank: int) -> range:
    """Return the axes of environments: they start at `axis`, or end there if it is
    negative."""
    first = axis if axis >= 0 else leaf.ndim + axis - rank + 1
    return range(max(0, first), min(first + rank, leaf.ndim))


def split(env, env_axes, rank: int):
    """Split `env` into arrays that differ between environments, with the axes of
    environments first, and all others."""
    arrays, static = eqx.partition(env, eqx.is_array)
    axes = _axes(env, env_axes)

    def front(x, axis):
        return jnp.moveaxis(x, tuple(_places(x, axis, rank)), tuple(range(rank)))

    own = jtu.tree_map(
        lambda x, axis: None if axis is _SHARED else front(x, axis), arrays, axes
    )
    shared = jtu.tree_map(lambda x, axis: x if axis is _SHARED else None, arrays, axes)
    return own, eqx.combine(shared, static)


def _axes(env, env_axes):
    """Return the axis of environments of each array of `env`, or `_SHARED`."""
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


def rollout(
    env: AbstractEnv,
    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController,
    key: Key[Array, "..."] | UInt32[Array, "... size"],
    length: int,
    *,
    start: tuple[Any, Timestep] | tuple[Any, Timestep, Any] | None = None,
    env_axes: PyTree = None,
    collect: Callable[[Any, Array, Timestep], Any] | None = None,
    stop: Callable[[Timestep], Bool[Array, ""]] | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Any:
    """Run a policy in an environment.

    The rollout is compiled once; other parameters do not recompile it. A batch of keys
    runs a batch of environments, sharded over all devices of the default backend if
    their number divides the batch size. (`jax.config.update("jax_num_cpu_devices", n)`,
    called before JAX is first used, creates `n` devices on a CPU.) Inside another
    transformation, `rollout` is an ordinary function.

    **Arguments:**

    - `policy`: function `(obs, key) -> action`, a module with `__call__`, or an
        `AbstractController` with memory, such as `eqsim.control.MPC`.
    - `key`: a key, or an array of keys of any shape: one environment per key. Keys of
        the older `jax.random.PRNGKey` are converted.
    - `length`: number of control steps.
    - `start`: initial state and timestep, one per key; by default from `env.reset`. Use
        `AbstractTask.begin` to start from a given state, or `trajectory.last` to
        continue a rollout. To continue, pass a different `key`: with the same key, the
        policy draws the same random numbers again. The memory of a controller may
        follow as a third value; without it, the controller computes a new one.
    - `env_axes`: batch axes of `env`, in the form of `in_axes` of `eqx.filter_vmap`:
        `eqx.if_array(0)` for an environment made by `eqx.filter_vmap`. By default, all
        environments share their parameters. If `key` has several axes, the batch axes
        of `env` must be adjacent.
    - `collect`: function `(state, action, timestep) -> Any` that selects what to store
        of each step; by default everything. With `collect`, results on failed and valid
        steps are not returned.
    - `stop`: function `timestep -> bool`. When it is true, the environment stops and
        its later steps are not `valid`, for instance `lambda timestep: timestep.done`.
    - `checkpoint_every`: gradient checkpointing: reverse mode stores only the state
        before every so many steps (a divisor of `length`) and recomputes the steps in
        between. Memory is smallest near the square root of `length`.
    - `progress`: True to show a progress bar, which needs the extra `cli`. The rollout
        is then computed in chunks, with the same results.
    - `throw`: True to raise an error if a value is not finite; no effect inside another
        transformation.

    **Returns:** a `Trajectory`; with `collect`, the collected values and
    `Trajectory.last`.

    **Raises:** `ValueError` if the length is not positive, a shape is wrong, or a
    parameter of the robot is invalid; `FloatingPointError` if an action, state, reward
    or observation is not finite, with the first step and environment.
    """
    check_type(
        "env", env, AbstractEnv, "an environment", "Create one: `eqsim.make(name)`."
    )
    _check_policy(policy)
    key = typed_key(key) if is_legacy_key(key) else key
    _check_call(env, key, length, start, env_axes)
    keep = _Kept(collect, stop, checkpoint_every)
    args = (env, policy, key, start)
    traced = any(isinstance(leaf, Tracer) for leaf in jtu.tree_leaves(args))
    if traced and progress:
        raise ValueError(
            "`progress=True` is not possible inside a transformation. Call `rollout` "
            "outside jit, grad and vmap, or leave it out."
        )
    if not traced:
        # Move batch axes to the front, from where `env_axes` declares them.
        validate(eqx.combine(*split(env, env_axes, key.ndim)).sys)
    many = _in_a_row(env, policy, key, start, env_axes)
    if progress and not traced:
        kept, end = _piecewise(many, length, keep)
    else:
        run = _batched if traced else _compiled
        kept, end = run(many, jnp.zeros((), jnp.int32), _Length(length, length), keep)
    if key.ndim > 1:
        shape = lambda x: x.reshape(*key.shape, *x.shape[1:])
        kept, end = jtu.tree_map(shape, (kept, end))
    if throw and not isinstance(end.failed, Tracer):
        _raise_if_failed(end)
    last = end.state, end.timestep
    if isinstance(policy, AbstractController):
        last += (end.memory,)
    if collect is not None:
        return kept, last
    state, obs, action, timestep, valid = kept
    result = _result(end)
    return Trajectory(state, obs, action, timestep, valid, last, result, end.failed)


class _Kept(NamedTuple):
    """Options for what a rollout stores: for the user, and for reverse mode."""

    collect: Callable[[Any, Array, Timestep], Any] | None
    stop: Callable[[Timestep], Bool[Array, ""]] | None
    checkpoint_every: int | None


class _Length(NamedTuple):
    """Length of a rollout: number of steps, and number of steps per chunk."""

    whole: int
    piece: int


class _Running(NamedTuple):
    """State of a running environment.

    - `stopped`: true if the stop condition was met.
    - `code`, `failed`: index in `_CODES`, and step, of the first value that is not
        finite; 0 and -1 if there is none.
    - `memory`: memory of an `AbstractController`; None before its first step.
    """

    state: Any
    timestep: Timestep
    stopped: Array
    code: Array
    failed: Array
    memory: Any = None


_CODES = (
    RESULTS.successful,
    RESULTS.nonfinite_action,
    RESULTS.nonfinite_state,
    RESULTS.nonfinite_report,
)


class _Many(NamedTuple):
    """A batch of environments, or a single one.

    - `own`, `shared`: arrays that each environment has for itself, batched, and all
        others.
    - `key`, `begin`: key and start of each environment.
    """

    own: Any
    shared: Any
    policy: Any
    key: Array
    begin: _Running | None


def _check_policy(policy) -> None:
    if isinstance(policy, type) or not (
        callable(policy) or isinstance(policy, AbstractController)
    ):
        raise TypeError(
            "`policy` must be a function `(obs, key) -> action` or a controller, got "
            f"{described(policy)}. For an agent, pass `eqsim.agent_policy(agent, state)`."
        )


def _check_call(env, key, length: int, start, env_axes) -> None:
    check_count("length", length)
    if not is_key(key):
        raise ValueError(
            "`key` must be a key of `jax.random.key`, or an array of them, got "
            f"{described(key)}. Write `jax.random.key(0)`."
        )
    if key.ndim == 0 and env_axes is not None:
        raise ValueError(
            "`env_axes` declares a batch of environments, but one key runs one environment. "
            "Pass one key per environment."
        )
    if key.size == 0:
        raise ValueError(f"`key` must hold at least one key, got shape {key.shape}.")
    _check_start(start, key)
    check_axes(env, env_axes, key.shape)


def _check_start(start, key) -> None:
    if start is None:
        return
    fits = isinstance(start, tuple) and len(start) in (2, 3)
    if not (fits and isinstance(start[1], Timestep)):
        raise TypeError(
            "`start` must be a state and a timestep, as returned by `env.reset(key)` or "
            "`env.begin(state)`, and optionally the memory of a controller, got "
            f"{type(start).__name__}."
        )
    if start[1].reward.shape != key.shape:
        raise ValueError(
            f"`start` has timesteps of shape {start[1].reward.shape}, but `key` has "
            f"shape {key.shape}. Pass one start per key, for instance from "
            "`eqx.filter_vmap(env.reset)(key)`."
        )


def _result(end: _Running) -> RESULTS:
    def result(code):
        out = _CODES[0]
        for k, item in enumerate(_CODES[1:], 1):
            out = RESULTS.where(code == k, item, out)
        return out

    for _ in range(end.code.ndim):
        result = jax.vmap(result)
    return result(end.code)


def _raise_if_failed(end: _Running) -> None:
    steps, codes = np.asarray(end.failed), np.asarray(end.code)
    bad = np.argwhere(steps >= 0)
    if not len(bad):
        return
    first = tuple(min(bad, key=lambda index: steps[tuple(index)]))
    where = f"At step {steps[first]}"
    if steps.ndim:
        index = first[0] if steps.ndim == 1 else tuple(map(int, first))
        where = (
            f"In {len(bad)} of {steps.size} environments, first in {index} at step "
            f"{steps[first]}"
        )
    raise FloatingPointError(f"{where}: {RESULTS[_CODES[codes[first]]]}")


def _in_a_row(env, policy, key, start, env_axes) -> _Many:
    begin = None
    if start is not None:
        flag = lambda value, dtype: jnp.full(key.shape, value, dtype)
        codes = flag(0, jnp.int32), flag(-1, jnp.int32)
        state, timestep, *memory = start
        # A function has no use for the memory of an earlier controller.
        memory = memory if isinstance(policy, AbstractController) else ()
        begin = _Running(state, timestep, flag(False, bool), *codes, *memory)
    own, shared = split(env, env_axes, key.ndim)
    if key.ndim > 1:
        row = lambda x: x.reshape(key.size, *x.shape[key.ndim :])
        own, key, begin = jtu.tree_map(row, (own, key, begin))
    return _Many(own, shared, policy, key, begin)


_PIECES = 50
"""Largest number of chunks of a rollout with a progress bar."""


def _piecewise(many: _Many, length: int, keep: _Kept):
    """Run the rollout in chunks, with a progress bar."""
    bar = _bar()
    if many.begin is None:
        many = many._replace(begin=_compiled_start(many))
    every, least = keep.checkpoint_every or 1, -(-length // _PIECES)
    fits = (k for k in range(least, length) if length % k == 0 and k % every == 0)
    piece = next(fits, length)
    parts = []
    for first in bar(range(0, length, piece), description="rollout"):
        at = jnp.asarray(first, jnp.int32)
        kept, end = _compiled(many, at, _Length(length, piece), keep)
        many = many._replace(begin=end)
        parts.append(jax.block_until_ready(kept))
    time = min(many.key.ndim, 1)
    return jtu.tree_map(lambda *x: jnp.concatenate(x, time), *parts), end


def _bar() -> Callable:
    try:
        from rich.progress import track
    except ImportError as error:
        raise ImportError(
            "A progress bar needs rich. Run `pip install 'eqsim[cli]'`."
        ) from error
    return track


@eqx.filter_jit
def _compiled_start(many: _Many) -> _Running:
    begin = lambda own, key: _begin(eqx.combine(own, many.shared), key)
    if many.key.ndim == 0:
        return begin(many.own, many.key)
    return jax.vmap(begin)(many.own, many.key)


@eqx.filter_jit
def _compiled(many: _Many, first, length: _Length, keep: _Kept):
    devices, key = jax.devices(), many.key
    if key.ndim == 0 or len(devices) == 1 or key.shape[0] % len(devices):
        return _batched(many, first, length, keep)
    # Each device solves its own batch, so no device waits for contacts of another.
    mesh = jax.make_mesh((len(devices),), ("batch",), (AxisType.Auto,))
    each, whole = PartitionSpec("batch"), PartitionSpec()
    dynamic, static = eqx.partition((many.shared, many.policy), eqx.is_array)

    def local(own, dynamic, key, begin, first):
        shared, policy = eqx.combine(dynamic, static)
        return _batched(_Many(own, shared, policy, key, begin), first, length, keep)

    specs = (each, whole, each, each, whole)
    run = jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=each, check_vma=False
    )
    return run(many.own, dynamic, key, many.begin, first)


def _batched(many: _Many, first, length: _Length, keep: _Kept):
    """Run one environment, or a batch."""

    def run(own, key, begin):
        env = eqx.combine(own, many.shared)
        return _single(env, many.policy, key, begin, first, length, keep)

    args = many.own, many.key, many.begin
    return run(*args) if many.key.ndim == 0 else jax.vmap(run)(*args)


def _begin(env: AbstractEnv, key) -> _Running:
    key_reset, _ = jr.split(key)
    none = jnp.zeros((), jnp.int32)
    return _Running(*env.reset(key_reset), jnp.zeros((), bool), none, none - 1)


def _single(env, policy, key, begin, first, length: _Length, keep: _Kept):
    _, key_policy = jr.split(key)
    begin = _begin(env, key) if begin is None else begin
    if isinstance(policy, AbstractController) and begin.memory is None:
        memory = policy.init(env.physics(begin.state), key_policy)
        begin = begin._replace(memory=memory)
    keys = jr.split(key_policy, length.whole)
    numbers = jnp.arange(length.piece, dtype=first.dtype)
    if length.piece < length.whole:
        keys = lax.dynamic_slice_in_dim(keys, first, length.piece)

    def step(now: _Running, x):
        key, number = x
        obs = now.timestep.obs
        if isinstance(policy, AbstractController):
            memory, action = policy.act(now.memory, env.physics(now.state), obs, key)
            now = now._replace(memory=memory)
        else:
            action = policy(obs, key)
        go = lambda: env.step(now.state, action)
        if keep.stop is None:
            new, timestep = go()
        else:
            old = now.state, now.timestep
            new, timestep = lax.cond(now.stopped, lambda: old, go)
        after = _judged(env, now, action, new, timestep, first + number, keep)
        if isinstance(policy, AbstractController):
            memory = renewed(policy, env, now.memory, new, timestep, jr.fold_in(key, 1))
            after = after._replace(memory=memory)
        if keep.collect is not None:
            return after, keep.collect(now.state, action, timestep)
        return after, (now.state, obs, action, timestep, ~now.stopped)

    end, kept = scan(step, begin, (keys, numbers), None, keep.checkpoint_every)
    return kept, end


def _judged(env, now: _Running, action, new, timestep, number, keep) -> _Running:
    """Check after a step that its values are finite, and evaluate the stop
    condition."""
    finite = lambda *arrays: jnp.all(
        jnp.stack([jnp.all(jnp.isfinite(x)) for x in arrays])
    )
    robot = env.physics(new)
    code = jnp.where(finite(*jtu.tree_leaves(timestep.obs), timestep.reward), 0, 3)
    code = jnp.where(finite(robot.q, robot.qd), code, 2)
    code = jnp.where(finite(action), code, 1).astype(now.code.dtype)
    fails = (code > 0) & (now.failed < 0) & ~now.stopped
    stopped = now.stopped
    if keep.stop is not None:
        stopped = stopped | keep.stop(timestep)
    failed = jnp.where(fails, number, now.failed)
    code = jnp.where(fails, code, now.code)
    return _Running(new, timestep, stopped, code, failed, now.memory)
