from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_key
from ..envs import AbstractEnv, check_action, ResetOptions, Timestep
from ..model.arrays import as_array
from ._priors import AbstractPrior
from ._wrapper import AbstractStateful, Lifetime, vector_size


class SkillsState(eqx.Module):
    """State of `Skills`. `key`: key from which the skill is drawn. `draws`: key for the
    resampling times. `count`: number of steps with this skill."""

    inner: Any
    key: PRNGKeyArray
    draws: PRNGKeyArray
    count: Int[Array, ""]


def _as_count(n: Any) -> Any:
    return jnp.asarray(n, jnp.int32) if isinstance(n, int) else n


class Skills(AbstractStateful):
    r"""Draws a skill $z$ from a prior in every episode, which the agent should follow.

    The observation becomes $(o, x, z)$ with the descriptor $x$, or $(o, z)$ if the
    environment has none. `timestep.descriptor` is $x$.

    **Arguments:**

    - `env`: the environment, whose observations are vectors.
    - `prior`: prior distribution of skills.
    - `resample_probability`: probability of drawing another skill after a step within
        an episode.
    - `least_steps`: smallest number of steps with the same skill.

    **Raises:** `ValueError` if observations are not vectors, or `env` resets itself;
    `TypeError` if `prior` is not a prior.

    ??? cite "Reference"
        Eysenbach et al., *Diversity is all you need*, 2019; Sharma et al.,
        *Dynamics-aware unsupervised discovery of skills*, 2020.
    """

    env: AbstractEnv
    prior: AbstractPrior
    resample_probability: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    least_steps: Int[Array, ""] = eqx.field(converter=_as_count, default=1)

    def __check_init__(self):
        if not isinstance(self.prior, AbstractPrior):
            raise TypeError(
                "`Skills.prior` must be a distribution of skills such as "
                f"`OneHotSkills(5)`, got {self.prior!r}."
            )
        vector_size(self, self.env)

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    def skill(self, state: SkillsState) -> Float[Array, " size"]:
        """Return the current skill."""
        return self.prior.sample(state.key)

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[SkillsState, Timestep]:
        check_key(key)
        key, key_skill, draws = jr.split(key, 3)
        inner, timestep = self.env.reset(key, options)
        state = SkillsState(inner, key_skill, draws, jnp.zeros((), jnp.int32))
        return state, self._report(state, timestep)

    def step(
        self, state: SkillsState, action: Float[Array, " nu"]
    ) -> tuple[SkillsState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        draws, key_chance, key_skill = jr.split(state.draws, 3)
        count = state.count + 1
        chance = jr.uniform(key_chance, (), self.resample_probability.dtype)
        another = (chance < self.resample_probability) & (count >= self.least_steps)
        # The last step of an episode keeps its skill.
        another = another & ~timestep.done
        key = jnp.where(another, key_skill, state.key)
        count = jnp.where(another, jnp.zeros_like(count), count)
        new = SkillsState(inner, key, draws, count)
        return new, self._report(new, timestep)

    def _report(self, state: SkillsState, timestep: Timestep) -> Timestep:
        parts = [self.skill(state)]
        if timestep.descriptor is not None:
            parts = [timestep.descriptor, *parts]

        def extend(obs):
            return jnp.concatenate([obs, *(x.astype(obs.dtype) for x in parts)])

        timestep = eqx.tree_at(lambda t: t.obs, timestep, extend(timestep.obs))
        if timestep.final_obs is None:
            return timestep
        # An environment that resets itself.
        final = extend(timestep.final_obs)
        return eqx.tree_at(lambda t: t.final_obs, timestep, final)
