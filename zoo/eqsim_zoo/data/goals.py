"""Hindsight relabelling: goals drawn from the states that a dataset reached."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, static
from ..blocks.observations import is_image
from .dataset import Dataset
from .packing import is_host, take


OBSERVATION = "observation"
ACHIEVED = "achieved_goal"
DESIRED = "desired_goal"


class Hindsight(eqx.Module):
    r"""Distribution of hindsight goals, a mixture of three kinds: the next state of the
    step itself (`current`); that of a step $k \ge 0$ steps later in its trajectory
    (`trajectory`), with probability $(1 - \gamma) \gamma^k$ or uniformly; that of any step
    of the dataset (`random`).

    **Arguments:**

    - `geometric`: true for the geometric distribution of $k$, false for the uniform one.
    - `current`, `trajectory`, `random`: weights of the three kinds of goals.
    - `discount`: discount $\gamma$.
    - `tolerance`: distance below which a goal counts as reached; 0 requires equality.

    ??? cite "Reference"
        Andrychowicz et al., *Hindsight experience replay*, 2017; Park et al., *OGBench:
        benchmarking offline goal-conditioned RL*, 2024, appendix C.
    """

    geometric: bool = static(True)
    current: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    trajectory: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    random: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.3)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    tolerance: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def draw(
        self, key: PRNGKeyArray, data: Dataset, index: Int[Array, " n"]
    ) -> Int[Array, " n"]:
        """Draw, for each step, the index of the step whose next state is its goal."""
        index = jnp.asarray(index, data.last.dtype)
        key_kind, key_far, key_any = jr.split(key, 3)
        shape, dtype = index.shape, data.reward.dtype
        weights = jnp.stack([self.current, self.trajectory, self.random])
        kind = jr.categorical(key_kind, jnp.log(weights), shape=shape)
        uniform = jr.uniform(key_far, shape, dtype, jnp.finfo(dtype).tiny, 1.0)
        most = (data.last[index] - index).astype(dtype)
        if self.geometric:
            far = jnp.floor(jnp.log(uniform) / jnp.log(self.discount.astype(dtype)))
        else:
            far = jnp.floor(uniform * (most + 1.0))
        later = index + jnp.clip(far, 0.0, most).astype(index.dtype)
        anywhere = jr.randint(key_any, shape, 0, len(data), index.dtype)
        return jnp.where(kind == 0, index, jnp.where(kind == 1, later, anywhere))


def check_hindsight(hindsight: Hindsight) -> None:
    """Raise `ValueError` if weights or discount are out of range."""
    names = "current", "trajectory", "random"
    weights = np.asarray([float(vars(hindsight)[name]) for name in names])
    if not np.all(weights >= 0.0) or not weights.sum() > 0.0:
        told = ", ".join(f"`{n}` {w:g}" for n, w in zip(names, weights))
        raise ValueError(
            f"The weights of `Hindsight` are {told}; expected non-negative numbers with a "
            "positive sum."
        )
    discount = float(hindsight.discount)
    if not 0.0 < discount < 1.0:
        raise ValueError(
            f"`Hindsight.discount` is {discount:g}; expected a number between 0 and 1. Use "
            "`geometric=False` for a uniform distribution over later steps."
        )


class GoalData(eqx.Module):
    """A dataset relabelled with goals: observations are dictionaries of `observation` and
    `desired_goal`.

    A step that reaches its goal has reward 0 and is terminated; any other step has
    reward -1. Goals are values of `achieved_goal` where observations have that key, whole
    observations otherwise.

    **Arguments:**

    - `data`: dataset.
    - `hindsight`: distribution of goals.
    """

    data: Dataset
    hindsight: Hindsight

    def sample(self, key: PRNGKeyArray, number: int) -> Transition:
        """Draw steps with replacement, and a goal for each."""
        key_step, key_goal = jr.split(key)
        data = self.data
        index = jr.randint(key_step, (number,), 0, len(data), data.at.dtype)
        return self.rows(index, self.hindsight.draw(key_goal, data, index))

    def rows(self, index: Int[Array, " n"], goal: Int[Array, " n"]) -> Transition:
        """Return steps by index, with goals given by the index of the step that reaches them."""
        steps, goal = self.data.rows(index), jnp.asarray(goal, self.data.at.dtype)
        target = goal_of(take(self.data.frames, self.data.at[goal] + 1))
        reached = self._reached(goal_of(steps.next_obs), target)
        with_goal = lambda obs: {OBSERVATION: observation_of(obs), DESIRED: target}
        reward = reached.astype(steps.reward.dtype) - 1.0
        over = steps.done & ~reached
        return Transition(
            with_goal(steps.obs),
            steps.action,
            reward,
            with_goal(steps.next_obs),
            reached,
            over,
        )

    def vectors(self) -> dict[str, Any]:
        """Return all observations and goals that are vectors."""
        at, frames = self.data.at, _vectors(self.data.frames)
        out = {}
        if _has(frames, observation_of):
            out[OBSERVATION] = take(observation_of(frames), at)
        if _has(frames, goal_of):
            out[DESIRED] = take(goal_of(frames), at + 1)
        return out

    def _reached(self, achieved: Any, goal: Any) -> Array:
        off = achieved.astype(self.data.reward.dtype) - goal.astype(
            self.data.reward.dtype
        )
        square = jnp.sum(off.reshape(off.shape[0], -1) ** 2, axis=1)
        return square <= self.hindsight.tolerance.astype(square.dtype) ** 2


def observation_of(obs: Any) -> Any:
    """Return the part of an observation without goals."""
    return _part(obs, OBSERVATION)


def goal_of(obs: Any) -> Any:
    """Return the goal that an observation achieves."""
    return _part(obs, ACHIEVED)


def _part(obs: Any, name: str) -> Any:
    if not isinstance(obs, dict):
        return obs
    if name not in obs:
        raise ValueError(
            f"Observations {sorted(obs)} have no {name!r}; expected a single array, or "
            f"{OBSERVATION!r} and {ACHIEVED!r}."
        )
    return obs[name]


def _vectors(frames: Any) -> Any:
    """Replace images by None."""
    vector = lambda x: None if is_image((x.array if is_host(x) else x).shape[1:]) else x
    return jtu.tree_map(vector, frames, is_leaf=is_host)


def _has(frames: Any, part: Any) -> bool:
    return part(frames) is not None
