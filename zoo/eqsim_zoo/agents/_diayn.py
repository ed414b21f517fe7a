from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import AbstractPrior

from ..blocks import as_scalar, Learner, MLP, Normal, Replay, static, World
from ._skill_agent import AbstractSkillAgent, create_network, SkillRow, SkillState


class Discriminator(eqx.Module):
    r"""$q(z | x)$: of which skill a descriptor tells.

    For skills that can be counted it gives their logits, and otherwise means and
    deviations of normal numbers.
    """

    network: MLP
    counted: bool = eqx.field(static=True)

    def log_prob(
        self,
        descriptor: Float[Array, " n"],
        skill: Float[Array, " k"],
        least_std: Float[Array, ""],
    ) -> Float[Array, ""]:
        r"""$\log q(z | x)$.

        **Arguments:**

        - `least_std`: deviations are no smaller.
        """
        out = self.network(descriptor)
        if self.counted:
            return skill @ jax.nn.log_softmax(out)
        mean, raw = jnp.split(out, 2)
        std = least_std.astype(raw.dtype) + jax.nn.softplus(raw)
        return Normal(mean, jnp.log(std)).log_prob(skill)

    def guess(self, descriptor: Float[Array, " n"]) -> Float[Array, " k"]:
        """The likeliest skill."""
        out = self.network(descriptor)
        if self.counted:
            return jax.nn.one_hot(jnp.argmax(out), out.shape[0], dtype=out.dtype)
        return jnp.split(out, 2)[0]


class DIAYN(AbstractSkillAgent):
    r"""Diversity is all you need: skills that visit states by which they are told apart.

    A discriminator $q$ guesses the skill $z$ from the descriptor $x$ (in the paper, from
    the state), by the loss $-\mathrm{mean} \log q(z|x)$, and a SAC that sees the
    observation and the skill is rewarded for making that easy:

    $$r = \log q(z | x') - \log p(z).$$

    Both follow from the lower bound $I(z; x) \ge E[\log q(z|x) - \log p(z)]$. If $K$
    skills are equally likely the reward is $\log K$ where the discriminator is sure, and
    0 where it has no idea. Where skills are points of a continuum $q$ is a normal
    density.

    Differences from the paper: descriptors, and priors of any kind; observations and
    descriptors may be normalized; the reward is made anew, by the newest discriminator,
    whenever a transition is learned from; the policy keeps its skill for as many steps
    as `Skills` says.

    **Arguments:** those of `AbstractSkillAgent`, and

    - `reward_on_next`, `learn_on_next`: whether the discriminator is asked, and taught,
        about the descriptor after the action, or about that before it.
    - `log_prior`: whether $-\log p(z)$ is part of the reward.
    - `least_std`: of the normal density.

    ??? cite "Reference"
        Eysenbach, Gupta, Ibarz, Levine, *Diversity is all you need: learning skills
        without a reward function*, 2019, equations 2 and 3 and algorithm 1.
    """

    reward_on_next: bool = static(True)
    learn_on_next: bool = static(True)
    log_prior: bool = static(True)
    least_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)

    def create_world(self, env: AbstractEnv) -> World:
        return World.create(
            self,
            env,
            full=self.descriptor_full_state,
            normalize_observations=self.sac.normalize_observations,
            normalize_changes=False,
        )

    def create_skills(self, key: PRNGKeyArray, world: World, dtype: Any) -> Learner:
        counted = world.prior.all() is not None
        outputs = world.prior.size if counted else 2 * world.prior.size
        sizes = world.layout.described, outputs
        network = create_network(self, key, *sizes, dtype)
        return Learner.create(
            Discriminator(network, counted), optax.adam(self.learning_rate)
        )

    def study(
        self, state: SkillState, replay: Replay, key: PRNGKeyArray
    ) -> tuple[SkillState, dict[str, Array]]:
        return state, {}

    def log_likelihood(
        self,
        state: SkillState,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        asked = next_obs if self.reward_on_next else obs
        model: Discriminator = state.skills.model
        return model.log_prob(state.world.descriptor(asked), skill, self.least_std)

    def judge(
        self, state: SkillState, batch: SkillRow, key: PRNGKeyArray
    ) -> tuple[Learner, Float[Array, " rows"], dict[str, Array]]:
        steps, world = batch.transition, state.world
        skill = jax.vmap(world.skill)(steps.obs)
        before = jax.vmap(world.descriptor)(steps.obs)
        after = jax.vmap(world.descriptor)(steps.next_obs)
        taught = after if self.learn_on_next else before

        def loss(model):
            right = jax.vmap(model.guess)(taught) == skill
            accuracy = jnp.mean(jnp.all(right, axis=1).astype(skill.dtype))
            tell = lambda x, z: model.log_prob(x, z, self.least_std)
            log_prob = jax.vmap(tell)(taught, skill)
            return -jnp.mean(log_prob), {"accuracy": accuracy}

        learner, metrics = state.skills.apply_loss_fn(
            loss, optax.adam(self.learning_rate)
        )
        asked = after if self.reward_on_next else before
        reward = diversity_reward(
            learner.model,
            world.prior,
            asked,
            skill,
            self.least_std,
            log_prior=self.log_prior,
        )
        report = {"discriminator_loss": metrics["loss"]}
        if world.prior.all() is not None:
            report["discriminator_accuracy"] = metrics["accuracy"]
        return learner, reward, report


def diversity_reward(
    model: Discriminator,
    prior: AbstractPrior,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    least_std: Float[Array, ""],
    *,
    log_prior: bool = True,
) -> Float[Array, " rows"]:
    r"""$\log q(z | x) - \log p(z)$ of each row."""
    tell = lambda x, z: model.log_prob(x, z, least_std)
    found = jax.vmap(tell)(descriptor, skill)
    if not log_prior:
        return found
    return found - jax.vmap(prior.log_prob)(skill)
