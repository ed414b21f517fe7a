"""The reward of an environment as a cost."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..envs import AbstractEnv
from ..model.arrays import as_array
from ._cost import AbstractCost, NOT_NEGATIVE, root_weight


class Reward(AbstractCost):
    r"""The negative reward of an environment, as a sum of squares.

    A step costs $\mathrm{softplus}(c - r)$ with $c$ an upper bound of the reward $r$, and
    `termination` where the task ends. The cost at the end is zero. Only what is
    differentiable of a reward guides `ILQR`; planners that draw plans follow all of it.

    **Arguments:**

    - `env`: the environment; its state is a `State`. Its robot is that of the problem.
    - `upper`: $c$; about the best reward of a step.
    - `termination`: cost of a step that ends the task.
    - `action_weight`: weight of half the squared action; keeps plans unique.
    """

    env: AbstractEnv
    upper: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    termination: Float[Array, ""] = eqx.field(converter=as_array, default=10.0)
    action_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1e-3)

    def __check_init__(self):
        for name in ("termination", "action_weight"):
            check_numbers(f"Reward.{name}", vars(self)[name], *NOT_NEGATIVE)

    def stage(self, sys: Any, state: Any, action: Float[Array, " nu"]):
        env = eqx.tree_at(lambda env: env.sys, self.env, sys)
        _, timestep = env.step(state, action)
        dtype = action.dtype
        missing = jax.nn.softplus(self.upper.astype(dtype) - timestep.reward)
        ends = jnp.where(timestep.terminated, self.termination.astype(dtype), 0.0)
        terms = jnp.sqrt(2.0 * jnp.stack([missing, ends + 1e-12]))
        weight = root_weight(self.action_weight.astype(dtype))
        return jnp.concatenate([terms, weight * action])

    def terminal(self, sys: Any, state: Any):
        del sys
        return jnp.zeros(1, state.q.dtype)
