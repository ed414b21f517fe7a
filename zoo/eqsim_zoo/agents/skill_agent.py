"""Skill discovery around SAC: settings, state, and the collection of steps.

An agent that learns skills has a model of skills (the discriminator of `DIAYN`, the embedding of
`METRA`, the dynamics of `DADS`) and a `SAC`, which is rewarded by it. `AbstractSkillAgent` has all
that they share; `collect_skills` fills the replay with `SkillRow`s.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import AbstractDescriptor, OneHotSkills, ScaleAction, Skills

from ..blocks.collecting import add_steps, collect, flatten_time
from ..blocks.hyperparameters import (
    as_scalar,
    check_positive,
    check_ranges,
    same_precision,
    static,
)
from ..blocks.networks import Learner
from ..blocks.observations import acts_on_batches
from ..blocks.parallel import replicate
from ..blocks.policies import Explorer
from ..blocks.replay import (
    explores_uniformly,
    init_memory,
    init_running,
    Memory,
    OffPolicyState,
)
from ..blocks.skill_space import (
    EpisodeReturns,
    log_density,
    RewardMix,
    SkillPolicy,
    SkillRow,
    SkillSpace,
    with_reward,
)
from .sac import SAC, SACLearner


_LOG_2 = 0.6931471805599453


class SkillLearner(eqx.Module):
    """Learned part of the state of an agent of skills.

    **Arguments:**

    - `sac`: learner of the SAC, without statistics.
    - `space`: layout of observations, prior of skills and statistics, see `SkillSpace`.
    - `model`: learner of the model of skills.
    - `updates`: number of updates, modulo $2^{20}$.
    - `episodes`: returns of the episodes in the replay.
    - `key`: random key.
    """

    sac: SACLearner
    space: SkillSpace
    model: Learner
    updates: Int[Array, ""]
    episodes: EpisodeReturns
    key: PRNGKeyArray


class AbstractSkillAgent(AbstractOnlineAgent):
    """An agent that learns skills: a SAC that is rewarded for following them.

    **Arguments:**

    - `sac`: the SAC; its `normalize_observations` applies to task observations and
        descriptors, not to skills.
    - `mix`: combination of task reward and intrinsic reward.
    - `hidden`: hidden layer sizes of the model of skills.
    - `learning_rate`: Adam step size of the model of skills.
    - `descriptor_full_state`: true if the whole observation is the descriptor.
    """

    sac: SAC = eqx.field(default_factory=SAC)
    mix: RewardMix = eqx.field(default_factory=RewardMix)
    hidden: tuple[int, ...] = static((256, 256))
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    descriptor_full_state: bool = static(False)

    def __check_init__(self):
        check_positive(self, "hidden")
        check_ranges(self)

    @staticmethod
    def __eqsim_wrap__(env: AbstractEnv) -> AbstractEnv:
        """Wrap an environment for the conformance tests."""
        return Skills(_Coordinates(env), OneHotSkills(3))

    @abc.abstractmethod
    def create_model(self, key: PRNGKeyArray, space: SkillSpace, dtype: Any) -> Any:
        """Create the untrained model of skills."""

    @abc.abstractmethod
    def learn(
        self, learner: SkillLearner, memory: Memory, key: PRNGKeyArray
    ) -> tuple[SkillLearner, dict[str, Array]]:
        """Learn from batches of the replay, with `scan_updates`."""

    @abc.abstractmethod
    def change_statistics(self) -> bool:
        """Return true if changes of the descriptor are normalized."""

    @abc.abstractmethod
    def log_likelihood(
        self,
        learner: SkillLearner,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """Compute the log-likelihood of a skill given a step, up to a constant; under a
        uniform prior, this is the log-posterior."""

    @abc.abstractmethod
    def diversity(
        self,
        learner: SkillLearner,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        """Compute the intrinsic reward of steps with the skill model.

        **Arguments:**

        - `learner`: `state.learner` of the agent.
        - `obs`, `next_obs`: observations of `Skills` before and after each step.
        - `key`: random key of rewards that are estimated from samples.
        """

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> OffPolicyState:
        space = SkillSpace.create(
            self,
            env,
            full=self.descriptor_full_state,
            normalize_observations=self.sac.normalize_observations,
            normalize_changes=self.change_statistics(),
        )
        key, key_envs, key_sac, key_model = jr.split(key, 4)
        model = self.create_model(key_model, space, env.action_range.dtype)
        running, example = init_running(self.sac, env, key_envs)
        row = SkillRow(
            example, jnp.zeros_like(example.reward), jnp.zeros((), jnp.int32)
        )
        memory = init_memory(self.sac, running, row)
        dtype, bounds = example.obs.dtype, jnp.array(env.action_range)
        obs = jnp.zeros(space.layout.obs + space.layout.skill, dtype)
        steps = memory.replay.capacity // self.sac.num_envs
        episodes = EpisodeReturns.create(self.sac.num_envs, steps, dtype)
        learner = SkillLearner(
            sac=self.sac.create(key_sac, obs, bounds, dtype),
            space=space,
            model=Learner.create(model, self.optimizer()),
            updates=jnp.zeros((), jnp.int32),
            episodes=replicate(episodes),
            key=key,
        )
        return OffPolicyState(learner, memory)

    @acts_on_batches
    def act(
        self, state: OffPolicyState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        learner = state.learner
        return self.sac.action(learner.sac, learner.space.input(obs), key)

    @same_precision
    def iterate(
        self, state: OffPolicyState, env: AbstractEnv
    ) -> tuple[OffPolicyState, dict[str, Float[Array, "..."]]]:
        """Follow the skills of the environment for `unroll_length` steps, add them to the
        replay, and learn from batches of it."""
        key, key_act, key_learn = jr.split(state.key, 3)
        state, report = collect_skills(self.sac, state, env, key_act)
        learner = dataclasses.replace(state.learner, key=key)
        learner, metrics = self.learn(learner, state.memory, key_learn)
        return OffPolicyState(learner, state.memory), report | metrics

    def improve_policy(
        self,
        learner: SkillLearner,
        batch: SkillRow,
        model: Learner,
        key: PRNGKeyArray,
    ) -> tuple[SkillLearner, dict[str, Array]]:
        """Take one gradient step of the SAC, with the reward of a new model of skills.

        **Arguments:**

        - `batch`: rows of the replay, with one axis.
        - `model`: the new model, which the result holds.
        - `key`: random key of `diversity`.

        **Returns:** the new learner; `diversity`, the mean intrinsic reward; and the metrics
        of SAC.
        """
        steps = batch.transition
        learner = dataclasses.replace(learner, model=model)
        diversity = self.diversity(learner, steps.obs, steps.next_obs, key)
        returns = learner.episodes.return_of(batch.episode)
        reward = self.mix(steps.reward, diversity, returns)
        steps = with_reward(learner.space, steps, reward)
        sac, metrics = self.sac.update(learner.sac, steps)
        # Wraps around long before it overflows.
        updates = (learner.updates + 1) % 2**20
        learner = dataclasses.replace(learner, sac=sac, updates=updates)
        return learner, {"diversity": jnp.mean(diversity), **metrics}

    def optimizer(self) -> optax.GradientTransformation:
        """Return Adam with `learning_rate`, for the model of skills."""
        return optax.adam(self.learning_rate)


def collect_skills(
    sac: SAC, state: OffPolicyState, env: AbstractEnv, key: PRNGKeyArray
) -> tuple[OffPolicyState, dict[str, Float[Array, ""]]]:
    """Follow the skills of the environment for `unroll_length` steps, and add them to the
    replay.

    **Returns:** the state with new statistics, episodes and memory, and the report of
    `collect`.
    """
    learner, memory = state.learner, state.memory
    policy = SkillPolicy(learner.sac.actor.model, learner.space)
    uniform = explores_uniformly(sac, memory)
    running, steps, report = collect(
        ScaleAction(env),
        Explorer(policy, None, uniform),
        memory.running,
        key,
        sac.unroll_length,
    )
    episodes, episode = learner.episodes.after(steps, memory.running.returns)
    rows, episode = replicate(flatten_time(steps)), replicate(episode.reshape(-1))
    density = jax.vmap(lambda o, a: log_density(policy, o, a))(rows.obs, rows.action)
    density = jnp.where(uniform, -_LOG_2 * rows.action.shape[1], density)
    replay = memory.replay.add(SkillRow(rows, density, episode))
    memory = Memory(running, replay, add_steps(report, memory.steps))
    space = replicate(learner.space.seen(rows.obs, rows.next_obs))
    learner = dataclasses.replace(learner, space=space, episodes=replicate(episodes))
    return OffPolicyState(learner, memory), report


class _Coordinates(AbstractDescriptor):
    """Descriptor with all generalized coordinates."""

    env: AbstractEnv

    @property
    def descriptor_names(self) -> tuple[str, ...]:
        return tuple(f"coordinate {k}" for k in range(self.sys.nq))

    @property
    def descriptor_range(self) -> Float[Array, "ndescriptor 2"]:
        return jnp.tile(jnp.array([[-jnp.inf, jnp.inf]]), (self.sys.nq, 1))

    def describe(
        self, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " ndescriptor"]:
        return self.physics(state).q
