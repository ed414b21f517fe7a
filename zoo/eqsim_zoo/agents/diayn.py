""""""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import AbstractPrior

from ..blocks.hyperparameters import as_scalar, cast_floats, static
from ..blocks.networks import Learner, MLP
from ..blocks.policies import Normal
from ..blocks.replay import scan_updates
from ..blocks.skill_space import SkillRow, SkillSpace, with_reward
from .skill_agent import AbstractSkillAgent, collect_skills, init_skills, SkillState


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
        std = least_std.astype(raw.dtype) + jax.nn.softplus(raw)
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

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SkillState:
        space = SkillSpace.create(
            self,
            env,
            full=self.descriptor_full_state,
            normalize_observations=self.sac.normalize_observations,
            normalize_changes=False,
        )
        *keys, key_model = jr.split(key, 4)
        dtype = env.action_range.dtype
        self = cast_floats(self, dtype)
        discrete = space.prior.all() is not None
        outputs = space.prior.size if discrete else 2 * space.prior.size
        sizes = space.layout.described, *self.hidden, outputs
        network = MLP.create(key_model, sizes, dtype=dtype)
        model = Learner.create(
            Discriminator(network, discrete), optax.adam(self.learning_rate)
        )
        return init_skills(self, jnp.stack(keys), env, space, model)

    def iterate(
        self, state: SkillState, env: AbstractEnv
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Collect steps, add them to the replay, and learn from batches of it."""
        self = cast_floats(self, state.sac.bounds.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        state, memory, report = collect_skills(self.sac, state, env, key_act)

        state = dataclasses.replace(state, key=key)
        key_learn = jr.split(key_learn)[1]
        state, metrics = scan_updates(self.sac, self.update, state, memory, key_learn)
        return dataclasses.replace(state, memory=memory), report | metrics

    def update(
        self, state: SkillState, batch: SkillRow
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of discriminator and SAC.

        **Arguments:**

        - `batch`: rows of the replay, with one axis.

        **Returns:** the new state; `diversity`, the mean intrinsic reward; loss and
        accuracy of the discriminator; and the metrics of SAC.
        """
        self = cast_floats(self, batch.log_prob.dtype)
        steps, space = batch.transition, state.world
        skill = jax.vmap(space.skill)(steps.obs)
        before = jax.vmap(space.descriptor)(steps.obs)
        after = jax.vmap(space.descriptor)(steps.next_obs)

        # Discriminator.
        taught = after if self.learn_on_next else before
        model, found = state.skills.apply_loss_fn(
            lambda model: discriminator_loss(model, taught, skill, self.least_std),
            optax.adam(self.learning_rate),
        )

        # Reward, by the new discriminator.
        state = dataclasses.replace(state, skills=model)
        diversity = self.diversity(state, steps.obs, steps.next_obs, state.key)
        returns = state.episodes.return_of(batch.episode)
        reward = self.mix(steps.reward, diversity, returns)

        # Policy.
        sac, of_sac = self.sac.update(state.sac, with_reward(space, steps, reward))
        new = dataclasses.replace(
            state,
            sac=sac,
            updates=(state.updates + 1) % 2**20,
            key=jr.split(state.key)[0],
        )
        metrics = {
            "diversity": jnp.mean(diversity),
            "discriminator_loss": found["loss"],
        }
        if space.prior.all() is not None:
            metrics["discriminator_accuracy"] = found["accuracy"]
        return new, metrics | of_sac

    def diversity(
        self,
        state: SkillState,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        space = state.world
        return diversity_reward(
            state.skills.model,
            space.prior,
            jax.vmap(space.descriptor)(next_obs if self.reward_on_next else obs),
            jax.vmap(space.skill)(obs),
            self.least_std.astype(obs.dtype),
            log_prior=self.log_prior,
        )

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
    prior: AbstractPrior,
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
