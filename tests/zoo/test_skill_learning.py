"""Skills on a point mass: inference, prediction and planning towards goals."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from zoo.agents import init
from zoo.skills import dads, diayn, NETWORK, plane, SHARP

import eqsim
import eqsim_zoo as zoo
from eqsim import AutoReset, TimeLimit
from eqsim.testing import probes
from eqsim.wrappers import (
    AbstractStateless,
    Lifetime,
    OneHotSkills,
    Skills,
    UniformSkills,
)


def learned(agent, prior, length, steps=60_000, out=None):
    """With what it has learned."""
    env = plane(prior)
    sizes = {"steps": steps, "pool_size": 16, "turns": 10, "evaluations": 0}
    found = zoo.train(zoo.Run(agent, env, episode_length=length, **sizes), out=out)
    return found.state, env


@pytest.mark.slow
def test_diayn(tmp_path):
    """Five skills, which the discriminator tells by single steps, as it learns; and in
    episodes without noise but for the first step, not far from where all begin."""
    agent = zoo.DIAYN(**NETWORK)
    state, env = learned(agent, OneHotSkills(5), 10, out=tmp_path)
    assert zoo.runs.read_metrics(tmp_path)[-1]["discriminator_accuracy"] > 0.95
    paths = zoo.skills.follow_skills(
        agent, state, env, jr.key(1), episodes=4, episode_length=10
    )
    step, episode = paths.accuracy()
    assert step > 0.9
    assert episode == 1.0
    assert paths.reward() > 0.9 * np.log(5)


@pytest.mark.slow
def test_dads():
    agent = zoo.DADS(**NETWORK, **SHARP)
    state, env = learned(agent, OneHotSkills(5), 10, steps=30_000)
    paths = zoo.skills.follow_skills(
        agent, state, env, jr.key(1), episodes=4, episode_length=10
    )
    assert 0.8 * np.log(5) <= paths.reward() <= np.log(5)
    assert paths.accuracy()[1] == 1.0
    ends = paths.descriptors[:, 0, -1]
    apart = np.linalg.norm(ends[:, None] - ends[None], axis=-1)
    assert np.min(apart[np.triu_indices(5, 1)]) > 0.3
    real = np.diff(paths.descriptors, axis=2)
    np.testing.assert_allclose(paths.predicted, real, atol=0.05)


@pytest.mark.slow
def test_goals():
    """A continuum of skills covers the disc, and leads to 16 goals on two circles."""
    agent = zoo.DADS(**NETWORK, **SHARP, random_skills=64)
    state, env = learned(agent, UniformSkills(2), 20)
    skills = jax.vmap(UniformSkills(2).sample)(jr.split(jr.key(3), 256))
    paths = zoo.skills.follow_skills(
        agent, state, env, jr.key(1), skills=skills, episodes=1, episode_length=10
    )
    covered = paths.coverage()
    print(f"covered: {covered:.0%}")
    assert covered > 0.75
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    goals = jnp.asarray(np.concatenate([0.5 * circle, circle]))
    found = zoo.skills.reach_goals(
        agent, state, env, goals, jr.key(2), length=20, hold=2
    )
    print(f"distances: {found.distances()[:, -1].round(3)}")
    assert np.max(found.distances()[:, -1]) <= 0.15


@pytest.fixture(scope="module")
def made():
    """An agent that has learned nothing, its state and its environment."""
    agent, env = dads(random_skills=3), plane(UniformSkills(2))
    return agent, init(agent, jr.key(0), AutoReset(TimeLimit(env, 5))), env


SIZES = {"length": 4, "hold": 2, "horizon": 1}


@pytest.mark.slow  # `test_plans_end_with_the_episode` plans too.
def test_plans(made):
    """Skills are held, and are skills."""
    agent, state, env = made
    found = zoo.skills.reach_goals(
        agent, state, env, jnp.ones((3, 2)), jr.key(0), **SIZES
    )
    assert found.descriptors.shape == (3, 4, 2)
    assert found.skills.shape == (3, 4, 2)
    assert np.all(np.abs(found.skills) <= 1.0)
    assert np.array_equal(found.skills[:, 0], found.skills[:, 1])
    expected = np.linalg.norm(found.descriptors - 1.0, axis=-1)
    np.testing.assert_allclose(found.distances(), expected)


class Fence(AbstractStateless):
    """Ends at once, at the first step."""

    env: eqsim.AbstractEnv

    lifetime = Lifetime.EPISODE
    dt = property(lambda self: self.env.dt)
    action_range = property(lambda self: self.env.action_range)

    def reset(self, key, options=None):
        return self.env.reset(key, options)

    def step(self, state, action):
        state, timestep = self.env.step(state, action)
        return state, eqx.tree_at(lambda t: t.terminated, timestep, jnp.ones((), bool))


def test_plans_end_with_the_episode(made):
    agent, state, _ = made
    env = Skills(Fence(probes.point_mass()), UniformSkills(2))
    found = zoo.skills.reach_goals(
        agent, state, env, jnp.ones((3, 2)), jr.key(0), **SIZES
    )
    assert np.all(found.descriptors[:, 0] != 0.0)
    assert np.all(found.descriptors == found.descriptors[:, :1])


def test_refuses_plans(made):
    agent, state, env = made
    goals = jnp.ones((1, 2))
    with pytest.raises(
        ValueError, match="`length`, 5, must be a multiple of `hold`, 2"
    ):
        zoo.skills.reach_goals(agent, state, env, goals, jr.key(0), length=5, hold=2)
    with pytest.raises(ValueError, match=r"expected \(goals, 2\)"):
        zoo.skills.reach_goals(agent, state, env, jnp.ones((1, 3)), jr.key(0))
    with pytest.raises(TypeError):
        zoo.skills.reach_goals(diayn(), state, env, goals, jr.key(0))
    with pytest.raises(ValueError, match="`episodes` must be an integer of at least 1"):
        zoo.skills.follow_skills(agent, state, env, jr.key(0), episodes=0)


@pytest.mark.slow
def test_picture(made, tmp_path):
    """With limits and without."""
    agent, state, env = made
    paths = zoo.skills.follow_skills(agent, state, env, jr.key(0), episode_length=5)
    assert paths.descriptors.shape == (16, 8, 6, 2)
    zoo.skills.write_skills(paths, tmp_path / "one.png")
    endless = dataclasses.replace(paths, limits=None)
    zoo.skills.write_skills(endless, tmp_path / "two.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000
    assert (tmp_path / "two.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="limits of the descriptor are None"):
        endless.coverage()


@pytest.mark.parametrize("size", (1, 2))
def test_picture_of_goals(tmp_path, size):
    """Of descriptors of one number, too; goals may be tried several times."""
    rng = np.random.default_rng(0)
    goals = np.repeat(rng.normal(size=(2, size)), 2, axis=0)
    ways = goals[:, None] * np.linspace(0.0, 1.0, 5)[None, :, None]
    found = zoo.skills.Reached(goals, ways, np.zeros((4, 5, 3)))
    zoo.skills.write_goals(found, tmp_path / "goals.png", "ways")
    assert (tmp_path / "goals.png").stat().st_size > 10_000


def test_numbers_of_paths():
    """Accuracy, reward and coverage of paths that are made up."""
    posterior = np.log(np.array([[0.8, 0.2], [0.4, 0.6]]))
    # Skill 0 is told in every step; skill 1 in two of three, but by the whole episode.
    rows = np.stack([posterior[[0, 0, 0]], posterior[[1, 1, 0]]])[:, None]
    descriptors = np.zeros((2, 1, 4, 2))
    descriptors[1, 0, 1:] = 0.99
    paths = zoo.skills.SkillPaths(
        skills=np.eye(2),
        descriptors=descriptors,
        valid=np.ones((2, 1, 3), bool),
        returns=np.zeros((2, 1)),
        log_likelihood=rows,
        predicted=None,
        limits=np.array([[-1.0, 1.0], [-1.0, 1.0]]),
    )
    np.testing.assert_allclose(paths.confusion(), [[1, 0], [1 / 3, 2 / 3]])
    total = 2 * np.log(0.6 / 0.4) + np.log(0.2 / 0.8)
    assert paths.accuracy() == (pytest.approx(5 / 6), 1.0 if total > 0 else 0.5)
    own = np.array([0.8, 0.8, 0.8, 0.6, 0.6, 0.2])
    assert paths.reward() == pytest.approx(np.log(2) + np.log(own).mean())
    assert paths.coverage() == pytest.approx(2 / 400)
    short = dataclasses.replace(paths, valid=np.array([[[1, 0, 0]], [[1, 1, 0]]], bool))
    assert short.visits().sum() == 3
