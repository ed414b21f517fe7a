"""Compiled programs of environments, which those of equal structure share, and images."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import torch
from jax import lax

from eqsim import AbstractEnv
from eqsim.envs import observation_array
from eqsim.render import Camera, camera_for, images
from eqsim.wrappers import episode_robot, next_episode

from ._arrays import Packing, to_jax, torch_type
from ._operator import Compiled, Operator


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
        observation_array(like, "`EqsimWrapper`")
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
        return self._begun(None, fixed, seed, parameters)

    def _begun(self, last, fixed, seed, parameters):
        """Do the same after episodes with these last states, if they are given."""
        env, key = self.environment(fixed, parameters), jr.key(0)
        for i in range(seed.shape[0]):
            key = jr.fold_in(key, seed[i])

        def one(key, last):
            if last is None:
                state, timestep = env.reset(key)
            else:
                last = self.packing.unpack(*lax.stop_gradient(last))
                state, timestep = next_episode(env, key, last)
            obs, _, *flags = _told(timestep)
            return *self.packing.pack(state), obs, *flags

        return jax.vmap(one)(jr.split(key, self.rows), last)

    def reset(self, fixed, numbers, words, obs, mask, seed, *parameters):
        """Do the same for environments in `mask`; the others keep their state, and have
        no flags."""
        new = self._begun((numbers, words), fixed, seed, parameters)
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


class Program:
    """Operators of many environments, one per row of their inputs and outputs.

    Environments that differ only in the values of arrays share compiled functions.

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
        structure, arrays = structure_of(env, wheres, rows)
        self._functions = functions = functions_of(structure)
        self.packing, self.timestep = functions.packing, functions.timestep
        self.shapes, self.number = functions.shapes, functions.number
        self.rows, self.poses = rows, functions.poses
        self._policies: dict[Any, Operator] = {}
        fixed = jax.device_put((arrays, table), device)
        operators = [Operator(compiled, fixed) for compiled in functions.compiled]
        self.begin, self.reset, self.step, self.unroll = operators

    def __deepcopy__(self, memo: dict) -> "Program":
        return self

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _rebuild, self._arguments

    def under(self, policy: Callable, key: Any, length: int) -> Operator:
        """Return `unroll_policy` with `policy(weights, obs)`; one for each key and
        length."""
        name = key, length
        if name not in self._policies:
            f = ft.partial(self._functions.unroll_policy, policy, length)
            self._policies[name] = Operator(Compiled(f), self.step.fixed)
        return self._policies[name]


def _rebuild(env, rows, wheres, table, place: tuple[str, int] | None) -> Program:
    """Create an unpickled program, on the device with the same platform and number."""
    device = None
    if place is not None:
        device = next(x for x in jax.devices(place[0]) if x.id == place[1])
    return Program(env, rows, wheres, table, device)


class Pictures:
    """Draws images of environments from their states.

    **Arguments:**

    - `program`: program of the environments.
    - `camera`, `width`, `height`: camera and size of an image.
    """

    def __init__(
        self, program: Program, camera: Camera | None, width: int, height: int
    ):
        self.shape = jax.ShapeDtypeStruct((height, width, 3), np.uint8)
        self._camera, self._size = camera, {"width": width, "height": height}
        self._program = program

    def __reduce__(self) -> tuple[type, tuple]:
        return Pictures, (self._program, self._camera, *self._size.values())

    def __call__(
        self, state: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Draw an image of each environment.

        **Raises:** `eqsim.render.NoOpenGL` if OpenGL is not available.
        """
        args = [*map(to_jax, state)], [*map(to_jax, parameters)]
        sys, q = self._program.poses(self._program.step.fixed, *args)
        if self._camera is None:
            self._camera = camera_for(jax.tree_util.tree_map(lambda x: x[0], sys))
        return torch.from_numpy(np.array(images(sys, q, self._camera, **self._size)))
