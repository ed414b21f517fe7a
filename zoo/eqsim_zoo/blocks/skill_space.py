"""Skills in observations and rewards: what the agents of skill discovery share.

`SkillSpace` splits observations of `Skills` into task observation, descriptor and skill, and
normalizes them; `SkillPolicy` is a policy of such observations; `SkillRow` is a row of the
replay, whose reward `RewardMix` combines of task reward and intrinsic reward, for episodes whose
return is kept in `EpisodeReturns`.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int

import eqsim
from eqsim import AbstractEnv
from eqsim.wrappers import (
    AbstractConversion,
    AbstractSkillPrior,
    ActionRepeat,
    AutoReset,
    DelayAction,
    nested_envs,
    RunningStatistics,
    Skills,
    TimeLimit,
)

from .collecting import Transition
from .hyperparameters import as_scalar, check_ranges
from .observations import denormalize, init_statistics, normalize, update_statistics
from .policies import StochasticPolicy, TanhNormal


class Layout(eqx.Module):
    """Layout of an observation of `Skills`.

    **Arguments:**

    - `obs`, `descriptor`, `skill`: number of entries of each part.
    - `full`: true if the whole observation is the descriptor.
    """

    obs: int = eqx.field(static=True)
    descriptor: int = eqx.field(static=True)
    skill: int = eqx.field(static=True)
    full: bool = eqx.field(static=True)

    def split(
        self, obs: Float[Array, "*rows n"]
    ) -> tuple[
        Float[Array, "*rows nobs"],
        Float[Array, "*rows ndescriptor"],
        Float[Array, "*rows nskill"],
    ]:
        """Split an observation into that of the task, the descriptor, and the skill."""
        seen, rest = obs[..., : self.obs], obs[..., self.obs :]
        described, skill = rest[..., : self.descriptor], rest[..., self.descriptor :]
        return seen, seen if self.full else described, skill

    @property
    def described(self) -> int:
        """Number of entries of the descriptor."""
        return self.obs if self.full else self.descriptor


class SkillSpace(eqx.Module):
    """Layout of observations with skills, the prior of skills, and running statistics.

    **Arguments:**

    - `layout`: positions within an observation.
    - `prior`: distribution of skills.
    - `observations`, `descriptors`, `changes`: statistics of task observations, of
        descriptors, and of their changes in a step; None without normalization. Skills
        are never normalized.
    """

    layout: Layout
    prior: AbstractSkillPrior
    observations: RunningStatistics | None
    descriptors: RunningStatistics | None
    changes: RunningStatistics | None

    @staticmethod
    def create(
        agent: eqx.Module,
        env: AbstractEnv,
        *,
        full: bool,
        normalize_observations: bool,
        normalize_changes: bool,
    ) -> "SkillSpace":
        """Create the space before any observation.

        **Raises:** `ValueError` if the environment gives no skills, or nothing that
        describes what the robot does.
        """
        layer, layout = _layout(agent, env, full)
        _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, jr.key(0))
        dtype = timestep.obs.dtype
        none = lambda size, flag: (
            init_statistics(jnp.zeros(size, dtype)) if flag else None
        )
        return SkillSpace(
            layout,
            layer.prior,
            none(layout.obs, normalize_observations),
            none(layout.described, normalize_observations),
            none(layout.described, normalize_changes),
        )

    def input(self, obs: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the input of the policy: observation and skill, without the descriptor."""
        seen, _, skill = self.layout.split(obs)
        return jnp.concatenate([normalize(self.observations, seen), skill])

    def descriptor(self, obs: Float[Array, " n"]) -> Float[Array, " ndescriptor"]:
        """Return the normalized descriptor."""
        return normalize(self.descriptors, self.layout.split(obs)[1])

    def skill(self, obs: Float[Array, " n"]) -> Float[Array, " nskill"]:
        """Return the skill."""
        return self.layout.split(obs)[2]

    def change(
        self, obs: Float[Array, " n"], next_obs: Float[Array, " n"]
    ) -> Float[Array, " ndescriptor"]:
        """Return the normalized change of the descriptor in a step."""
        split = self.layout.split
        return normalize(self.changes, split(next_obs)[1] - split(obs)[1])

    def denormalized(
        self, change: Float[Array, " ndescriptor"]
    ) -> Float[Array, " ndescriptor"]:
        """Convert a normalized change to the units of the descriptor."""
        if self.changes is None:
            return change
        return denormalize(self.changes, change)

    def with_skill(
        self, obs: Float[Array, " n"], skill: Float[Array, " nskill"]
    ) -> Float[Array, " n"]:
        """Return an observation with another skill."""
        return jnp.concatenate([obs[: obs.shape[0] - self.layout.skill], skill])

    def seen(
        self, obs: Float[Array, "rows n"], next_obs: Float[Array, "rows n"]
    ) -> "SkillSpace":
        """Return the space with statistics that include some further steps."""
        seen, descriptor, _ = self.layout.split(obs)
        change = self.layout.split(next_obs)[1] - descriptor
        old = self.observations, self.descriptors, self.changes
        pairs = zip(old, (seen, descriptor, change), strict=True)
        new = [update_statistics(statistics, rows) for statistics, rows in pairs]
        return SkillSpace(self.layout, self.prior, *new)


# Wrappers that hand observations on as they are.
_HARMLESS = AbstractConversion, ActionRepeat, AutoReset, DelayAction, TimeLimit


def _layout(agent: eqx.Module, env: AbstractEnv, full: bool) -> tuple[Skills, Layout]:
    name = type(agent).__name__
    held = [layer for layer in nested_envs(env) if isinstance(layer, Skills)]
    if len(held) != 1:
        raise ValueError(
            f"`{name}` needs an environment with skills, but "
            f"`{type(list(nested_envs(env))[-1]).__name__}` "
            f"{'gives none' if not held else 'has several wrappers that give them'}. "
            "Use `Skills(env, OneHotSkills(5))`."
        )
    for layer in itertools.takewhile(
        lambda layer: layer is not held[0], nested_envs(env)
    ):
        if not isinstance(layer, _HARMLESS):
            raise ValueError(
                f"`{name}` reads the skill at the end of an observation, which "
                f"`{type(layer).__name__}`, around `Skills`, may change. Put it inside "
                "`Skills`."
            )
    _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, jr.key(0))
    described = timestep.descriptor
    number = 0 if described is None else described.shape[0]
    if not full and number == 0:
        known = [n for n in eqsim.ENVS.names() if n.endswith(("_omni", "_uni"))]
        raise ValueError(
            f"`{name}` identifies skills by a descriptor, but "
            f"`{type(list(nested_envs(env))[-1]).__name__}` has none. These environments "
            f"have one: {', '.join(known)}. Or add one with a wrapper "
            "(`TorsoPosition`, `FeetContact`), or use the whole observation "
            "(`descriptor_full_state=True`)."
        )
    skill = held[0].prior.size
    return held[0], Layout(timestep.obs.shape[0] - number - skill, number, skill, full)


class SkillPolicy(eqx.Module):
    """A policy of observations of `Skills`."""

    actor: StochasticPolicy
    space: SkillSpace

    def __call__(self, obs: Float[Array, " n"]) -> TanhNormal:
        return self.actor(self.space.input(obs))


# Actions are kept from the bounds by it, where their density is infinite.
_EDGE = 1e-6


def log_density(
    policy: SkillPolicy, obs: Float[Array, " n"], action: Float[Array, " nu"]
) -> Float[Array, ""]:
    """Compute the log-density of an action between -1 and 1, which is moved off the
    bounds."""
    inside = jnp.clip(action, -1.0 + _EDGE, 1.0 - _EDGE)
    return policy(obs).log_prob(jnp.arctanh(inside))


class SkillRow(eqx.Module):
    """A transition under a skill, with any leading axes.

    **Arguments:**

    - `transition`: transition with observations of `Skills`, and actions between -1 and 1.
    - `log_prob`: logarithm of the density with which the action was drawn.
    - `episode`: index of its episode in `EpisodeReturns`.
    """

    transition: Transition
    log_prob: Float[Array, "..."]
    episode: Int[Array, "..."]


def with_reward(
    space: SkillSpace, steps: Transition, reward: Float[Array, " rows"]
) -> Transition:
    """Return transitions for a skill-conditioned policy, with another reward.

    The reward is a constant in derivatives. The next observation keeps the skill of the
    step, so that a change of skill acts like a time limit.
    """
    skill = jax.vmap(space.skill)(steps.obs)
    after = jax.vmap(space.with_skill)(steps.next_obs, skill)
    seen = jax.vmap(space.input)
    return Transition(
        seen(steps.obs),
        steps.action,
        jax.lax.stop_gradient(reward),
        seen(after),
        steps.terminated,
        steps.truncated,
    )


class RewardMix(eqx.Module):
    r"""Combination of task reward and intrinsic reward,

    $$r = w_r\,r_\mathrm{task} + w_z\,r_z\,[R \ge R^* - \epsilon],$$

    with the task return $R$ of the whole episode. The bracket is 0 until the episode has
    ended. By default the bracket is always 1, and the task reward is ignored.

    **Arguments:**

    - `task`: weight $w_r$ of the task reward.
    - `diversity`: weight $w_z$ of the intrinsic reward.
    - `target_return`: return $R^*$ of a good episode; minus infinity for any return.
    - `margin`: tolerance $\epsilon$ of that return.

    ??? cite "Reference"
        Kumar, Kumar, Levine, Finn, *One solution is not all you need: few-shot
        extrapolation via structured MaxEnt RL*, 2020, algorithm 1: SMERL.
    """

    task: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    diversity: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    target_return: Float[Array, ""] = eqx.field(converter=as_scalar, default=-jnp.inf)
    margin: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)

    def __check_init__(self):
        check_ranges(self)

    def __call__(
        self,
        reward: Float[Array, "*rows"],
        diversity: Float[Array, "*rows"],
        returns: Float[Array, "*rows"],
    ) -> Float[Array, "*rows"]:
        """Combine rewards.

        **Arguments:**

        - `reward`, `diversity`: task reward and intrinsic reward of each step.
        - `returns`: task return of its episode.
        """
        good = returns >= self.target_return - self.margin
        return self.task * reward + self.diversity * jnp.where(good, diversity, 0.0)


class EpisodeReturns(eqx.Module):
    """Returns of the latest episodes, in one ring buffer per environment.

    **Arguments:**

    - `returns`: return of each episode; the lowest finite number while it is running.
    - `current`: index of the running episode of each environment.
    """

    returns: Float[Array, "places envs"]
    current: Int[Array, " envs"]

    @staticmethod
    def create(num_envs: int, steps: int, dtype) -> "EpisodeReturns":
        """Create empty buffers.

        **Arguments:**

        - `num_envs`: number of environments.
        - `steps`: number of steps per environment whose episodes are kept.
        """
        # One more than there can be episodes, for the one that begins.
        empty = jnp.full((steps + 2, num_envs), _unknown(dtype), dtype)
        return EpisodeReturns(empty, jnp.zeros(num_envs, jnp.int32))

    def after(
        self, steps: Transition, so_far: Float[Array, " envs"]
    ) -> tuple["EpisodeReturns", Int[Array, "envs times"]]:
        """Add steps.

        **Arguments:**

        - `steps`: with axes (environment, time).
        - `so_far`: sums of the rewards of the running episodes before these steps.

        **Returns:** the new buffers, and for each step the index of its episode in
        `returns`, flattened.
        """
        places, envs = self.returns.shape
        env = jnp.arange(envs, dtype=jnp.int32)

        def step(carry, now):
            returns, current, total = carry
            reward, done = now
            total, after = total + reward, (current + 1) % places
            ended = jnp.where(done, total, returns[current, env])
            returns = returns.at[current, env].set(ended)
            fresh = jnp.where(done, _unknown(returns.dtype), returns[after, env])
            returns = returns.at[after, env].set(fresh)
            new = jnp.where(done, after, current), jnp.where(done, 0.0, total)
            return (returns, *new), current * envs + env

        start = self.returns, self.current, so_far
        (returns, current, _), where = lax.scan(
            step, start, (steps.reward.T, steps.done.T)
        )
        return EpisodeReturns(returns, current), where.T

    def return_of(self, where: Int[Array, "*rows"]) -> Float[Array, "*rows"]:
        """Return the returns of episodes by index; minus infinity while they are running."""
        found = self.returns.ravel()[where]
        return jnp.where(found == _unknown(found.dtype), -jnp.inf, found)


def _unknown(dtype):
    """Return a finite number that is not the return of any episode."""
    return jnp.finfo(dtype).min
