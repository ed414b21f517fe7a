"""Dynamics-aware discovery of skills: skills whose effects are predictable.

`SkillDynamics` predict how the descriptor changes under a skill, `DADS` learns them and a SAC, and
the functions at the end are their loss and the intrinsic reward.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.bridges import check_count

from ..blocks.hyperparameters import as_scalar, same_precision, static
from ..blocks.networks import Learner, MLP
from ..blocks.policies import NormalMixture
from ..blocks.replay import Memory, scan_updates
from ..blocks.skill_space import log_density, SkillPolicy, SkillRow, SkillSpace
from .skill_agent import AbstractSkillAgent, SkillLearner


class SkillDynamics(eqx.Module):
    r"""$q(\Delta | x, z)$: how a descriptor $x$ changes in a step under a skill.

    A mixture of normal densities, of variance 1 or of one that is learned.

    **Arguments:**

    - `network`: network of the skill and the descriptor without its first `omitted` entries.
    - `components`: number of components of the mixture.
    - `unit`: true if variances are 1.
    """

    network: MLP
    omitted: int = eqx.field(static=True)
    components: int = eqx.field(static=True)
    unit: bool = eqx.field(static=True)

    def __call__(
        self,
        descriptor: Float[Array, " n"],
        skill: Float[Array, " k"],
        std_range: Float[Array, "2"],
    ) -> NormalMixture:
        """Return the density of the change.

        **Arguments:**

        - `std_range`: limits of deviations that are learned.
        """
        out = self.network(jnp.concatenate([descriptor[self.omitted :], skill]))
        logits, rest = out[: self.components], out[self.components :]
        if self.unit:
            mean = rest.reshape(self.components, -1)
            return NormalMixture(logits, mean, jnp.zeros_like(mean))
        mean, raw = jnp.split(rest.reshape(self.components, -1), 2, axis=1)
        std = jnp.clip(jax.nn.softplus(raw), *std_range)
        return NormalMixture(logits, mean, jnp.log(std))


def _pair(x: Any) -> Any:
    pair = isinstance(x, tuple | list | np.ndarray)
    return jnp.asarray(x, jnp.result_type(float)) if pair else x


class DADS(AbstractSkillAgent):
    r"""Dynamics-aware discovery of skills: skills whose effects are predictable
    and differ from one another.

    Skill dynamics $q(\Delta | x, z)$ predict the change $\Delta = x' - x$ of the
    descriptor, by the loss $-\mathrm{mean}\,[w \log q(\Delta|x, z)]$, and a SAC is
    rewarded where they do so better for its own skill than for others:

    $$r = \log n - \log \sum_{k=1}^{n}
    \exp\left[\log q(\Delta | x, z_k) - \log q(\Delta | x, z)\right]_{-50}^{50},$$

    with $z_k$ all skills, if they can be counted and `random_skills` is 0; otherwise
    $z$ and `random_skills` draws of the prior, in this update the same for all rows. So
    $r \le \log n$. The weights $w$ are 1, or
    $\mathrm{clip}(\pi(a|o, z) / \mu(a|o, z), 1 / \epsilon, \epsilon)$ with the policy
    $\mu$ that acted, as transitions in the replay buffer are old.

    `reach_goals` plans with the skill dynamics.

    Differences from the paper: SAC learns from a memory by fresh rewards, as in the
    second reference; where a task terminates the last change counts as any other, since
    it is that of the robot and not of a reset.

    **Arguments:** those of `AbstractSkillAgent`, and

    - `normalize_target`: true if $\Delta$ is normalized.
    - `omit_input_dynamics_dim`: number of leading entries of the descriptor that the
        dynamics do not see: 2 where these are x and y, and skills are to work
        everywhere.
    - `dynamics_update_freq`: SAC updates per update of the dynamics with the same batch; 0
        for none.
    - `dynamics_updates`: additional updates of the dynamics per iteration, each with a batch
        of its own.
    - `random_skills`: number of skills to compare with; 0 for all.
    - `components`: number of components of the mixture.
    - `identity_covariance`: true if their covariance is the identity.
    - `std_range`: range of learned standard deviations.
    - `importance_weights`: true if rows of the replay have importance weights.
    - `importance_clip`: bound $\epsilon$ of these weights.

    ??? cite "Reference"
        Sharma, Gu, Levine, Kumar, Hausman, *Dynamics-aware unsupervised discovery of
        skills*, 2020, equations 4 to 6, algorithm 1 and section 4; Sharma et al.,
        *Emergent real-world robotic skills via unsupervised off-policy reinforcement
        learning*, 2020, section IV. Options as in QDax (Chalumeau et al. 2024).
    """

    normalize_target: bool = static(True)
    omit_input_dynamics_dim: int = static(0)
    dynamics_update_freq: int = static(1)
    dynamics_updates: int = static(0)
    random_skills: int = static(0)
    components: int = static(4)
    identity_covariance: bool = static(True)
    importance_weights: bool = static(False)
    std_range: Float[Array, "2"] = eqx.field(converter=_pair, default=(0.3, 10.0))
    importance_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=10.0)

    def __check_init__(self):
        for name in (
            "omit_input_dynamics_dim",
            "dynamics_update_freq",
            "dynamics_updates",
            "random_skills",
        ):
            check_count(f"DADS.{name}", vars(self)[name], 0)
        check_count("DADS.components", self.components)
        if not self.dynamics_update_freq and not self.dynamics_updates:
            raise ValueError(
                "`DADS.dynamics_update_freq` and `dynamics_updates` are both 0, so the "
                "skill dynamics would never be trained. Set one of them."
            )

    def create_model(
        self, key: PRNGKeyArray, space: SkillSpace, dtype: Any
    ) -> SkillDynamics:
        _check_space(self, space)
        described = space.layout.described
        inputs = described - self.omit_input_dynamics_dim + space.prior.size
        each = described if self.identity_covariance else 2 * described
        sizes = inputs, *self.hidden, self.components * (1 + each)
        return SkillDynamics(
            MLP.create(key, sizes, dtype=dtype),
            self.omit_input_dynamics_dim,
            self.components,
            self.identity_covariance,
        )

    def change_statistics(self) -> bool:
        return self.normalize_target

    def learn(
        self, learner: SkillLearner, memory: Memory, key: PRNGKeyArray
    ) -> tuple[SkillLearner, dict[str, Array]]:
        """Learn from batches of the replay: first the dynamics by themselves,
        `dynamics_updates` times, then all."""
        key_dynamics, key_all = jr.split(key)

        def update_dynamics(dynamics, batch):
            dynamics, loss = self._update_dynamics(learner, dynamics, batch)
            return dynamics, {"dynamics_loss": loss}

        dynamics, first = scan_updates(
            self.sac,
            update_dynamics,
            learner.model,
            memory,
            key_dynamics,
            self.dynamics_updates,
        )
        learner = dataclasses.replace(learner, model=dynamics)
        learner, metrics = scan_updates(self.sac, self.update, learner, memory, key_all)
        both = {"updates", "nonfinite"} & metrics.keys() & first.keys()
        return learner, metrics | first | {x: metrics[x] + first[x] for x in both}

    @same_precision
    def update(
        self, learner: SkillLearner, batch: SkillRow
    ) -> tuple[SkillLearner, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of skill dynamics and SAC.

        **Arguments:**

        - `learner`: the learned part of an `OffPolicyState`.
        - `batch`: rows of the replay, with one axis.

        **Returns:** the new learner; `diversity`, the mean intrinsic reward; mean and standard
        deviation of what the skill dynamics predict, `dynamics_target` and
        `dynamics_target_std`; their loss; and the metrics of SAC.
        """
        key, key_others = jr.split(learner.key)
        steps = batch.transition
        change = jax.vmap(learner.space.change)(steps.obs, steps.next_obs)
        metrics = {"dynamics_target": jnp.mean(change)}
        metrics |= {"dynamics_target_std": jnp.std(change)}

        # Skill dynamics, in every `dynamics_update_freq`-th update.
        dynamics = learner.model
        if self.dynamics_update_freq:
            learn = lambda: self._update_dynamics(learner, learner.model, batch)
            skip = lambda: (
                learner.model,
                self._loss(learner, batch, learner.model.model),
            )
            due = learner.updates % self.dynamics_update_freq == 0
            every = self.dynamics_update_freq == 1
            dynamics, loss = learn() if every else lax.cond(due, learn, skip)
            metrics["dynamics_loss"] = loss

        # Policy, rewarded by the new dynamics.
        new, of_policy = self.improve_policy(learner, batch, dynamics, key_others)
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
        others = None if self.random_skills else space.prior.all()
        if others is None:
            draws = jr.split(key, self.random_skills)
            others = jax.vmap(space.prior.sample)(draws)
        return predictability(
            learner.model.model,
            jax.vmap(space.descriptor)(obs),
            jax.vmap(space.skill)(obs),
            jax.vmap(space.change)(obs, next_obs),
            others.astype(obs.dtype),
            self.std_range,
            itself=bool(self.random_skills),
        )

    @same_precision
    def log_likelihood(
        self,
        learner: SkillLearner,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        dynamics: SkillDynamics = learner.model.model
        predicted = dynamics(learner.space.descriptor(obs), skill, self.std_range)
        return predicted.log_prob(learner.space.change(obs, next_obs))

    @same_precision
    def predicted_change(
        self,
        learner: SkillLearner,
        descriptor: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, " n"]:
        """Return the mean change of a normalized descriptor in one step, in the units of
        the descriptor."""
        dynamics: SkillDynamics = learner.model.model
        predicted = dynamics(descriptor, skill, self.std_range)
        return learner.space.denormalized(predicted.expectation())

    def _update_dynamics(
        self, learner: SkillLearner, dynamics: Learner, batch: SkillRow
    ) -> tuple[Learner, Float[Array, ""]]:
        loss = lambda model: self._loss(learner, batch, model)
        dynamics, found = dynamics.apply_loss_fn(loss, self.optimizer())
        return dynamics, found["loss"]

    def _loss(
        self, learner: SkillLearner, batch: SkillRow, dynamics: SkillDynamics
    ) -> Float[Array, ""]:
        steps, space, weights = batch.transition, learner.space, None
        if self.importance_weights:
            policy = SkillPolicy(learner.sac.actor.model, space)
            now = jax.vmap(lambda o, a: log_density(policy, o, a))
            limit = jnp.log(self.importance_clip)
            ratio = now(steps.obs, steps.action) - batch.log_prob
            weights = jnp.exp(jnp.clip(ratio, -limit, limit))
        return dynamics_loss(
            dynamics,
            jax.vmap(space.descriptor)(steps.obs),
            jax.vmap(space.skill)(steps.obs),
            jax.vmap(space.change)(steps.obs, steps.next_obs),
            self.std_range,
            weights,
        )


def _check_space(agent: DADS, space: SkillSpace) -> None:
    described = space.layout.described
    if agent.omit_input_dynamics_dim > described:
        raise ValueError(
            f"`DADS.omit_input_dynamics_dim` is {agent.omit_input_dynamics_dim}, but "
            f"the descriptor has {described} components. Set it to 0, or to the number "
            "of leading components that hold the position of the robot."
        )
    if not agent.random_skills and space.prior.all() is None:
        raise ValueError(
            "`DADS.random_skills` is 0, which uses all skills, but "
            f"`{type(space.prior).__name__}` has infinitely many. Set it to a positive "
            "number, for instance 100."
        )


def dynamics_loss(
    dynamics: SkillDynamics,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    change: Float[Array, "rows n"],
    std_range: Float[Array, "2"],
    weights: Float[Array, " rows"] | None = None,
) -> Float[Array, ""]:
    r"""Compute the loss $-\mathrm{mean}\,[w \log q(\Delta|x, z)]$.

    **Arguments:**

    - `weights`: $w$ of each row; 1 if None.
    """
    log_prob = jax.vmap(lambda x, z, d: dynamics(x, z, std_range).log_prob(d))
    found = log_prob(descriptor, skill, change)
    return -jnp.mean(found if weights is None else weights * found)


def predictability(
    model: SkillDynamics,
    descriptor: Float[Array, "rows n"],
    skill: Float[Array, "rows k"],
    change: Float[Array, "rows n"],
    others: Float[Array, "skills k"],
    std_range: Float[Array, "2"],
    *,
    itself: bool,
) -> Float[Array, " rows"]:
    r"""Compute the reward of `DADS` for each row.

    **Arguments:**

    - `others`: skills to compare with.
    - `std_range`: limits of deviations that are learned.
    - `itself`: true if the row's own skill is to be compared with, too: not if it is
        among `others`.
    """
    density = lambda x, z: model(x, z, std_range)
    own = jax.vmap(lambda x, z, d: density(x, z).log_prob(d))(descriptor, skill, change)
    if descriptor.shape[1] == model.omitted:
        # Nothing but the skill is seen: one mixture per skill serves all rows.
        mixtures = jax.vmap(lambda z: density(descriptor[0], z))(others)
        per_row = lambda d: jax.vmap(lambda mixture: mixture.log_prob(d))(mixtures)
        found = jax.vmap(per_row)(change)
    else:
        per_row = lambda x, d: jax.vmap(lambda z: density(x, z).log_prob(d))(others)
        found = jax.vmap(per_row)(descriptor, change)
    off = jnp.clip(found - own[:, None], -50.0, 50.0)
    if itself:
        off = jnp.concatenate([off, jnp.zeros_like(off[:, :1])], axis=1)
    return jnp.log(float(off.shape[1])) - jax.nn.logsumexp(off, axis=1)
