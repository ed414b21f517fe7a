"""Levels of terrain that follow what robots reached."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import Rail, sled

import eqsim
import eqsim.testing
from eqsim.envs import ResetOptions
from eqsim.terrain import Blocks, Flat, Slope, TerrainGrid
from eqsim.wrappers import (
    AbstractCarryOver,
    AutoReset,
    DomainRandomization,
    Lifetime,
    next_episode,
    pool_resets,
    progress_of,
    TerrainCurriculum,
    TimeLimit,
    Walked,
    WalkedDistance,
)


GRID = TerrainGrid(
    (Flat(), Slope(0.3), Blocks()), levels=4, points=21, cell=0.2, border=2
)
ENV = sled(GRID)


def test_starts_on_a_patch():
    """In its middle, as high above the ground as without terrain."""
    for env in (ENV, sled(GRID, 'pos="1 2 .5" quat="1 0 0 1"')):
        sys, moved = env.sys, TerrainCurriculum(env, GRID, first_level=3)
        keys = jr.split(jr.key(0), 32)
        state, timestep = jax.jit(jax.vmap(moved.reset))(keys)
        q, pos = np.asarray(state.inner.q), np.asarray(sys.geoms.pos[0])
        turn = pos[0] != 0.0
        x, y = q[:, 0] - pos[0], q[:, 1] - pos[1]
        x, y = (y, -x) if turn else (x, y)
        level, column = jax.vmap(GRID.patch)(jnp.asarray(x), jnp.asarray(y))
        np.testing.assert_array_equal(np.stack([level, column], -1), state.patch)
        assert {*np.ravel(level)} == {0, 1, 2, 3} and {*np.ravel(column)} == {0, 1, 2}
        ground = GRID.origins(sys.height_fields.grid(0))[level, column, 2]
        np.testing.assert_allclose(q[:, 2], 0.5 + pos[2] + ground, atol=1e-9)
        np.testing.assert_array_equal(timestep.obs, q)


def test_levels_follow_the_distance():
    """Up after a long way, down after a short one, and anywhere after the last one."""
    speed = lambda state: jnp.asarray(4.0)
    inner = TerrainCurriculum(ENV, GRID, commanded_speed=speed)
    env = AutoReset(TimeLimit(inner, 10))
    keys, step = jr.split(jr.key(1), 16), jax.jit(jax.vmap(env.step))
    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    column = np.asarray(state.inner.inner.patch[:, 1])
    # The way in 10 steps of 0.05 s is 0.1 m times force / mass; a patch is 4.2 m long.
    levels = []
    for push in (30.0, 15.0, 30.0, 0.0, 30.0, 30.0, 30.0):
        for _ in range(10):
            state, timestep = step(state, jnp.full((16, 1), push))
        assert np.all(timestep.truncated)
        patch = np.asarray(state.inner.inner.patch)
        np.testing.assert_array_equal(patch[:, 1], column)
        levels.append(patch[:, 0])
    shown = jax.vmap(lambda state: progress_of(env, state))(state)
    np.testing.assert_array_equal(shown["level"], levels[-1])
    wanted = [1, 1, 2, 1, 2, 3]
    np.testing.assert_array_equal(np.array(levels[:6]).T, np.tile(wanted, (16, 1)))
    assert len({*levels[6].tolist()}) > 1
    start = state.inner.inner.start
    np.testing.assert_allclose(start, state.inner.inner.inner.q[:, :2], atol=1e-12)


class _Told(AbstractCarryOver):
    """Keeps the keys of options."""

    env: eqsim.AbstractEnv
    keys: list = eqx.field(static=True, default_factory=list)

    lifetime = Lifetime.EPISODE

    def reset(self, key, options=None):
        return self.env.reset(key)

    def step(self, state, action):
        raise AssertionError("is not stepped")

    def next_options(self, key, state):
        self.keys.append(jr.key_data(key))
        return ResetOptions()

    def progress(self, state):
        return {}


def test_key_of_options():
    """It is none of those into which wrappers split the key of the reset."""
    env = _Told(Rail())
    next_episode(env, jr.key(3), None)
    others = jr.key_data(jr.split(jr.key(3), 64))
    assert not np.any(np.all(others == env.keys[0][None], axis=1))


def test_options_of_the_next_episode():
    """Those that are given; others are those of the curriculum."""
    env, key = TerrainCurriculum(ENV, GRID), jr.key(0)
    last, _ = env.reset(key, {"patch": jnp.array([2, 1], jnp.int32)})
    q = jnp.array([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0])
    usual, placed = next_episode(env, key, last)[0], {"q": q}
    found, _ = next_episode(env, key, last, placed)
    np.testing.assert_array_equal(found.patch, usual.patch)
    np.testing.assert_array_equal(env.physics(found).q, q)
    other = ResetOptions(patch=jnp.array([0, 0], jnp.int32))
    found, _ = next_episode(env, key, last, other)
    np.testing.assert_array_equal(found.patch, other.patch)
    assert np.any(np.asarray(usual.patch) != 0)
    env = Rail()  # Without a curriculum.
    found, _ = next_episode(env, key, env.reset(key)[0], {"q": jnp.ones(2)})
    np.testing.assert_array_equal(found.q, np.ones(2))


@pytest.mark.slow
def test_conformance():
    eqsim.testing.check_conformance(TerrainCurriculum(ENV, GRID))


def test_criterion():
    walked = lambda d, c: Walked(*map(jnp.asarray, (d, c, 8.0, 2)))
    rule = WalkedDistance()
    cases = ((4.1, 9.0, 1), (3.9, 7.0, 0), (3.9, 8.0, -1), (0.0, 0.0, 0))
    for distance, commanded, change in cases:
        assert int(rule(walked(distance, commanded))) == change


def test_options_and_other_wrappers():
    """A given patch or state, robots that differ between episodes, and pools."""
    env = TerrainCurriculum(ENV, GRID)
    patch = jnp.array([2, 1], jnp.int32)
    state, _ = env.reset(jr.key(0), {"patch": patch})
    np.testing.assert_array_equal(state.patch, patch)
    q = jnp.array([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0])
    state, _ = env.reset(jr.key(0), {"q": q})
    np.testing.assert_array_equal(state.inner.q, q)
    draw = eqsim.randomize.masses(0.5, 2.0)
    for random in (
        TerrainCurriculum(DomainRandomization(ENV, draw), GRID),
        DomainRandomization(env, draw),
    ):
        whole = AutoReset(TimeLimit(random, 2))
        state, _ = whole.reset(jr.key(0), {"patch": patch})
        push, step = jnp.array([300.0]), eqx.filter_jit(whole.step)
        for _ in range(2):
            state, _ = step(state, push)
        inner = state.inner.inner
        inner = inner.inner if isinstance(random, DomainRandomization) else inner
        assert tuple(map(int, inner.patch)) == (3, 1)
    pooled = AutoReset(pool_resets(TimeLimit(env, 2), jr.key(0), 4))
    state, _ = pooled.reset(jr.key(0), {"patch": patch})
    for _ in range(2):
        state, _ = pooled.step(state, jnp.array([300.0]))
    assert int(state.inner.inner.patch[0]) == 3


def test_errors():
    small = TerrainGrid((Flat(),), levels=2, points=5, border=1)
    with pytest.raises(ValueError, match="has the resolution"):
        TerrainCurriculum(ENV, small)
    with pytest.raises(ValueError, match="0 height fields"):
        TerrainCurriculum(Rail(), small)
    with pytest.raises(ValueError, match="no terrain of several patches"):
        ENV.reset(jr.key(0), {"patch": jnp.zeros(2, jnp.int32)})
