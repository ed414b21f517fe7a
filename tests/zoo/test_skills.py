"""DIAYN and DADS: what rewards are, from where gradients come, and what is remembered."""

import dataclasses

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import examples
from scipy import stats
from zoo.agents import act, init, iterate
from zoo.skills import dads, diayn, plane

import eqsim
import eqsim_zoo as zoo
from eqsim import AutoReset, testing, TimeLimit
from eqsim.testing import probes
from eqsim.wrappers import NormalSkills, OneHotSkills, Skills, UniformSkills
from eqsim_zoo.agents.dads import predictability
from eqsim_zoo.agents.diayn import diversity_reward
from eqsim_zoo.blocks.skill_space import log_density, SkillPolicy


AGENTS = {
    "diayn": (diayn(), OneHotSkills(5)),
    "diayn, continuum": (diayn(reward_on_next=False), NormalSkills(2)),
    "dads": (dads(), OneHotSkills(5)),
    "dads, continuum": (
        dads(
            random_skills=3,
            dynamics_update_freq=2,
            dynamics_updates=2,
            importance_weights=True,
            identity_covariance=False,
            omit_input_dynamics_dim=0,
        ),
        UniformSkills(2),
    ),
    "dads, all is described": (
        dads(descriptor_full_state=True, dynamics_update_freq=0, dynamics_updates=1),
        OneHotSkills(2),
    ),
}


def training(prior, length=5):
    return AutoReset(TimeLimit(plane(prior), length))


def grown(agent, prior, iterations=4, key=0):
    """A state after some iterations, and the last report."""
    env = training(prior)
    state, metrics = init(agent, jr.key(key), env), {}
    for _ in range(iterations):
        state, metrics = iterate(agent, state, env)
    return state, metrics


@pytest.mark.parametrize("name", ("diayn", "dads, continuum"))
@pytest.mark.quick_cases("diayn")
def test_learns_and_acts(name):
    """Reproducibly, within bounds, with finite numbers; the number of environments and
    the size of a batch have nothing to do with that of skills."""
    agent, prior = AGENTS[name]
    (state, metrics), (again, _) = grown(agent, prior), grown(agent, prior)
    assert testing.tree_allclose(state, again, rtol=0.0, atol=0.0)
    other, _ = grown(agent, prior, key=1)
    assert not testing.tree_allclose(state.learner.sac, other.learner.sac)
    assert all(jnp.isfinite(x) for x in metrics.values())
    assert metrics["steps"] == 14
    assert int(state.learner.updates) == 6  # Not in the first iteration.
    obs = training(prior).reset(jr.key(2))[1].obs
    best = act(agent, state, obs)
    assert jnp.all(jnp.abs(best) <= 1.0)
    assert jnp.array_equal(best, act(agent, state, obs))
    assert not jnp.array_equal(best, act(agent, state, obs, jr.key(1)))


@pytest.mark.slow  # They hold a SAC, whose checks are quick in `test_agents.py`.
@pytest.mark.parametrize("agent", (diayn(), dads(omit_input_dynamics_dim=0)))
def test_conforms(agent):
    """To all that is asked of agents, but to learn rewards."""
    found = testing.check_conformance(agent, build=lambda: type(agent)(**vars(agent)))
    left = {name for name, outcome in found.items() if outcome != "passed"}
    assert left == {"learns_action", "learns_observation"}


def test_policy_does_not_see_the_descriptor():
    """But the skill, which is not normalized."""
    agent, prior = AGENTS["diayn"]
    state, _ = grown(agent, prior)
    obs = jr.normal(jr.key(0), (4 + 2 + 5,))
    moved = obs.at[4:6].add(100.0)
    assert jnp.array_equal(act(agent, state, obs), act(agent, state, moved))
    assert jnp.array_equal(state.learner.space.input(obs)[4:], obs[6:])
    assert not jnp.array_equal(state.learner.space.input(obs)[:4], obs[:4])
    other = state.learner.space.with_skill(obs, jnp.eye(5)[0])
    assert jnp.array_equal(other[:6], obs[:6])
    assert jnp.array_equal(other[6:], jnp.eye(5)[0])


@pytest.mark.slow  # `test_observations.py` tests running statistics.
def test_statistics():
    """Of what was observed, of descriptors and of their changes, over all steps."""
    agent, prior = AGENTS["dads, continuum"]
    state, _ = grown(agent, prior)
    rows = state.memory.replay.rows.transition
    number = int(state.memory.replay.size)
    obs, after = (np.asarray(x)[:number] for x in (rows.obs, rows.next_obs))
    for found, values in (
        (state.learner.space.observations, obs[:, :4]),
        (state.learner.space.descriptors, obs[:, 4:6]),
        (state.learner.space.changes, after[:, 4:6] - obs[:, 4:6]),
    ):
        # They begin as those of one row of mean 0 and variance 1.
        n = number + 1
        mean = values.sum(axis=0) / n
        square = 1.0 + (values**2).sum(axis=0) - n * mean**2
        np.testing.assert_allclose(found.mean, mean, atol=1e-12)
        np.testing.assert_allclose(found.variance, square / n, rtol=1e-9)


# Rewards.


LIMITS = jnp.array([0.3, 10.0])


def mixture(model, x, z, change):
    """The density of a mixture, with scipy."""
    out = np.asarray(
        model.network(jnp.asarray(np.concatenate([x[model.omitted :], z])))
    )
    weights = np.exp(out[: model.components] - out[: model.components].max())
    rest = out[model.components :].reshape(model.components, -1)
    mean, std = rest, np.ones_like(rest)
    if not model.unit:
        mean, raw = np.split(rest, 2, axis=1)
        std = np.clip(np.log1p(np.exp(raw)), *np.asarray(LIMITS))
    each = stats.norm.pdf(change, mean, std).prod(axis=1)
    return (weights / weights.sum()) @ each


@hypothesis.given(
    skills=st.integers(1, 6),
    components=st.integers(1, 4),
    omitted=st.integers(0, 2),
    unit=st.booleans(),
    sampled=st.booleans(),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(max_examples=examples(12), deadline=None)
def test_predictability(skills, components, omitted, unit, sampled, seed):
    """As plain loops say, and at most the logarithm of the number of skills."""
    rng = np.random.default_rng(seed)
    width = 2 - omitted + skills
    network = zoo.blocks.MLP.create(
        jr.key(seed),
        (width, 5, components * (1 + (2 if unit else 4))),
        dtype=jnp.float64,
    )
    model = zoo.agents.dads.SkillDynamics(network, omitted, components, unit)
    x, change = rng.normal(size=(2, 4, 2))
    z = np.eye(skills)[rng.integers(skills, size=4)]
    others = rng.normal(size=(3, skills)) if sampled else np.eye(skills)
    arrays = map(jnp.asarray, (x, z, change, others))
    found = eqx.filter_jit(predictability)(model, *arrays, LIMITS, itself=sampled)
    compared = len(others) + sampled
    for k in range(4):
        own = np.log(mixture(model, x[k], z[k], change[k]))
        total = 1.0 if sampled else 0.0
        for other in others:
            off = np.log(mixture(model, x[k], other, change[k])) - own
            total += np.exp(np.clip(off, -50, 50))
        np.testing.assert_allclose(
            found[k], np.log(compared) - np.log(total), 1e-7, 1e-9
        )
    assert jnp.all(found <= np.log(compared) + 1e-12)


def test_perfect_discriminator():
    """The reward of DIAYN is the logarithm of the number of skills where it is sure, and
    0 where it has no idea."""
    for sure, expected in ((1e3, np.log(4)), (0.0, 0.0)):
        layer = zoo.blocks.networks.Linear(sure * jnp.eye(4), jnp.zeros(4))
        network = zoo.blocks.MLP((layer,), (), jax.nn.relu)
        model, rows = zoo.agents.Discriminator(network, True), (jnp.eye(4), jnp.eye(4))
        reward = diversity_reward(model, OneHotSkills(4), *rows, jnp.asarray(0.1))
        np.testing.assert_allclose(reward, expected, atol=1e-12)


def test_discriminator_of_a_continuum():
    """A normal density, by scipy; less that of the prior."""
    layer = zoo.blocks.networks.Linear(jr.normal(jr.key(0), (3, 4)), jnp.zeros(4))
    model = zoo.agents.Discriminator(zoo.blocks.MLP((layer,), (), jax.nn.relu), False)
    least = jnp.asarray(0.2)
    x, z = jr.normal(jr.key(1), (5, 3)), jr.normal(jr.key(2), (5, 2))
    found = diversity_reward(model, NormalSkills(2), x, z, least)
    mean, raw = np.split(np.asarray(x @ layer.weight), 2, axis=1)
    own = stats.norm.logpdf(z, mean, 0.2 + np.log1p(np.exp(raw))).sum(axis=1)
    expected = own - stats.norm.logpdf(z).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    without = diversity_reward(model, NormalSkills(2), x, z, least, log_prior=False)
    np.testing.assert_allclose(without, own, rtol=1e-9)


LIMITED = {
    "diayn, continuum": {"least_std": 5.0},
    "dads, continuum": {"std_range": (5.0, 10.0)},
}


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.slow  # Optimizes a model until it reaches its limits.
def test_limits_of_deviations_are_those_of_the_agent(batches, name):
    """And not those of the agent that made the state."""
    agent, state, batch = batches[name]
    wide = type(agent)(**vars(agent) | LIMITED[name])
    steps = batch.transition
    row = steps.obs[0], steps.next_obs[0], state.space.skill(steps.obs[0])
    likelihood = lambda agent: float(agent.log_likelihood(state, *row))
    # The density of two numbers is nowhere higher than that of a deviation of 5.
    most = -np.log(2.0 * np.pi * 5.0**2)
    assert likelihood(wide) <= most < likelihood(agent)
    updated = [one.update(state, batch)[0].model.model for one in (agent, wide)]
    assert not testing.tree_allclose(*updated)


@pytest.fixture(scope="module")
def batches():
    """Learners and batches to learn from, by name: made when they are asked for."""

    class Batches(dict):
        def __missing__(self, name):
            agent, prior = AGENTS[name]
            state, _ = grown(agent, prior)
            batch = state.memory.replay.sample(jr.key(3), 13)
            self[name] = agent, state.learner, batch
            return self[name]

    return Batches()


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.quick_cases("diayn")
def test_gradients_flow_only_where_they_should(batches, name):
    """The reward is a number to SAC, and the policy one to the network of skills."""
    agent, state, batch = batches[name]
    if "continuum" in name and "dads" in name:
        agent = dataclasses.replace(agent, dynamics_update_freq=1)

    learners = lambda s: (s.sac.actor, s.sac.critic, s.sac.temperature, s.model)
    where = lambda s: [learner.model for learner in learners(s)]
    numbers, rest = eqx.partition(where(state), eqx.is_inexact_array)

    def total(part, numbers):
        """Return the sum of all numbers of some networks after an update."""
        before = eqx.tree_at(where, state, eqx.combine(numbers, rest))
        after, _ = agent.update(before, batch)
        networks = eqx.filter(where(after)[part], eqx.is_inexact_array)
        return sum(map(jnp.sum, jtu.tree_leaves(networks)))

    # Not one Jacobian: zeros times infinite slopes of Adam would be NaN.
    slope = jax.grad(total, 1)
    models, skills = slice(3), slice(3, 4)
    slopes = eqx.filter_jit(lambda x: (slope(models, x), slope(skills, x)))
    of_models, of_skills = slopes(numbers)
    moves = lambda tree: [not bool(jnp.all(x == 0.0)) for x in jtu.tree_leaves(tree)]
    *by_models, by_skills = of_models
    assert not any(moves(by_skills)) and all(moves(by_models))
    by_actor, *_, by_skills = of_skills
    if name != "dads, continuum":  # Its weights depend on the policy.
        assert not any(moves(by_actor))
    if name != "dads, all is described":
        assert any(moves(by_skills))


def test_update_learns_from_the_reward(batches):
    """What SAC is given: the mixed reward, the old skill on both sides, and no
    descriptor."""
    agent, state, batch = batches["diayn"]
    steps = batch.transition
    changed = dataclasses.replace(
        steps,
        next_obs=jnp.concatenate(
            [steps.next_obs[:, :6], jnp.roll(steps.next_obs[:, 6:], 1, axis=1)], axis=1
        ),
    )
    update = eqx.filter_jit(lambda state, batch: agent.update(state, batch)[0])
    one = update(state, batch)
    two = update(state, dataclasses.replace(batch, transition=changed))
    assert testing.tree_allclose(one, two, rtol=0.0, atol=0.0)
    space = state.space
    diversity = diversity_reward(
        one.model.model,
        space.prior,
        jax.vmap(space.descriptor)(steps.next_obs),
        jax.vmap(space.skill)(steps.obs),
        agent.least_std,
    )
    seen = jax.vmap(space.input)
    inner = zoo.blocks.Transition(
        seen(steps.obs),
        steps.action,
        diversity,
        seen(jnp.concatenate([steps.next_obs[:, :6], steps.obs[:, 6:]], axis=1)),
        steps.terminated,
        steps.truncated,
    )
    expected, _ = eqx.filter_jit(agent.sac.update)(state.sac, inner)
    assert testing.tree_allclose(one.sac, expected, rtol=1e-12)


@pytest.mark.slow
def test_the_newest_dynamics_reward(batches):
    """As in algorithm 1 of DADS: first the step of the dynamics, then the reward."""
    agent, state, batch = batches["dads"]
    new, metrics = eqx.filter_jit(agent.update)(state, batch)
    steps, space = batch.transition, state.space

    def mean_reward(model):
        rows = jax.vmap(space.descriptor)(steps.obs), jax.vmap(space.skill)(steps.obs)
        change = jax.vmap(space.change)(steps.obs, steps.next_obs)
        others = space.prior.all().astype(change.dtype)
        limits = agent.std_range
        found = predictability(model, *rows, change, others, limits, itself=False)
        return float(jnp.mean(found))

    assert mean_reward(new.model.model) != pytest.approx(
        mean_reward(state.model.model), rel=1e-6
    )
    expected = mean_reward(new.model.model)
    assert float(metrics["diversity"]) == pytest.approx(expected, rel=1e-9)


def test_temperature_may_be_fixed(batches):
    """As in DIAYN, where it is 0.1."""
    agent, state, batch = batches["diayn"]
    fixed = dataclasses.replace(agent.sac, learn_temperature=False)
    fixed = dataclasses.replace(agent, sac=fixed)
    shapes = lambda agent: eqx.filter_eval_shape(agent.update, state, batch)[0]
    assert eqx.tree_equal(shapes(agent), shapes(fixed))
    new, _ = eqx.filter_jit(fixed.update)(state, batch)
    before, after = state.sac.temperature, new.sac.temperature
    assert testing.tree_allclose(before, after, rtol=0.0, atol=0.0)


@pytest.mark.slow
def test_importance_weights(batches):
    """1 while the policy is that which acted; clipped; and of the density of what was
    done."""
    agent, state, batch = batches["dads, continuum"]
    policy = SkillPolicy(state.sac.actor.model, state.space)
    now = jax.vmap(lambda o, a: log_density(policy, o, a))
    steps = batch.transition
    fresh = dataclasses.replace(batch, log_prob=now(steps.obs, steps.action))
    plain = dataclasses.replace(agent, importance_weights=False)
    loss = lambda agent, batch: agent._loss(state, batch, state.model.model)
    np.testing.assert_allclose(loss(agent, fresh), loss(plain, fresh), rtol=1e-12)
    rare = dataclasses.replace(fresh, log_prob=fresh.log_prob - 100.0)
    np.testing.assert_allclose(loss(agent, rare), 10.0 * loss(plain, fresh), rtol=1e-9)


def test_densities_of_actions():
    """At random the density is that of uniform numbers; later that of the policy, as
    scipy has it."""
    agent, prior = AGENTS["dads, continuum"]
    env = training(prior)
    first, _ = iterate(agent, init(agent, jr.key(0), env), env)
    np.testing.assert_allclose(
        first.memory.replay.rows.log_prob[:14], -2 * np.log(2), rtol=1e-12
    )
    state, _ = iterate(agent, first, env)
    after, _ = iterate(agent, state, env)
    rows = jtu.tree_map(lambda x: x[28:42], after.memory.replay.rows)
    distribution = jax.vmap(
        SkillPolicy(state.learner.sac.actor.model, state.learner.space)
    )
    normal = distribution(rows.transition.obs).normal
    action = np.asarray(rows.transition.action)
    u = np.arctanh(action)
    density = stats.norm.logpdf(u, normal.mean, np.exp(normal.log_std))
    expected = (density - np.log(1 - action**2)).sum(axis=1)
    np.testing.assert_allclose(rows.log_prob, expected, rtol=1e-6)


# Mixing, and returns of episodes.


def test_mix():
    mix = zoo.RewardMix(task=2.0, diversity=3.0, target_return=10.0, margin=1.0)
    reward, own = jnp.array([1.0, 1.0, 1.0]), jnp.array([5.0, 5.0, 5.0])
    found = mix(reward, own, jnp.array([9.0, 8.9, -jnp.inf]))
    np.testing.assert_allclose(found, [17.0, 2.0, 2.0])
    np.testing.assert_allclose(zoo.RewardMix()(reward, own, jnp.full(3, -jnp.inf)), own)


@pytest.mark.slow
def test_smerl_learns_from_good_episodes_only():
    agent = diayn(mix=zoo.RewardMix(task=1.0, target_return=1e6))
    prior = OneHotSkills(5)
    state, _ = grown(agent, prior)
    batch = state.memory.replay.sample(jr.key(3), 13)
    bare = state.learner
    _, metrics = agent.update(bare, batch)
    task = diayn(mix=zoo.RewardMix(task=1.0, diversity=0.0))
    _, expected = task.update(bare, batch)
    assert metrics["critic_loss"] == expected["critic_loss"]
    both = diayn(mix=zoo.RewardMix(task=1.0))
    assert both.update(bare, batch)[1]["critic_loss"] != expected["critic_loss"]


@pytest.mark.parametrize("length", (3, 1))
def test_returns_of_what_is_remembered(length):
    """Of each row that of its episode, if that has ended, also after the ring has gone
    round: so SMERL can choose."""
    env, agent = training(OneHotSkills(5), length), diayn()
    state = init(agent, jr.key(0), env)
    for _ in range(13):
        state, _ = iterate(agent, state, env)
    rows = state.memory.replay.rows
    assert state.memory.replay.size == state.memory.replay.capacity == 140
    # Rows are those of all environments, two steps of each, one block after the other;
    # the oldest block is the fourth one.
    order = lambda x: np.roll(np.asarray(x), -42).reshape(10, 7, 2).swapaxes(0, 1)
    reward = order(rows.transition.reward).reshape(7, 20)
    found = order(state.learner.episodes.return_of(rows.episode)).reshape(7, 20)
    ended = 20 // length * length
    whole = reward[:, :ended].reshape(7, -1, length).sum(axis=2)
    np.testing.assert_allclose(found[:, :ended], np.repeat(whole, length, axis=1))
    assert np.all(found[:, ended:] == -np.inf)


# Bad input.


@pytest.mark.parametrize("agent", (diayn(), dads()), ids=("diayn", "dads"))
def test_refuses_environments(agent):
    begin = lambda env: agent.init(jr.key(0), AutoReset(TimeLimit(env, 5)))
    with pytest.raises(ValueError, match=r"`Skills\(env, OneHotSkills\(5\)\)`"):
        begin(probes.point_mass())
    with pytest.raises(ValueError, match=r"ant_omni, ant_uni, .*humanoid_uni"):
        begin(Skills(probes.PointMass(), OneHotSkills(5)))
    for wrapper in (
        lambda env: eqsim.wrappers.StackObservation(env, 2),
        lambda env: eqsim.wrappers.NoisyObservation(env, 0.1),
    ):
        with pytest.raises(ValueError, match="inside `Skills`"):
            begin(wrapper(plane()))
    with pytest.raises(ValueError, match="has several"):
        begin(Skills(plane(), OneHotSkills(2)))


BAD = {
    "`DADS.components` .* at least 1, got 0": ({"components": 0}, OneHotSkills(2)),
    "`DADS.random_skills` .* 0, got -1": ({"random_skills": -1}, OneHotSkills(2)),
    "would never be trained": ({"dynamics_update_freq": 0}, OneHotSkills(2)),
    "has 2 components": ({"omit_input_dynamics_dim": 3}, OneHotSkills(2)),
    "`UniformSkills` has infinitely many": ({}, UniformSkills(2)),
}


@pytest.mark.parametrize("words", BAD)
def test_refuses_options(words):
    options, prior = BAD[words]
    with pytest.raises(ValueError, match=words):
        dads(**options).init(jr.key(0), training(prior))
