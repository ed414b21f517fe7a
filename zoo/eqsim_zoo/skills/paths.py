"""Rollouts of skills, and their statistics."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv
from eqsim.bridges import check_count
from eqsim.wrappers import AbstractDescriptor, nested_envs

from ..agents.dads import DADS
from ..agents.skill_agent import AbstractSkillAgent
from ..blocks.collecting import evaluation_env
from ..blocks.replay import OffPolicyState


CELLS = 20
"""Number of grid cells per axis for coverage."""


class FollowSkill(eqx.Module):
    """Deterministic policy of one skill, which replaces the observed one."""

    agent: AbstractSkillAgent
    state: OffPolicyState
    skill: Float[Array, " k"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return self.agent.act(
            self.state, self.state.learner.space.with_skill(obs, self.skill)
        )


@dataclasses.dataclass(frozen=True)
class SkillPaths:
    """Episodes of skills, with axes (skill, episode, time).

    **Arguments:**

    - `skills`: skills, one per row.
    - `descriptors`: descriptors before each step and after the last one.
    - `valid`: true for steps before the end of the episode.
    - `returns`: task return of each episode.
    - `log_likelihood`: log-likelihood of each skill (last axis) given each step, see
        `AbstractSkillAgent`.
    - `predicted`: change of the descriptor predicted by the skill dynamics; None for an
        agent without them.
    - `limits`: lower and upper limits of descriptors; None without limits.
    """

    skills: Float[np.ndarray, "skills k"]
    descriptors: Float[np.ndarray, "skills episodes times n"]
    valid: Bool[np.ndarray, "skills episodes steps"]
    returns: Float[np.ndarray, "skills episodes"]
    log_likelihood: Float[np.ndarray, "skills episodes steps skills"]
    predicted: Float[np.ndarray, "skills episodes steps n"] | None
    limits: Float[np.ndarray, "n 2"] | None

    def confusion(self) -> Float[np.ndarray, "skills skills"]:
        """Return the confusion matrix of skills (rows) and inferred skills (columns), by
        step."""
        number = len(self.skills)
        guess = np.eye(number)[self.log_likelihood.argmax(axis=-1)]
        count = (guess * self.valid[..., None]).sum(axis=(1, 2))
        return count / np.maximum(count.sum(axis=1, keepdims=True), 1.0)

    def accuracy(self) -> tuple[float, float]:
        """Return the accuracy of inferring the skill from one step and from an episode."""
        step = float(np.diagonal(self.confusion()).mean())
        total = (self.log_likelihood * self.valid[..., None]).sum(axis=2)
        right = total.argmax(axis=-1) == np.arange(len(self.skills))[:, None]
        return step, float(right.mean())

    def reward(self) -> float:
        r"""Return the mean over steps of $\log K - \log \sum_k \exp(l_k - l)$, with the
        log-likelihood $l$ of the active skill. This is the reward of `DADS` with these
        skills as alternatives, and that of `DIAYN` if they are all skills."""
        index = np.arange(len(self.skills))[:, None, None, None]
        own = np.take_along_axis(self.log_likelihood, index, axis=-1)
        off = np.clip(self.log_likelihood - own, -50.0, 50.0)
        reward = np.log(len(self.skills)) - np.log(np.exp(off).sum(axis=-1))
        return float(reward[self.valid].mean())

    def coverage(self) -> float:
        """Return the visited fraction of a grid over the first two components of the
        descriptor.

        **Raises:** `ValueError` if descriptors have no limits.
        """
        return float((self.visits() > 0).mean())

    def visits(self) -> Float[np.ndarray, "..."]:
        """Return the number of visits of each grid cell. The grid has one axis for a
        one-dimensional descriptor.

        **Raises:** `ValueError` if descriptors have no limits.
        """
        limits = self.limits
        if limits is None or not np.all(np.isfinite(limits[:2])):
            raise ValueError(
                f"The limits of the descriptor are {limits}, but coverage needs finite "
                "ones. Set them in the descriptor wrapper (see "
                "`AbstractDescriptor.descriptor_range`)."
            )
        points = self.descriptors[:, :, 1:][self.valid][:, :2]
        edges = [np.linspace(low, high, CELLS + 1) for low, high in limits[:2]]
        return np.histogramdd(points, edges)[0]


def follow_skills(
    agent: AbstractSkillAgent,
    state: OffPolicyState,
    env: AbstractEnv,
    key: PRNGKeyArray,
    *,
    skills: Float[Array, "skills k"] | None = None,
    episodes: int = 8,
    episode_length: int = 1000,
) -> SkillPaths:
    """Run episodes of skills.

    **Arguments:**

    - `agent`, `state`: skill agent and its state.
    - `env`: environment without auto-reset, with `Skills`.
    - `key`: random key.
    - `skills`: skills to run; by default all, or 16 samples of a continuous prior.
    - `episodes`: number of episodes of each skill.
    - `episode_length`: maximum number of control steps of an episode.

    **Raises:** `ValueError` if a size is not positive, or `env` has auto-reset.
    """
    check_count("episodes", episodes)
    key_skills, key = jr.split(key)
    if skills is None:
        skills = default_skills(state, key_skills)
    episode = evaluation_env(env, episode_length)
    keys = jr.split(key, episodes)
    found = _follow(agent, state, episode, keys, skills, episode_length)
    descriptors, valid, reward, likelihood, predicted = found
    valid = np.asarray(valid)
    return SkillPaths(
        skills=np.asarray(skills),
        descriptors=np.asarray(descriptors),
        valid=valid,
        returns=np.where(valid, reward, 0.0).sum(axis=2),
        log_likelihood=np.asarray(likelihood),
        predicted=None if predicted is None else np.asarray(predicted),
        limits=_limits(state, env),
    )


def default_skills(
    state: OffPolicyState, key: PRNGKeyArray, number: int = 16
) -> Float[Array, "skills k"]:
    """Return all skills, or `number` samples of a continuous prior."""
    check_count("number", number)
    prior = state.learner.space.prior
    known = prior.all()
    return jax.vmap(prior.sample)(jr.split(key, number)) if known is None else known


@eqx.filter_jit
def _follow(agent, state, env, keys, skills, length):
    learner = state.learner
    split = learner.space.layout.split

    def one(skill):
        policy = FollowSkill(agent, state, skill)
        path = eqsim.rollout(
            env, policy, keys, length, stop=lambda timestep: timestep.done, throw=False
        )
        each = lambda o, n: jax.vmap(
            lambda z: agent.log_likelihood(learner, o, n, z.astype(o.dtype))
        )(skills)
        change = lambda o: agent.predicted_change(
            learner, learner.space.descriptor(o), skill
        )
        both = lambda f: jax.vmap(jax.vmap(f))
        obs, after = path.obs, path.timestep.obs
        described = jnp.concatenate([split(obs)[1][:, :1], split(after)[1]], axis=1)
        found = both(change)(obs) if isinstance(agent, DADS) else None
        likelihood = both(each)(obs, after)
        return described, path.valid, path.timestep.reward, likelihood, found

    return jax.lax.map(one, skills)


def _limits(state: OffPolicyState, env: AbstractEnv) -> np.ndarray | None:
    if state.learner.space.layout.full:
        return None
    for layer in nested_envs(env):
        if isinstance(layer, AbstractDescriptor):
            return np.asarray(layer.descriptor_range)
    return None
