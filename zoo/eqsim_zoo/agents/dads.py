"""Skill dynamics of DADS, and the reward that follows from them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.bridges import check_count

from ..blocks.hyperparameters import as_scalar, cast_floats, static
from ..blocks.networks import Learner, MLP
from ..blocks.policies import NormalMixture
from ..blocks.replay import scan_updates
from ..blocks.skill_space import (
    log_density,
    SkillPolicy,
    SkillRow,
    SkillSpace,
    with_reward,
)
from .skill_agent import AbstractSkillAgent, collect_skills, init_skills, SkillState


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
        std = jnp.clip(jax.nn.softplus(raw), *std_range.astype(raw.dtype))
        return NormalMixture(logits, mean, jnp.log(std))


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

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SkillState:
        space = SkillSpace.create(
            self,
            env,
            full=self.descriptor_full_state,
            normalize_observations=self.sac.normalize_observations,
            normalize_changes=self.normalize_target,
        )
        _check_space(self, space)
        *keys, key_model = jr.split(key, 4)
        dtype = env.action_range.dtype
        self = cast_floats(self, dtype)
        described = space.layout.described
        inputs = described - self.omit_input_dynamics_dim + space.prior.size
        each = described if self.identity_covariance else 2 * described
        sizes = inputs, *self.hidden, self.components * (1 + each)
        dynamics = SkillDynamics(
            MLP.create(key_model, sizes, dtype=dtype),
            self.omit_input_dynamics_dim,
            self.components,
            self.identity_covariance,
        )
        model = Learner.create(dynamics, optax.adam(self.learning_rate))
        return init_skills(self, jnp.stack(keys), env, space, model)

    def iterate(
        self, state: SkillState, env: AbstractEnv
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Collect steps, add them to the replay, and learn from batches of it: first the
        dynamics by themselves, `dynamics_updates` times, then all."""
        self = cast_floats(self, state.sac.bounds.dtype)
        key, key_act, key_learn = jr.split(state.key, 3)
        state, memory, report = collect_skills(self.sac, state, env, key_act)
        state = dataclasses.replace(state, key=key)
        key_dynamics, key_learn = jr.split(key_learn)

        def update_dynamics(skills, batch):
            skills, loss = self._update_dynamics(state, skills, batch)
            return skills, {"dynamics_loss": loss}

        number = self.dynamics_updates
        skills, studied = scan_updates(
            self.sac, update_dynamics, state.skills, memory, key_dynamics, number
        )
        state = dataclasses.replace(state, skills=skills)
        state, metrics = scan_updates(self.sac, self.update, state, memory, key_learn)
        counts = {"updates", "nonfinite"} & metrics.keys() & studied.keys()
        both = {name: metrics[name] + studied[name] for name in counts}
        state = dataclasses.replace(state, memory=memory)
        return state, report | metrics | studied | both

    def update(
        self, state: SkillState, batch: SkillRow
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Take one gradient step of skill dynamics and SAC.

        **Arguments:**

        - `batch`: rows of the replay, with one axis.

        **Returns:** the new state; `diversity`, the mean intrinsic reward; mean and standard
        deviation of what the skill dynamics predict, `dynamics_target` and
        `dynamics_target_std`; their loss; and the metrics of SAC.
        """
        self = cast_floats(self, batch.log_prob.dtype)
        key, key_others = jr.split(state.key)
        steps, space = batch.transition, state.world

        # Skill dynamics, in every `dynamics_update_freq`-th update.
        change = jax.vmap(space.change)(steps.obs, steps.next_obs)
        metrics = {"dynamics_target": jnp.mean(change)}
        metrics |= {"dynamics_target_std": jnp.std(change)}
        skills = state.skills
        if self.dynamics_update_freq:
            learn = lambda: self._update_dynamics(state, state.skills, batch)
            skip = lambda: (skills, self._loss(state, batch, skills.model)[0])
            due = state.updates % self.dynamics_update_freq == 0
            every = self.dynamics_update_freq == 1
            skills, loss = learn() if every else lax.cond(due, learn, skip)
            metrics["dynamics_loss"] = loss

        # Reward, by the new dynamics.
        state = dataclasses.replace(state, skills=skills)
        diversity = self.diversity(state, steps.obs, steps.next_obs, key_others)
        returns = state.episodes.return_of(batch.episode)
        reward = self.mix(steps.reward, diversity, returns)

        # Policy.
        sac, of_sac = self.sac.update(state.sac, with_reward(space, steps, reward))
        new = dataclasses.replace(
            state, sac=sac, updates=(state.updates + 1) % 2**20, key=key
        )
        return new, {"diversity": jnp.mean(diversity), **metrics, **of_sac}

    def diversity(
        self,
        state: SkillState,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        space = state.world
        others = None if self.random_skills else space.prior.all()
        if others is None:
            draws = jr.split(key, self.random_skills)
            others = jax.vmap(space.prior.sample)(draws)
        return predictability(
            state.skills.model,
            jax.vmap(space.descriptor)(obs),
            jax.vmap(space.skill)(obs),
            jax.vmap(space.change)(obs, next_obs),
            others.astype(obs.dtype),
            self.std_range.astype(obs.dtype),
            itself=bool(self.random_skills),
        )

    def log_likelihood(
        self,
        state: SkillState,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        model: SkillDynamics = state.skills.model
        found = model(state.world.descriptor(obs), skill, self.std_range)
        return found.log_prob(state.world.change(obs, next_obs))

    def _update_dynamics(
        self, state: SkillState, skills: Learner, batch: SkillRow
    ) -> tuple[Learner, Float[Array, ""]]:
        skills, found = skills.apply_loss_fn(
            lambda model: self._loss(state, batch, model),
            optax.adam(self.learning_rate),
        )
        return skills, found["loss"]

    def _loss(
        self, state: SkillState, batch: SkillRow, model: SkillDynamics
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        steps, world = batch.transition, state.world

        def log_prob(obs, next_obs):
            seen = world.descriptor(obs), world.skill(obs)
            found = model(*seen, self.std_range)
            return found.log_prob(world.change(obs, next_obs))

        found = jax.vmap(log_prob)(steps.obs, steps.next_obs)
        if self.importance_weights:
            policy = SkillPolicy(state.sac.actor.model, world)
            now = jax.vmap(lambda o, a: log_density(policy, o, a))
            limit = jnp.log(self.importance_clip)
            ratio = now(steps.obs, steps.action) - batch.log_prob
            found = found * jnp.exp(jnp.clip(ratio, -limit, limit))
        return -jnp.mean(found), {}


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
