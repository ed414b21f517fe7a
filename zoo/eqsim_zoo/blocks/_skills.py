"""Blocks of skill discovery: transitions under a skill, and their rewards."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._hyperparameters import as_scalar
from ._ranges import check_ranges
from ._replay import Transition
from ._skill_observations import SkillPolicy, SkillSpace


# Actions are kept from the bounds by it, where their density is infinite.
_EDGE = 1e-6


class SkillRow(eqx.Module):
    """A transition under a skill, with any leading axes.

    **Arguments:**

    - `transition`: transition with observations of `Skills`, and actions between -1 and 1.
    - `log_prob`: logarithm of the density with which the action was drawn.
    - `episode`: index of its episode in `Episodes`.
    """

    transition: Transition
    log_prob: Float[Array, "..."]
    episode: Int[Array, "..."]


class Mix(eqx.Module):
    r"""Combination of task reward and intrinsic reward,

    $$r = w_r\,r_\mathrm{task} + w_z\,r_z\,[R \ge R^* - \epsilon],$$

    with the task return $R$ of the whole episode. The bracket is 0 until the episode has
    ended. By default the bracket is always 1, and the task reward is ignored.

    **Arguments:**

    - `task`: weight $w_r$ of the task reward.
    - `diversity`: weight $w_z$ of the intrinsic reward.
    - `target_return`: return $R^*$ of a good episode; minus infinity for any return.
    - `margin`: tolerance $\epsilon$ of that return.

    ??? cite "Reference"
        Kumar, Kumar, Levine, Finn, *One solution is not all you need: few-shot
        extrapolation via structured MaxEnt RL*, 2020, algorithm 1: SMERL.
    """

    task: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    diversity: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    target_return: Float[Array, ""] = eqx.field(converter=as_scalar, default=-jnp.inf)
    margin: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def __check_init__(self):
        check_ranges(self)

    def __call__(
        self,
        reward: Float[Array, "*rows"],
        diversity: Float[Array, "*rows"],
        returns: Float[Array, "*rows"],
    ) -> Float[Array, "*rows"]:
        """Combine rewards.

        **Arguments:**

        - `reward`, `diversity`: task reward and intrinsic reward of each step.
        - `returns`: task return of its episode.
        """
        good = returns >= self.target_return - self.margin
        return self.task * reward + self.diversity * jnp.where(good, diversity, 0.0)


def with_reward(
    space: SkillSpace, steps: Transition, reward: Float[Array, " rows"]
) -> Transition:
    """Return transitions for a skill-conditioned policy, with another reward.

    The reward is a constant in derivatives. The next observation keeps the skill of the
    step, so that a change of skill acts like a time limit.
    """
    skill = jax.vmap(space.skill)(steps.obs)
    after = jax.vmap(space.with_skill)(steps.next_obs, skill)
    seen = jax.vmap(space.input)
    return Transition(
        seen(steps.obs),
        steps.action,
        jax.lax.stop_gradient(reward),
        seen(after),
        steps.terminated,
        steps.truncated,
    )


def log_density(
    policy: SkillPolicy, obs: Float[Array, " n"], action: Float[Array, " nu"]
) -> Float[Array, ""]:
    """Compute the log-density of an action between -1 and 1, which is moved off the
    bounds."""
    inside = jnp.clip(action, -1.0 + _EDGE, 1.0 - _EDGE)
    return policy(obs).log_prob(jnp.arctanh(inside))
