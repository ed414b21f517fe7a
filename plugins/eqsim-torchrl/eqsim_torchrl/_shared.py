"""Functions of environments by their structure, which are compiled once."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax

from eqsim import AbstractEnv
from eqsim.wrappers import episode_robot

from ._arrays import torch_type
from ._operator import Compiled
from ._packing import Packing


Where = Callable[[AbstractEnv], Any]
_SHARED = 32
"""Number of structures whose compiled functions are kept without an environment."""


class Structure(NamedTuple):
    """Everything about environments but the values of their arrays.

    Environments of equal structure share compiled functions.

    - `treedef`, `leaves`: the environment, with shapes in the place of arrays.
    - `kinds`: types of the leaves, as `1 == True`.
    - `wheres`: functions that return the array for each parameter.
    - `rows`: number of environments.
    - `settings`: settings of JAX on which types of arrays depend.
    """

    treedef: Any
    leaves: tuple
    kinds: tuple[type, ...]
    wheres: tuple[Where, ...]
    rows: int
    settings: tuple


def structure_of(
    env: AbstractEnv, wheres: Sequence[Where], rows: int
) -> tuple[Structure, list[jax.Array]]:
    """Return the structure and the arrays of an environment."""
    leaves, treedef = jtu.tree_flatten(env)
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type)
    static = tuple(shape(x) if eqx.is_array(x) else x for x in leaves)
    config = jax.config
    settings = config.jax_enable_x64, config.jax_default_prng_impl
    kinds = tuple(map(type, static))
    structure = Structure(treedef, static, kinds, tuple(wheres), rows, settings)
    return structure, [x for x in leaves if eqx.is_array(x)]


def functions_of(structure: Structure) -> "Functions":
    """Return the functions of a structure; equal ones share them.

    A structure that cannot be hashed has functions of its own.
    """
    try:
        hash(structure)
    except TypeError:
        return Functions(structure)
    return _functions_of(structure)


class Functions:
    """Functions of a batch of environments, one per row of inputs and outputs.

    States are packed by `Packing`: numbers and words. The first argument, `fixed`, has the
    arrays of an environment, and the table of actions or None.
    """

    def __init__(self, structure: Structure):
        self._structure = structure
        self.rows, self._wheres = structure.rows, structure.wheres
        like = jtu.tree_unflatten(structure.treedef, structure.leaves)
        reset = lambda env: env.reset(jr.key(0))
        state, self.timestep = eqx.filter_eval_shape(reset, like)
        self.packing = Packing(state, like.sys.dt.dtype)
        # Plain values, which `torch.compile` supports.
        counts = (self.packing.numbers,), (self.packing.words,)
        self.shapes = *counts, tuple(self.timestep.obs.shape)
        self.number = torch_type(self.packing.dtype)
        each = self.begin, self.reset, self.step, self.unroll
        self.compiled = tuple(map(Compiled, each))
        self.poses = jax.jit(self._poses)

    def environment(self, fixed: Any, parameters: Sequence[Any]) -> AbstractEnv:
        """Return the environment with these parameters."""
        left = iter(fixed[0])
        is_array = lambda x: isinstance(x, jax.ShapeDtypeStruct)
        static = self._structure.leaves
        leaves = [next(left) if is_array(x) else x for x in static]
        env = jtu.tree_unflatten(self._structure.treedef, leaves)
        for where, value in zip(self._wheres, parameters, strict=True):
            env = eqx.tree_at(where, env, value)
        return env

    def begin(self, fixed, seed, *parameters):
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

    def reset(self, fixed, numbers, words, obs, mask, seed, *parameters):
        """Do the same for environments in `mask`; the others keep their state, and have
        no flags."""
        new = self.begin(fixed, seed, *parameters)
        no = jnp.zeros((self.rows, 1), bool)
        old = numbers, words, obs, no, no
        pick = lambda mask, new, old: jnp.where(mask, new, old)
        return tuple(jax.vmap(pick)(mask, x, y) for x, y in zip(new, old))

    def step(self, fixed, numbers, words, action, *parameters):
        """Compute `(numbers, words, action, *parameters) -> (numbers, words, obs,
        reward, terminated, truncated)`, the last three as columns."""
        env = self.environment(fixed, parameters)

        def one(numbers, words, action):
            state = self.packing.unpack(numbers, words)
            state, timestep = env.step(state, _action(fixed[1], action))
            return *self.packing.pack(state), *_told(timestep)

        return jax.vmap(one)(numbers, words, action)

    def unroll(self, fixed, numbers, words, actions, *parameters):
        """Run `step` for each of a sequence of actions; return observations, rewards
        and flags of all steps."""

        def step(carry, action):
            numbers, words, *told = self.step(fixed, *carry, action, *parameters)
            return (numbers, words), tuple(told)

        along = jnp.moveaxis(actions, 1, 0)
        (numbers, words), told = lax.scan(jax.checkpoint(step), (numbers, words), along)
        return numbers, words, *(jnp.moveaxis(x, 0, 1) for x in told)

    def unroll_policy(self, policy, length, fixed, numbers, words, obs, *rest):
        """Do the same with actions of a policy, which follow the other results; `rest`
        contains its weights and the parameters."""
        count = len(rest) - len(self._wheres)
        weights, parameters = rest[:count], rest[count:]

        def step(carry, _):
            numbers, words, obs = carry
            action = jax.vmap(lambda obs: policy(weights, obs))(obs)
            new = self.step(fixed, numbers, words, action, *parameters)
            return new[:3], (*new[2:], action)

        begin = numbers, words, obs
        (numbers, words, _), told = lax.scan(jax.checkpoint(step), begin, length=length)
        return numbers, words, *(jnp.moveaxis(x, 0, 1) for x in told)

    def _poses(self, fixed, state, parameters):
        """Return the robots and their coordinates, for images."""
        env = self.environment(fixed, parameters)

        def one(numbers, words):
            state = self.packing.unpack(numbers, words)
            return episode_robot(env, state), env.physics(state).q

        return jax.vmap(one)(*state)


@ft.lru_cache(_SHARED)
def _functions_of(structure: Structure) -> Functions:
    return Functions(structure)


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
