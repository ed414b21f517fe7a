"""Small recordings of which the best that can be learned is known."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import eqsim_zoo as zoo


STATES = np.eye(2)
"""What is observed in the two states of the chain, and in the contexts of the bandit."""
START_REWARD = 0.3
"""For the action that ends the chain at its first state."""
REWARDS = np.array([[0.0, 0.5, 1.0], [0.8, 0.2, -0.5]])
"""Of the bandit, by context and action: -1, 0 or 1."""
COUNTS = np.array([[1, 2, 3], [3, 1, 2]])
"""How often the bandit's actions were recorded."""


def chain():
    """From the first of two states the action 1 leads to the second without a reward, and
    -1 ends it with `START_REWARD`; in the second, 1 is rewarded with 1, -1 is not, and both
    end it. All four steps are recorded once."""
    obs = STATES[[0, 1, 0, 1]]
    next_obs = STATES[[1, 1, 0, 1]]
    action = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    reward = np.array([0.0, 1.0, START_REWARD, 0.0])
    terminated = np.array([False, True, True, True])
    return zoo.data.Dataset.create(
        obs, action, reward, next_obs, terminated, ~terminated
    )


def bandit():
    """Two contexts, three actions, and nothing follows."""
    context = np.repeat([0, 0, 0, 1, 1, 1], COUNTS.ravel())
    action = np.repeat([0, 1, 2, 0, 1, 2], COUNTS.ravel())
    obs, done = STATES[context], np.ones(len(context), bool)
    taken, reward = (action - 1.0)[:, None], REWARDS[context, action]
    return zoo.data.Dataset.create(obs, taken, reward, obs, done, ~done)


def everything(data):
    """All steps, once each, as a batch."""
    return data.rows(jnp.arange(len(data)))


def random_batch(seed=0, rows=7, nobs=3, nu=2, levels=0):
    """Numbers without a meaning."""
    draws = np.random.default_rng(seed)
    action = draws.uniform(-1, 1, (rows, nu))
    if levels:
        action = 2.0 * draws.integers(0, levels, (rows, nu)) / (levels - 1) - 1.0
    arrays = draws.normal(size=(rows, nobs)), action, draws.normal(size=rows)
    over = draws.random(rows) < 0.4
    after = draws.normal(size=(rows, nobs)), over, ~over & (draws.random(rows) < 0.3)
    return zoo.blocks.Transition(*map(jnp.asarray, (*arrays, *after)))


def learned(agent, state, data, updates, number=None):
    """After so many updates: with all steps each time, or with batches of a number."""
    import equinox as eqx
    from jax import lax

    def one(state, key):
        batch = everything(data) if number is None else data.sample(key, number)
        return agent.update(state, batch)[0], None

    run = eqx.filter_jit(
        lambda state: lax.scan(one, state, jr.split(jr.key(1), updates))[0]
    )
    return run(state)


def first(agent, nobs=2, nu=1, seed=0):
    """The state of an agent that knows nothing."""
    bounds = jnp.tile(jnp.array([[-1.0, 1.0]]), (nu, 1))
    return agent.create(jr.key(seed), jnp.zeros(nobs), bounds)
