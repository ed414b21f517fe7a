"""Skills and goals of episodes, and their prior distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from toys import Rail

import eqsim
from eqsim import AutoReset, testing, TimeLimit
from eqsim.testing import probes
from eqsim.wrappers import (
    NormalSkills,
    OneHotSkills,
    pool_resets,
    Reach,
    Skills,
    UniformSkills,
)


PRIORS = OneHotSkills(3), UniformSkills(2), NormalSkills(4)
each = pytest.mark.parametrize("prior", PRIORS, ids=lambda p: type(p).__name__)


@each
def test_samples(prior):
    """Of the right shape, each a skill itself, with the moments of the prior."""
    many = jax.vmap(prior.sample)(jr.split(jr.key(0), 4000))
    assert many.shape == (4000, prior.size)
    assert testing.tree_allclose(jax.vmap(prior.project)(many), many)
    mean, variance = {
        "OneHotSkills": (1 / 3, 2 / 9),
        "UniformSkills": (0.0, 1 / 3),
        "NormalSkills": (0.0, 1.0),
    }[type(prior).__name__]
    np.testing.assert_allclose(many.mean(axis=0), mean, atol=0.06)
    np.testing.assert_allclose(many.var(axis=0), variance, atol=0.08)


def test_log_prob():
    x = jnp.array([0.3, -0.8])
    np.testing.assert_allclose(OneHotSkills(4).log_prob(jnp.eye(4)[1]), -np.log(4))
    np.testing.assert_allclose(UniformSkills(2).log_prob(x), -2 * np.log(2))
    assert UniformSkills(2).log_prob(2 * x) == -jnp.inf
    expected = stats.norm.logpdf(x).sum()
    np.testing.assert_allclose(NormalSkills(2).log_prob(x), expected, rtol=1e-12)


@each
def test_project(prior):
    """The nearest skill, which is one already if projected again."""
    x = 3.0 * jr.normal(jr.key(1), (prior.size,))
    near = prior.project(x)
    assert testing.tree_allclose(prior.project(near), near)
    others = jax.vmap(prior.sample)(jr.split(jr.key(2), 500))
    distance = lambda z: jnp.sum((z - x) ** 2)
    assert distance(near) <= jnp.min(jax.vmap(distance)(others)) + 1e-9


def steps(env, key, length=12):
    """Observations of one episode after the other, of the resets and all steps."""
    policy = lambda obs, key: jr.uniform(key, (2,), minval=-1.0)
    return eqsim.rollout(env, policy, key, length).obs


@each
@pytest.mark.quick_cases("OneHotSkills")
def test_observation(prior):
    """What was observed, the descriptor, the skill, which stays what it is."""
    env = Skills(probes.point_mass(), prior)
    obs = steps(env, jr.key(0))
    assert obs.shape == (12, 4 + 2 + prior.size)
    assert testing.tree_allclose(obs[:, 4:6], obs[:, :2])
    skill = obs[:, 6:]
    assert jnp.all(skill == skill[:1])
    assert testing.tree_allclose(skill[0], prior.project(skill[0]))
    state, timestep = env.reset(jr.key(3))
    assert jnp.array_equal(env.skill(state), timestep.obs[6:])
    assert (
        not jnp.array_equal(steps(env, jr.key(1))[0, 6:], skill[0])
        or prior.all() is not None
    )


def test_without_descriptor():
    env = Skills(probes.PointMass(), OneHotSkills(3))
    assert env.reset(jr.key(0))[1].obs.shape == (7,)


def test_resampled():
    """With the probability that is asked for, and not before the least number of
    steps."""
    inner = probes.point_mass()
    for chance, least in ((1.0, 3), (0.25, 1), (0.0, 1)):
        env = Skills(inner, UniformSkills(1), chance, least)
        obs = steps(env, jr.split(jr.key(0), 64), 40)[..., 6]
        changed = np.asarray(obs[:, 1:] != obs[:, :-1])
        if chance == 1.0:
            assert np.array_equal(changed[0], np.arange(1, 40) % 3 == 0)
        np.testing.assert_allclose(changed.mean(), chance / least, atol=0.03)


def test_every_episode_has_a_skill_of_its_own():
    """Also with a pool; from the first step on."""
    inner = TimeLimit(Skills(probes.point_mass(), UniformSkills(1)), 4)
    for env in (inner, pool_resets(inner, jr.key(1), 2)):
        skill = np.asarray(steps(AutoReset(env), jr.key(0), 40)[:, 6])
        per_episode = skill.reshape(10, 4)
        assert np.all(per_episode == per_episode[:, :1])
        assert len({*per_episode[:, 0].tolist()}) == 10


def test_final_observations_have_the_skill(getkey):
    """Of an environment that resets itself, as probes do."""
    inner = probes.observed_action_reward()
    env = Skills(inner, OneHotSkills(3))
    state, timestep = env.reset(getkey())
    skill = timestep.obs[-3:]
    zero = jnp.zeros(env.sys.nu)
    _, timestep = env.step(state, zero)
    _, expected = inner.step(state.inner, zero)
    np.testing.assert_array_equal(timestep.final_obs[-3:], skill)
    np.testing.assert_array_equal(timestep.final_obs[:-3], expected.final_obs)


GOAL = Reach(probes.point_mass(), 0.2)


def toward(obs, key):
    """The action that leads to the goal."""
    return jnp.clip(10.0 * (obs["desired_goal"] - obs["achieved_goal"]), -1.0, 1.0)


def test_a_goal_is_reached():
    """Where the reward is 0, and not -1, there the task ends: within the tolerance, and
    nowhere else."""
    keys = jr.split(jr.key(0), 16)
    stop = lambda timestep: timestep.done
    out = eqsim.rollout(GOAL, toward, keys, 40, stop=stop)
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
    assert jnp.array_equal(GOAL.goals, probes.point_mass().descriptor_range)


def test_each_episode_has_a_goal_of_its_own():
    env = AutoReset(TimeLimit(GOAL, 3))
    out = eqsim.rollout(env, lambda obs, key: jnp.zeros(2), jr.key(0), 12)
    goals = np.asarray(out.obs["desired_goal"])
    assert len(np.unique(goals, axis=0)) == 4


# Compiles all checks of environments, for two of them.
@pytest.mark.slow
@pytest.mark.parametrize("wrapped", ("skills", "reach"))
def test_conforms(wrapped):
    skills = Skills(probes.point_mass(), OneHotSkills(3), 0.1)
    testing.check_conformance({"skills": skills, "reach": GOAL}[wrapped])


LOOPING = AutoReset(TimeLimit(probes.point_mass(), 4))
REFUSED = {
    "`OneHotSkills.size` must be .* at least 1": lambda: OneHotSkills(0),
    "`UniformSkills.size` must be .* at least 1": lambda: UniformSkills(-1),
    "`NormalSkills.size` must be .* integer": lambda: NormalSkills(True),
    "belongs to one episode": lambda: Skills(LOOPING, OneHotSkills(2)),
    "`Rail` has none": lambda: Reach(Rail()),
    r"shape \(2, 2\).*got \(3, 2\)": lambda: Reach(
        probes.point_mass(), goals=jnp.zeros((3, 2))
    ),
    "kept across episodes": lambda: Reach(LOOPING),
    "OneHotSkills|AbstractSkillPrior": lambda: Skills(probes.point_mass(), 5),  # pyright: ignore
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses(message):
    with pytest.raises((ValueError, TypeError), match=message):
        REFUSED[message]()
