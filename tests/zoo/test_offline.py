"""Losses of agents that learn from recordings equal plain NumPy, and lead to what is known
in advance."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special, stats
from zoo.recordings import (
    bandit,
    chain,
    COUNTS,
    everything,
    first,
    learned,
    random_batch,
    REWARDS,
    START_REWARD,
    STATES,
)

import eqsim_zoo as zoo
from eqsim_zoo import vision
from eqsim_zoo.agents.goal_agents import AbstractGoalAgent
from eqsim_zoo.agents.iql import expectile_loss
from eqsim_zoo.agents.offline_agent import Levels
from eqsim_zoo.data import Hindsight


SMALL = {"hidden": (5,)}
# A layer of its own for each state: a table.
TABLE = {"hidden": (), "learning_rate": 0.02}


@eqx.filter_jit
def _rows(net, x):
    return jax.vmap(net)(x)


def perceptron(net, x):
    """Return the outputs of a network, whose layers `test_networks.py` tests."""
    return np.asarray(_rows(net, jnp.asarray(x)))


def members(ensemble, x):
    """Return what each network of an ensemble gives, (number, rows, outputs)."""
    return perceptron(ensemble, x).swapaxes(0, 1)


def values(critic, obs, action):
    """Of recorded actions, (number, rows)."""
    head = critic
    if isinstance(head, zoo.blocks.Critic):
        return members(head.networks, np.concatenate([obs, action], axis=1))[..., 0]
    every, index = members(head.networks, obs), digits(action, head.levels.levels)
    return np.stack([q[np.arange(len(index)), index] for q in every])


def digits(action, levels):
    """The number of an action, by the base of levels."""
    digit = np.rint(0.5 * (action + 1) * (levels - 1)).astype(int)
    return np.array([sum(d * levels**k for k, d in enumerate(row)) for row in digit])


def log_prob(actor, obs, action):
    """Of recorded actions, and the best ones."""
    head = actor
    out = perceptron(head.network, obs)
    if hasattr(head, "raw"):
        mean = np.tanh(out)
        std = np.exp(-5.0 + 3.5 * (np.tanh(np.asarray(head.raw)) + 1.0))
        return stats.norm.logpdf(action, mean, std).sum(axis=1), mean
    table, index = head.levels.table(), digits(action, head.levels.levels)
    each = special.log_softmax(out, axis=1)[np.arange(len(index)), index]
    return each, table[out.argmax(axis=1)]


def arrays(batch):
    """The five that matter."""
    left = np.where(batch.terminated, 0.0, 0.99)
    return map(
        np.asarray, (batch.obs, batch.action, batch.reward, batch.next_obs, left)
    )


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


def followed(new, old, rate=0.005):
    """Targets follow what was learned in the same update."""
    close_tree = lambda x, y, z: close(z, (1 - rate) * np.asarray(y) + rate * x)
    parts = [eqx.filter(tree, eqx.is_inexact_array) for tree in (new, old[0], old[1])]
    jax.tree_util.tree_map(close_tree, *parts)


@eqx.filter_jit
def update(agent, state, batch):
    return agent.update(state, batch)


each_kind = pytest.mark.parametrize("levels", (0, 3), ids=("numbers", "levels"))


@each_kind
def test_bc_equals_numpy(levels):
    agent, batch = zoo.BC(levels=levels, **SMALL), random_batch(levels=levels)
    state = first(agent, 3, 2)
    _, metrics = update(agent, state, batch)
    obs, action, *_ = arrays(batch)
    log, best = log_prob(state.actor.model, obs, action)
    close(metrics["loss"], -log.mean())
    close(metrics["action_distance"], ((best - action) ** 2).sum(axis=1).mean())
    if levels:
        close(metrics["accuracy"], (best == action).all(axis=1).mean())


def test_bc_of_one_action_equals_numpy():
    agent, batch = zoo.BC(deterministic=True, **SMALL), random_batch()
    state = first(agent, 3, 2)
    _, metrics = update(agent, state, batch)
    obs, action, *_ = arrays(batch)
    best = np.tanh(perceptron(state.actor.model.network, obs))
    drawn = agent.act(state, batch.obs[0], key=jr.key(0))
    assert jnp.array_equal(drawn, agent.act(state, batch.obs[0]))
    close(metrics["loss"], ((best - action) ** 2).sum(axis=1).mean())


@each_kind
@pytest.mark.quick_cases("numbers")
def test_iql_equals_numpy(levels):
    agent = zoo.IQL(levels=levels, weight_limit=1.0, reward_scale=2.0, **SMALL)
    batch, state = random_batch(1, levels=levels), first(agent, 3, 2, 1)
    # Targets of their own, so that it matters which is taken.
    state = dataclasses.replace(state, target=first(agent, 3, 2, 9).target)
    new, metrics = update(agent, state, batch)
    obs, action, reward, next_obs, left = arrays(batch)
    q = values(state.target, obs, action).min(axis=0)
    of = lambda learner, x: perceptron(learner.model.network, x)[:, 0]
    off = q - of(state.value, obs)
    close(metrics["value_loss"], (np.where(off > 0, 0.7, 0.3) * off**2).mean())
    advantage = q - of(new.value, obs)
    close(metrics["advantage"], advantage.mean())
    weight = np.minimum(np.exp(3.0 * advantage), 1.0)
    close(metrics["limited"], (weight == 1.0).mean())
    log, _ = log_prob(state.actor.model, obs, action)
    close(metrics["actor_loss"], -(weight * log).mean())
    target = 2.0 * reward + left * of(new.value, next_obs)
    found = values(state.critic.model, obs, action)
    close(metrics["critic_loss"], ((found - target) ** 2).mean(axis=1).sum())
    followed(new.critic.model, (state.target, new.target))


def test_td3_bc_equals_numpy():
    agent = zoo.TD3BC(target_noise=0.0, normalize_observations=False, **SMALL)
    batch, state = random_batch(), first(agent, 3, 2)
    other = first(agent, 3, 2, 9)
    state = dataclasses.replace(state, targets=other.targets)
    new, metrics = update(agent, state, batch)
    obs, action, reward, next_obs, left = arrays(batch)
    best = lambda actor, x: np.tanh(perceptron(actor.network, x))
    after = values(state.targets[1], next_obs, best(state.targets[0], next_obs))
    target = reward + left * after.min(axis=0)
    found = values(state.critic.model, obs, action)
    close(metrics["critic_loss"], ((found - target) ** 2).mean(axis=1).sum())
    own = best(state.actor.model, obs)
    q = values(new.critic.model, obs, own)[0]
    cloned = ((own - action) ** 2).mean()
    close(metrics["actor_loss"], cloned - 2.5 / np.abs(q).mean() * q.mean())
    followed((new.actor.model, new.critic.model), (state.targets, new.targets))
    # The next update leaves the policy and the targets as they are.
    after, _ = update(agent, new, batch)
    assert eqx.tree_equal((after.actor, after.targets), (new.actor, new.targets))
    assert not eqx.tree_equal(after.critic, new.critic)


@each_kind
@pytest.mark.quick_cases("numbers")
def test_awac_equals_numpy(levels):
    """With critics to which all actions are equal, so that it does not matter which are
    drawn: then it clones."""
    agent, batch = zoo.AWAC(levels=levels, **SMALL), random_batch(levels=levels)
    state = first(agent, 3, 2)
    state = dataclasses.replace(
        state, target=_indifferent(first(agent, 3, 2, 9).target)
    )
    learner = dataclasses.replace(
        state.critic, model=_indifferent(state.critic.model, 0.0)
    )
    state = dataclasses.replace(state, critic=learner)
    _, metrics = update(
        zoo.AWAC(levels=levels, learning_rate=0.0, **SMALL), state, batch
    )
    obs, action, reward, next_obs, left = arrays(batch)
    anything = np.zeros_like(action)
    target = reward + left * values(state.target, next_obs, anything).min(axis=0)
    close(metrics["critic_loss"], 2.0 * (target**2).mean())
    close(metrics["advantage"], 0.0)
    close(metrics["actor_loss"], -log_prob(state.actor.model, obs, action)[0].mean())


def _layers(critic):
    return critic.networks.members.layers


def _indifferent(critic, scale=1.0):
    """A critic to which all actions of a state are equal."""
    if isinstance(critic, zoo.blocks.Critic):
        where = lambda c: _layers(c)[0].weight
        critic = eqx.tree_at(where, critic, where(critic).at[:, 3:].set(0.0))
    where = lambda c: (_layers(c)[-1].weight, _layers(c)[-1].bias)
    mean = lambda x: jnp.broadcast_to(x[..., :1], x.shape) * scale
    return eqx.tree_at(where, critic, tuple(map(mean, where(critic))))


def test_discrete_cql_equals_numpy():
    agent = zoo.DiscreteCQL(temperature=0.5, conservative_weight=3.0, **SMALL)
    batch, state = random_batch(levels=3), first(agent, 3, 2)
    state = dataclasses.replace(state, target=first(agent, 3, 2, 9).target)
    new, metrics = update(agent, state, batch)
    obs, action, reward, next_obs, left = arrays(batch)
    every = lambda critic, x: members(critic.networks, x)
    best = every(state.critic.model, next_obs).min(axis=0).argmax(axis=1)
    after = every(state.target, next_obs)[:, np.arange(len(best)), best]
    target = reward + left * after.min(axis=0)
    q = values(state.critic.model, obs, action)
    soft = 0.5 * special.logsumexp(every(state.critic.model, obs) / 0.5, axis=2)
    loss = (q - target) ** 2 + 3.0 * (soft - q)
    close(metrics["critic_loss"], loss.mean(axis=1).sum())
    close(metrics["gap"], (soft - q).mean())
    followed(new.critic.model, (state.target, new.target))


def _linear(critic, slope, offset):
    """A critic whose values are linear in the action."""
    where = lambda c: (_layers(c)[0].weight, _layers(c)[0].bias)
    weight, bias = where(critic)
    weight = (weight * 0.0).at[:, 3:, 0].set(jnp.asarray(slope)[None])
    return eqx.tree_at(where, critic, (weight, bias * 0.0 + offset))


@pytest.mark.slow  # `test_cql_equals_numpy` has the same sum.
def test_cql_estimates_the_integral():
    r"""$\int e^{c + w a} da = e^c \prod 2 \sinh(w_i) / w_i$ over $[-1, 1]^n$."""
    agent = zoo.CQL(num_actions=20_000, hidden=(), learning_rate=0.0)
    batch, state = random_batch(rows=3), first(agent, 3, 2)
    slope, offset = np.array([1.5, -0.7]), 0.4
    where = lambda s: (s.critic.model, s.actor.model.network.layers[-1].bias)
    # Wide enough to draw all actions: a deviation of 1 before tanh.
    wide = jnp.array([0.0, 0.0, 0.458, 0.458])
    parts = _linear(state.critic.model, slope, offset), wide
    _, metrics = update(agent, eqx.tree_at(where, state, parts), batch)
    exact = offset + np.sum(np.log(2.0 * np.sinh(slope) / slope))
    q = offset + np.asarray(batch.action) @ slope
    np.testing.assert_allclose(metrics["gap"], exact - q.mean(), atol=0.01)
    weighted = metrics["td_loss"] + 2.0 * 5.0 * metrics["gap"]
    close(metrics["critic_loss"], weighted)


def test_cql_equals_numpy():
    """Where all actions are equal to the targets; and its policy, with few steps, clones."""
    agent, batch = zoo.CQL(num_actions=2, **SMALL), random_batch()
    state = first(agent, 3, 2)
    state = dataclasses.replace(
        state, target=_indifferent(first(agent, 3, 2, 9).target)
    )
    new, metrics = update(agent, state, batch)
    obs, action, reward, next_obs, left = arrays(batch)
    anything = np.zeros_like(action)
    target = reward + left * values(state.target, next_obs, anything).min(axis=0)
    q = values(state.critic.model, obs, action)
    close(metrics["td_loss"], ((q - target) ** 2).mean(axis=1).sum())
    close(metrics["q"], q.mean())
    followed(new.critic.model, (state.target, new.target))
    assert new.multiplier.model == state.multiplier.model
    with_threshold = zoo.CQL(num_actions=2, threshold=100.0, **SMALL)
    fewer, _ = update(with_threshold, state, batch)
    assert fewer.multiplier.model < state.multiplier.model
    # The published dual step: above a threshold of the weighted gap, not of the gap.
    between = 0.5 * (1.0 + 5.0) * float(metrics["gap"])
    assert float(metrics["gap"]) > 0.0
    dual = zoo.CQL(num_actions=2, threshold=between, **SMALL)
    more, found = update(dual, state, batch)
    slope = 5.0 * float(metrics["gap"]) - between
    close(more.multiplier.model, float(dual.learning_rate) * slope / (slope + 1e-8))
    close(found["critic_loss"], metrics["td_loss"] + 2.0 * slope)
    close(found["conservative_weight"], 5.0)
    _, found = update(dual, more, batch)
    close(found["conservative_weight"], 5.0 * np.exp(float(more.multiplier.model)))
    early = zoo.CQL(num_actions=2, warmup_steps=10.0, **SMALL)
    _, found = update(early, state, batch)
    raw = np.arctanh(np.clip(action, -1 + 1e-5, 1 - 1e-5))
    head = state.actor.model
    recorded = jax.vmap(lambda o, u: head(o).log_prob(u))(batch.obs, jnp.asarray(raw))
    alpha_log = -float(found["entropy"])
    close(found["actor_loss"], alpha_log - float(recorded.mean()))


def test_expectile(getkey):
    r"""The least of the loss is where $\tau E(x - v)^+ = (1 - \tau) E(v - x)^+$."""
    x = jr.normal(getkey(), (1000,))
    tau = jnp.asarray(0.95)
    loss = lambda v: jnp.mean(expectile_loss(tau, x - v))
    v = jnp.zeros(())
    for _ in range(50):  # Newton's steps, as it is piecewise quadratic.
        v = v - jax.grad(loss)(v) / jax.grad(jax.grad(loss))(v)
    above, below = jnp.maximum(x - v, 0.0), jnp.maximum(v - x, 0.0)
    close(tau * above.mean(), (1 - tau) * below.mean())


def test_levels_have_numbers():
    levels, table = 3, Levels(3, 3)
    numbers = jnp.arange(table.count)
    actions = table.action(numbers, jnp.float64)
    assert np.array_equal(table.index(actions), numbers)
    assert np.array_equal(digits(np.asarray(actions), levels), numbers)
    assert len(np.unique(actions, axis=0)) == levels**3
    near = actions + 0.4 / (levels - 1)
    assert np.array_equal(table.index(near), numbers)


# What is learned, where the answer is known.


@pytest.mark.slow  # The losses equal those in NumPy.
def test_iql_knows_the_chain():
    r"""Of two equally frequent actions the expectile is $\tau \max + (1 - \tau) \min$."""
    expectile = 0.9
    agent = zoo.IQL(levels=2, expectile=expectile, temperature=2.0, **TABLE)
    agent = eqx.tree_at(lambda a: a.target_rate, agent, jnp.asarray(0.1))
    state = learned(agent, first(agent), chain(), 2500)
    second = expectile
    on = 0.99 * second
    high, low = max(on, START_REWARD), min(on, START_REWARD)
    expected = np.array([expectile * high + (1 - expectile) * low, second])
    value = jax.vmap(state.value.model)(jnp.asarray(STATES))
    np.testing.assert_allclose(value, expected, atol=2e-3)
    q = jax.vmap(lambda obs: state.critic.model(obs))(jnp.asarray(STATES))
    np.testing.assert_allclose(q[0], [[START_REWARD, on]] * 2, atol=2e-3)
    np.testing.assert_allclose(q[1], [[0.0, 1.0]] * 2, atol=2e-3)
    # Weights of exp(2 A) make the policy.
    logits = jax.vmap(state.actor.model)(jnp.asarray(STATES)).logits
    odds = np.asarray(logits[:, 1] - logits[:, 0])
    np.testing.assert_allclose(odds, [2.0 * (on - START_REWARD), 2.0], atol=0.02)


def test_discrete_cql_knows_the_chain():
    r"""$p_a 2 (Q_a - y_a) + \alpha' (\mathrm{softmax}(Q)_a - p_a) = 0$ for recorded
    frequencies $p_a$."""
    weight = 1.0
    agent = zoo.DiscreteCQL(levels=2, conservative_weight=weight, **TABLE)
    agent = eqx.tree_at(lambda a: a.target_rate, agent, jnp.asarray(0.1))
    state = learned(agent, first(agent), chain(), 2500)
    found = jax.vmap(state.critic.model)(jnp.asarray(STATES))

    def stationary(y):
        q = np.array(y)
        for _ in range(500):
            q = 0.5 * q + 0.5 * (y - weight * (special.softmax(q) - 0.5))
        return q

    second = stationary(np.array([0.0, 1.0]))
    start = stationary(np.array([START_REWARD, 0.99 * second.max()]))
    np.testing.assert_allclose(found[0], [start] * 2, atol=3e-3)
    np.testing.assert_allclose(found[1], [second] * 2, atol=3e-3)


def test_bc_knows_the_bandit():
    """Frequencies of levels; mean and deviation of numbers."""
    data, obs = bandit(), jnp.asarray(STATES)
    agent = zoo.BC(levels=3, **TABLE)
    state = learned(agent, first(agent), data, 2000)
    shares = jax.nn.softmax(jax.vmap(state.actor.model)(obs).logits, axis=1)
    frequencies = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, frequencies, atol=1e-3)
    agent = zoo.BC(**TABLE)
    state = learned(agent, first(agent), data, 2000)
    mean = frequencies @ [-1.0, 0.0, 1.0]
    np.testing.assert_allclose(
        [float(agent.act(state, o)[0]) for o in obs], mean, atol=2e-3
    )
    spread = everything(data)
    off = np.asarray(spread.action[:, 0]) - np.asarray(spread.obs) @ mean
    log_std = state.actor.model(obs[0]).log_std
    np.testing.assert_allclose(log_std, np.log(off.std()), atol=2e-3)


@pytest.mark.slow  # The losses equal those in NumPy.
def test_awac_knows_the_bandit():
    r"""$\pi(a) \propto p(a)\,e^{r(a) / \lambda}$."""
    temperature = 0.5
    agent = zoo.AWAC(levels=3, temperature=temperature, num_actions=64, **TABLE)
    agent = eqx.tree_at(lambda a: a.learning_rate, agent, jnp.asarray(0.01))
    state = learned(agent, first(agent), bandit(), 3000)
    shares = jax.nn.softmax(jax.vmap(state.actor.model)(jnp.asarray(STATES)).logits)
    known = COUNTS * np.exp(REWARDS / temperature)
    np.testing.assert_allclose(
        shares, known / known.sum(axis=1, keepdims=True), atol=0.02
    )


@pytest.mark.slow
def test_td3_bc_goes_from_cloning_to_the_best():
    """Without values it clones; with them it goes where the reward is."""
    draws = np.random.default_rng(0)
    action = draws.uniform(-1, 1, (400, 1))
    obs, done = np.ones((400, 1)), np.ones(400, bool)
    reward = -((action[:, 0] - 0.5) ** 2)
    data = zoo.data.Dataset.create(obs, action, reward, obs, done, ~done)
    fixed = {"hidden": (32,), "learning_rate": 3e-3, "normalize_observations": False}
    means = []
    for alpha in (0.0, 100.0):
        agent = zoo.TD3BC(alpha=alpha, **fixed)
        state = learned(agent, first(agent, 1), data, 1500)
        means.append(float(agent.act(state, jnp.ones(1))[0]))
    np.testing.assert_allclose(means, [action.mean(), 0.5], atol=0.06)


SHARED = vision.Images(vision.Impala(), shared=True)


class Goals(AbstractGoalAgent):
    """A goal-conditioned agent that holds any other."""

    agent: Any
    hindsight: Hindsight = Hindsight()


BAD = {
    "`Offline` learns from single transitions, but `RecurrentPPO` is": lambda: (
        zoo.Offline(zoo.RecurrentPPO())
    ),
    "`Goals` learns from single transitions, but `RecurrentPPO` is": lambda: Goals(
        zoo.RecurrentPPO()
    ),
    "`BC` with `levels=3` has": lambda: zoo.BC(levels=3, deterministic=True),
    "`TD3BC.policy_delay` must be .* got 0": lambda: zoo.TD3BC(policy_delay=0),
    "`CQL.num_actions` must be .* got 0": lambda: zoo.CQL(num_actions=0),
    "`AWAC.num_actions` must be .* got 0": lambda: zoo.AWAC(num_actions=0),
    "`BC.levels` must be .* got 1": lambda: zoo.BC(levels=1),
    "give 59,049 actions, but at most 4,096": lambda: first(zoo.IQL(levels=3), nu=10),
    "`BC` does not support `shared`": lambda: zoo.BC(inputs=SHARED),
    "`DiscreteCQL` does not support `shared`": lambda: zoo.DiscreteCQL(inputs=SHARED),
    "`IQL.inputs` is `Images`, but .* no image": lambda: first(zoo.IQL(inputs=SHARED)),
    "`DiscreteCQL.levels` must be at least 2, got 0": lambda: zoo.DiscreteCQL(levels=0),
    "`Offline.batch_size` must be .* got 0": lambda: zoo.Offline(
        zoo.BC(), batch_size=0
    ),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_bad_settings(make, request):
    # Where types are checked as well, that comes first.
    with pytest.raises(
        (ValueError, TypeError), match=request.node.callspec.id.split("[")[0]
    ):
        make()
