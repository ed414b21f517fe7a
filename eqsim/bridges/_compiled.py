import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from ..envs import AbstractEnv


class CompiledEnv:
    """Compiled functions of an environment, for libraries that call one step at a time.

    Passing a tree of modules to a compiled function is slow, so the environment is
    flattened once. Environments that differ only in values share compiled programs.

    Pickling and copying keep the environment; an unpickled object compiles again.

    **Arguments:**

    - `env`: the environment.

    **Attributes:**

    - `arrays`: array leaves of the environment.

    !!! example

        ```python
        compiled = CompiledEnv(eqsim.make("point_mass"))
        state, timestep = compiled(lambda env, key: env.reset(key), jax.random.key(0))
        ```
    """

    def __init__(self, env: AbstractEnv):
        self._env = env
        leaves, treedef = jtu.tree_flatten(env)
        self.arrays = [x for x in leaves if eqx.is_array(x)]
        static = tuple(_ARRAY if eqx.is_array(x) else x for x in leaves)
        self._static = _Static(treedef, static)

    def __call__(self, function: Callable, *args: Any) -> Any:
        """Call `function(env, *args)`, compiled once for each function and shapes."""
        return _call(function, self._static, self.arrays, *args)

    def __reduce__(self) -> tuple[type, tuple]:
        # The cached hash is valid only in this process.
        return CompiledEnv, (self._env,)


_ARRAY = object()


class _Static:
    """Parts of an environment that are not arrays, with a cached hash."""

    def __init__(self, treedef: Any, leaves: tuple):
        self.treedef, self.leaves = treedef, leaves
        self._hash = hash((treedef, leaves))

    def env(self, arrays: Sequence[Any]) -> AbstractEnv:
        left = iter(arrays)
        leaves = [next(left) if x is _ARRAY else x for x in self.leaves]
        return jtu.tree_unflatten(self.treedef, leaves)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Static) and (self.treedef, self.leaves) == (
            other.treedef,
            other.leaves,
        )


@ft.partial(jax.jit, static_argnums=(0, 1))
def _call(function: Callable, static: _Static, arrays: list, *args: Any) -> Any:
    return function(static.env(arrays), *args)
