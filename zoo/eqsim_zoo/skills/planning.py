"""Planning over skills."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv
from eqsim.bridges import check_count
from eqsim.control import MPPI

from ..agents.dads import DADS
from ..blocks.collecting import evaluation_env
from ..blocks.observations import normalize
from ..blocks.replay import OffPolicyState
from .paths import FollowSkill


@dataclasses.dataclass(frozen=True)
class Reached:
    """Episodes of planning towards goals, with axes (goal, time).

    **Arguments:**

    - `goals`: goal descriptors.
    - `descriptors`: descriptors after each step; constant after the end of an episode.
    - `skills`: skill in each step.
    """

    goals: Float[np.ndarray, "goals n"]
    descriptors: Float[np.ndarray, "goals steps n"]
    skills: Float[np.ndarray, "goals steps k"]

    def distances(self) -> Float[np.ndarray, "goals steps"]:
        """Return the distance from the goal after each step."""
        return np.linalg.norm(self.descriptors - self.goals[:, None], axis=-1)


def reach_goals(
    agent: DADS,
    state: OffPolicyState,
    env: AbstractEnv,
    goals: Float[Array, "goals n"],
    key: PRNGKeyArray,
    *,
    length: int = 200,
    hold: int = 10,
    horizon: int = 2,
    planner: MPPI | None = None,
) -> Reached:
    r"""Reach goals by planning over learned skills, without further training. A plan is a
    sequence of skills, each held for several steps. Its cost is computed with the skill
    dynamics,

    $$J = \sum_{h=1}^{H} |x_h - g|^2, \qquad
    x_{h} = x_{h-1} + \sum_{t=1}^{\mathrm{hold}} E[\Delta | x, z_h].$$

    After the first skill of a plan has been applied, the plan is computed again.

    **Arguments:**

    - `agent`, `state`: `DADS` and its state.
    - `env`: environment without auto-reset, with `Skills`.
    - `goals`: goal descriptors.
    - `key`: random key.
    - `length`: control steps of an episode, a multiple of `hold`.
    - `hold`: control steps for which each skill is held.
    - `horizon`: number of skills in a plan, $H$.
    - `planner`: planner; by default `MPPI(samples=64, iterations=8)`.

    **Raises:** `ValueError` if a size is invalid; `TypeError` if the agent has no skill
    dynamics.

    ??? cite "Reference"
        Sharma, Gu, Levine, Kumar, Hausman, *Dynamics-aware unsupervised discovery of
        skills*, 2020, section 4 and algorithm 2.
    """
    if not isinstance(agent, DADS):
        raise TypeError(
            f"`{type(agent).__name__}` has no skill dynamics, which planning needs. Use "
            "`DADS`."
        )
    for name, value in (("length", length), ("hold", hold), ("horizon", horizon)):
        check_count(name, value)
    if length % hold:
        raise ValueError(f"`length`, {length}, must be a multiple of `hold`, {hold}.")
    number = state.learner.space.layout.described
    if goals.ndim != 2 or goals.shape[1] != number:
        raise ValueError(
            f"`goals` has shape {goals.shape}; expected (goals, {number})."
        )
    planner = MPPI() if planner is None else planner
    episode = evaluation_env(env, length + 1)
    keys = jr.split(key, goals.shape[0])
    sizes = length, hold, horizon
    skills, descriptors = _reach(agent, state, episode, goals, keys, sizes, planner)
    return Reached(np.asarray(goals), np.asarray(descriptors), np.asarray(skills))


@eqx.filter_jit
def _reach(agent, state, env, goals, keys, sizes, planner: MPPI):
    length, hold, horizon = sizes
    learner, space = state.learner, state.learner.space

    def cost_of(descriptor, goal):
        def cost(plan):
            def step(x, skill):
                ahead = lambda _, x: (
                    x
                    + agent.predicted_change(
                        learner, normalize(space.descriptors, x), skill
                    )
                )
                x = lax.fori_loop(0, hold, ahead, x)
                return x, jnp.sum((x - goal) ** 2)

            return jnp.sum(lax.scan(step, descriptor, plan)[1])

        return cost

    def go(goal, key):
        key, key_reset = jr.split(key)
        first = env.reset(key_reset)
        plan = jnp.zeros((horizon, space.prior.size), first[1].obs.dtype)

        def turn(now, key):
            (inner, timestep), plan = now
            key_plan, key_run = jr.split(key)
            descriptor = space.layout.split(timestep.obs)[1]
            plan, _ = planner.plan(
                cost_of(descriptor, goal), plan, key_plan, project=space.prior.project
            )
            skill = space.prior.project(plan[0])
            path = eqsim.rollout(
                env,
                FollowSkill(agent, state, skill),
                key_run,
                hold,
                start=(inner, timestep),
                stop=lambda timestep: timestep.done,
                throw=False,
            )
            plan = jnp.concatenate([plan[1:], plan[-1:]])
            # After the end of an episode its last state is kept.
            stay = lambda old, new: jnp.where(timestep.done, old, new)
            last = jax.tree_util.tree_map(stay, (inner, timestep), path.last)
            after = space.layout.split(path.timestep.obs)[1]
            after = jnp.where(timestep.done, descriptor[None], after)
            taken = jnp.broadcast_to(skill[None], (hold, skill.shape[0]))
            return (last, plan), (taken, after)

        keys = jr.split(key, length // hold)
        _, (skills, descriptors) = lax.scan(turn, (first, plan), keys)
        flat = lambda x: x.reshape(length, -1)
        return flat(skills), flat(descriptors)

    return jax.vmap(go)(goals, keys)
