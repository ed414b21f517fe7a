"""Observations that are pictures."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from opengl import needs_opengl
from toys import Rail

import eqsim
from eqsim import randomize
from eqsim.render import Camera, images
from eqsim.wrappers import (
    AutoReset,
    DomainRandomization,
    episode_robot,
    Pixels,
    StackObservation,
    TimeLimit,
)


pytestmark = needs_opengl
CAMERA = Camera(distance=6.0, elevation=-50.0)
LARGER = randomize.uniform(lambda sys: sys.geoms.size, 0.1, 0.5)


def pixels(env):
    return Pixels(env, 24, 16, CAMERA)


def push(obs, key):
    return jr.uniform(key, (2,), minval=-2.0, maxval=3.0)


WRAPPED = {
    "episodes": AutoReset(TimeLimit(pixels(Rail()), 4)),
    "randomized inside": AutoReset(
        TimeLimit(pixels(DomainRandomization(Rail(), LARGER)), 4)
    ),
    "randomized outside": AutoReset(
        DomainRandomization(TimeLimit(pixels(Rail()), 4), LARGER)
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.quick_cases("randomized inside")
def test_shows_the_present_state(name):
    """In a rollout of a batch, each observation is the picture of its state."""
    env = WRAPPED[name]
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 3), 6)
    assert out.obs.shape == (3, 6, 16, 24, 3) and out.obs.dtype == jnp.uint8
    each = eqx.filter_vmap(eqx.filter_vmap(lambda state: episode_robot(env, state)))
    sys = each(out.state)
    expected = images(sys, env.physics(out.state).q, CAMERA, width=24, height=16)
    assert np.array_equal(out.obs, expected)
    # `final_obs` is of the old episode, `obs` of the new one.
    done = np.asarray(out.timestep.done)
    same = np.all(out.timestep.obs == out.timestep.final_obs, axis=(2, 3, 4))
    assert np.array_equal(same, ~done) and np.all(done[:, 3])
    different = np.unique(np.asarray(out.obs).reshape(18, -1), axis=0)
    assert len(different) >= 15 and np.ptp(different) > 50


def test_structure():
    env = WRAPPED["episodes"]
    first = eqx.filter_eval_shape(env.reset, jr.key(0))
    second = eqx.filter_eval_shape(env.step, first[0], jnp.zeros(2))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    shapes = [[(x.shape, x.dtype) for x in jax.tree.leaves(t)] for t in (first, second)]
    assert shapes[0] == shapes[1]
    assert second[1].final_obs.shape == (16, 24, 3)
    with pytest.raises(ValueError, match=r"Write `AutoReset\(Pixels"):
        pixels(env)


def test_derivatives():
    """Those of pictures are zero, those of rewards stay, in both modes."""

    def loss(action, mass, env):
        env = eqx.tree_at(lambda env: env.sys.links.mass, env, mass)
        state, _ = env.reset(jr.key(3))
        step = lambda state, _: env.step(state, action)
        _, timestep = jax.lax.scan(step, state, length=3)
        return jnp.sum(timestep.reward), jnp.sum(timestep.obs.astype(float))

    args = jnp.array([0.3, -0.4]), Rail().sys.links.mass
    for derive in (jax.jacfwd, jax.jacrev):
        of = lambda env: jax.jit(derive(ft.partial(loss, env=env), argnums=(0, 1)))(
            *args
        )
        reward, picture = of(pixels(Rail()))
        expected, _ = of(Rail())
        np.testing.assert_allclose(reward[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(reward[1], expected[1], rtol=1e-12)
        assert all(not np.any(x) for x in picture)


def test_both():
    """Pictures beside what was observed before, also several of both."""
    env, key = Pixels(Rail(), 24, 16, CAMERA, only=False), jr.key(0)
    _, plain = Rail().reset(key)
    _, picture = pixels(Rail()).reset(key)
    _, both = env.reset(key)
    assert both.obs.keys() == {"pixels", "state"}
    assert jnp.array_equal(both.obs["state"], plain.obs)
    assert jnp.array_equal(both.obs["pixels"], picture.obs)
    stacked = StackObservation(env, 2)
    state, first = stacked.reset(key)
    _, then = stacked.step(state, jnp.array([1.0, -1.0]))
    assert then.obs["pixels"].shape == (16, 24, 6)
    assert jnp.array_equal(then.obs["pixels"][..., :3], picture.obs)
    half = plain.obs.size
    assert jnp.array_equal(then.obs["state"][:half], plain.obs)
    assert not jnp.array_equal(then.obs["state"][half:], plain.obs)
    assert jnp.array_equal(first.obs["state"], jnp.tile(plain.obs, 2))


def test_arguments():
    assert Pixels(Rail()).camera == eqsim.render.camera_for(Rail().sys)
    assert Pixels(Rail()).reset(jr.key(0))[1].obs.shape == (64, 64, 3)
    with pytest.raises(ValueError, match="`width` must be .* at least 1, got 0"):
        Pixels(Rail(), 0, 16)
    with pytest.raises(ValueError, match="'leg'.*mass0, mass1"):
        Pixels(Rail(), camera=Camera(follow="leg"))
    with pytest.raises(ValueError, match="pass the `Camera`"):
        eqx.filter_vmap(lambda s: Pixels(eqx.tree_at(lambda e: e.sys.dt, Rail(), s)))(
            jnp.ones(2)
        )
