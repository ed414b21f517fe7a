"""Compiled programs of environments."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax

from eqsim import AbstractEnv

from ._arrays import torch_type
from ._operator import Operator
from ._packing import Packing


Where = Callable[[AbstractEnv], Any]


class Program:
    """Operators of many environments, one per row of their inputs and outputs.

    States are packed by `Packing`: numbers and words.

    **Arguments:**

    - `env`: the environment.
    - `rows`: number of environments.
    - `wheres`: functions that return the array of `env` for each parameter; parameters
        are the last arguments of every operator.
    - `table`: table of actions, if actions are discrete.
    - `device`: JAX device.

    Compiled programs cannot be pickled, so an unpickled object compiles again. A deep
    copy is the object itself, which is immutable.
    """

    def __init__(
        self,
        env: AbstractEnv,
        rows: int,
        wheres: Sequence[Where] = (),
        table: np.ndarray | None = None,
        device: Any = None,
    ):
        place = None if device is None else (device.platform, device.id)
        self._arguments = env, rows, tuple(wheres), table, place
        state, self.timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
        self.packing = Packing(state, env.sys.dt.dtype)
        # Plain values, which `torch.compile` supports.
        counts = (self.packing.numbers,), (self.packing.words,)
        self.shapes = *counts, tuple(self.timestep.obs.shape)
        self.number = torch_type(self.packing.dtype)
        self.rows, self._wheres = rows, tuple(wheres)
        # Passing a tree of modules to a compiled function is slow, so it is flattened.
        leaves, self._treedef = jtu.tree_flatten(env)
        arrays = [x for x in leaves if eqx.is_array(x)]
        self._static = [None if eqx.is_array(x) else x for x in leaves]
        self._policies: dict[Any, Operator] = {}
        fixed = jax.device_put((arrays, table), device)
        self.begin = Operator(self._begin, fixed)
        self.reset = Operator(self._reset, fixed)
        self.step = Operator(self._step, fixed)
        self.unroll = Operator(self._unroll, fixed)

    def __deepcopy__(self, memo: dict) -> "Program":
        return self

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _rebuild, self._arguments

    def under(self, policy: Callable, key: Any, length: int) -> Operator:
        """Return `_unroll_policy` with `policy(weights, obs)`; one for each key and
        length."""
        name = key, length
        if name not in self._policies:
            f = ft.partial(self._unroll_policy, policy, length)
            self._policies[name] = Operator(f, self.step.fixed)
        return self._policies[name]

    def environment(self, fixed: Any, parameters: Sequence[Any]) -> AbstractEnv:
        """Return the environment with these parameters."""
        left = iter(fixed[0])
        leaves = [next(left) if x is None else x for x in self._static]
        env = jtu.tree_unflatten(self._treedef, leaves)
        for where, value in zip(self._wheres, parameters, strict=True):
            env = eqx.tree_at(where, env, value)
        return env

    def _begin(self, fixed, seed, *parameters):
        """Compute `(seed, *parameters) -> (numbers, words, obs, terminated, truncated)`
        of new episodes, the flags as columns.

        - `seed`: words from which the key is made.
        """
        env, key = self.environment(fixed, parameters), jr.key(0)
        for i in range(seed.shape[0]):
            key = jr.fold_in(key, seed[i])

        def one(key):
            state, timestep = env.reset(key)
            obs, _, *flags = _told(timestep)
            return *self.packing.pack(state), obs, *flags

        return jax.vmap(one)(jr.split(key, self.rows))

    def _reset(self, fixed, numbers, words, obs, mask, seed, *parameters):
        """Do the same for environments in `mask`; the others keep their state, and have
        no flags."""
        new = self._begin(fixed, seed, *parameters)
        no = jnp.zeros((self.rows, 1), bool)
        old = numbers, words, obs, no, no
        pick = lambda mask, new, old: jnp.where(mask, new, old)
        return tuple(jax.vmap(pick)(mask, x, y) for x, y in zip(new, old))

    def _step(self, fixed, numbers, words, action, *parameters):
        """Compute `(numbers, words, action, *parameters) -> (numbers, words, obs,
        reward, terminated, truncated)`, the last three as columns."""
        env = self.environment(fixed, parameters)

        def one(numbers, words, action):
            state = self.packing.unpack(numbers, words)
            state, timestep = env.step(state, _action(fixed[1], action))
            return *self.packing.pack(state), *_told(timestep)

        return jax.vmap(one)(numbers, words, action)

    def _unroll(self, fixed, numbers, words, actions, *parameters):
        """Run `_step` for each of a sequence of actions; return observations, rewards
        and flags of all steps."""

        def step(carry, action):
            numbers, words, *told = self._step(fixed, *carry, action, *parameters)
            return (numbers, words), tuple(told)

        along = jnp.moveaxis(actions, 1, 0)
        (numbers, words), told = lax.scan(jax.checkpoint(step), (numbers, words), along)
        return numbers, words, *(jnp.moveaxis(x, 0, 1) for x in told)

    def _unroll_policy(self, policy, length, fixed, numbers, words, obs, *rest):
        """Do the same with actions of a policy, which follow the other results; `rest`
        contains its weights and the parameters."""
        count = len(rest) - len(self._wheres)
        weights, parameters = rest[:count], rest[count:]

        def step(carry, _):
            numbers, words, obs = carry
            action = jax.vmap(lambda obs: policy(weights, obs))(obs)
            new = self._step(fixed, numbers, words, action, *parameters)
            return new[:3], (*new[2:], action)

        begin = numbers, words, obs
        (numbers, words, _), told = lax.scan(jax.checkpoint(step), begin, length=length)
        return numbers, words, *(jnp.moveaxis(x, 0, 1) for x in told)


def _rebuild(env, rows, wheres, table, place: tuple[str, int] | None) -> Program:
    """Create an unpickled program, on the device with the same platform and number."""
    device = None
    if place is not None:
        device = next(x for x in jax.devices(place[0]) if x.id == place[1])
    return Program(env, rows, wheres, table, device)


def _action(table: Any, action: Any) -> Any:
    """Return the action of the robot, from a table by an integer or a one-hot row."""
    if table is None:
        return action
    if jnp.issubdtype(action.dtype, jnp.integer) and action.ndim == 0:
        return table[action]
    return action.astype(table.dtype) @ table


def _told(timestep: Any) -> tuple:
    column = lambda x: x[None]
    flags = timestep.terminated, timestep.truncated
    return timestep.obs, column(timestep.reward), *map(column, flags)
