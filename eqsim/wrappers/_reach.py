from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_key
from ..envs import AbstractEnv, check_action, ResetOptions, Timestep
from ..model.arrays import as_array
from ._descriptors import AbstractDescriptor
from ._wrapper import AbstractStateful, check_env, layers, Lifetime, vector_size


class ReachState(eqx.Module):
    """State of `Reach`. `goal`: goal of the episode."""

    inner: Any
    goal: Float[Array, " ndescriptor"]


class Reach(AbstractStateful):
    r"""Draws a goal $g$ for the descriptor $x$ of the environment in every episode. The
    observation becomes a dictionary of `observation`, `achieved_goal` ($x$) and
    `desired_goal` ($g$). The reward is 0 for a step with $|x - g| \le$ `tolerance`,
    which terminates the episode, and -1 for all other steps. If the inner environment
    terminates, for example after a fall, the episode is truncated instead, because
    termination would be better than further negative rewards.

    **Arguments:**

    - `env`: an environment with a descriptor.
    - `tolerance`: accepted distance, in the units of the descriptor.
    - `goals`: lowest and highest goal of the uniform distribution; by default the range
        of the descriptor.

    **Raises:** `ValueError` if there is no descriptor, `goals` has the wrong shape,
    observations are not vectors, or `env` resets itself.

    ??? cite "Reference"
        Plappert et al., *Multi-goal reinforcement learning: challenging robotics
        environments and request for research*, 2018, section 2.
    """

    env: AbstractEnv
    tolerance: Float[Array, ""]
    goals: Float[Array, "ndescriptor 2"]

    def __init__(
        self,
        env: AbstractEnv,
        tolerance: Any = 0.1,
        goals: Any = None,
    ):
        check_env(self, env)
        self.env, self.tolerance = env, as_array(tolerance)
        described = _descriptor(env)
        self.goals = described.descriptor_range if goals is None else as_array(goals)

    def __check_init__(self):
        size = len(_descriptor(self.env).descriptor_names)
        if self.goals.shape != (size, 2):
            raise ValueError(
                f"`Reach.goals` must have shape ({size}, 2), the lowest and the "
                "highest goal for each component of the descriptor, got "
                f"{self.goals.shape}."
            )
        vector_size(self, self.env)

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[ReachState, Timestep]:
        check_key(key)
        key, key_goal = jr.split(key)
        inner, timestep = self.env.reset(key, options)
        low, high = self.goals.T
        part = jr.uniform(key_goal, low.shape, low.dtype)
        state = ReachState(inner, low + part * (high - low))
        return state, self._seen(state, timestep)

    def step(
        self, state: ReachState, action: Float[Array, " nu"]
    ) -> tuple[ReachState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        new = ReachState(inner, state.goal)
        timestep = self._seen(new, timestep)
        off = timestep.obs["achieved_goal"] - state.goal
        reached = jnp.sum(off**2) <= self.tolerance**2
        reward = reached.astype(timestep.reward.dtype) - 1.0
        where = lambda t: (t.reward, t.terms, t.terminated, t.truncated)
        # If the inner task terminates without reaching the goal, truncate: values are
        # bootstrapped.
        cut = (timestep.truncated | timestep.terminated) & ~reached
        parts = reward, {"reach": reward}, reached, cut
        return new, eqx.tree_at(where, timestep, parts)

    def _seen(self, state: ReachState, timestep: Timestep) -> Timestep:
        zero, achieved = jnp.zeros_like(timestep.reward), timestep.descriptor
        assert achieved is not None  # There is an `AbstractDescriptor` inside.
        dtype = timestep.reward.dtype
        obs = {
            "observation": timestep.obs,
            "achieved_goal": achieved.astype(dtype),
            "desired_goal": state.goal.astype(dtype),
        }
        where = lambda t: (t.obs, t.terms)
        return eqx.tree_at(where, timestep, (obs, {"reach": zero}))


def _descriptor(env: AbstractEnv) -> AbstractDescriptor:
    for layer in layers(env):
        if isinstance(layer, AbstractDescriptor):
            return layer
    raise ValueError(
        f"`Reach` needs a descriptor, but `{type(env).__name__}` has none. Wrap an "
        "environment that has one, such as `TorsoPosition(env)` or `ant_omni`."
    )
