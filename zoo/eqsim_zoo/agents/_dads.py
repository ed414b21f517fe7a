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

from ..blocks import (
    as_scalar,
    Learner,
    MLP,
    NormalMixture,
    Replay,
    SkillPolicy,
    static,
    World,
)
from ._skill_agent import (
    AbstractSkillAgent,
    batch_of,
    create_network,
    log_density,
    SkillRow,
    SkillState,
)


def _pair(x: Any) -> Any:
    pair = isinstance(x, tuple | list | np.ndarray)
    return jnp.asarray(x, jnp.result_type(float)) if pair else x


class SkillDynamics(eqx.Module):
    r"""$q(\Delta | x, z)$: how a descriptor $x$ changes in a step under a skill.

    A mixture of normal densities, of variance 1 or of one that is learned.

    **Arguments:**

    - `network`: of the descriptor, without the first `omitted` numbers, and the skill.
    - `components`: of the mixture.
    - `unit`: whether variances are 1.
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
        """The density of the change.

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


class DADS(AbstractSkillAgent):
    r"""Dynamics-aware discovery of skills: skills whose effects can be foretold, and
    which differ from one another.

    Skill dynamics $q(\Delta | x, z)$ foretell the change $\Delta = x' - x$ of the
    descriptor, by the loss $-\mathrm{mean}\,[w \log q(\Delta|x, z)]$, and a SAC is
    rewarded where they do so better for its own skill than for others:

    $$r = \log n - \log \sum_{k=1}^{n}
    \exp\left[\log q(\Delta | x, z_k) - \log q(\Delta | x, z)\right]_{-50}^{50},$$

    with $z_k$ all skills, if they can be counted and `random_skills` is 0; otherwise
    $z$ and `random_skills` draws of the prior, in this update the same for all rows. So
    $r \le \log n$. The weights $w$ are 1, or
    $\mathrm{clip}(\pi(a|o, z) / \mu(a|o, z), 1 / \epsilon, \epsilon)$ with the policy
    $\mu$ that acted, as transitions out of a memory are old.

    What was foretold can be planned with: see `reach_goals`.

    Differences from the paper: SAC learns from a memory by fresh rewards, as in the
    second reference; where a task terminates the last change counts as any other, since
    it is that of the robot and not of a reset.

    **Arguments:** those of `AbstractSkillAgent`, and

    - `normalize_target`: whether $\Delta$ is normalized.
    - `omit_input_dynamics_dim`: how many numbers of the descriptor, from the first one
        on, the dynamics do not see: 2 where these are x and y, and skills are to work
        everywhere.
    - `dynamics_update_freq`: the dynamics learn in every so many-th update, with the same
        batch; 0: in none.
    - `dynamics_updates`: steps of the dynamics per iteration besides, each with a batch
        of its own.
    - `random_skills`: number of skills to compare with; 0 for all.
    - `components`, `identity_covariance`: of the mixture.
    - `std_range`: of deviations that are learned.
    - `importance_weights`: whether there are weights. `importance_clip`: $\epsilon$.

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
            if vars(self)[name] < 0:
                raise ValueError(f"`DADS.{name}` is {vars(self)[name]}: at least 0.")
        if self.components < 1:
            raise ValueError(f"`DADS.components` is {self.components}: at least 1.")
        if not self.dynamics_update_freq and not self.dynamics_updates:
            raise ValueError(
                "`DADS.dynamics_update_freq` and `dynamics_updates` are both 0: the "
                "dynamics would never learn."
            )

    def create_world(self, env: AbstractEnv) -> World:
        world = World.create(
            self,
            env,
            full=self.descriptor_full_state,
            normalize_observations=self.sac.normalize_observations,
            normalize_changes=self.normalize_target,
        )
        described = world.layout.described
        if self.omit_input_dynamics_dim > described:
            raise ValueError(
                f"`DADS.omit_input_dynamics_dim` is {self.omit_input_dynamics_dim}, but a "
                f"descriptor has {described} numbers here. Set it to 0, or to how many of "
                "them say where the robot is."
            )
        if not self.random_skills and world.prior.all() is None:
            raise ValueError(
                f"`DADS.random_skills` is 0, which is to compare with all skills, but "
                f"`{type(world.prior).__name__}` has a continuum of them. Set it, for "
                "instance to 100."
            )
        return world

    def create_skills(self, key: PRNGKeyArray, world: World, dtype: Any) -> Learner:
        described = world.layout.described
        inputs = described - self.omit_input_dynamics_dim + world.prior.size
        each = described if self.identity_covariance else 2 * described
        outputs = self.components * (1 + each)
        model = SkillDynamics(
            create_network(self, key, inputs, outputs, dtype),
            self.omit_input_dynamics_dim,
            self.components,
            self.identity_covariance,
        )
        return Learner.create(model, optax.adam(self.learning_rate))

    def study(
        self, state: SkillState, replay: Replay, key: PRNGKeyArray
    ) -> tuple[SkillState, dict[str, Array]]:
        if not self.dynamics_updates:
            return state, {}

        def once(skills, key):
            now = dataclasses.replace(state, skills=skills)
            return self._step(now, batch_of(self, replay, key))

        keys = jr.split(key, self.dynamics_updates)
        skills, loss = lax.scan(once, state.skills, keys)
        report = {"dynamics_loss": jnp.mean(loss)}
        return dataclasses.replace(state, skills=skills), report

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

    def judge(
        self, state: SkillState, batch: SkillRow, key: PRNGKeyArray
    ) -> tuple[Learner, Float[Array, " rows"], dict[str, Array]]:
        steps, world = batch.transition, state.world
        skills, report = state.skills, {}
        if self.dynamics_update_freq:
            learn = lambda: self._step(state, batch)
            skip = lambda: (skills, self._loss(state, batch, skills.model)[0])
            due = state.updates % self.dynamics_update_freq == 0
            every = self.dynamics_update_freq == 1
            skills, loss = learn() if every else lax.cond(due, learn, skip)
            report["dynamics_loss"] = loss
        model = state.skills.model
        others = None if self.random_skills else world.prior.all()
        if others is None:
            others = jax.vmap(world.prior.sample)(jr.split(key, self.random_skills))
        reward = predictability(
            model,
            jax.vmap(world.descriptor)(steps.obs),
            jax.vmap(world.skill)(steps.obs),
            jax.vmap(world.change)(steps.obs, steps.next_obs),
            others.astype(batch.log_prob.dtype),
            self.std_range,
            itself=bool(self.random_skills),
        )
        return skills, reward, report

    def _step(
        self, state: SkillState, batch: SkillRow
    ) -> tuple[Learner, Float[Array, ""]]:
        loss = lambda model: self._loss(state, batch, model)
        adam = optax.adam(self.learning_rate)
        skills, metrics = state.skills.apply_loss_fn(loss, adam)
        return skills, metrics["loss"]

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
    r"""The reward of `DADS` for each row.

    **Arguments:**

    - `others`: skills to compare with.
    - `std_range`: limits of deviations that are learned.
    - `itself`: whether the row's own skill is to be compared with, too: not if it is
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
