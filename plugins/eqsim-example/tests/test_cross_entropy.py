"""The agent: what its update does, and that it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_example import BallBeam, CrossEntropy
from eqsim_example._cross_entropy import Candidates

import eqsim
import eqsim_zoo as zoo


ENV = BallBeam()


def test_update_moves_to_the_best():
    """Mean and deviation are those of the elites; what is not finite is not among
    them."""
    agent = CrossEntropy(population=6, elites=2, noise=0.5)
    state = agent.init(jr.key(0), ENV)
    parameters = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)))
    returns = jnp.array([1.0, jnp.nan, 5.0, -2.0, 4.0, jnp.inf])
    new, report = agent.update(state, Candidates(parameters, returns))
    chosen = np.asarray(parameters)[[2, 4]]
    layer = new.policy.network.layers[0]
    found = np.concatenate([layer.weight.ravel(), layer.bias])
    np.testing.assert_allclose(found, chosen.mean(axis=0))
    assert jnp.allclose(new.deviation, np.sqrt(chosen.var(axis=0) + 0.25))
    assert report["best"] == 5.0


@pytest.mark.parametrize("hidden", [(), (3,)])
def test_actions_stay_within_their_range(hidden):
    agent = CrossEntropy(deviation=100.0, hidden=hidden)
    state = agent.init(jr.key(0), ENV)
    act = lambda key: agent.act(state, jnp.ones(4), key=key)
    actions = jax.vmap(act)(jr.split(jr.key(1), 100))
    assert jnp.min(actions) < -0.99 and jnp.max(actions) > 0.99
    assert jnp.max(jnp.abs(actions)) <= 1.0
    assert agent.act(state, jnp.ones(4)) == 0.0


@pytest.mark.slow
def test_learns_to_balance():
    """Without learning the ball falls off; after it, it stays in the middle. Training and
    evaluation are those of every agent."""
    agent = CrossEntropy()
    first = eqx.filter_jit(agent.init)(jr.key(0), ENV)
    options = {"episodes": 16, "episode_length": 200}
    before = zoo.evaluate(agent, first, ENV, jr.key(7), **options).returns.mean()
    plan = dict(steps=500_000, episode_length=200, pool_size=0, evaluations=1)
    result = zoo.train(zoo.Run(agent, ENV, **plan))
    after = zoo.evaluate(agent, result.state, ENV, jr.key(7), **options).returns.mean()
    assert before < 100.0 < 180.0 < after
    policy = eqsim.agent_policy(agent, result.state)
    end = eqsim.rollout(ENV, policy, jr.split(jr.key(7), 16), 200).last[0]
    assert jnp.all(jnp.abs(end.q[:, 1]) < 0.1)


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"population": 4, "elites": 9},
            "elites` must be at most `population` = 4, got 9",
        ),
        ({"episodes": 0}, "`CrossEntropy.episodes` must be an integer of at least 1"),
        ({"deviation": 0.0}, "`CrossEntropy.deviation` must be finite and positive"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        CrossEntropy(**settings)
