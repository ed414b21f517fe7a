"""What holds for every environment, and how they are made."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose

import eqsim
from eqsim.envs import Ant, HalfCheetah, InvertedPendulum


SIZES = {
    "ant": (Ant, 27, 8, 0.05),
    "half_cheetah": (HalfCheetah, 17, 6, 0.05),
    "inverted_pendulum": (InvertedPendulum, 4, 1, 0.04),
}


@pytest.mark.parametrize("name", SIZES)
def test_shapes(name):
    kind, nobs, nu, dt = SIZES[name]
    env = eqsim.make(name)
    assert type(env) is kind
    # Only shapes: nothing is compiled.
    state, timestep = jax.eval_shape(env.reset, jr.key(0))
    new, stepped = jax.eval_shape(env.step, state, jnp.zeros(nu))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), (state, timestep)) == (
        jax.tree.map(lambda x: (x.shape, x.dtype), (new, stepped))
    )
    assert timestep.obs.shape == (nobs,) and timestep.obs.dtype == jnp.float64
    assert timestep.reward.shape == () and timestep.reward.dtype == jnp.float64
    assert timestep.terminated.dtype == timestep.truncated.dtype == jnp.bool_
    assert all(x.shape == () for x in timestep.terms.values())
    assert float(env.dt) == pytest.approx(dt)


@pytest.mark.parametrize("name", SIZES)
def test_reset(name):
    env = eqsim.make(name)
    reset = eqx.filter_jit(env.reset)
    state, timestep = reset(jr.key(1))
    assert tree_allclose((state, timestep), reset(jr.key(1)), rtol=0.0, atol=0.0)
    other, _ = reset(jr.key(2))
    assert np.all(state.q != other.q) and np.all(state.qd != other.qd)
    noise = env.reset_noise
    assert np.max(np.abs(state.q - env.sys.joints.ref)) <= noise
    assert timestep.reward == 0 and not timestep.terminated
    assert all(x == 0 for x in timestep.terms.values())
    assert tree_allclose(timestep.obs, env.observe(state, jnp.zeros(env.sys.nu)))
    still, _ = reset_without_noise(name)
    assert np.array_equal(still.q, env.sys.joints.ref) and np.all(still.qd == 0)


def reset_without_noise(name):
    return eqsim.make(name, reset_noise=0.0).reset(jr.key(0))


def test_reset_noise_is_as_large_as_it_says():
    env = eqsim.make("inverted_pendulum", reset_noise=0.5)
    state, _ = jax.vmap(env.reset)(jr.split(jr.key(0), 400))
    assert 0.45 < np.max(state.q) <= 0.5 and -0.5 <= np.min(state.qd) < -0.45
    assert np.all(np.abs(np.mean(state.q, axis=0)) < 0.06)


def at(env, **changes):
    """The reference with some coordinates changed."""
    q = env.sys.joints.ref
    for index, value in changes.items():
        q = q.at[int(index[1:])].set(value)
    return env.pipeline.init(env.sys, q)


def test_terminated():
    ant = eqsim.make("ant")
    for height, ended in ((0.19, True), (0.21, False), (0.99, False), (1.01, True)):
        assert bool(ant.terminated(at(ant, q2=height))) is ended
    pendulum = eqsim.make("inverted_pendulum")
    for angle, ended in ((0.21, True), (-0.21, True), (0.19, False), (-0.19, False)):
        assert bool(pendulum.terminated(at(pendulum, q1=angle))) is ended
    for env in (ant, pendulum):
        assert bool(env.terminated(at(env, q0=jnp.nan)))
        infinite = jnp.full(env.sys.nv, jnp.inf)
        moving = env.pipeline.init(env.sys, env.sys.joints.ref, infinite)
        assert bool(env.terminated(moving))
    cheetah = eqsim.make("half_cheetah")
    assert not bool(cheetah.terminated(at(cheetah, q1=-5.0)))


def test_options_count():
    env = eqsim.make("ant", ctrl_weight=2.0, healthy_reward=3.0, healthy_z=(0.0, 9.0))
    state, action = at(env), jnp.full(8, 0.5)
    terms = env.rewards(state, action, at(env, q0=0.1))
    assert float(terms["ctrl"]) == pytest.approx(-2.0 * 8 * 0.25)
    assert float(terms["healthy"]) == 3.0
    assert float(terms["forward"]) == pytest.approx(0.1 / 0.05)
    assert not env.terminated(at(env, q2=8.0))
    env = eqsim.make("half_cheetah", forward_weight=2.0, ctrl_weight=0.0)
    terms = env.rewards(at(env), jnp.ones(6), at(env, q0=0.1))
    assert float(terms["forward"]) == pytest.approx(0.2 / 0.05)
    assert float(terms["ctrl"]) == 0.0
    assert float(eqsim.make("inverted_pendulum", frame_skip=5).dt) == pytest.approx(0.1)


def test_frame_skip_is_steps():
    env = eqsim.make("inverted_pendulum", frame_skip=3)
    state = at(env, q1=0.1)
    action, expected = jnp.array([0.5]), state
    for _ in range(3):
        expected = env.pipeline.step(env.sys, expected, action)
    assert tree_allclose(env.transition(state, action), expected, rtol=1e-12)


def test_make():
    pipeline = eqsim.Generalized()
    assert eqsim.make("ant", pipeline=pipeline).pipeline is pipeline
    assert type(eqsim.make("ant", pipeline="generalized").pipeline) is type(pipeline)
    with pytest.raises(TypeError, match="`pipeline=Generalized\\(\\)`|'pipeline'"):
        eqsim.make("ant", pipeline=eqsim.Generalized)  # pyright: ignore
    with pytest.raises(TypeError, match="no option 'frame_skp'.*'frame_skip'"):
        eqsim.make("ant", frame_skp=3)
    with pytest.raises(ValueError, match="inverted_pendulum"):
        eqsim.make("inverted_pendulums")
    with pytest.raises(ValueError, match="generalized"):
        eqsim.make("ant", pipeline="generalised")


def test_wrong_action():
    env = eqsim.make("inverted_pendulum")
    with pytest.raises(ValueError, match=r"`action`.*\(nu,\) = \(1,\).*\(2,\)"):
        env.step(at(env), jnp.zeros(2))
    # Where types are checked, that comes first.
    with pytest.raises((ValueError, TypeError), match=r"filter_vmap|f64\[5,1\]"):
        env.step(at(env), jnp.zeros((5, 1)))


def test_system_is_a_field():
    """A heavier pole and a longer time step count, without another environment."""
    env = eqsim.make("inverted_pendulum")
    where = lambda e: (e.sys.links.mass, e.sys.dt)
    mass, dt = where(env)
    other = eqx.tree_at(where, env, (2.0 * mass, 0.5 * dt))
    assert float(other.dt) == pytest.approx(0.02)
    step = eqx.filter_jit(lambda env: env.step(at(env, q1=0.1), jnp.array([0.5])))
    assert not np.allclose(step(env)[0].qd, step(other)[0].qd, rtol=1e-3)
    compiled = [step(e) for e in (env, other)]
    direct = [e.step(at(e, q1=0.1), jnp.array([0.5])) for e in (env, other)]
    assert tree_allclose(compiled, direct, rtol=1e-12)
