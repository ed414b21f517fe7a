"""METRA: its loss, its reward, and what it learns on a point mass."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from zoo.skills import NETWORK, plane, TINY

import eqsim
import eqsim_zoo as zoo
from eqsim import AutoReset, testing, TimeLimit
from eqsim.wrappers import OneHotSkills
from eqsim_zoo.agents import Representation
from eqsim_zoo.agents.metra import latent_progress, metra_loss
from eqsim_zoo.training.evaluation import evaluate_policy


ROWS, SKILLS = 7, 3


def model(discrete=True):
    network = zoo.blocks.MLP.create(jr.key(0), (2, 5, SKILLS), dtype=float)
    return Representation(network, jnp.log(jnp.array(4.0)))


def rows():
    rng = np.random.default_rng(0)
    pair = 4.0 * rng.normal(size=(2, ROWS, 2))
    return *map(jnp.asarray, pair), jnp.eye(SKILLS)[jnp.arange(ROWS) % SKILLS]


def test_loss_is_numpy():
    """Equations 7 to 9 of the paper row by row; the gradients of embedding and dual
    variable are those of their own objectives."""
    here, there, skill = rows()
    representation, slack = model(), 0.3
    embed = lambda x: np.asarray(jax.vmap(representation.network)(x))
    change = embed(there) - embed(here)
    direction = 1.5 * (np.asarray(skill) - 1 / 3)
    progress = np.sum(change * direction, axis=1)
    square = np.sum(change**2, axis=1)
    margin = np.minimum(slack, 1.0 - square)
    assert np.any(margin < slack) and np.any(margin == slack)
    found = latent_progress(representation, here, there, skill, True)
    np.testing.assert_allclose(found, (progress, square), rtol=1e-12)

    def loss(model):
        return metra_loss(model, here, there, skill, jnp.array(slack), True)

    (value, report), slope = eqx.filter_value_and_grad(loss, has_aux=True)(
        representation
    )
    expected = -np.mean(progress + 4.0 * margin) + np.log(4.0) * np.mean(margin)
    assert float(value) == pytest.approx(expected, rel=1e-12)
    assert float(report["latent_distance"]) == pytest.approx(np.mean(square))
    assert float(slope.log_multiplier) == pytest.approx(np.mean(margin), rel=1e-12)

    def objective(network):
        other = Representation(network, representation.log_multiplier)
        progress, square = latent_progress(other, here, there, skill, True)
        return -jnp.mean(progress + 4.0 * jnp.minimum(slack, 1.0 - square))

    alone = eqx.filter_grad(objective)(representation.network)
    assert testing.tree_allclose(slope.network, alone, rtol=1e-9)


def test_directions_are_of_equal_length_and_sum_to_zero():
    discrete = jax.vmap(lambda z: model().direction(z, True))(jnp.eye(SKILLS))
    np.testing.assert_allclose(jnp.sum(discrete, axis=0), 0.0, atol=1e-12)
    lengths = jnp.linalg.norm(discrete, axis=1)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-12)
    point = model().direction(jnp.array([3.0, 4.0]), False)
    np.testing.assert_allclose(point, [0.6, 0.8], rtol=1e-12)


@pytest.mark.slow
def test_rewards_sac_for_progress():
    """By the new embedding; nothing but the reward reaches SAC."""
    agent = zoo.METRA(sac=TINY, hidden=(8,))
    state = eqx.filter_jit(agent.init)(jr.key(0), AutoReset(TimeLimit(plane(), 6)))
    rng = np.random.default_rng(1)
    drawn = lambda x: rng.uniform(-0.9, 0.9, (13, *x.shape[1:])).astype(x.dtype)
    rows = jax.tree.map(lambda x: jnp.asarray(drawn(x)), state.memory.replay.rows)
    obs = rows.transition.obs.at[:, 6:].set(jnp.eye(5)[jnp.arange(13) % 5])
    batch = eqx.tree_at(lambda b: b.transition.obs, rows, obs)
    bare = state.learner
    new, found = eqx.filter_jit(agent.update)(bare, batch)
    steps, space = batch.transition, bare.space
    pair = [jax.vmap(space.descriptor)(x) for x in (steps.obs, steps.next_obs)]
    skill = jax.vmap(space.skill)(steps.obs)
    progress, _ = latent_progress(new.model.model, *pair, skill, True)
    assert float(found["diversity"]) == pytest.approx(float(jnp.mean(progress)))
    inner = zoo.blocks.skill_space.with_reward(space, steps, progress)
    expected, _ = eqx.filter_jit(agent.sac.update)(bare.sac, inner)
    assert testing.tree_allclose(new.sac, expected, rtol=1e-9)
    statistics_of_target(agent.sac, bare.sac, inner, found)


def statistics_of_target(sac, state, batch, found):
    """Metrics of SAC, from networks and keys of its state."""
    _, key_next, _ = jr.split(state.key, 3)
    alpha = jnp.exp(state.temperature.model)
    keys = jr.split(key_next, 13)
    draw = lambda obs, key: state.actor.model(obs).sample_and_log_prob(key)
    action, log_prob = jax.vmap(draw)(batch.next_obs, keys)
    values = np.asarray(jax.vmap(state.target)(batch.next_obs, action))
    left = float(sac.discount) * (1.0 - np.asarray(batch.terminated))
    next_value = values.min(axis=1) - np.asarray(alpha * log_prob)
    target = np.asarray(batch.reward) + left * next_value
    close = lambda name, x: np.testing.assert_allclose(found[name], x, rtol=1e-9)
    close("target", target.mean())
    close("target_std", target.std())
    aim = float(sac.target_entropy) * batch.action.shape[1]
    loss = np.log(found["temperature"]) * (found["entropy"] - aim)
    close("temperature_loss", loss)


def test_evaluations_have_the_intrinsic_return():
    """The sum over each episode, up to its end; the episodes are those of the policy."""
    agent, env, key = zoo.METRA(sac=TINY, hidden=(8,)), plane(), jr.key(4)
    state = eqx.filter_jit(agent.init)(jr.key(0), AutoReset(TimeLimit(env, 6)))
    sizes = {"episodes": 3, "episode_length": 5}
    found = zoo.training.evaluate(agent, state, env, key, **sizes)
    policy = eqsim.agent_policy(agent, state)
    alone = evaluate_policy(policy, env, key, **sizes)
    assert alone.diversity is None
    np.testing.assert_array_equal(found.returns, alone.returns)
    embed, space = state.learner.model.model.network, state.learner.space
    reset, step, act = map(eqx.filter_jit, (env.reset, env.step, agent.act))
    for episode, own in enumerate(jr.split(key, 3)):
        robot, timestep = reset(jr.split(own)[0])
        first, skill = timestep.obs, space.skill(timestep.obs)
        for _ in range(5):
            robot, timestep = step(robot, act(state, timestep.obs))
            assert np.array_equal(space.skill(timestep.obs), skill)
        ends = [embed(space.descriptor(obs)) for obs in (first, timestep.obs)]
        direction = state.learner.model.model.direction(skill, True)
        # Progress of the steps adds up to that of the episode.
        expected = float((ends[1] - ends[0]) @ direction)
        assert found.diversity[episode] == pytest.approx(expected, rel=1e-9)
    assert np.ptp(found.diversity) > 1e-6


@pytest.mark.slow
def test_conforms():
    testing.check_conformance(zoo.METRA(sac=TINY, hidden=(8,)))


@pytest.mark.slow
def test_skills_part():
    """On a point mass, five skills end in five places, and are told apart by the progress
    along their directions."""
    agent, env = zoo.METRA(**NETWORK), plane(OneHotSkills(5))
    args = {"episode_length": 10, "pool_size": 16, "turns": 10, "evaluations": 0}
    state = zoo.train(zoo.Run(agent, env, 30_000, **args)).state
    paths = zoo.skills.follow_skills(
        agent, state, env, jr.key(1), episodes=4, episode_length=10
    )
    assert paths.accuracy()[1] == 1.0
    ends = paths.descriptors[:, 0, -1]
    apart = np.linalg.norm(ends[:, None] - ends[None], axis=-1)
    assert np.min(apart[np.triu_indices(5, 1)]) > 0.3
