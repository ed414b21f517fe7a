""""""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv

from ..blocks.hyperparameters import as_scalar, cast_floats
from ..blocks.networks import Learner, MLP
from ..blocks.replay import scan_updates
from ..blocks.skill_space import SkillRow, SkillSpace, with_reward
from .skill_agent import AbstractSkillAgent, collect_skills, init_skills, SkillState


class Representation(eqx.Module):
    r"""Embedding $\phi(x)$ of descriptors, and the dual variable of its constraint.

    **Arguments:**

    - `network`: network of the embedding.
    - `log_multiplier`: $\log \lambda$.
    """

    network: MLP
    log_multiplier: Float[Array, ""]

    def direction(
        self, skill: Float[Array, " k"], discrete: bool
    ) -> Float[Array, " k"]:
        r"""Return the direction of a skill: $(z - 1/K) K / (K - 1)$ for one of $K$
        skills, and $z / |z|$ for points."""
        if discrete:
            number = skill.shape[0]
            return (skill - 1.0 / number) * number / max(number - 1, 1)
        return skill / jnp.maximum(jnp.linalg.norm(skill), 1e-6)


class METRA(AbstractSkillAgent):
    r"""Metric-aware abstraction: skills that move as far as possible, in a latent space
    whose distances are bounded by numbers of steps.

    An embedding $\phi$ of the descriptor $x$ (in the paper, of the state) and a SAC that
    observes the skill $z$ maximize

    $$E\left[(\phi(x') - \phi(x)) \cdot d(z)\right] \quad \text{subject to} \quad
    |\phi(x') - \phi(x)|^2 \le 1,$$

    with the direction $d(z)$ of a skill: see `Representation.direction`. The intrinsic
    reward is the first term. The embedding ascends

    $$\mathrm{mean}\left[(\phi(x') - \phi(x)) \cdot d(z)
    + \lambda \min(\epsilon, 1 - |\phi(x') - \phi(x)|^2)\right],$$

    and $\log \lambda$ descends
    $\log \lambda\;\mathrm{mean} \min(\epsilon, 1 - |\phi(x') - \phi(x)|^2)$.

    Differences from the paper: descriptors; observations and descriptors may be
    normalized by running statistics, which changes the metric while they change; one
    batch for embedding and SAC.

    **Arguments:** those of `AbstractSkillAgent`, and

    - `slack`: slack $\epsilon$ of the constraint.
    - `initial_multiplier`: first value of $\lambda$.

    ??? cite "Reference"
        Park, Rybkin, Levine, *METRA: scalable unsupervised RL with metric-aware
        abstraction*, 2024, equations 6 to 9 and algorithm 1.
    """

    slack: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    initial_multiplier: Float[Array, ""] = eqx.field(converter=as_scalar, default=30.0)

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
        sizes = space.layout.described, *self.hidden, space.prior.size
        network = MLP.create(key_model, sizes, dtype=dtype)
        representation = Representation(network, jnp.log(self.initial_multiplier))
        model = Learner.create(representation, optax.adam(self.learning_rate))
        return init_skills(self, jnp.stack(keys), env, space, model)

    def iterate(
        self, state: SkillState, env: AbstractEnv
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Collect steps, add them to the replay, and learn from batches of it."""
        self = cast_floats(self, state.sac.bounds.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        state, memory, report = collect_skills(self.sac, state, env, key_act)
        state = dataclasses.replace(state, key=key)
        state, metrics = scan_updates(self.sac, self.update, state, memory, key_learn)
        return dataclasses.replace(state, memory=memory), report | metrics

    def update(
        self, state: SkillState, batch: SkillRow
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of embedding, dual variable and SAC.

        **Arguments:**

        - `batch`: rows of the replay, with one axis.

        **Returns:** the new state; `diversity`, the mean intrinsic reward; the mean squared
        `latent_distance` of a step; the `multiplier`; and the metrics of SAC.
        """
        self = cast_floats(self, batch.log_prob.dtype)
        steps, space = batch.transition, state.world
        skill = jax.vmap(space.skill)(steps.obs)
        here = jax.vmap(space.descriptor)(steps.obs)
        there = jax.vmap(space.descriptor)(steps.next_obs)
        discrete = space.prior.all() is not None

        # Embedding and dual variable.
        model, found = state.skills.apply_loss_fn(
            lambda model: metra_loss(model, here, there, skill, self.slack, discrete),
            optax.adam(self.learning_rate),
        )

        # Reward, by the new embedding.
        state = dataclasses.replace(state, skills=model)
        progress = self.diversity(state, steps.obs, steps.next_obs, state.key)
        returns = state.episodes.return_of(batch.episode)
        reward = self.mix(steps.reward, progress, returns)

        # Policy.
        sac, of_sac = self.sac.update(state.sac, with_reward(space, steps, reward))
        count = (state.updates + 1) % 2**20
        new = dataclasses.replace(state, sac=sac, updates=count)
        metrics = {
            "diversity": jnp.mean(progress),
            "representation_loss": found["loss"],
        }
        metrics |= {name: found[name] for name in ("latent_distance", "multiplier")}
        return new, metrics | of_sac

    def diversity(
        self,
        state: SkillState,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        space = state.world
        here, there = (jax.vmap(space.descriptor)(x) for x in (obs, next_obs))
        discrete = space.prior.all() is not None
        skill, model = jax.vmap(space.skill)(obs), state.skills.model
        return latent_progress(model, here, there, skill, discrete)[0]

    def log_likelihood(
        self,
        state: SkillState,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """Compute the progress of a step along the direction of a skill. It takes the
        place of a log-likelihood, as METRA has no probabilistic model."""
        space = state.world
        here, there = space.descriptor(obs)[None], space.descriptor(next_obs)[None]
        discrete = space.prior.all() is not None
        model: Representation = state.skills.model
        return latent_progress(model, here, there, skill[None], discrete)[0][0]


def latent_progress(
    model: Representation,
    descriptor: Float[Array, "rows n"],
    next_descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    discrete: bool,
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    r"""Compute the progress $(\phi(x') - \phi(x)) \cdot d(z)$ and the squared distance
    $|\phi(x') - \phi(x)|^2$ of each row."""
    embed = jax.vmap(model.network)
    change = embed(next_descriptor) - embed(descriptor)
    direction = jax.vmap(lambda z: model.direction(z, discrete))(skill)
    return jnp.sum(change * direction, axis=1), jnp.sum(change**2, axis=1)


def metra_loss(
    model: Representation,
    descriptor: Float[Array, "rows n"],
    next_descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    slack: Float[Array, ""],
    discrete: bool,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute a loss whose gradients are those of the objectives of embedding and dual
    variable, the mean squared `latent_distance`, and the `multiplier`."""
    rows = descriptor, next_descriptor, skill
    progress, square = latent_progress(model, *rows, discrete)
    margin = jnp.minimum(slack, 1.0 - square)
    multiplier = jnp.exp(model.log_multiplier)
    fixed = jax.lax.stop_gradient
    embedding = -jnp.mean(progress + fixed(multiplier) * margin)
    dual = model.log_multiplier * fixed(jnp.mean(margin))
    report = {"latent_distance": jnp.mean(square), "multiplier": multiplier}
    return embedding + dual, report
