"""Terrain of the quadruped that is to escape."""

import eqsim_dmc
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_dmc._quadruped import _spline_matrix
from jax.test_util import check_grads
from scipy import ndimage

import eqsim


pytest.importorskip("dm_control")


# A grid point halfway between the origin and an edge.
_RIDGE = 100 * 201 + 50


@pytest.fixture(scope="module")
def robot():
    return eqsim_dmc.quadruped_model(40.0, terrain=True)


@pytest.mark.parametrize("shape", [(30, 201), (5, 17), (2, 3)])
def test_spline(shape):
    """The spline is that of `scipy.ndimage.zoom`, which the suite calls."""
    knots, points = shape
    values = np.random.default_rng(0).uniform(size=(knots, knots))
    matrix = _spline_matrix(knots, points)
    expected = ndimage.zoom(values, points / knots)
    np.testing.assert_allclose(matrix @ values @ matrix.T, expected, 0, 1e-12)


def test_bowl(robot):
    """Without bumps: a ridge in the middle between the origin and the edges."""
    smooth = eqsim_dmc.RandomBowl(smoothness=1.0, height=3.0)(jr.key(0), robot)
    grid = np.asarray(smooth.height_fields.grid(0))
    assert grid.shape == (201, 201)
    np.testing.assert_allclose(grid[100, 50], 3.0)
    np.testing.assert_allclose(grid[50, 100], 3.0)
    np.testing.assert_allclose(grid[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(grid[100, 100], 1.5 * (1 - np.cos(0.08 * np.pi)))
    np.testing.assert_allclose(grid, grid.T)


def test_bumps(robot):
    """Different for every key, above the bottom, and as rough as asked for."""
    drawn = lambda key, **options: eqsim_dmc.RandomBowl(**options)(key, robot)
    keys = jr.split(jr.key(0), 30)
    heights = jax.vmap(lambda key: drawn(key).height_fields.heights)(keys)
    assert len(np.unique(heights[:, _RIDGE])) == 30
    bottom = -float(robot.height_fields.size[0, 2])
    assert bottom < np.min(heights) < 0.0 and np.max(heights) > 5.0
    # Where the bowl is high, relative to the bowl.
    ridge = lambda key, s: drawn(key, smoothness=s).height_fields.grid(0)[100, 40:60]
    relative = [ridge(keys[0], s) / ridge(keys[0], 1.0) for s in (0.15, 0.9)]
    assert np.std(relative[0]) > 5.0 * np.std(relative[1]) > 0.0
    with pytest.raises(ValueError, match="`bumps` must be at least 2, got 1"):
        eqsim_dmc.RandomBowl(bumps=1)
    with pytest.raises(ValueError, match="needs a height field 'terrain'"):
        eqsim_dmc.RandomBowl()(keys[0], eqsim_dmc.quadruped_model())


def test_gradient_of_terrain(robot):
    """Derivatives by the height of the ridge and the smoothness, in both modes."""

    def heights(height, smoothness):
        bowl = eqsim_dmc.RandomBowl(height=height, smoothness=smoothness)
        return bowl(jr.key(1), robot).height_fields.heights[_RIDGE : _RIDGE + 10]

    point = jnp.asarray(4.0), jnp.asarray(0.3)
    check_grads(heights, point, order=1, modes=("fwd", "rev"), rtol=1e-6)
    assert np.min(np.abs(jax.jacfwd(heights)(*point))) > 1e-3


@pytest.mark.slow
def test_gradient_by_terrain():
    """The derivative of a step by all heights, beside differences."""
    env = eqsim.make("dmc_quadruped_escape")
    state, _ = env.reset(jr.key(0))
    rest = jnp.zeros(env.sys.nu)
    fall = jax.jit(
        lambda s: eqsim.scan(lambda s, _: (env.step(s, rest)[0], None), s, None, 40)[0]
    )
    state = fall(state)
    heights = env.robot(state).height_fields.heights
    direction = jr.normal(jr.key(1), heights.shape)

    @jax.jit
    def moved(h):
        place = lambda s: s.changed.height_fields.heights
        other = eqx.tree_at(place, state, heights + h * direction)
        return env.step(other, rest)[0].inner.qd

    _, slope = jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))
    expected = (moved(jnp.asarray(1e-6)) - moved(jnp.asarray(-1e-6))) / 2e-6
    scale = np.max(np.abs(expected))
    assert scale > 0.1
    np.testing.assert_allclose(slope, expected, 1e-4, 1e-4 * scale)
