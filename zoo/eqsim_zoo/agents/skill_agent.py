"""Skill discovery around SAC: settings, state, and the collection of steps."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import AbstractDescriptor, OneHotSkills, ScaleAction, Skills

from ..blocks.collecting import add_steps, collect, flatten_time
from ..blocks.hyperparameters import as_scalar, check_positive, check_ranges, static
from ..blocks.networks import Learner
from ..blocks.observations import acts_on_batches
from ..blocks.parallel import replicate
from ..blocks.policies import Explorer
from ..blocks.replay import explores_uniformly, init_memory, init_running, Memory
from ..blocks.skill_space import (
    Episodes,
    log_density,
    Mix,
    SkillPolicy,
    SkillRow,
    SkillSpace,
)
from .sac import SAC, SACState


_LOG_2 = 0.6931471805599453


class SkillState(eqx.Module):
    """State of an agent that learns skills.

    **Arguments:**

    - `sac`: state of the SAC, without memory and statistics.
    - `world`: layout, prior and statistics, see `SkillSpace`.
    - `skills`: learner of the model of skills.
    - `updates`: number of updates, modulo $2^{20}$.
    - `episodes`: returns of the episodes in the replay.
    - `memory`: environments and replay of `SkillRow`; None during updates.
    - `key`: random key.
    """

    sac: SACState
    world: SkillSpace
    skills: Learner
    updates: Int[Array, ""]
    episodes: Episodes
    memory: Memory | None
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
    mix: Mix = eqx.field(default_factory=Mix)
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
    def log_likelihood(
        self,
        state: SkillState,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """Compute the log-likelihood of a skill given a step, up to a constant; under a
        uniform prior, this is the log-posterior."""

    @abc.abstractmethod
    def diversity(
        self,
        state: SkillState,
        obs: Float[Array, "rows n"],
        next_obs: Float[Array, "rows n"],
        key: PRNGKeyArray,
    ) -> Float[Array, " rows"]:
        """Compute the intrinsic reward of steps with the skill model of the state.

        **Arguments:**

        - `obs`, `next_obs`: observations of `Skills` before and after each step.
        - `key`: random key of rewards that are estimated from samples.
        """

    @acts_on_batches
    def act(
        self, state: SkillState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        return self.sac.act(state.sac, state.world.input(obs), key=key)


def init_skills(
    agent: AbstractSkillAgent,
    keys: Key[Array, "3"],
    env: AbstractEnv,
    space: SkillSpace,
    model: Learner,
) -> SkillState:
    """Create the state of an agent that learns skills.

    **Arguments:**

    - `keys`: keys of the state, the environments and the SAC.
    - `model`: learner of the model of skills.
    """
    key, key_envs, key_sac = keys
    running, example = init_running(agent.sac, env, key_envs)
    none = jnp.zeros_like(example.reward)
    row = SkillRow(example, none, jnp.zeros((), jnp.int32))
    memory = init_memory(agent.sac, running, row)
    dtype = example.obs.dtype
    obs = jnp.zeros(space.layout.obs + space.layout.skill, dtype)
    steps = memory.replay.capacity // agent.sac.num_envs
    return SkillState(
        sac=agent.sac.create(key_sac, obs, jnp.array(env.action_range), obs.dtype),
        world=space,
        skills=model,
        updates=jnp.zeros((), jnp.int32),
        episodes=replicate(Episodes.create(agent.sac.num_envs, steps, dtype)),
        memory=memory,
        key=key,
    )


def collect_skills(
    sac: SAC, state: SkillState, env: AbstractEnv, key: PRNGKeyArray
) -> tuple[SkillState, Memory, dict[str, Float[Array, ""]]]:
    """Follow the skills of the environment for `unroll_length` steps, and add them to the
    replay.

    **Returns:** the state with new statistics and episodes and without memory; the
    memory; and what to report.
    """
    memory = state.memory
    assert memory is not None

    # Collect, and add to the replay.
    policy = SkillPolicy(state.sac.actor.model, state.world)
    uniform = explores_uniformly(sac, memory)
    explorer = Explorer(policy, None, jnp.zeros_like(sac.discount), uniform)
    running, steps, report = collect(
        ScaleAction(env), explorer, memory.running, key, sac.unroll_length
    )
    episodes, episode = state.episodes.after(steps, memory.running.returns)
    rows, episode = replicate(flatten_time(steps)), replicate(episode.reshape(-1))
    density = jax.vmap(lambda o, a: log_density(policy, o, a))(rows.obs, rows.action)
    density = jnp.where(uniform, -_LOG_2 * rows.action.shape[1], density)
    replay = memory.replay.add(SkillRow(rows, density, episode))
    memory = Memory(running, replay, add_steps(report, memory.steps))

    space = replicate(state.world.seen(rows.obs, rows.next_obs))
    episodes = replicate(episodes)
    state = dataclasses.replace(state, world=space, episodes=episodes, memory=None)
    return state, memory, report


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
