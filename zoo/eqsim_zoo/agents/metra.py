"""Metric-aware abstraction: skills that move far in a latent space."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks.hyperparameters import as_scalar, same_precision
from ..blocks.networks import MLP
from ..blocks.replay import Memory, scan_updates
from ..blocks.skill_space import SkillRow, SkillSpace
from .skill_agent import AbstractSkillAgent, SkillLearner


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

    def create_model(
        self, key: PRNGKeyArray, space: SkillSpace, dtype: Any
    ) -> Representation:
        sizes = space.layout.described, *self.hidden, space.prior.size
        log_multiplier = jnp.log(self.initial_multiplier.astype(dtype))
        return Representation(MLP.create(key, sizes, dtype=dtype), log_multiplier)

    def change_statistics(self) -> bool:
        return False

    def learn(
        self, learner: SkillLearner, memory: Memory, key: PRNGKeyArray
    ) -> tuple[SkillLearner, dict[str, Array]]:
        return scan_updates(self.sac, self.update, learner, memory, key)

    @same_precision
    def update(
        self, learner: SkillLearner, batch: SkillRow
    ) -> tuple[SkillLearner, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of embedding, dual variable and SAC.

        **Arguments:**

        - `learner`: the learned part of an `OffPolicyState`.
        - `batch`: rows of the replay, with one axis.

        **Returns:** the new learner; `diversity`, the mean intrinsic reward; the mean squared
        `latent_distance` of a step; the `multiplier`; and the metrics of SAC.
        """
        steps, space = batch.transition, learner.space

        # Embedding and dual variable.
        skill = jax.vmap(space.skill)(steps.obs)
        here = jax.vmap(space.descriptor)(steps.obs)
        there = jax.vmap(space.descriptor)(steps.next_obs)
        discrete = space.prior.all() is not None
        loss = lambda model: metra_loss(model, here, there, skill, self.slack, discrete)
        representation, found = learner.model.apply_loss_fn(loss, self.optimizer())
        metrics = {"representation_loss": found["loss"]}
        metrics |= {name: found[name] for name in ("latent_distance", "multiplier")}

        # Policy, rewarded by the new embedding.
        new, of_policy = self.improve_policy(
            learner, batch, representation, learner.key
        )
        return new, metrics | of_policy

    @same_precision
    def diversity(
        self,
        learner: SkillLearner,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        space = learner.space
        here, there = (jax.vmap(space.descriptor)(x) for x in (obs, next_obs))
        discrete = space.prior.all() is not None
        skill, model = jax.vmap(space.skill)(obs), learner.model.model
        return latent_progress(model, here, there, skill, discrete)[0]

    @same_precision
    def log_likelihood(
        self,
        learner: SkillLearner,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """Compute the progress of a step along the direction of a skill. It takes the
        place of a log-likelihood, as METRA has no probabilistic model."""
        space = learner.space
        here, there = space.descriptor(obs)[None], space.descriptor(next_obs)[None]
        discrete = space.prior.all() is not None
        model: Representation = learner.model.model
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
