"""Shapes that a user adds: a ring that catches balls."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim.collision import Point
from eqsim.io import load, save, write_mjcf
from eqsim.model import (
    Collider,
    GeomKind,
    register_collider,
    register_shape,
    replace_shape,
    validate,
)
from eqsim.spatial import safe_sqrt, Vec3
from eqsim.testing import check_collider


MODEL = """
<mujoco>
  <option timestep=".002"/>
  <worldbody>
    <geom type="plane" size="2 2 .1"/>
    <geom name="ring" type="ellipsoid" size=".3 .3 .05" pos="0 0 .3"/>
    <body pos="0 0 .5"><freejoint/><geom name="ball" size=".1" margin=".01"/></body>
  </worldbody>
</mujoco>"""


def _circle(ring, point):
    """The nearest point of the ring's circle, in the world, and the way there."""
    local = ring.pose.rot.T @ (point - ring.pose.pos)
    level = safe_sqrt(local.x * local.x + local.y * local.y)
    scale = ring.size.x / jnp.where(level > 0.0, level, 1.0)
    x = jnp.where(level > 0.0, local.x * scale, ring.size.x)
    spot = Vec3(x, local.y * scale, jnp.zeros_like(local.z))
    return ring.pose.point(spot)


def ball_and_ring(ball, ring):
    near = _circle(ring, ball.pose.pos)
    way = near - ball.pose.pos
    length = safe_sqrt(way.dot(way))
    normal = way * (1.0 / jnp.where(length > 0.0, length, 1.0))
    dist = length - ball.size.x - ring.size.y
    spot = ball.pose.pos + (normal * (ball.size.x + 0.5 * dist))
    return [Point(dist, spot, normal)]


RING = register_shape(
    "ring", lambda size: Vec3(size.x + size.y, size.x + size.y, size.y)
)
register_collider(GeomKind.SPHERE, RING, Collider(ball_and_ring, 1))


def robot():
    return replace_shape(eqsim.load_mjcf(MODEL), "ring", RING, (0.3, 0.05))


def test_a_ball_falls_through_a_ring():
    """From above the hole it reaches the ground, from above the ring it does not."""
    sys, pipeline = robot(), eqsim.Generalized()
    validate(sys)

    def end(x):
        start = pipeline.init(sys, pipeline.init(sys).q.at[0].set(x))
        step = lambda state, _: (pipeline.step(sys, state, jnp.zeros(0)), None)
        return eqsim.scan(step, start, jnp.arange(250))[0].q[2]

    through, caught = jax.vmap(end)(jnp.array([0.0, 0.3]))
    assert 0.09 < through < 0.11 and 0.4 < caught < 0.46


TILTED = jnp.array([0.29, 0.1, 0.41, 1.0, 0.2, 0.1, 0.0])


def test_conformance():
    text = MODEL.replace('<geom type="plane" size="2 2 .1"/>', "")
    sys = replace_shape(eqsim.load_mjcf(text), "ring", RING, (0.3, 0.05))
    check_collider(sys, TILTED)


def test_copies(tmp_path):
    sys = robot()
    for kind in (pickle.loads(pickle.dumps(RING)), copy.deepcopy(RING)):
        assert kind == RING and hash(kind) == hash(RING)
    assert pickle.loads(pickle.dumps(sys)).geoms.kinds == sys.geoms.kinds
    save(tmp_path / "sys", sys)
    with pytest.raises(ValueError, match="like=tree"):
        load(tmp_path / "sys")
    assert load(tmp_path / "sys", like=sys).geoms.kinds == sys.geoms.kinds


def test_what_it_cannot_do():
    sys, pipeline = robot(), eqsim.Generalized()
    box = replace_shape(sys, "ball", GeomKind.BOX, (0.1, 0.1, 0.1))
    start = pipeline.init(box)
    for message, call in (
        ("RING have no MJCF", lambda: write_mjcf(sys)),
        ("already", lambda: register_shape("sphere", lambda size: size)),
        ("identifier", lambda: register_shape("two words", lambda size: size)),
        ("needs data", lambda: replace_shape(sys, "ball", GeomKind.MESH, (1.0,))),
        ("4 entries", lambda: replace_shape(sys, "ball", GeomKind.BOX, (1.0,) * 4)),
        ("collider|collide|touch", lambda: validate(box)),
        ("BOX and RING can touch", lambda: pipeline.step(box, start, jnp.zeros(0))),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_replaced_shape():
    """The same robot as from a file."""
    text = MODEL.replace("ellipsoid", "sphere").replace(".3 .3 .05", ".2")
    sys = replace_shape(eqsim.load_mjcf(MODEL), "ring", GeomKind.SPHERE, (0.2,))
    np.testing.assert_array_equal(sys.geoms.size, eqsim.load_mjcf(text).geoms.size)
    assert sys.geoms.kinds == eqsim.load_mjcf(text).geoms.kinds
