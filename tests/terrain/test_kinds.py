"""Kinds of terrain: their shape at both ends of difficulty, and their derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients

from eqsim.terrain import (
    Blocks,
    Flat,
    Gaps,
    Obstacles,
    Rough,
    Slope,
    Stairs,
    SteppingStones,
    TerrainGrid,
    Waves,
)


SHAPE, CELL = (61, 81), 0.1
KINDS = {
    "flat": Flat(),
    "slope": Slope(),
    "pit": Slope(up=False),
    "stairs": Stairs(),
    "cellar": Stairs(up=False),
    "obstacles": Obstacles(),
    "blocks": Blocks(),
    "waves": Waves(),
    "stones": SteppingStones(),
    "gaps": Gaps(),
    "rough": Rough(),
}
Y, X = np.meshgrid(*((np.arange(n) - (n - 1) / 2) * CELL for n in SHAPE), indexing="ij")
PLATFORM = np.maximum(np.abs(X), np.abs(Y)) < 0.45


def draw(kind, difficulty=1.0, seed=0):
    return np.asarray(kind(jr.key(seed), difficulty, SHAPE, CELL))


@pytest.mark.parametrize("name", KINDS)
def test_platform_is_flat(name):
    """At every difficulty; in a batch of keys and difficulties, as one by one."""
    kind, keys = KINDS[name], jr.split(jr.key(0), 3)
    hard = jnp.array([0.0, 0.4, 1.0])
    batch = jax.jit(jax.vmap(lambda k, d: kind(k, d, SHAPE, CELL)))(keys, hard)
    for k, heights in enumerate(np.asarray(batch)):
        one = kind(keys[k], hard[k], SHAPE, CELL)
        np.testing.assert_allclose(heights, one, atol=1e-12)
        assert np.all(np.isfinite(heights))
        np.testing.assert_allclose(np.ptp(heights[PLATFORM]), 0.0, atol=1e-9)
    if name != "flat":
        assert np.std(batch[2]) > 0.01
        assert name == "stones" or np.std(batch[0]) < np.std(batch[2])


def test_slopes_and_stairs_in_closed_form():
    depth = np.minimum(4.0 - np.abs(X), 3.0 - np.abs(Y))
    inside = np.minimum(depth, 2.5)
    np.testing.assert_allclose(draw(Slope((0.1, 0.3))), 0.3 * inside, atol=1e-12)
    stairs = Stairs((0.05, 0.2), 0.4)
    steps = np.floor(inside / 0.4 + 0.1)
    np.testing.assert_allclose(draw(stairs), 0.2 * steps, atol=1e-12)
    np.testing.assert_allclose(draw(stairs, 0.0), 0.05 * steps, atol=1e-12)
    down = Stairs((0.05, 0.2), 0.4, up=False)
    np.testing.assert_allclose(draw(down), -draw(stairs), atol=1e-12)


def test_sizes_of_obstacles():
    """Heights, widths of gaps and stones are those that the ranges say."""
    for kind in (Obstacles(height=0.2), Blocks(height=0.2), Rough(height=0.2)):
        heights = draw(kind)
        assert 0.1 < np.max(np.abs(heights)) <= 0.2
    blocks = draw(Blocks(height=0.2, width=0.5, platform=0.0))
    np.testing.assert_array_equal(blocks[0:5, 0:5], np.full((5, 5), blocks[0, 0]))
    assert blocks[0, 4] != blocks[0, 5] and blocks[4, 0] != blocks[5, 0]
    gaps = draw(Gaps(gap=0.5, ground=10.0, depth=2.0))
    assert np.sum(gaps[30, 40:] == -2.0) == 5 and np.sum(gaps == 0.0) > 1000
    # A stone 0.6 m long and a gap of 0.4 m.
    stones = draw(SteppingStones(0.6, 0.4, 0.05, 3.0, 0.0))
    share = np.mean(stones > -1.0)
    assert 0.3 < share < 0.42
    assert set(np.unique(np.round(stones[stones < -1.0], 9))) == {-3.0}


def test_noise_is_uniform_and_smooth():
    """Between points of the noise, heights are interpolated linearly."""
    noise = draw(Rough(height=1.0, spacing=0.4, platform=0.0))
    knots = noise[::4, ::4]
    middle = (knots[:, 1:] + knots[:, :-1]) / 2
    away = np.abs(X[::4, ::4]) > 0.9
    np.testing.assert_allclose(
        noise[::4, 2::4][away[:, 1:] & away[:, :-1]],
        middle[away[:, 1:] & away[:, :-1]],
        atol=1e-9,
    )
    values = knots[away]
    assert abs(np.mean(values)) < 0.1 and abs(np.std(values) - 3**-0.5) < 0.06


@pytest.mark.parametrize("name", ("slope", "stairs", "waves", "rough", "blocks"))
@pytest.mark.quick_cases("slope", "rough")
def test_gradients(name):
    """By the ranges, in which heights are linear, and the length of waves."""
    kind = KINDS[name]
    fields = {
        "slope": lambda k: k.slope,
        "stairs": lambda k: k.step_height,
        "waves": lambda k: (k.amplitude, k.length),
        "rough": lambda k: k.height,
        "blocks": lambda k: k.height,
    }
    where = fields[name]

    def heights(x):
        return eqx.tree_at(where, kind, x)(jr.key(0), 0.7, (11, 13), 0.4)

    check_gradients(heights, where(kind))


def test_grid_of_patches():
    """Every patch is the terrain of its kind at the difficulty of its row."""
    grid = TerrainGrid((Flat(), Slope(0.5)), levels=3, points=21, cell=0.2, border=4)
    heights = grid.heights(jr.key(0))
    assert heights.shape == grid.shape == (3 * 21 + 8, 2 * 21 + 8)
    np.testing.assert_allclose(grid.size, [49 * 0.2, 70 * 0.2], rtol=1e-12)
    inside = heights[4:-4, 4:-4].reshape(3, 21, 2, 21).swapaxes(1, 2)
    slope = Slope(0.5)(jr.key(0), 0.0, (21, 21), 0.2)
    np.testing.assert_allclose(inside[:, 1], np.stack(3 * [slope]), atol=1e-12)
    assert np.all(inside[:, 0] == 0)
    np.testing.assert_allclose(jnp.sum(heights), np.sum(inside), rtol=1e-12)
    origins = grid.origins(heights)
    # The middle of a patch is the middle of its 21 points.
    np.testing.assert_allclose(origins[0, 0, :2], [-2.1, -4.2], atol=1e-12)
    np.testing.assert_allclose(origins[1, :, 2], [0.0, 0.5 * 1.5], atol=1e-12)
    for level in range(3):
        for column in range(2):
            at = grid.spawn(jr.key(level), level, column, heights, 1.5)
            assert tuple(map(int, grid.patch(at[0], at[1]))) == (level, column)
            assert np.all(np.abs(at[:2] - origins[level, column, :2]) < 1.5)


def test_errors():
    for call, message in (
        (lambda: Flat()(jr.key(0), 0.5, (1, 5), 0.1), "`rows`"),
        (lambda: TerrainGrid(()), "TerrainGrid.kinds"),
        (lambda: TerrainGrid((Flat(),), points=1), "TerrainGrid.points"),
        (lambda: Obstacles(count=0), "Obstacles.count"),
        (lambda: TerrainGrid((Flat(),)).origins(jnp.zeros((3, 3))), "`heights`"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
