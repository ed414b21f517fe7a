from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
from jaxtyping import Key

from ..envs import AbstractEnv
from ..model import System
from ..model.changes import changed_parameters, with_same_structure


def batch(
    env: AbstractEnv,
    randomize: Callable[[jax.Array, System], System],
    key: Key[jax.Array, " batch"],
) -> tuple[AbstractEnv, Any]:
    """Draw one robot per key, and batch only the parameters that `randomize` changes.

    Shared parameters keep their shape, so compiled programs load them once instead of
    once per environment.

    ```python
    robots, axes = randomize.batch(env, randomize.masses(0.5, 2.0), keys)
    states, _ = eqx.filter_vmap(lambda env, key: env.reset(key), in_axes=(axes, 0))(
        robots, keys_reset
    )
    trajectory = eqsim.rollout(robots, policy, keys_rollout, 100, env_axes=axes)
    ```

    **Arguments:**

    - `env`: environment of one robot.
    - `randomize`: function `(key, sys) -> sys`. A parameter counts as unchanged if the
        returned robot contains the identical array object.
    - `key`: one key per environment.

    **Returns:** the environment with batched parameters, and its axes: a tree like the
    environment with 0 for batched arrays and None elsewhere, for `env_axes` of
    `eqsim.rollout` and `in_axes` of `eqx.filter_vmap`.

    **Raises:** `ValueError` if `randomize` changes a shape, a type or the structure of the
    robot, or no parameter at all.
    """
    sys = env.sys

    def draw(one):
        new = randomize(one, sys)
        new = with_same_structure(sys, new, "The robot that `randomize` returns")
        return changed_parameters(sys, new)

    changed = jax.vmap(draw)(key)
    if not jtu.tree_leaves(changed):
        raise ValueError(
            "`randomize` returns the robot unchanged, so there is nothing to batch. "
            "Return a changed copy, for instance by `eqx.tree_at`."
        )
    is_none = lambda x: x is None
    leaf_axes = jtu.tree_map(
        lambda x: None if x is None else 0, changed, is_leaf=is_none
    )
    shared = jtu.tree_map(lambda _: None, env)
    axes = eqx.tree_at(lambda e: e.sys, shared, leaf_axes, is_leaf=is_none)
    return eqx.tree_at(lambda e: e.sys, env, eqx.combine(changed, sys)), axes
