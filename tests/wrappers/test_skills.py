"""Priors of skills, and the wrapper that gives them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import eqsim
from eqsim import AutoReset, testing, TimeLimit
from eqsim.testing import probes
from eqsim.wrappers import (
    NormalSkills,
    OneHotSkills,
    pool_resets,
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


@pytest.mark.parametrize("kind", (OneHotSkills, UniformSkills, NormalSkills))
@pytest.mark.parametrize("size", (0, -1, True))
def test_refuses_sizes(kind, size):
    with pytest.raises(ValueError, match="must be an integer of at least 1"):
        kind(size)


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


@pytest.mark.slow
def test_conforms():
    testing.check_conformance(Skills(probes.point_mass(), OneHotSkills(3), 0.1))


def test_refuses():
    with pytest.raises(TypeError, match="OneHotSkills|AbstractPrior"):
        Skills(probes.point_mass(), 5)
    with pytest.raises(ValueError, match="belongs to one episode"):
        Skills(AutoReset(TimeLimit(probes.point_mass(), 4)), OneHotSkills(2))


def test_point_mass_step():
    """As its docstring says."""
    env = probes.point_mass()
    state, _ = env.reset(jr.key(0))
    action = jnp.array([0.5, -1.0])
    v = x = jnp.zeros(2)
    for _ in range(3):
        state, timestep = eqx.filter_jit(env.step)(state, action)
        v = (v + 0.1 * 100 * action) / (1 + 0.1 * 100)
        x = x + 0.1 * v
    assert testing.tree_allclose(timestep.obs, jnp.concatenate([x, v]), rtol=1e-12)
    assert testing.tree_allclose(timestep.descriptor, x, rtol=1e-12)
    expected = -jnp.sum((x - jnp.array([1.0, 0.0])) ** 2)
    np.testing.assert_allclose(timestep.reward, expected, rtol=1e-12)


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
