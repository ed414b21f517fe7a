"""Goals of episodes."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import Rail

import eqsim
from eqsim import testing
from eqsim.testing import probes
from eqsim.wrappers import AutoReset, Reach, TimeLimit


ENV = Reach(probes.point_mass(), 0.2)


def toward(obs, key):
    """The action that leads to the goal."""
    return jnp.clip(10.0 * (obs["desired_goal"] - obs["achieved_goal"]), -1.0, 1.0)


def test_a_goal_is_reached():
    """Where the reward is 0, and not -1, there the task ends: within the tolerance, and
    nowhere else."""
    keys = jr.split(jr.key(0), 16)
    stop = lambda timestep: timestep.done
    out = eqsim.rollout(ENV, toward, keys, 40, stop=stop)
    obs, steps = out.timestep.obs, out.timestep
    off = np.linalg.norm(obs["achieved_goal"] - obs["desired_goal"], axis=-1)
    valid = np.asarray(out.valid)
    assert np.array_equal((off <= 0.2)[valid], np.asarray(steps.terminated)[valid])
    assert np.array_equal(np.asarray(steps.reward), (off <= 0.2) - 1.0)
    assert np.array_equal(steps.terms["reach"], steps.reward)
    assert np.asarray(steps.terminated).any(axis=1).all()
    assert np.all(obs["desired_goal"] == obs["desired_goal"][:, :1])


def test_goals_are_drawn_between_bounds():
    bounds = np.array([[0.5, 0.6], [-2.0, 1.0]])
    env = Reach(probes.point_mass(), goals=jnp.asarray(bounds))
    reset = eqx.filter_vmap(lambda key: env.reset(key)[1].obs["desired_goal"])
    goals = np.asarray(reset(jr.split(jr.key(0), 500)))
    assert np.all((goals >= bounds[:, 0]) & (goals <= bounds[:, 1]))
    np.testing.assert_allclose(goals.mean(axis=0), bounds.mean(axis=1), atol=0.1)
    assert jnp.array_equal(ENV.goals, probes.point_mass().descriptor_range)


def test_each_episode_has_its_own():
    env = AutoReset(TimeLimit(ENV, 3))
    out = eqsim.rollout(env, lambda obs, key: jnp.zeros(2), jr.key(0), 12)
    goals = np.asarray(out.obs["desired_goal"])
    assert len(np.unique(goals, axis=0)) == 4


@pytest.mark.slow
def test_conforms():
    testing.check_conformance(ENV)


def test_bad_goals():
    with pytest.raises(ValueError, match="`Rail` has none"):
        Reach(Rail())
    with pytest.raises(ValueError, match=r"shape \(2, 2\).*got \(3, 2\)"):
        Reach(probes.point_mass(), goals=jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match="kept across episodes"):
        Reach(AutoReset(TimeLimit(probes.point_mass(), 3)))
