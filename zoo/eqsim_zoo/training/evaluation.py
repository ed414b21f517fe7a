"""Evaluation of agents: episodes with deterministic actions, their statistics for each
member, and statistics over seeds.

`evaluate` runs one agent; the loop calls an `Evaluator`, whose program for all members is
compiled while the first turn is.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy import special, stats

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
from eqsim.envs import TracksCommands
from eqsim.wrappers import nested_envs, tracking_of

from ..agents.skill_agent import AbstractSkillAgent
from ..blocks.collecting import evaluation_env, evaluation_key
from ..blocks.parallel import replicate
from ..runs.members import Members
from ..runs.run import Run


class _PerMember(np.ndarray):
    """An array with one number for each member, which converts to a number if there is a
    single member."""

    def __float__(self) -> float:
        if self.size != 1:
            raise TypeError(
                f"This statistic has one value for each of {self.size} members, so it is "
                "not a single number. Select a member, as in `evaluation.mean()[0]`, or "
                "average over members, as in `evaluation.mean().mean()`."
            )
        return float(self.item())

    def __format__(self, spec: str) -> str:
        return format(float(self) if spec else str(self), spec)


def per_member(values: Any) -> np.ndarray:
    """Return an array of numbers, one for each member."""
    return np.asarray(values).view(_PerMember)


def interquartile_mean(scores: Float[np.ndarray, "runs *tasks"]) -> float:
    """Return the mean of the middle half of all scores.

    A quarter of the scores (rounded down) is left out at either end. The interquartile
    mean is less sensitive to single runs than the mean, and uses more of the runs than the
    median.

    **Arguments:**

    - `scores`: one score per run, such as the mean return of a seed; or one per run and
        task.

    ??? cite "Reference"
        Agarwal et al., *Deep reinforcement learning at the edge of the statistical
        precipice*, 2021, section 4.3.
    """
    return float(stats.trim_mean(np.ravel(scores), 0.25))


def bootstrap_interval(
    scores: Float[np.ndarray, "runs *tasks"], *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % confidence interval of `interquartile_mean`.

    Percentiles of the stratified bootstrap: each draw takes as many runs as there are,
    with replacement, independently for each task. Episodes are not drawn, since episodes
    of one run are not independent runs. Intervals of fewer than about five runs are too
    narrow.

    **Arguments:**

    - `scores`: one score per run, or one per run and task.
    - `draws`: number of bootstrap samples.
    - `seed`: random seed.

    **Raises:** `ValueError` if there are fewer than two runs.

    ??? cite "Reference"
        Agarwal et al., *Deep reinforcement learning at the edge of the statistical
        precipice*, 2021, section 4.1.
    """
    check_count("draws", draws)
    check_count("seed", seed, 0)
    scores = np.asarray(scores)
    if len(scores) < 2:
        raise ValueError(
            f"An interval needs at least 2 runs, but `scores` has {len(scores)}."
        )
    rows = scores.reshape(len(scores), -1)
    chosen = np.random.default_rng(seed).integers(len(rows), size=(draws, *rows.shape))
    drawn = np.take_along_axis(rows[None], chosen, axis=1).reshape(draws, -1)
    means = stats.trim_mean(drawn, 0.25, axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


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
    one = lambda row: agent.diversity(state.learner, *row)
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


# Commands.


@dataclasses.dataclass(frozen=True)
class Tracking:
    """How well one agent tracks commands.

    **Arguments:**

    - `target`, `value`: targets of the steps and values after them, by name, with axes
        (episode, step).
    - `valid`: true for steps of an episode.
    """

    target: dict[str, Float[np.ndarray, "episodes steps"]]
    value: dict[str, Float[np.ndarray, "episodes steps"]]
    valid: Bool[np.ndarray, "episodes steps"]

    def error(self) -> dict[str, float]:
        """Return the mean absolute error of each quantity."""
        return {name: self._mean(name, self.valid) for name in self.target}

    def by_target(self, parts: int = 5) -> dict[str, list[tuple[float, float, float]]]:
        """Return the mean absolute error in each of `parts` equal parts of the range of
        targets: lower and upper bound, and the error, NaN without targets. A constant
        target has one part."""
        out = {}
        for name, target in self.target.items():
            given = target[self.valid]
            number = parts if given.min() < given.max() else 1
            edges = np.linspace(given.min(), given.max(), number + 1)
            place = np.searchsorted(edges, target, "right") - 1
            place = np.clip(place, 0, number - 1)
            own = [self._mean(name, self.valid & (place == k)) for k in range(number)]
            out[name] = list(zip(edges[:-1].tolist(), edges[1:].tolist(), own))
        return out

    def _mean(self, name: str, where: np.ndarray) -> float:
        gap = np.abs(self.value[name] - self.target[name])[where]
        return float(gap.mean()) if gap.size else float("nan")


def evaluate_tracking(
    members: Members,
    state: Any,
    env: AbstractEnv,
    keys: Key[Array, "*members episodes"],
    episode_length: int,
) -> list[Tracking]:
    """Run the episodes of `evaluate_members`, and return for each member how well commands
    are tracked; nothing if the task is not `eqsim.envs.TracksCommands`."""
    episode = evaluation_env(env, episode_length)
    *_, task = nested_envs(env)
    if not isinstance(task, TracksCommands):
        return []
    found = _track_members(members, state, episode, keys, episode_length)
    found = jax.tree_util.tree_map(np.asarray, found)
    if not members.many:
        return [Tracking(*found)]
    pick = lambda k: jax.tree_util.tree_map(lambda x: x[k], found)
    return [Tracking(*pick(k)) for k in range(members.count)]


@eqx.filter_jit
def _track_members(members: Members, state: Any, env: TimeLimit, keys, length: int):
    """Return targets, values, and which steps are those of an episode."""

    def run(agent, state, keys):
        return _track(agent_policy(agent, state), env, keys, length)

    if members.many:
        return replicate(members.each(run, state, keys))
    return run(members.agent(0), state, keys)


def _track(policy, env: TimeLimit, keys: Key[Array, " episodes"], length: int):
    (found, done), last = eqsim.rollout(
        env,
        policy,
        keys,
        length,
        stop=_done,
        collect=lambda state, _, timestep: (tracking_of(env, state), timestep.done),
        throw=False,
    )
    # The value after a step is in the state before the next one.
    after = jax.vmap(lambda state: tracking_of(env, state))(last[0])
    assert after is not None
    target = {name: asked for name, (asked, _) in found.items()}
    value = {
        name: jnp.concatenate([did[:, 1:], after[name][1][:, None]], axis=1)
        for name, (_, did) in found.items()
    }
    ended = jnp.cumsum(done, axis=1) - done.astype(int)
    return target, value, ended == 0


class Evaluator:
    """Evaluates the members of a run, as `evaluate_members`.

    On a single device the program is compiled beside that of the first turn, which takes
    about as long. On several, `rollout` spreads one member over them.

    **Arguments:**

    - `run`: the run.
    - `state`: state or its shapes.
    """

    def __init__(self, run: Run, state: Any):
        self._run, self._env = run, run.evaluation_environment()
        self._program: Future | None = None
        if self._env is not None and run.evaluations and len(jax.devices()) == 1:
            self._episode = evaluation_env(self._env, run.episode_length)
            args = run.members, state, self._episode, self._keys(0)
            lowered = run_members.lower(*args, run.episode_length)
            worker = ThreadPoolExecutor(1)
            self._program = worker.submit(lowered.compile)
            worker.shutdown(wait=False)

    def __call__(self, state: Any, turn: int) -> Evaluation:
        members, length = self._run.members, self._run.episode_length
        if self._program is None:
            assert self._env is not None
            return evaluate_members(members, state, self._env, self._keys(turn), length)
        program, keys = self._program.result(), self._keys(turn)
        return evaluation_of(
            members, program(members, state, self._episode, keys, length)
        )

    def _keys(self, turn: int) -> Any:
        key = lambda seed: evaluation_key(seed, turn)
        return episode_keys(self._run.members, key, self._run.episodes)
