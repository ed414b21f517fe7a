"""Where skills lead: rollouts per skill, and what can be read from them."""

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
from eqsim.wrappers import AbstractDescriptor, layers

from ..agents._dads import DADS
from ..agents._skill_agent import AbstractSkillAgent, SkillState
from ..blocks import SkillDynamics
from ..blocks._environments import evaluation_env


CELLS = 20
"""Of the grid by which coverage is measured, along each axis."""


class FollowSkill(eqx.Module):
    """Acts by one skill, whichever is observed, as the agent thinks best."""

    agent: AbstractSkillAgent
    state: SkillState
    skill: Float[Array, " k"]

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return self.agent.act(self.state, self.state.world.with_skill(obs, self.skill))


@dataclasses.dataclass(frozen=True)
class SkillPaths:
    """Episodes under skills, with axes (skill, episode, time).

    **Arguments:**

    - `skills`: one per row.
    - `descriptors`: before each step, and after the last one.
    - `valid`: true if a step was taken, and the episode not over.
    - `returns`: of the task, in each episode.
    - `log_likelihood`: how much each step speaks for each skill (last axis), see
        `AbstractSkillAgent`.
    - `predicted`: the change of the descriptor as the dynamics foretell it; None of an
        agent that has none.
    - `limits`: of descriptors; None if they have none.
    """

    skills: Float[np.ndarray, "skills k"]
    descriptors: Float[np.ndarray, "skills episodes times n"]
    valid: Bool[np.ndarray, "skills episodes steps"]
    returns: Float[np.ndarray, "skills episodes"]
    log_likelihood: Float[np.ndarray, "skills episodes steps skills"]
    predicted: Float[np.ndarray, "skills episodes steps n"] | None
    limits: Float[np.ndarray, "n 2"] | None

    def confusion(self) -> Float[np.ndarray, "skills skills"]:
        """How often, per step, a skill (row) is taken for another one (column)."""
        number = len(self.skills)
        guess = np.eye(number)[self.log_likelihood.argmax(axis=-1)]
        count = (guess * self.valid[..., None]).sum(axis=(1, 2))
        return count / np.maximum(count.sum(axis=1, keepdims=True), 1.0)

    def accuracy(self) -> tuple[float, float]:
        """How often a skill is told rightly: from one step, and from a whole episode."""
        step = float(np.diagonal(self.confusion()).mean())
        total = (self.log_likelihood * self.valid[..., None]).sum(axis=2)
        right = total.argmax(axis=-1) == np.arange(len(self.skills))[:, None]
        return step, float(right.mean())

    def reward(self) -> float:
        r"""Mean over steps of $\log K - \log \sum_k \exp(l_k - l)$, with the likelihood
        $l$ of the skill that was followed: the reward of `DADS` if compared with these
        skills; that of `DIAYN`, if these are all there are."""
        index = np.arange(len(self.skills))[:, None, None, None]
        own = np.take_along_axis(self.log_likelihood, index, axis=-1)
        off = np.clip(self.log_likelihood - own, -50.0, 50.0)
        reward = np.log(len(self.skills)) - np.log(np.exp(off).sum(axis=-1))
        return float(reward[self.valid].mean())

    def coverage(self) -> float:
        """The part of a grid over the limits of the first two numbers of the descriptor
        that was visited.

        **Raises:** `ValueError` if they have no limits.
        """
        return float((self.visits() > 0).mean())

    def visits(self) -> Float[np.ndarray, "..."]:
        """How often each cell of that grid was visited; of a descriptor of one number the
        grid has one axis.

        **Raises:** `ValueError` if descriptors have no limits.
        """
        limits = self.limits
        if limits is None or not np.all(np.isfinite(limits[:2])):
            raise ValueError(
                f"The limits of the descriptor are {limits}: finite ones are needed to say "
                "what was covered. Give them in the wrapper that describes (see "
                "`AbstractDescriptor.descriptor_range`)."
            )
        points = self.descriptors[:, :, 1:][self.valid][:, :2]
        edges = [np.linspace(low, high, CELLS + 1) for low, high in limits[:2]]
        return np.histogramdd(points, edges)[0]


def follow_skills(
    agent: AbstractSkillAgent,
    state: SkillState,
    env: AbstractEnv,
    key: PRNGKeyArray,
    *,
    skills: Float[Array, "skills k"] | None = None,
    episodes: int = 8,
    episode_length: int = 1000,
) -> SkillPaths:
    """Runs episodes under skills.

    **Arguments:**

    - `agent`, `state`: an agent of skills, and what it has learned.
    - `env`: of one episode, with `Skills`.
    - `key`: of the episodes.
    - `skills`: by default all, or 16 draws of a continuum.
    - `episodes`: of each skill.
    - `episode_length`: control steps of an episode, at most.

    **Raises:** `ValueError` if a number is not positive, or `env` resets itself.
    """
    if episodes < 1:
        raise ValueError(f"`episodes` is {episodes}: at least one is expected.")
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
    state: SkillState, key: PRNGKeyArray, number: int = 16
) -> Float[Array, "skills k"]:
    """All skills, or so many draws of a continuum."""
    prior = state.world.prior
    known = prior.all()
    return jax.vmap(prior.sample)(jr.split(key, number)) if known is None else known


def foretold(
    agent: DADS,
    state: SkillState,
    descriptor: Float[Array, " n"],
    skill: Float[Array, " k"],
) -> Float[Array, " n"]:
    """The change in a step, of a normalized descriptor."""
    model: SkillDynamics = state.skills.model
    found = model(descriptor, skill, agent.std_range)
    return state.world.denormalized(found.expectation())


@eqx.filter_jit
def _follow(agent, state, env, keys, skills, length):
    split = state.world.layout.split

    def one(skill):
        policy = FollowSkill(agent, state, skill)
        path = eqsim.rollout(
            env, policy, keys, length, stop=lambda timestep: timestep.done, throw=False
        )
        each = lambda o, n: jax.vmap(
            lambda z: agent.log_likelihood(state, o, n, z.astype(o.dtype))
        )(skills)
        foresee = lambda o: foretold(agent, state, state.world.descriptor(o), skill)
        both = lambda f: jax.vmap(jax.vmap(f))
        obs, after = path.obs, path.timestep.obs
        described = jnp.concatenate([split(obs)[1][:, :1], split(after)[1]], axis=1)
        found = both(foresee)(obs) if isinstance(agent, DADS) else None
        likelihood = both(each)(obs, after)
        return described, path.valid, path.timestep.reward, likelihood, found

    return jax.lax.map(one, skills)


def _limits(state: SkillState, env: AbstractEnv) -> np.ndarray | None:
    if state.world.layout.full:
        return None
    for layer in layers(env):
        if isinstance(layer, AbstractDescriptor):
            return np.asarray(layer.descriptor_range)
    return None
