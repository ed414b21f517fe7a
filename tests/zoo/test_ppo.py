"""PPO computes what its paper says, knows what follows a time limit, and learns."""

import importlib.util

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import tree_allclose
from scipy import special, stats
from toys import Rail

from eqsim import AutoReset, TimeLimit
from eqsim.envs import Reflection, SignedPermutation
from eqsim.testing import parametrize_with_checks, probes
from eqsim.wrappers import PrivilegedObservation
from eqsim_zoo import load_run, PPO, Run, train
from eqsim_zoo.agents.ppo import PPOBatch
from eqsim_zoo.blocks.collecting import collect
from eqsim_zoo.blocks.hyperparameters import adapted_pace, linear_schedule
from eqsim_zoo.blocks.networks import Activation, Learner, Vectors
from eqsim_zoo.blocks.observations import normalize
from eqsim_zoo.blocks.returns import in_value_units, ppo_loss, value_units
from eqsim_zoo.export import export_policy
from eqsim_zoo.vision import Images, SmallCNN


# One configuration, so that it is compiled once.
QUICK = {"num_envs": 64, "unroll_length": 8, "learning_rate": 3e-3}
KINDS = (PPO(**QUICK), PPO(**QUICK, levels=5))
both_kinds = pytest.mark.parametrize("agent", KINDS, ids=("continuous", "levels"))


@eqx.filter_jit
def loss_fn(agent, networks, batch, bounded, key):
    keys = jr.split(key, ROWS)
    each = lambda obs, action, key: networks.evaluate(obs, action, bounded, key)
    return ppo_loss(agent, batch, *jax.vmap(each)(batch.obs, batch.action, keys))


init = eqx.filter_jit(lambda agent, key, env: agent.init(key, env))
iterate = eqx.filter_jit(lambda agent, state, env: agent.iterate(state, env))


# `test_agents.py` has the checks of continuous actions.
@parametrize_with_checks(KINDS[1:])
@pytest.mark.quick_cases(
    "PPO-structure",
    "PPO-deterministic",
    "PPO-keys",
    "PPO-action",
    "PPO-bounds",
    "PPO-memory",
    "PPO-hyperparameters",
    "PPO-serialization",
    "PPO-rebuild",
    "PPO-retrace",
    "PPO-metrics",
    "PPO-finite",
)
def test_conformance(check):
    check.run()


UNITS = PPO(**QUICK, normalize_values=True, target_kl=0.02)


@pytest.mark.parametrize(
    "agent", (*KINDS, UNITS), ids=("continuous", "levels", "units")
)
@pytest.mark.quick_cases("continuous")
def test_values_of_a_probe(agent):
    """The value function learns the known values, the discount too; and the policy comes
    near the best."""
    env = probes.observed_action_reward()
    # A number, so that nothing is compiled for it.
    agent = eqx.tree_at(lambda a: a.anneal_steps, agent, jnp.array(25 * 512.0))
    state = init(agent, jr.key(0), env)
    for _ in range(25):
        state, _ = iterate(agent, state, env)
    times = range(int(env.length))
    for obs in [jnp.array([c, t], float) for c in (-1.0, 1.0) for t in times]:
        mean, std = value_units(state.returns)
        found = state.learner.model.value(normalize(state.statistics, obs))[0]
        assert float(mean + std * found) == pytest.approx(
            float(env.value(obs, 0.99)), abs=0.1
        )
        best = float(env.best_action(obs)[0])
        assert float(agent.act(state, obs)[0]) == pytest.approx(best, abs=0.25)


def linear_values(agent, state, key):
    """A state with random weights of a value function without hidden layers."""
    weight = jr.normal(key, state.learner.model.value.layers[0].weight.shape)
    where = lambda s: s.learner.model.value.layers[0].weight
    return eqx.tree_at(where, state, weight), np.asarray(weight)[:, 0]


def test_advantages_use_final_observations():
    """The whole way from an environment with ends of both kinds: by a plain sum of later
    errors, with the value of what the last action led to, not of the next episode."""
    agent = PPO(
        num_envs=4,
        unroll_length=7,
        num_minibatches=1,
        value_hidden=(),
        policy_hidden=(),
        reward_scale=0.3,
        gae_decay=0.8,
        discount=0.9,
    )
    env = AutoReset(TimeLimit(Rail(1, edge=0.25, noise=0.15), 5))
    state, weight = linear_values(agent, init(agent, jr.key(0), env), jr.key(1))
    state = eqx.tree_at(
        lambda s: (s.statistics.mean, s.statistics.square),
        state,
        (jnp.array([0.1, -0.2]), jnp.array([4.0, 0.25])),
    )
    policy = lambda obs, key: 3.0 * jr.normal(key, (1,))
    _, steps, _ = eqx.filter_jit(collect)(env, policy, state.running, jr.key(2), 7)
    assert np.any(steps.terminated) and np.any(steps.truncated)
    batch = eqx.filter_jit(agent.evaluate)(state, steps)

    seen = lambda obs: (
        (np.asarray(obs) - [0.1, -0.2]) / np.sqrt(np.array([4.0, 0.25]) + 1e-8)
    )
    value, after = seen(steps.obs) @ weight, seen(steps.next_obs) @ weight
    done = np.asarray(steps.done)
    left = np.where(steps.terminated, 0.0, 0.9)
    error = 0.3 * np.asarray(steps.reward) + left * after - value
    expected = np.zeros((4, 7))
    for i in range(4):
        for t in range(7):
            last = next((s for s in range(t, 7) if done[i, s]), 6)
            terms = (0.72 ** (s - t) * error[i, s] for s in range(t, last + 1))
            expected[i, t] = sum(terms)
    np.testing.assert_allclose(batch.advantage, expected.ravel(), rtol=1e-6)
    np.testing.assert_allclose(batch.value, value.ravel(), rtol=1e-6)
    np.testing.assert_allclose(batch.obs, seen(steps.obs).reshape(-1, 2), rtol=1e-6)
    # The probability is that of the policy that drew, before it learns.
    mean = np.asarray(jax.vmap(state.learner.model.policy)(batch.obs))
    normal = stats.norm(mean, np.exp(state.learner.model.log_std))
    expected = normal.logpdf(batch.action).sum(axis=1)
    np.testing.assert_allclose(batch.log_prob, expected, rtol=1e-9)


ROWS, NOBS, NU = 12, 3, 2


class Wide(Rail):
    """Rails whose observation has three numbers."""

    def observe(self, state, action):
        return jnp.concatenate([state.q, state.qd[:1]])


def random_batch(agent, key):
    keys = jr.split(key, 5)
    normal = lambda key, *shape: jr.normal(key, (ROWS, *shape))
    if agent.levels:
        level = jr.randint(keys[1], (ROWS, NU), 0, agent.levels)
        action = 2.0 * level.astype(float) / (agent.levels - 1) - 1.0
    else:
        action = normal(keys[1], NU)
    rest = normal(keys[2]), *normal(keys[3], 2).T
    return PPOBatch(normal(keys[0], NOBS), action, *rest)


@pytest.mark.parametrize(
    "levels, squashed", ((0, (True, True)), (0, (True, False)), (4, (True, True)))
)
@pytest.mark.quick_cases("0-squashed1")
def test_loss_is_numpy(levels, squashed, getkey):
    """Surrogate, values and entropy, row by row in NumPy (equation 9 of the paper); with
    levels, values are clipped."""
    costs = {"value_cost": 0.7, "entropy_cost": 0.05, "initial_log_std": 0.2}
    agent = PPO(levels=levels, clip=0.3, value_clip=0.2 if levels else 0.0, **costs)
    env = AutoReset(TimeLimit(Wide(NU), 5))
    networks = init(agent, getkey(), env).learner.model
    keys = iter(jr.split(getkey(), 100))
    shake = lambda x: x + 0.3 * jr.normal(next(keys), x.shape, x.dtype)
    networks = jtu.tree_map(shake, networks)
    batch, key = random_batch(agent, getkey()), getkey()
    out = np.asarray(jax.vmap(networks.policy)(batch.obs))
    value = np.asarray(jax.vmap(networks.value)(batch.obs))[:, 0]
    # Half the values are exact, so that clipping raises their error from zero.
    exact = jnp.asarray(value) - batch.advantage
    old = jnp.where(jnp.arange(ROWS) % 2 == 1, exact, batch.value)
    batch = eqx.tree_at(lambda b: b.value, batch, old)
    if levels:
        log = special.log_softmax(out.reshape(ROWS, NU, levels), axis=-1)
        chosen = np.rint(1.5 * (np.asarray(batch.action) + 1.0)).astype(int)
        log_prob = np.array(
            [sum(log[i, j, chosen[i, j]] for j in range(NU)) for i in range(ROWS)]
        )
        entropy = -np.sum(np.exp(log) * log, axis=(1, 2))
    else:
        std = np.exp(np.asarray(networks.log_std))
        normal = stats.norm(out, std)
        log_prob = normal.logpdf(batch.action).sum(axis=1)
        draw = lambda key: jr.normal(key, (NU,))
        u = out + std * np.asarray(jax.vmap(draw)(jr.split(key, ROWS)))
        slope = np.where(squashed, np.log(1.0 - np.tanh(u) ** 2), 0.0)
        entropy = (normal.entropy() + slope).sum(axis=1)
    # Ratios within the clip, and beyond it on both sides.
    change = np.linspace(-0.6, 0.6, ROWS)
    ratio, advantage = np.exp(change), np.asarray(batch.advantage)
    batch = eqx.tree_at(lambda b: b.log_prob, batch, jnp.asarray(log_prob - change))
    loss, metrics = loss_fn(agent, networks, batch, jnp.asarray(squashed), key)
    advantage = (advantage - advantage.mean()) / advantage.std()
    gains = [
        min(r * a, min(max(r, 0.7), 1.3) * a)
        for r, a in zip(ratio, advantage, strict=True)
    ]
    old = np.asarray(batch.value)
    target = old + np.asarray(batch.advantage)
    errors = (value - target) ** 2
    if levels:
        near = np.minimum(np.maximum(value, old - 0.2), old + 0.2)
        assert np.any((near - target) ** 2 > errors)
        errors = np.maximum(errors, (near - target) ** 2)
    off = np.mean(errors) / 2
    expected = -np.mean(gains) + 0.7 * off - 0.05 * entropy.mean()
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    kl = np.mean(ratio - 1.0 - np.log(ratio))
    found = [float(metrics[name]) for name in ("value_loss", "entropy", "kl")]
    np.testing.assert_allclose(found, [off, entropy.mean(), kl], rtol=1e-6)
    assert all(float(x) >= 0.0 for x in (metrics["value_loss"], metrics["kl"]))


@both_kinds
@pytest.mark.quick_cases("continuous")
def test_act(agent, getkey):
    """Without a key the middle of the policy, the same each time; with one, draws, whose
    levels are those between the bounds."""
    env = probes.action_reward()
    state = init(agent, getkey(), env)
    obs = jnp.array([1.0, 0.0])
    out = state.learner.model.policy(normalize(state.statistics, obs))
    out = np.asarray(out)
    expected = -1.0 + 0.5 * np.argmax(out) if agent.levels else np.tanh(out[0])
    np.testing.assert_allclose(agent.act(state, obs), [expected], rtol=1e-9)
    drawn = jax.vmap(lambda k: agent.act(state, obs, key=k))(jr.split(getkey(), 300))
    if agent.levels:
        np.testing.assert_allclose(np.unique(drawn), np.linspace(-1.0, 1.0, 5))
    else:
        assert len(np.unique(drawn)) == 300


@pytest.mark.slow
def test_learning_rate_goes_to_zero():
    """Over so many steps: in the first iteration it is whole, after them nothing moves."""
    rate, length = jnp.array(0.3), jnp.array(100.0)
    for steps, share in ((0.0, 1.0), (25.0, 0.75), (100.0, 0.0), (300.0, 0.0)):
        found = linear_schedule(rate, jnp.array(steps), length)
        assert float(found) == pytest.approx(0.3 * share)
        assert linear_schedule(rate, jnp.array(steps), jnp.array(0.0)) == rate
    agent, env = PPO(**QUICK, anneal_steps=512.0), probes.action_reward()
    first = init(agent, jr.key(0), env)
    second, _ = iterate(agent, first, env)
    third, _ = iterate(agent, second, env)
    assert second.steps == 512 and third.steps == 1024
    models = [state.learner.model for state in (first, second, third)]
    assert not tree_allclose(models[0], models[1])
    assert tree_allclose(models[1], models[2], rtol=0.0, atol=0.0)


def test_learning_rate_follows_the_divergence(getkey):
    """Lower above twice the target, higher below half of it, within bounds; a state with a
    factor learns as an agent with that learning rate."""
    pace = lambda pace, kl, target: float(
        adapted_pace(jnp.array(pace), jnp.array(kl), jnp.array(target))
    )
    assert pace(0.6, 0.05, 0.02) == pytest.approx(0.5)
    assert pace(0.5, 0.005, 0.02) == pytest.approx(0.6)
    assert pace(0.5, 0.02, 0.02) == pytest.approx(0.5)
    assert pace(0.5, 0.05, 0.0) == pytest.approx(0.5)
    assert pace(29.0, 0.0, 0.02) == pytest.approx(30.0)
    assert pace(1.0 / 29.0, 1.0, 0.02) == pytest.approx(1.0 / 30.0)

    env = AutoReset(TimeLimit(Wide(NU), 5))
    agent = PPO(num_envs=5, unroll_length=1, num_minibatches=1, learning_rate=0.01)
    state, batch = init(agent, getkey(), env), random_batch(agent, getkey())
    update = eqx.filter_jit(lambda agent, *args: agent.update(*args))
    change = lambda agent, **new: eqx.tree_at(
        lambda a: [getattr(a, name) for name in new],
        agent,
        list(map(jnp.array, new.values())),
    )
    half = eqx.tree_at(lambda s: s.pace, state, 0.5 * state.pace)
    by_state, _ = update(agent, half, batch)
    by_agent, _ = update(change(agent, learning_rate=0.005), state, batch)
    assert tree_allclose(by_state.learner.model, by_agent.learner.model)
    for target, faster in ((1e-9, False), (1e9, True)):
        new, metrics = update(change(agent, target_kl=target), state, batch)
        assert float(metrics["pace"]) == float(new.pace)
        assert (float(new.pace) > 1.0) is faster and float(new.pace) != 1.0


def test_learning_rate_and_divergence_are_annealed(getkey):
    """In the middle, both are half; at the end, nothing changes."""
    env = AutoReset(TimeLimit(Wide(NU), 5))
    kind = PPO(num_envs=5, unroll_length=1, num_minibatches=1)
    state, batch = init(kind, getkey(), env), random_batch(kind, getkey())
    update = eqx.filter_jit(lambda agent, *args: agent.update(*args))
    change = lambda agent, *values: eqx.tree_at(
        lambda a: (a.learning_rate, a.target_kl, a.anneal_steps),
        agent,
        tuple(map(jnp.array, values)),
    )
    at = lambda steps: eqx.tree_at(lambda s: s.steps, state, jnp.array(steps, "int32"))
    _, metrics = update(change(kind, 0.01, 1.0, 0.0), state, batch)
    # The divergence is too large for half of it, and not for all of it.
    target = float(metrics["kl"]) / 1.5
    constant, _ = update(change(kind, 0.01, 0.5 * target, 0.0), state, batch)
    unchanged, _ = update(change(kind, 0.01, target, 0.0), state, batch)
    middle, _ = update(change(kind, 0.02, target, 1000.0), at(500), batch)
    assert float(constant.pace) < 1.0 == float(unchanged.pace)
    assert float(middle.pace) == float(constant.pace)
    assert tree_allclose(middle.learner.model, constant.learner.model)
    end, _ = update(change(kind, 0.02, target, 1000.0), at(1000), batch)
    assert float(end.pace) == 1.0
    assert tree_allclose(end.learner.model, state.learner.model, rtol=0.0, atol=0.0)


def test_units_of_values(getkey):
    """Values and advantages come back from their units, which are those of all returns."""
    agent = PPO(num_envs=5, unroll_length=1, num_minibatches=1, normalize_values=True)
    state = init(agent, getkey(), AutoReset(TimeLimit(Wide(NU), 5)))
    batch, returns, targets = random_batch(agent, getkey()), state.returns, []
    for scale in (3.0, 5.0):
        value = 40.0 + scale * batch.value
        raw = eqx.tree_at(lambda b: b.value, batch, value)
        targets.append(raw.value + raw.advantage)
        new, returns = in_value_units(raw, returns)
        mean, std = value_units(returns)
        np.testing.assert_allclose(mean + std * new.value, raw.value, rtol=1e-9)
        np.testing.assert_allclose(std * new.advantage, raw.advantage, rtol=1e-9)
    # The statistics begin with one return of mean 0 and variance 1.
    seen = np.concatenate([*targets, [-1.0], [1.0]])
    weights = np.concatenate([np.ones(len(seen) - 2), [0.5, 0.5]])
    expected = np.average(seen, weights=weights)
    np.testing.assert_allclose(mean, expected, rtol=1e-9)
    spread = np.sqrt(np.average((seen - expected) ** 2, weights=weights))
    np.testing.assert_allclose(std, spread + 1e-4, rtol=1e-9)
    same, none = in_value_units(batch, None)
    assert same is batch and none is None and value_units(None) == (0.0, 1.0)


def test_update_leaves_environments(getkey):
    """Learning from a batch changes networks, optimizer and key, and nothing else; and
    rows that minibatches can not share are left out."""
    agent = PPO(num_envs=5, unroll_length=1, num_minibatches=5, num_epochs=1)
    env = AutoReset(TimeLimit(Wide(NU), 5))
    state = init(agent, getkey(), env)
    batch = random_batch(agent, getkey())
    new, metrics = eqx.filter_jit(agent.update)(state, batch)
    same = lambda s: (s.statistics, s.bounds, s.running, s.steps)
    assert tree_allclose(same(new), same(state), rtol=0.0, atol=0.0)
    assert not tree_allclose(new.learner.model, state.learner.model)
    assert not np.array_equal(jr.key_data(new.key), jr.key_data(state.key))
    assert all(x.shape == () and np.isfinite(x) for x in metrics.values())


def test_refusals():
    for name in ("num_envs", "unroll_length", "num_epochs", "num_minibatches"):
        for value in (0, -1, 64.0):
            with pytest.raises(
                ValueError, match=f"`PPO.{name}` must be .*, got {value}"
            ):
                PPO(**{name: value})
    with pytest.raises(ValueError, match="must divide the 24 rows"):
        PPO(num_envs=8, unroll_length=3, num_minibatches=5)
    for levels in (1, -2):
        with pytest.raises(ValueError, match=f"`PPO.levels` must be .*, got {levels}"):
            PPO(levels=levels)
    with pytest.raises(ValueError, match="got the boolean True"):
        PPO(learning_rate=True)
    agent, env = PPO(num_minibatches=16), AutoReset(TimeLimit(Wide(NU), 5))
    state = eqx.filter_eval_shape(agent.init, jr.key(0), env)
    with pytest.raises(ValueError, match="= 16 minibatches, got 12 rows"):
        eqx.filter_eval_shape(agent.update, state, random_batch(agent, jr.key(0)))


def test_fields():
    """Real numbers are arrays, also those of NumPy; sizes may be lists."""
    rates = (1e-3, np.float32(1e-3), np.float64(1e-3), np.asarray(1e-3))
    agents = [PPO(learning_rate=rate, policy_hidden=[8, 8]) for rate in rates]
    for agent in agents:
        assert eqx.is_array(agent.learning_rate)
        assert agent.policy_hidden == (8, 8)
    assert len({jtu.tree_structure(agent) for agent in agents}) == 1


@pytest.mark.slow
def test_activation_and_epsilon_are_options():
    """The activation of both networks, and the denominator of Adam: with a large epsilon
    the first step is the learning rate times the gradient over it."""
    options = {"num_envs": 2, "unroll_length": 2, "num_minibatches": 1}
    agent = PPO(activation=Activation.TANH, adam_epsilon=1e6, **options)
    env = AutoReset(TimeLimit(Wide(NU), 5))
    networks = eqx.filter_eval_shape(agent.init, jr.key(0), env).learner.model
    for network in (networks.policy, networks.value):
        assert float(network.activation(jnp.array(0.5))) == pytest.approx(np.tanh(0.5))
    optimizer = agent.optimizer(jnp.array(0.0))
    learner = Learner.create(jnp.array(0.0), optimizer)
    learner, _ = learner.apply_gradients(jnp.array(2.0), optimizer)
    assert float(learner.model) == pytest.approx(-3e-4 * 2.0 / 1e6, rel=1e-5)


class Mirrored(Rail):
    """Two masses whose mirror image is the other mass on the other side; in parts, the
    observation is a dictionary."""

    parts: bool = eqx.field(static=True)

    def __init__(self, parts=False):
        super().__init__()
        self.parts = parts

    def observe(self, state, action):
        if not self.parts:
            return super().observe(state, action)
        return {"v": state.qd, "sum": jnp.sum(state.q)[None], "q": state.q}

    def reflection(self):
        swap = SignedPermutation((1, 0), (-1, -1))
        whole = SignedPermutation.join([swap, swap])
        parts = {"v": swap, "sum": SignedPermutation((0,), (-1,)), "q": swap}
        return Reflection(parts if self.parts else whole, swap)

    @property
    def action_range(self):
        return jnp.array([[-1.0, 1.0]] * 2)


@pytest.mark.parametrize("parts", (False, True), ids=("vector", "parts"))
@pytest.mark.quick_cases("parts")
def test_symmetric_policies_stay_symmetric(parts, getkey):
    inputs = Vectors(actor_parts=("v", "sum")) if parts else Vectors()
    agent = PPO(**QUICK, symmetric=True, inputs=inputs)
    env = AutoReset(TimeLimit(Mirrored(parts), 20))
    reflection = env.env.env.reflection()
    before = init(agent, getkey(), env)
    obs = jax.tree.map(
        lambda x: jr.normal(getkey(), x.shape[1:], x.dtype), before.running.obs
    )
    state, _ = iterate(agent, before, env)
    networks = state.learner.model
    assert not tree_allclose(networks.policy, before.learner.model.policy)
    seen = normalize(state.statistics, obs)
    turned = normalize(state.statistics, reflection.reflect_obs(obs))
    expected = reflection.reflect_obs(seen)
    for x, y in zip(jax.tree.leaves(turned), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    for found, other in (
        (agent.act(state, obs), agent.act(state, reflection.reflect_obs(obs))),
        (networks.distribution(seen).mean, networks.distribution(turned).mean),
    ):
        np.testing.assert_allclose(other, reflection.action(found), atol=1e-6)
    spread = networks.distribution(seen).log_std
    assert spread[0] == spread[1] != before.learner.model.log_std[0]
    np.testing.assert_allclose(networks.value(turned), networks.value(seen), atol=1e-6)


@pytest.mark.slow
def test_symmetric_policies_of_several_members_are_trained_and_exported(tmp_path):
    """In double precision as well, with the numbers of the agent in the file."""
    agent = PPO(**QUICK | {"num_envs": 8}, symmetric=True)
    run = Run(agent, Mirrored(), 128, num_seeds=2, turns=2, evaluations=0)
    result = train(run, out=tmp_path / "run")
    again = load_run(tmp_path / "run", env=Mirrored())
    obs, reflection = jr.normal(jr.key(0), (4,)), Mirrored().reflection()
    for member in range(2):
        agent, state = again.member(member)
        there = agent.act(state, reflection.reflect_obs(obs))
        np.testing.assert_allclose(there, reflection.action(agent.act(state, obs)))
    export_policy(agent, state, Mirrored(), tmp_path / "policy.py", format="numpy")
    spec = importlib.util.spec_from_file_location("policy", tmp_path / "policy.py")
    policy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(policy)
    exported = policy.act(np.asarray(obs, np.float32))
    np.testing.assert_allclose(exported, agent.act(state, obs), atol=1e-5)
    assert result.counters.steps == again.counters.steps


def test_symmetric_policies_need_a_reflection():
    key = jr.key(0)
    with pytest.raises(ValueError, match="`Rail` has no reflection"):
        PPO(**QUICK, symmetric=True).init(key, AutoReset(Rail()))
    with pytest.raises(ValueError, match="does not go with `levels`"):
        PPO(**QUICK, symmetric=True, levels=5)
    with pytest.raises(ValueError, match="does not go with `Images`"):
        PPO(**QUICK, symmetric=True, inputs=Images(SmallCNN()))
    with pytest.raises(ValueError, match="even number of units"):
        agent = PPO(**QUICK, symmetric=True, policy_hidden=(5,))
        agent.init(key, AutoReset(Mirrored()))
    known = PrivilegedObservation(Mirrored(), lambda sys, state: state.q)
    with pytest.raises(ValueError, match="A wrapper has changed the observation"):
        PPO(**QUICK, symmetric=True).init(key, AutoReset(known))
