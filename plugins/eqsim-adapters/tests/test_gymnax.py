"""eqsim in gymnax's interface, gymnax's environments in eqsim's, and PPO on them."""

import copy
import sys
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from eqsim_adapters import Box, from_gymnax, to_gymnax

import eqsim


def _fast(**options):
    return eqsim.make("point_mass", **options)


@pytest.mark.parametrize("api", ("1.0", "legacy"))
def test_steps_and_resets_are_those_of_eqsim(api):
    task = _fast(reset_noise_scale=0.9)
    env = to_gymnax(task, api, max_steps_in_episode=6)
    task_reset, task_step = eqx.filter_jit(task.reset), eqx.filter_jit(task.step)
    params, limits, ends = env.default_params, 0, 0
    keys = jr.split(jr.key(0), 60)
    obs, state = env.reset(keys[0], params)
    assert np.array_equal(obs, task_reset(keys[0])[1].obs)
    for key in keys[1:]:
        action, time = jr.uniform(key, (1,), minval=-9.0, maxval=9.0), int(state.time)
        _, expected = task_step(state.inner, action)
        obs, state, reward, *flags, info = env.step(key, state, action, params)
        np.testing.assert_allclose(reward, expected.reward, rtol=1e-12)
        np.testing.assert_allclose(info["final_observation"], expected.obs, rtol=1e-12)
        limit = bool(time + 1 >= 6 and not expected.terminated)
        both = [bool(expected.terminated), limit]
        assert [bool(flag) for flag in flags] == (both if api == "1.0" else [any(both)])
        assert [bool(info["terminated"]), bool(info["truncated"])] == both
        start = task_reset(key)[1].obs if any(both) else info["final_observation"]
        np.testing.assert_allclose(obs, start, rtol=1e-12)
        assert state.time == (0 if any(both) else time + 1)
        limits, ends = limits + limit, ends + both[0]
    assert limits and ends


def test_old_keys_and_batches():
    env = to_gymnax(_fast())
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, env.default_params)
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    out = step(keys, state, jnp.zeros((3, 1)), env.default_params)
    assert obs.shape == out[0].shape == (3, 2) and len(out) == 6


def test_parameters_are_numbers_of_the_environment():
    """They have derivatives and batches, and a program depends on none of them."""
    env = to_gymnax(_fast())
    params = env.default_params
    obs, state = env.reset(jr.key(0), params)

    def speed(mass):
        new = eqx.tree_at(lambda p: p.env.sys.links.mass, params, mass)
        return env.step(jr.key(0), state, jnp.ones(1), new)[0][1] - obs[1]

    mass = jnp.array([2.0])
    np.testing.assert_allclose(speed(mass), 0.1 * 3 / 2)
    np.testing.assert_allclose(jax.grad(speed)(mass), [-0.1 * 3 / 4])
    short = eqx.tree_at(
        lambda p: p.max_steps_in_episode, params, jnp.asarray(1, jnp.int32)
    )
    assert env.step(jr.key(0), state, jnp.ones(1), short)[4]


def test_is_a_static_argument():
    env = to_gymnax(_fast())
    run = jax.jit(lambda env, key: env.reset(key)[0], static_argnums=0)
    assert np.array_equal(run(env, jr.key(0)), env.reset(jr.key(0))[0])
    other = copy.deepcopy(env)
    assert np.array_equal(run(other, jr.key(0)), env.reset(jr.key(0))[0])
    assert hash(env) != hash(other) and env.name == "PointMass" and env.num_actions == 1


def test_spaces_without_gymnax(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    monkeypatch.setitem(sys.modules, "gymnax.environments.spaces", None)
    env = to_gymnax(eqsim.make("inverted_pendulum"))
    actions, seen = env.action_space(), env.observation_space(env.default_params)
    assert type(actions) is type(seen) is Box
    assert actions.shape == (1,) and actions.low == -3 and actions.high == 3
    samples = jax.vmap(actions.sample)(jr.split(jr.key(0), 100))
    assert np.min(samples) < -2 and np.max(samples) > 2
    assert actions.contains(samples[0]) and not actions.contains(jnp.array([3.5]))
    assert seen.shape == (4,) and seen.contains(jnp.zeros(4))


def test_bad_input(two_parts):
    with pytest.raises(ValueError, match="`AutoReset` is kept across episodes.*gymnax"):
        to_gymnax(eqsim.AutoReset(_fast()))
    with pytest.raises(ValueError, match="`max_steps_in_episode` .* at least 1, got 0"):
        to_gymnax(_fast(), max_steps_in_episode=0)
    with pytest.raises(ValueError, match="parts .'obs'., .'privileged'.. Leave out"):
        to_gymnax(two_parts).observation_space()


@pytest.fixture
def gymnax():
    return pytest.importorskip(
        "gymnax", reason="needs the extra gymnax", exc_type=ImportError
    )


def test_spaces_of_gymnax(gymnax):
    space = to_gymnax(_fast()).action_space()
    assert isinstance(space, gymnax.environments.spaces.Box)


@pytest.mark.usefixtures("lenient")
def test_environment_of_gymnax(gymnax):
    """Steps are gymnax's own; its time limit truncates."""
    env, params = gymnax.make("Pendulum-v1")
    ours = from_gymnax(env, params.replace(max_steps_in_episode=5), dt=0.05)
    assert np.array_equal(ours.action_range, [[-2.0, 2.0]]) and ours.dt == 0.05
    state, timestep = ours.reset(jr.key(3))
    for k in range(5):
        action = jnp.array([0.5 * k])
        key, _ = jr.split(state.key)
        obs, inner, reward, *_ = env.step_env(key, state.inner, action, params)
        state, timestep = ours.step(state, action)
        np.testing.assert_allclose(timestep.obs, obs, rtol=1e-6)
        np.testing.assert_allclose(timestep.reward, np.squeeze(reward), rtol=1e-6)
        assert not timestep.terminated and bool(timestep.truncated) is (k == 4)
    policy = lambda obs, key: jr.uniform(key, (1,), minval=-2.0, maxval=2.0)
    many = eqsim.AutoReset(eqsim.TimeLimit(ours, 3))
    trajectory = eqsim.rollout(many, policy, jr.split(jr.key(0), 4), length=9)
    assert np.sum(trajectory.timestep.truncated) == 12


@pytest.mark.usefixtures("lenient")
def test_there_and_back(gymnax):
    """An environment of eqsim, through gymnax's own wrapper for the older interface."""
    wrappers = pytest.importorskip("gymnax.wrappers")
    env = to_gymnax(_fast())
    legacy = wrappers.LegacyStepAPIWrapper(env)
    obs, state = legacy.reset(jr.key(0), env.default_params)
    expected = to_gymnax(_fast(), "legacy").step(jr.key(1), state, jnp.ones(1))
    found = legacy.step(jr.key(1), state, jnp.ones(1), env.default_params)
    assert eqx.tree_equal(expected, found) and len(found) == 5


@pytest.mark.usefixtures("lenient")
def test_discrete_actions_are_refused(gymnax):
    env, _ = gymnax.make("CartPole-v1")
    with pytest.raises(ValueError, match="must be vectors.*got Discrete"):
        from_gymnax(env)


NUMBER, STEPS, GAMMA, LAMBDA = 16, 32, 0.99, 0.95


class _Seen(NamedTuple):
    obs: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any


class _Agent(eqx.Module):
    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    log_std: Any

    def __init__(self, nobs, nu, key):
        keys = jr.split(key)
        self.actor = eqx.nn.MLP(nobs, nu, 32, 1, jnp.tanh, key=keys[0])
        self.critic = eqx.nn.MLP(nobs, "scalar", 32, 1, jnp.tanh, key=keys[1])
        self.log_std = jnp.zeros(nu)

    def log_prob(self, obs, action):
        z = (action - self.actor(obs)) / jnp.exp(self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std)

    def sample(self, obs, key):
        noise = jr.normal(key, self.log_std.shape)
        return self.actor(obs) + jnp.exp(self.log_std) * noise


def _collect(env, params, agent, obs, state, key):
    def step(carry, key):
        obs, state = carry
        key_act, key_step = jr.split(key)
        action = jax.vmap(agent.sample)(obs, jr.split(key_act, NUMBER))
        value = jax.vmap(agent.critic)(obs)
        log_prob = jax.vmap(agent.log_prob)(obs, action)
        keys = jr.split(key_step, NUMBER)
        many = jax.vmap(env.step, in_axes=(0, 0, 0, None))
        new, state, reward, done, _ = many(keys, state, action, params)
        return (new, state), _Seen(obs, action, log_prob, value, reward, done)

    return jax.lax.scan(step, (obs, state), jr.split(key, STEPS))


def _advantages(seen, last):
    def step(carry, x):
        gae, value = carry
        go_on = 1.0 - x.done.astype(value.dtype)
        delta = x.reward + GAMMA * value * go_on - x.value
        gae = delta + GAMMA * LAMBDA * go_on * gae
        return (gae, x.value), gae

    start = jnp.zeros_like(last), last
    return jax.lax.scan(step, start, seen, reverse=True)[1]


def _loss(agent, seen, advantage):
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    seen, advantage = jax.tree_util.tree_map(flat, (seen, advantage))
    scaled = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    change = jax.vmap(agent.log_prob)(seen.obs, seen.action) - seen.log_prob
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    surrogate = jnp.mean(jnp.minimum(ratio * scaled, clipped * scaled))
    error = jax.vmap(agent.critic)(seen.obs) - (seen.value + advantage)
    return 0.5 * jnp.mean(error**2) - surrogate


def _train(env, updates, key):
    """The mean length of episodes in each update."""
    params, keys = env.default_params, jr.split(key, 3)
    nobs = env.observation_space(params).shape[0]
    agent = _Agent(nobs, env.action_space(params).shape[0], keys[0])
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3))
    many = jax.vmap(env.reset, in_axes=(0, None))
    obs, state = many(jr.split(keys[1], NUMBER), params)
    arrays, static = eqx.partition(agent, eqx.is_inexact_array)

    def update(carry, key):
        arrays, opt, obs, state = carry
        agent = eqx.combine(arrays, static)
        (obs, state), seen = _collect(env, params, agent, obs, state, key)
        advantage = _advantages(seen, jax.vmap(agent.critic)(obs))

        def epoch(carry, _):
            arrays, opt = carry
            loss = lambda a: _loss(eqx.combine(a, static), seen, advantage)
            value, gradient = jax.value_and_grad(loss)(arrays)
            change, opt = optimizer.update(gradient, opt)
            return (optax.apply_updates(arrays, change), opt), value

        (arrays, opt), losses = jax.lax.scan(epoch, (arrays, opt), length=8)
        ends = jnp.maximum(jnp.sum(seen.done), 1)
        return (arrays, opt, obs, state), (losses[-1], NUMBER * STEPS / ends)

    start = arrays, optimizer.init(arrays), obs, state
    run = jax.jit(lambda start, keys: jax.lax.scan(update, start, keys)[1])
    return run(start, jr.split(keys[2], updates))


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_learns_to_balance():
    env = to_gymnax(eqsim.make("inverted_pendulum"), "legacy", max_steps_in_episode=200)
    losses, lengths = _train(env, 60, jr.key(0))
    assert np.all(np.isfinite(losses))
    assert np.mean(lengths[-5:]) > 3 * np.mean(lengths[:5]), lengths


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("name", ("hopper", "ant"))
def test_some_updates(name):
    env = to_gymnax(eqsim.make(name), "legacy", max_steps_in_episode=20)
    losses, lengths = _train(env, 3, jr.key(0))
    assert np.all(np.isfinite(losses)) and np.all(lengths <= 32)


def test_curriculum_goes_on(curriculum):
    env = to_gymnax(curriculum, max_steps_in_episode=2)
    seen, state = env.reset(jr.key(0))
    numbers = [float(seen[0])]
    for k in range(6):
        seen, state, *_ = env.step(jr.key(k), state, jnp.zeros(1))
        numbers.append(float(seen[0]))
    assert numbers == [0, 0, 1, 1, 2, 2, 3]
