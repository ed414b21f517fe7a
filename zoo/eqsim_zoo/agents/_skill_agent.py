"""What DIAYN and DADS share: a SAC that follows skills, for a reward of their own."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import AbstractDescriptor, OneHotSkills, Skills

from ..blocks import (
    acts_at_random,
    as_scalar,
    cast_floats,
    Episodes,
    Explorer,
    flatten_time,
    Learner,
    Memory,
    MLP,
    practise,
    remember,
    Replay,
    replicate,
    several,
    shard_batch,
    SkillPolicy,
    static,
    Transition,
    World,
)
from ._sac import SAC, SACState


# Actions are kept from the bounds by it, where their density is infinite.
_EDGE = 1e-6
_LOG_2 = 0.6931471805599453


class SkillRow(eqx.Module):
    """A transition under a skill, with any leading axes.

    **Arguments:**

    - `transition`: with observations of `Skills`, and actions between -1 and 1.
    - `log_prob`: the logarithm of the density by which the action was drawn.
    - `episode`: where the return of its episode stands.
    """

    transition: Transition
    log_prob: Float[Array, "..."]
    episode: Int[Array, "..."]


class Mix(eqx.Module):
    r"""The reward of the task and that for being different, $r + w\,r_z$:

    $$r = w_r\,r_\mathrm{task} + w_z\,r_z\,[R \ge R^* - \epsilon],$$

    with the return $R$ of the task in the whole episode, which is known when that has
    ended; until then the bracket is 0. By default it is 1 always, and the task does not
    count.

    **Arguments:**

    - `task`, `diversity`: $w_r$ and $w_z$.
    - `target_return`, `margin`: $R^*$ and $\epsilon$; minus infinity for any return.

    ??? cite "Reference"
        Kumar, Kumar, Levine, Finn, *One solution is not all you need: few-shot
        extrapolation via structured MaxEnt RL*, 2020, algorithm 1: SMERL.
    """

    task: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    diversity: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    target_return: Float[Array, ""] = eqx.field(converter=as_scalar, default=-jnp.inf)
    margin: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def __call__(
        self,
        reward: Float[Array, "*rows"],
        diversity: Float[Array, "*rows"],
        returns: Float[Array, "*rows"],
    ) -> Float[Array, "*rows"]:
        """The reward to learn from.

        **Arguments:**

        - `reward`, `diversity`: of steps.
        - `returns`: of their episodes.
        """
        good = returns >= self.target_return - self.margin
        return self.task * reward + self.diversity * jnp.where(good, diversity, 0.0)


class SkillState(eqx.Module):
    """`sac`: of the SAC that is held, without a memory. `world`: see `World`. `skills`:
    learner of what tells skills apart. `updates`: how many there were, modulo
    $2^{20}$. `episodes`: returns of what is remembered."""

    sac: SACState
    world: World
    skills: Learner
    updates: Int[Array, ""]
    episodes: Episodes
    memory: Memory | None
    key: PRNGKeyArray


class AbstractSkillAgent(AbstractOnlineAgent):
    """An agent that learns skills: it holds a SAC and rewards it for what it does by a
    skill.

    **Arguments:**

    - `sac`: whose fields are all as of `SAC`; `normalize_observations` is for what is
        observed and for descriptors, not for skills.
    - `mix`: how the reward of the task counts.
    - `hidden`, `learning_rate`: of the network that tells skills apart.
    - `descriptor_full_state`: whether all that is observed is the descriptor.
    """

    sac: SAC = eqx.field(default_factory=SAC)
    mix: Mix = eqx.field(default_factory=Mix)
    hidden: tuple[int, ...] = static((256, 256))
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    descriptor_full_state: bool = static(False)

    @staticmethod
    def __eqsim_wrap__(env: AbstractEnv) -> AbstractEnv:
        """How the conformance kit gives it skills to learn."""
        return Skills(_Coordinates(env), OneHotSkills(3))

    @abc.abstractmethod
    def create_world(self, env: AbstractEnv) -> World:
        """What it knows before anything was seen."""

    @abc.abstractmethod
    def create_skills(self, key: PRNGKeyArray, world: World, dtype: Any) -> Learner:
        """The network that tells skills apart, before anything is learned."""

    @abc.abstractmethod
    def judge(
        self, state: SkillState, batch: SkillRow, key: PRNGKeyArray
    ) -> tuple[Learner, Float[Array, " rows"], dict[str, Array]]:
        """Learns to tell skills apart.

        **Returns:** the learner; the reward of each row for following its skill; and what
        to report.
        """

    @abc.abstractmethod
    def study(
        self, state: SkillState, replay: Replay, key: PRNGKeyArray
    ) -> tuple[SkillState, dict[str, Array]]:
        """What is learned once per iteration, before all updates, and what to report."""

    @abc.abstractmethod
    def log_likelihood(
        self,
        state: SkillState,
        obs: Float[Array, " n"],
        next_obs: Float[Array, " n"],
        skill: Float[Array, " k"],
    ) -> Float[Array, ""]:
        """How much a step speaks for a skill: the logarithm of the probability of the
        skill if all are equally likely before, up to a constant."""

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> SkillState:
        key, key_envs, key_sac, key_skills = jr.split(key, 4)
        world = self.create_world(env)
        memory = remember(self.sac, env, key_envs, _first_row)
        dtype = memory.running.obs.dtype
        self = cast_floats(self, dtype)
        bare = dataclasses.replace(self.sac, normalize_observations=False)
        obs = jnp.zeros((1, world.layout.obs + world.layout.skill), dtype)
        rows = memory.replay.rows.transition
        like = eqx.tree_at(lambda r: (r.obs, r.next_obs), rows, (obs, obs))
        shown = eqx.tree_at(lambda m: m.replay.rows, memory, like)
        sac = bare.begin(key_sac, shown, jnp.array(env.action_range))
        steps = memory.replay.capacity // self.sac.num_envs
        return SkillState(
            sac=eqx.tree_at(lambda s: s.memory, sac, None),
            world=world,
            skills=self.create_skills(key_skills, world, dtype),
            updates=jnp.zeros((), jnp.int32),
            episodes=replicate(Episodes.create(self.sac.num_envs, steps, dtype)),
            memory=memory,
            key=key,
        )

    def act(
        self, state: SkillState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        return self.sac.act(state.sac, state.world.input(obs), key=key)

    def iterate(
        self, state: SkillState, env: AbstractEnv
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        self = cast_floats(self, state.sac.bounds.dtype)
        key, *keys = jr.split(state.key, 3)
        memory = state.memory
        assert memory is not None
        policy = SkillPolicy(state.sac.actor.model, state.world)
        random = acts_at_random(self.sac, memory)
        still = jnp.zeros_like(self.learning_rate)
        explorer = Explorer(policy, None, still, random)
        so_far = memory.running.returns

        def see(state, steps):
            episodes, where = state.episodes.after(steps, so_far)
            rows, where = replicate(flatten_time(steps)), replicate(where.reshape(-1))
            log_prob = jax.vmap(lambda o, a: log_density(policy, o, a))
            uniform = -_LOG_2 * rows.action.shape[1]
            density = jnp.where(random, uniform, log_prob(rows.obs, rows.action))
            world = replicate(state.world.seen(rows.obs, rows.next_obs))
            new = dataclasses.replace(
                state, world=world, episodes=replicate(episodes), memory=None, key=key
            )
            return new, SkillRow(rows, density, where)

        def learn(state, replay, key):
            key_study, key = jr.split(key)
            state, studied = self.study(state, replay, key_study)
            state, metrics = several(self.sac, self.update, state, replay, key)
            return state, metrics | studied

        memory, new, report = practise(
            self.sac, memory, env, explorer, state, keys, see=see, learn=learn
        )
        return dataclasses.replace(new, memory=memory), report

    def update(
        self, state: SkillState, batch: SkillRow
    ) -> tuple[SkillState, dict[str, Float[Array, "..."]]]:
        """Learns from a `SkillRow` with one axis, of rows.

        **Returns:** the new state; `diversity`, the mean reward for following skills;
        what the network of skills reports; and what SAC does.
        """
        self, steps = cast_floats(self, batch.log_prob.dtype), batch.transition
        key, key_judge = jr.split(state.key)
        skills, diversity, metrics = self.judge(state, batch, key_judge)
        diversity = jax.lax.stop_gradient(diversity)
        returns = state.episodes.return_of(batch.episode)
        reward = self.mix(steps.reward, diversity, returns)
        # To the value of a skill its change is what a time limit is.
        skill = jax.vmap(state.world.skill)(steps.obs)
        after = jax.vmap(state.world.with_skill)(steps.next_obs, skill)
        seen = jax.vmap(state.world.input)
        inner = Transition(
            seen(steps.obs),
            steps.action,
            reward,
            seen(after),
            steps.terminated,
            steps.truncated,
        )
        sac, of_sac = self.sac.update(state.sac, inner)
        count = (state.updates + 1) % 2**20
        new = dataclasses.replace(state, sac=sac, skills=skills, updates=count, key=key)
        return new, {"diversity": jnp.mean(diversity), **metrics, **of_sac}


def log_density(
    policy: SkillPolicy, obs: Float[Array, " n"], action: Float[Array, " nu"]
) -> Float[Array, ""]:
    """Of an action between -1 and 1, which is moved off the bounds."""
    inside = jnp.clip(action, -1.0 + _EDGE, 1.0 - _EDGE)
    return policy(obs).log_prob(jnp.arctanh(inside))


class _Coordinates(AbstractDescriptor):
    """All coordinates of the robot."""

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


def _first_row(transition: Transition) -> SkillRow:
    none = jnp.zeros_like(transition.reward)
    return SkillRow(transition, none, jnp.zeros((), jnp.int32))


def create_network(
    agent: AbstractSkillAgent, key: PRNGKeyArray, inputs: int, outputs: int, dtype: Any
) -> MLP:
    """Of `agent.hidden`."""
    return MLP.create(key, (inputs, *agent.hidden, outputs), dtype=dtype)


def batch_of(agent: AbstractSkillAgent, replay: Replay, key: PRNGKeyArray) -> SkillRow:
    """Rows to learn from."""
    return shard_batch(replay.sample(key, agent.sac.batch_size))
