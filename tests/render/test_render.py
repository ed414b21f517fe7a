"""Pictures show the robot, where it is."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from opengl import needs_opengl
from toys import rails

import eqsim
from eqsim import randomize
from eqsim.render import Camera, camera_for, draw, images, write_gif


BALL = """
<mujoco><worldbody>
  <geom type="plane" size="0 0 1" pos="0 0 -1"/>
  <body name="ball" pos="0 0 1"><joint name="root" type="free"/>
    <geom type="sphere" size="0.3" pos="0.1 0.2 0.3"/>
    <geom type="box" size="0.1 0.2 0.3" quat="1 2 3 4"/>
    <geom type="capsule" size="0.1 0.2" fromto="0 0 0 0 0 1"/>
    <geom type="cylinder" size="0.1 0.2" quat="1 0 1 0"/>
    <body name="arm"><joint type="hinge" axis="0 1 0"/>
      <geom type="sphere" size="0.1" pos="0.5 0 0"/></body>
  </body>
</worldbody></mujoco>"""
FRONT = Camera(distance=4.0, elevation=0.0)


@pytest.fixture(scope="module")
def ball():
    return eqsim.load_mjcf(BALL)


def test_shapes_are_placed_as_by_mujoco(ball, getkey):
    """Centers and axes of the shapes, at random coordinates."""
    import mujoco

    from eqsim.render.cameras import place

    model = mujoco.MjModel.from_xml_string(BALL)
    data = mujoco.MjData(model)
    q = jr.normal(getkey(), (ball.nq,))
    q = q.at[3:7].divide(jnp.linalg.norm(q[3:7]))
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    placed = jax.jit(place)(ball, q)
    expected = data.geom_xpos, data.geom_xmat.reshape(-1, 3, 3), model.geom_size
    assert tree_allclose(tuple(placed), expected, rtol=1e-9, atol=1e-12)


def test_camera(ball):
    """A walker is followed, and what stands is in view wherever its joints go."""
    camera = camera_for(ball)
    assert camera.follow == "ball" and camera.lookat[2] == pytest.approx(1.0, abs=0.5)
    assert camera_for(rails()).follow is None
    # Two masses that slide by 1 m to both sides, and are 1 m apart.
    assert 2.0 < camera_for(rails()).distance < 5.0
    with pytest.raises(ValueError, match="distance.*got 0"):
        Camera(distance=0.0)
    with pytest.raises(ValueError, match="one robot"):
        camera_for(eqx.filter_vmap(lambda _: ball)(jnp.zeros(2)))
    with pytest.raises(ValueError, match="one robot"):
        jax.jit(lambda sys: camera_for(sys).distance)(ball)


def _column(picture, camera_width):
    """Where, from left to right, what is not background stands on average."""
    background = picture[:1, :1].astype(float)
    weight = np.abs(picture - background).sum(-1) > 60
    assert weight.any()
    return np.average(np.arange(camera_width), weights=weight.sum(0))


@needs_opengl
def test_place_in_the_picture():
    """x is to the right, by as many pixels as perspective says."""
    sys = rails(1)
    picture = images(sys, jnp.array([[-0.5], [0.0], [0.5]]), FRONT, width=101)
    columns = [_column(x, 101) for x in picture]
    height = picture.shape[1]
    step = 0.5 / FRONT.distance / np.tan(np.deg2rad(22.5)) * height / 2
    expected = [50.0 - step, 50.0, 50.0 + step]
    np.testing.assert_allclose(columns, expected, atol=1.0)


@needs_opengl
def test_size_in_the_picture():
    """The robot that is drawn is the one that is given: here, a larger one."""
    sys = rails(1)
    larger = eqx.tree_at(lambda s: s.geoms.size, sys, 2.0 * sys.geoms.size)
    area = []
    for robot in (sys, larger):
        picture = images(robot, jnp.zeros(1), FRONT).astype(float)
        area.append((np.abs(picture - picture[:1, :1]).sum(-1) > 60).sum())
    assert area[1] / area[0] == pytest.approx(4.0, rel=0.1)


@needs_opengl
def test_follows(ball):
    """A camera that follows keeps the robot in the middle; the ground moves."""
    q = jnp.asarray(ball.joints.ref)
    away = q.at[:2].add(jnp.array([3.3, 0.4]))
    camera = Camera(lookat=(0.0, 0.0, 1.0), follow="ball")
    still, moved = images(ball, jnp.stack([q, away]), camera).astype(int)
    robot = [x[..., 0] - x[..., 2] > 40 for x in (still, moved)]  # It is orange.
    assert np.mean(robot[0]) > 0.02 and np.mean(robot[0] != robot[1]) < 0.002
    assert np.mean(np.abs(still - moved)) > 2
    with pytest.raises(ValueError, match="'bal'.*ball, arm"):
        images(ball, q, Camera(follow="bal"))


@needs_opengl
def test_batches(getkey):
    """jit, vmap and one robot for each state change nothing."""
    sys = rails()
    change = randomize.uniform(lambda s: s.geoms.size, 0.1, 0.4)
    robots = eqx.filter_vmap(change, in_axes=(0, None))(jr.split(getkey(), 3), sys)
    robots = eqx.filter_vmap(lambda x, _: x)(robots, jnp.zeros(3))
    robots = jax.tree.map(
        lambda x, y: jnp.broadcast_to(x, (3, *y.shape)) if x.ndim == y.ndim else x,
        robots,
        sys,
    )
    q = jr.uniform(getkey(), (3, 2))
    together = images(robots, q, FRONT, width=40, height=30)
    assert together.shape == (3, 30, 40, 3) and together.dtype == np.uint8
    for k in range(3):
        own = jax.tree.map(lambda x: x[k], robots)
        assert np.array_equal(
            together[k], images(own, q[k], FRONT, width=40, height=30)
        )
    assert np.array_equal(draw(own, q[2], FRONT, 40, 30), together[2])
    nested = images(sys, q[None], FRONT, width=20, height=10)
    assert nested.shape == (1, 3, 10, 20, 3)
    with pytest.raises(ValueError, match=r"batch shape \(3,\).*\(2,\)"):
        images(robots, q[0], FRONT)
    with pytest.raises(
        ValueError, match="`width` must be an integer of at least 1, got 0"
    ):
        images(sys, q[0], FRONT, width=0, height=5)


@needs_opengl
def test_gif(tmp_path):
    from PIL import Image

    frames = images(rails(1), jnp.linspace(-1, 1, 9)[:, None], width=32, height=24)
    write_gif(tmp_path / "slow.gif", frames, 0.1)
    write_gif(tmp_path / "fast.gif", frames, 0.005)
    with Image.open(tmp_path / "slow.gif") as image:
        assert image.n_frames == 9 and image.info["duration"] == 100
    with Image.open(tmp_path / "fast.gif") as image:
        assert image.n_frames == 3 and image.info["duration"] == 20


CODE = """
import eqsim
sys = eqsim.make("point_mass").sys
try:
    eqsim.render.images(sys, sys.joints.ref, eqsim.render.Camera())
except eqsim.render.NoOpenGL as error:
    print(error)
"""


def test_without_opengl():
    """Says so, and how to get it."""
    for library, words in (
        ("off", ("disables rendering",)),
        ("glfw", ("MUJOCO_GL=egl", "osmesa")),
    ):
        environment = {k: v for k, v in os.environ.items() if "DISPLAY" not in k}
        command = [sys.executable, "-c", CODE]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment | {"MUJOCO_GL": library},
        )
        assert run.returncode == 0, run.stderr
        assert all(word in run.stdout for word in words), run.stdout + run.stderr
