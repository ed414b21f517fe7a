"""Heights of the ground beside MuJoCo, and terrain of robots."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from helpers import check_gradients

import eqsim
from eqsim import load_mjcf
from eqsim.io import with_height_field
from eqsim.model import GeomKind
from eqsim.terrain import (
    Blocks,
    Flat,
    ground_height,
    RandomTerrain,
    Rough,
    Slope,
    with_terrain,
)


BALL = """
<mujoco><option timestep="0.002"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" pos=".1 .2 .3" quat="1 0 0 .3"
    friction=".7 .01 .001" condim="3"/>
  <body name="ball" pos="0 0 1"><freejoint/><geom size=".1" mass="1"/>
    <body name="pole" pos=".5 0 .3"><joint name="p" axis="0 1 0"/>
      <geom size=".05" mass=".1"/></body></body></worldbody></mujoco>"""
ROWS, COLUMNS, SIZE = 9, 12, (3.0, 2.0)
HEIGHTS = 0.3 * jr.uniform(jr.key(0), (ROWS, COLUMNS)) - 0.1


def spec(base=1.0):
    return with_height_field(BALL, ROWS, COLUMNS, SIZE, base=base)


def robot(heights=HEIGHTS):
    return with_terrain(load_mjcf(spec()), heights)


def points(count=300, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.8, 1.8, count), rng.uniform(-1.5, 1.5, count)


def test_heights_equal_those_of_mujoco():
    """Also at points beyond the field, which rays miss."""
    model = spec().compile()
    low, high = float(HEIGHTS.min()), float(HEIGHTS.max())
    model.hfield_size[0, 2] = high - low
    model.hfield_data[:] = np.ravel((HEIGHTS - low) / (high - low))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    x, y = points()
    geom = np.zeros(1, np.int32)
    down, missed = np.array([0.0, 0.0, -1.0]), 0
    found = ground_height(robot(), jnp.asarray(x), jnp.asarray(y))
    for k, z in enumerate(np.asarray(found)):
        start = np.array([x[k], y[k], 3.0])
        dist = mujoco.mj_ray(model, data, start, down, None, 1, -1, geom)
        if dist < 0:
            missed += 1
            continue
        # MuJoCo stores heights in single precision.
        np.testing.assert_allclose(3.0 - dist + low, z, atol=1e-6)
    assert 50 < missed < 200


def test_gradients():
    """By points, heights and size, and by the place of the field."""
    sys = robot()
    where = lambda s: (s.height_fields.heights, s.height_fields.size, s.geoms.pos)

    def heights(x, y, parts):
        return ground_height(eqx.tree_at(where, sys, parts), x, y)

    x, y = (jnp.asarray(part[:10]) for part in points())
    check_gradients(heights, x, y, where(sys))


def test_surface_at_grid_points_and_borders():
    text = BALL.replace('pos=".1 .2 .3" quat="1 0 0 .3"', "")
    sys = load_mjcf(with_height_field(text, ROWS, COLUMNS, SIZE))
    sys = with_terrain(sys, HEIGHTS)
    y, x = np.meshgrid(
        np.linspace(-1, 1, ROWS), np.linspace(-1.5, 1.5, COLUMNS), indexing="ij"
    )
    found = ground_height(sys, jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(found, HEIGHTS, atol=1e-9)
    far = ground_height(sys, jnp.asarray([-9.0, 9.0]), jnp.asarray([-9.0, 9.0]))
    np.testing.assert_allclose(far, [HEIGHTS[0, 0], HEIGHTS[-1, -1]], atol=1e-12)
    assert np.isnan(ground_height(sys, jnp.asarray(jnp.nan), jnp.asarray(0.0)))
    quat = sys.geoms.quat.at[0].set(jnp.array([1.0, 0.1, 0.0, 0.0]))
    tilted = eqx.tree_at(lambda s: s.geoms.quat, sys, quat)
    assert np.isnan(ground_height(tilted, jnp.asarray(0.0), jnp.asarray(0.0)))


def test_heights_in_a_file():
    """They are above the plane, whatever its pose, in MuJoCo and in eqsim."""
    given = with_height_field(BALL, ROWS, COLUMNS, SIZE, heights=HEIGHTS)
    x, y = map(jnp.asarray, points())
    found = ground_height(load_mjcf(given), x, y)
    np.testing.assert_allclose(found, ground_height(robot(), x, y), atol=1e-6)
    # A tilted plane: its shape moves along its own axis.
    tilted = BALL.replace("1 0 0 .3", "2 0 1 0")
    moved, flat = (
        with_height_field(tilted, ROWS, COLUMNS, SIZE, heights=h).compile().geom_pos[0]
        for h in (HEIGHTS, 0.0 * HEIGHTS)
    )
    axis = np.array([0.8, 0.0, 0.6])
    np.testing.assert_allclose(moved - flat, axis * float(HEIGHTS.min()), atol=1e-6)


def test_plane_becomes_a_field():
    """With all its properties; a ball rests on flat terrain as on the plane."""
    plane, sys = load_mjcf(BALL), load_mjcf(spec())
    geom = sys.geom("floor").index
    assert sys.geoms.kinds[geom] is GeomKind.HFIELD and sys.geoms.data[geom] == 0
    np.testing.assert_array_equal(sys.geoms.friction, plane.geoms.friction)
    np.testing.assert_allclose(sys.height_fields.size, [[1.5, 1.0, 1.0]])
    pipeline = eqsim.Generalized()

    @eqx.filter_jit
    def fallen(sys):
        q = jnp.array([0.0, 0.0, 0.405, 1.0, 0.0, 0.0, 0.0, 0.0])
        step = lambda state, _: (pipeline.step(sys, state, jnp.zeros(0)), None)
        return jax.lax.scan(step, pipeline.init(sys, q), None, 25)[0].q

    np.testing.assert_allclose(fallen(sys), fallen(plane), atol=1e-6)
    lower = fallen(with_terrain(sys, jnp.full((ROWS, COLUMNS), -0.05)))
    assert lower[2] < fallen(sys)[2] - 0.005


def test_bottom_is_lowered():
    sys = load_mjcf(spec(base=0.2))
    deep = with_terrain(sys, HEIGHTS - 2.0, size=(4.0, 4.0))
    np.testing.assert_allclose(deep.height_fields.size[0, :2], [2.0, 2.0])
    assert deep.height_fields.size[0, 2] > -float(HEIGHTS.min() - 2.0)
    batch = jax.vmap(lambda h: with_terrain(sys, h).height_fields.heights)
    assert batch(jnp.stack(2 * [HEIGHTS])).shape == (2, ROWS * COLUMNS)


def test_random_terrain():
    """Kinds and difficulties differ between environments, whose robots carry heights."""
    kinds = Flat(), Blocks(height=(0.1, 0.4), width=0.5), Rough()
    draw = RandomTerrain(kinds, (0.2, 1.0))
    sys = robot()
    keys = jr.split(jr.key(0), 40)
    heights = jax.jit(jax.vmap(lambda k: draw(k, sys).height_fields.heights))(keys)
    span = np.ptp(np.asarray(heights), axis=1)
    assert 5 < np.sum(span == 0.0) < 25 and np.max(span) > 0.4
    assert len(np.unique(span)) > 15


@pytest.mark.parametrize("up", (True, False))
def test_random_terrain_is_flat_ground_where_robots_start(up):
    """Platforms on stairs and slopes are as high as the plane, and nothing is cut off."""
    draw = RandomTerrain((Slope(3.0, platform=0.6, up=up),), (1.0, 1.0))
    sys = draw(jr.key(0), robot())
    pos, reach = sys.geoms.pos[0], (ROWS - 1) / 2 * SIZE[0] / (COLUMNS - 1)
    assert float(ground_height(sys, pos[0], pos[1])) == pytest.approx(float(pos[2]))
    heights = sys.height_fields.heights
    assert np.ptp(heights) == pytest.approx(3.0 * (reach - 0.3))
    assert float(jnp.min(heights)) > -float(sys.height_fields.size[0, 2])


def test_errors():
    sys, ball = load_mjcf(spec()), load_mjcf(BALL)
    wall = BALL.replace(
        '<body name="ball"',
        "<geom type='plane' size='1 1 1' name='w'/><body name=\"ball\"",
    )
    for call, message in (
        (lambda: with_terrain(sys, HEIGHTS[1:]), r"the shape \(8, 12\)"),
        (lambda: with_terrain(sys, HEIGHTS, (0.3, 4.0)), "0.3 m long along x"),
        (lambda: with_terrain(sys, HEIGHTS.at[0, 0].set(jnp.nan)), "must be finite"),
        (lambda: with_terrain(sys, HEIGHTS, name="x"), "no height field 'x'"),
        (lambda: with_terrain(ball, HEIGHTS), "0 height fields"),
        (lambda: RandomTerrain((Flat(),))(jr.key(0), ball), "needs a robot with"),
        (
            lambda: with_height_field(wall, 3, 3, SIZE),
            r"\['floor', 'w'\]. Pass `plane`",
        ),
        (lambda: with_height_field(BALL, 1, 3, SIZE), "`rows`"),
        (lambda: with_height_field(BALL, 3, 3, (0.0, 1.0)), "`size` must be positive"),
        (lambda: with_height_field(spec(), 3, 3, SIZE), "'terrain' already"),
        (lambda: with_height_field("<mujoco/>", 3, 3, SIZE), "must have one plane"),
        (
            lambda: with_height_field(BALL, 3, 3, SIZE, heights=HEIGHTS),
            r"`heights` have the shape \(9, 12\), but the grid has \(3, 3\)",
        ),
        (
            lambda: with_height_field(BALL, 9, 12, SIZE, heights=jnp.nan * HEIGHTS),
            "`heights` must be finite",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="cannot be edited"):
        with_height_field(spec().compile(), 3, 3, SIZE)
