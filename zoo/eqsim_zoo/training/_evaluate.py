"""Evaluation of agents: episodes with deterministic actions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy import special

import eqsim
from eqsim import (
    AbstractAgent,
    AbstractController,
    AbstractEnv,
    agent_policy,
    TimeLimit,
    Timestep,
)
from eqsim.bridges import check_count, check_key, check_type

from ..agents.skill_agent import AbstractSkillAgent
from ..blocks.collecting import evaluation_env
from ..blocks.parallel import replicate
from ..runs._members import Members
from ._per_member import per_member


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes, on the last axis; members, if any, on the one before.

    **Arguments:**

    - `returns`: sum of the rewards of each.
    - `lengths`: control steps of each.
    - `terminated`: true if it ended by itself, and not at the time limit.
    - `diversity`: sum of the intrinsic rewards of each, for agents that learn skills; else
        None.

    Statistics of a single member convert to a number: `float(evaluation.mean())`. Those of
    several are selected by index, `evaluation.mean()[0]`.
    """

    returns: Float[np.ndarray, "*members episodes"]
    lengths: Int[np.ndarray, "*members episodes"]
    terminated: Bool[np.ndarray, "*members episodes"]
    diversity: Float[np.ndarray, "*members episodes"] | None = None

    def mean(self) -> Float[np.ndarray, "*members"]:
        """Return the mean return."""
        return per_member(self.returns.mean(axis=-1))

    def deviation(self) -> Float[np.ndarray, "*members"]:
        """Return the standard deviation of the returns over episodes; NaN for a single
        episode."""
        if self.returns.shape[-1] < 2:
            return per_member(np.full(self.returns.shape[:-1], np.nan))
        return per_member(self.returns.std(axis=-1, ddof=1))

    def error(self) -> Float[np.ndarray, "*members"]:
        r"""Return half the width of the 95 % confidence interval of the mean return,
        $t_{0.975, n - 1}\, s / \sqrt{n}$; NaN for a single episode."""
        n = self.returns.shape[-1]
        quantile = special.stdtrit(max(n - 1, 1), 0.975)
        return per_member(quantile * self.deviation() / np.sqrt(n))

    def length(self) -> Float[np.ndarray, "*members"]:
        """Return the mean number of control steps."""
        return per_member(self.lengths.mean(axis=-1))


def evaluate(
    agent: AbstractAgent,
    state: Any,
    env: AbstractEnv,
    key: PRNGKeyArray,
    *,
    episodes: int = 32,
    episode_length: int = 1000,
) -> Evaluation:
    """Run episodes with `eqsim.agent_policy(agent, state)`: actions are not sampled.

    **Arguments:**

    - `agent`, `state`: agent and its state.
    - `env`: environment of one episode, as given to `train`.
    - `key`: random key of the episodes.
    - `episodes`: number of episodes.
    - `episode_length`: time limit of an episode in control steps.

    **Raises:** `ValueError` if a number is not positive, or `env` resets itself.
    """
    check_type(
        "agent", agent, AbstractAgent, "an agent", "Create one, such as `PPO()`."
    )
    episode = _episode(env, episodes, episode_length)
    check_key(key)
    keys = jr.split(key, episodes)
    return _evaluation(_run_agent(agent, state, episode, keys, episode_length))


def evaluate_policy(
    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController,
    env: AbstractEnv,
    key: PRNGKeyArray,
    *,
    episodes: int = 32,
    episode_length: int = 1000,
) -> Evaluation:
    """Run episodes with a policy `(obs, key) -> action` or a controller, which may
    sample."""
    episode = _episode(env, episodes, episode_length)
    check_key(key)
    return _evaluation(_run(policy, episode, jr.split(key, episodes), episode_length))


def _episode(env: AbstractEnv, episodes: int, episode_length: int) -> TimeLimit:
    check_count("episodes", episodes)
    return evaluation_env(env, episode_length)


def episode_keys(
    members: Members, key: Callable[[int], PRNGKeyArray], episodes: int
) -> Key[Array, "*members episodes"]:
    """Return the keys of the episodes of all members.

    **Arguments:**

    - `key`: function from the seed of a member to a key. Members with the same seed have
        the same episodes.
    """
    keys = [jr.split(key(seed), episodes) for seed in members.seeds]
    return jnp.stack(keys) if members.many else keys[0]


def evaluate_members(
    members: Members,
    state: Any,
    env: AbstractEnv,
    keys: Key[Array, "*members episodes"],
    episode_length: int,
) -> Evaluation:
    """Evaluate all members; results have an axis of members.

    **Arguments:**

    - `keys`: keys of the episodes, see `episode_keys`.
    """
    episode = evaluation_env(env, episode_length)
    if members.many or jax.process_count() > 1:
        return evaluation_of(
            members, run_members(members, state, episode, keys, episode_length)
        )
    out = _run_agent(members.agent(0), state, episode, keys, episode_length)
    return evaluation_of(members, out)


@eqx.filter_jit
def run_members(
    members: Members,
    state: Any,
    env: TimeLimit,
    keys: Key[Array, "*members episodes"],
    length: int,
) -> Any:
    """Run all members in one program; return the input of `evaluation_of`."""
    run = lambda agent, state, keys: _run_agent(agent, state, env, keys, length)
    return replicate(members.each(run, state, keys))


def evaluation_of(members: Members, kept: Any) -> Evaluation:
    """Return an evaluation with an axis of members, also for a single one."""
    return _evaluation(kept if members.many else tuple(x[None] for x in kept))


def _done(timestep: Timestep) -> Bool[Array, ""]:
    return timestep.done


def _kept(state: Any, action: Any, timestep: Timestep):
    return timestep.reward, timestep.terminated, timestep.done


def _run_agent(
    agent: AbstractAgent,
    state: Any,
    env: TimeLimit,
    keys: Key[Array, " episodes"],
    length: int,
) -> tuple:
    """Run episodes; rewards, ends, and the intrinsic rewards of an agent with skills."""
    policy = agent_policy(agent, state)
    if not isinstance(agent, AbstractSkillAgent):
        return _run(policy, env, keys, length)
    # The reset of `rollout`, whose observation is that before the first step.
    start = _reset(env, keys)
    (*kept, after), _ = eqsim.rollout(
        env,
        policy,
        keys,
        length,
        start=start,
        stop=_done,
        collect=_kept_with_obs,
        throw=False,
    )
    before = jnp.concatenate([start[1].obs[:, None], after[:, :-1]], axis=1)
    return *kept, _diversity(agent, state, before, after, keys)


@eqx.filter_jit
def _reset(env: TimeLimit, keys: Key[Array, " episodes"]) -> tuple[Any, Timestep]:
    return eqx.filter_vmap(lambda key: env.reset(jr.split(key)[0]))(keys)


@eqx.filter_jit
def _diversity(agent: AbstractSkillAgent, state: Any, before, after, keys):
    # One episode after the other, as some rewards compare each step with many skills.
    one = lambda row: agent.diversity(state, *row)
    return lax.map(one, (before, after, keys))


def _kept_with_obs(state: Any, action: Any, timestep: Timestep):
    return *_kept(state, action, timestep), timestep.obs


def _run(policy, env, keys: Key[Array, " episodes"], length: int):
    # A return that is not finite is left to the caller.
    kept, _ = eqsim.rollout(
        env, policy, keys, length, stop=_done, collect=_kept, throw=False
    )
    return kept


def _evaluation(kept: tuple) -> Evaluation:
    reward, terminated, done, *diversity = map(np.asarray, kept)
    # After its end an episode stands still, and reports its last step again.
    taken = np.ones_like(done)
    taken[..., 1:] = ~np.maximum.accumulate(done, axis=-1)[..., :-1]
    total = lambda x: np.where(taken, x, 0.0).astype(np.float64).sum(axis=-1)
    ended = np.any(taken & terminated, axis=-1)
    lengths = taken.sum(axis=-1)
    return Evaluation(total(reward), lengths, ended, *map(total, diversity))
