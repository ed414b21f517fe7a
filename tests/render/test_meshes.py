"""Images show meshes and height fields as they are now."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import solids
from opengl import needs_opengl

from eqsim import load_mjcf
from eqsim.render import Camera, camera_for, images


VIEW = Camera(distance=2.0, elevation=-30.0)
ONE = """
<mujoco>{assets}<worldbody><body><joint/><inertial pos="0 0 0" mass="1"
  diaginertia="1 1 1"/><geom {shape} {apart}/></body></worldbody></mujoco>"""


def one(shape):
    return load_mjcf(
        ONE.format(assets=solids.assets(), shape=shape, apart=solids.APART)
    )


def shown(sys):
    return images(sys, jnp.zeros((1, sys.nq)), VIEW)[0].astype(float)


@needs_opengl
def test_robots_are_drawn_in_turn():
    """Each into its own image."""
    box, ball = one('type="box" size=".2 .2 .2"'), one('type="sphere" size=".2"')
    first, second = shown(box), shown(ball)
    for _ in range(2):
        assert np.array_equal(shown(box), first) and np.array_equal(shown(ball), second)
    assert not np.array_equal(first, second)


@needs_opengl
def test_a_cube_looks_like_a_box():
    cube, box = one('type="mesh" mesh="cube"'), one('type="box" size=".2 .2 .2"')
    differs = np.abs(shown(cube) - shown(box)).max(axis=-1) > 20
    # At edges, the two are drawn with different rounding.
    assert np.mean(differs) < 0.002
    half = eqx.tree_at(
        lambda s: s.meshes, cube, jax.tree.map(lambda x: x / 2, cube.meshes)
    )
    small = shown(one('type="box" size=".1 .1 .1"'))
    assert np.mean(np.abs(shown(half) - small).max(axis=-1) > 20) < 0.002
    # The first mesh is drawn again after the second one.
    assert np.mean(np.abs(shown(cube) - small).max(axis=-1) > 20) > 0.01


@needs_opengl
def test_a_flat_terrain_looks_like_a_box():
    hills = one('type="hfield" hfield="hills"')
    flat = lambda z: eqx.tree_at(
        lambda s: (s.height_fields.heights, s.geoms.pos),
        hills,
        (jnp.full(35, z), jnp.array([[0.0, 0.0, 0.1 - z]])),
    )
    box = shown(one('type="box" size=".5 .7 .05" pos="0 0 .05"'))
    assert np.mean(np.abs(shown(flat(0.0)) - box).max(axis=-1) > 20) < 0.01
    high = shown(flat(0.3))
    # The same surface, on a higher block.
    assert np.mean(np.abs(high - box).max(axis=-1) > 20) > 0.01
    assert np.array_equal(high[:100], shown(flat(0.0))[:100])


@needs_opengl
def test_every_robot_of_a_batch_has_its_own_meshes():
    cube = one('type="mesh" mesh="cube"')
    sizes = [1.0, 0.5, 1.0]
    fleet = [
        eqx.tree_at(lambda s: s.meshes.other_vertices, cube, replace_fn=lambda x: f * x)
        for f in sizes
    ]
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), *fleet)
    found = images(batch, jnp.zeros((3, 1)), VIEW)
    for picture, sys in zip(found, fleet):
        assert np.array_equal(picture, shown(sys))


def test_camera():
    """Meshes are in view, and a walker on a terrain is followed."""
    cube = one('type="mesh" mesh="cube"')
    box = one('type="box" size=".2 .2 .2"')
    assert camera_for(cube).distance == pytest.approx(
        camera_for(box).distance, rel=1e-6
    )
    text = solids.robot().replace('<joint type="hinge" axis="0 1 0"/>', "<freejoint/>")
    assert camera_for(load_mjcf(text)).follow == "arm"
