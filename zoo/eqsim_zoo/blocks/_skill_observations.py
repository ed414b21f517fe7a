"""Observations of `Skills`, split into task observation, descriptor and skill."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

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

from ._distributions import TanhNormal
from ._policies import StochasticPolicy
from ._statistics import denormalize, init_statistics, normalize, update_statistics


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


class SkillPolicy(eqx.Module):
    """A policy of observations of `Skills`."""

    actor: StochasticPolicy
    world: SkillSpace

    def __call__(self, obs: Float[Array, " n"]) -> TanhNormal:
        return self.actor(self.world.input(obs))


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
