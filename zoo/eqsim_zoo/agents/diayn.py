"""Diversity is all you need: skills that can be told apart by the states they visit."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.wrappers import AbstractSkillPrior

from ..blocks.hyperparameters import as_scalar, same_precision, static
from ..blocks.networks import MLP
from ..blocks.policies import Normal
from ..blocks.replay import Memory, scan_updates
from ..blocks.skill_space import SkillRow, SkillSpace
from .skill_agent import AbstractSkillAgent, SkillLearner


class Discriminator(eqx.Module):
    r"""Probability $q(z | x)$ of a skill given a descriptor.

    The network returns logits of finitely many skills, otherwise means and standard
    deviations of a normal density.
    """

    network: MLP
    counted: bool = eqx.field(static=True)

    def log_prob(
        self,
        descriptor: Float[Array, " n"],
        skill: Float[Array, " k"],
        least_std: Float[Array, ""],
    ) -> Float[Array, ""]:
        r"""Compute $\log q(z | x)$.

        **Arguments:**

        - `least_std`: smallest standard deviation.
        """
        out = self.network(descriptor)
        if self.counted:
            return skill @ jax.nn.log_softmax(out)
        mean, raw = jnp.split(out, 2)
        std = least_std + jax.nn.softplus(raw)
        return Normal(mean, jnp.log(std)).log_prob(skill)

    def guess(self, descriptor: Float[Array, " n"]) -> Float[Array, " k"]:
        """Return the most likely skill."""
        out = self.network(descriptor)
        if self.counted:
            return jax.nn.one_hot(jnp.argmax(out), out.shape[0], dtype=out.dtype)
        return jnp.split(out, 2)[0]


class DIAYN(AbstractSkillAgent):
    r"""Diversity is all you need: skills that can be distinguished by the states they
    visit.

    A discriminator $q$ guesses the skill $z$ from the descriptor $x$ (in the paper, from
    the state), by the loss $-\mathrm{mean} \log q(z|x)$, and a SAC that sees the
    observation and the skill is rewarded for making that easy:

    $$r = \log q(z | x') - \log p(z).$$

    Both follow from the lower bound $I(z; x) \ge E[\log q(z|x) - \log p(z)]$. If $K$
    skills are equally likely the reward is $\log K$ where the discriminator is sure, and
    0 where it has no idea. Where skills are points of a continuum $q$ is a normal
    density.

    Differences from the paper: the entropy temperature is learned as in SAC (the paper's
    is `SAC(learn_temperature=False, initial_temperature=0.1)`); descriptors, and priors of
    any kind; observations and descriptors may be normalized; rewards are computed by the
    newest discriminator whenever a transition is learned from; the policy keeps its skill
    for as many steps as `Skills` says.

    **Arguments:** those of `AbstractSkillAgent`, and

    - `reward_on_next`: true if the reward uses the descriptor after the action; else that
        before it.
    - `learn_on_next`: true if the discriminator learns from the descriptor after the action;
        else from that before it.
    - `log_prior`: true if $-\log p(z)$ is part of the reward.
    - `least_std`: smallest standard deviation of the normal density.

    ??? cite "Reference"
        Eysenbach, Gupta, Ibarz, Levine, *Diversity is all you need: learning skills
        without a reward function*, 2019, equations 2 and 3 and algorithm 1.
    """

    reward_on_next: bool = static(True)
    learn_on_next: bool = static(True)
    log_prior: bool = static(True)
    least_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)

    def create_model(
        self, key: PRNGKeyArray, space: SkillSpace, dtype: Any
    ) -> Discriminator:
        discrete = space.prior.all() is not None
        outputs = space.prior.size if discrete else 2 * space.prior.size
        sizes = space.layout.described, *self.hidden, outputs
        return Discriminator(MLP.create(key, sizes, dtype=dtype), discrete)

    def change_statistics(self) -> bool:
        return False

    def learn(
        self, learner: SkillLearner, memory: Memory, key: PRNGKeyArray
    ) -> tuple[SkillLearner, dict[str, Array]]:
        return scan_updates(self.sac, self.update, learner, memory, jr.split(key)[1])

    @same_precision
    def update(
        self, learner: SkillLearner, batch: SkillRow
    ) -> tuple[SkillLearner, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of discriminator and SAC.

        **Arguments:**

        - `learner`: the learned part of an `OffPolicyState`.
        - `batch`: rows of the replay, with one axis.

        **Returns:** the new learner; `diversity`, the mean intrinsic reward; loss and
        accuracy of the discriminator; and the metrics of SAC.
        """
        steps, space = batch.transition, learner.space
        key, key_reward = jr.split(learner.key)

        # Discriminator.
        taught = steps.next_obs if self.learn_on_next else steps.obs
        descriptor = jax.vmap(space.descriptor)(taught)
        skill = jax.vmap(space.skill)(steps.obs)
        loss = lambda model: discriminator_loss(
            model, descriptor, skill, self.least_std
        )
        discriminator, found = learner.model.apply_loss_fn(loss, self.optimizer())
        metrics = {"discriminator_loss": found["loss"]}
        if space.prior.all() is not None:
            metrics["discriminator_accuracy"] = found["accuracy"]

        # Policy, rewarded by the new discriminator.
        new, of_policy = self.improve_policy(learner, batch, discriminator, key_reward)
        return dataclasses.replace(new, key=key), metrics | of_policy

    @same_precision
    def diversity(
        self,
        learner: SkillLearner,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        space = learner.space
        return diversity_reward(
            learner.model.model,
            space.prior,
            jax.vmap(space.descriptor)(next_obs if self.reward_on_next else obs),
            jax.vmap(space.skill)(obs),
            self.least_std,
            log_prior=self.log_prior,
        )

    @same_precision
    def log_likelihood(
        self,
        learner: SkillLearner,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        asked = next_obs if self.reward_on_next else obs
        model: Discriminator = learner.model.model
        return model.log_prob(learner.space.descriptor(asked), skill, self.least_std)


def discriminator_loss(
    model: Discriminator,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    least_std: Float[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Compute the loss $-\mathrm{mean} \log q(z | x)$, and the `accuracy` of the most
    likely skill."""
    right = jax.vmap(model.guess)(descriptor) == skill
    accuracy = jnp.mean(jnp.all(right, axis=1).astype(skill.dtype))
    log_prob = jax.vmap(lambda x, z: model.log_prob(x, z, least_std))(descriptor, skill)
    return -jnp.mean(log_prob), {"accuracy": accuracy}


def diversity_reward(
    model: Discriminator,
    prior: AbstractSkillPrior,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    least_std: Float[Array, ""],
    *,
    log_prior: bool = True,
) -> Float[Array, " rows"]:
    r"""Compute $\log q(z | x) - \log p(z)$ of each row."""
    tell = lambda x, z: model.log_prob(x, z, least_std)
    found = jax.vmap(tell)(descriptor, skill)
    if not log_prior:
        return found
    return found - jax.vmap(prior.log_prob)(skill)
