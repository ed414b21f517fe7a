"""What MJX would ignore is refused, and the error says what to do."""

import dataclasses

import jax.numpy as jnp
import pytest
from eqsim_mjx import Mjx

import eqsim
from eqsim.model import GeomKind, replace_shape, Torus


PILE = """
<mujoco>
  <worldbody>
    <body><freejoint/><geom name="one" type="box" size=".1 .1 .1"/></body>
    <body pos="0 0 1"><freejoint/><geom name="two" size=".1" contype="2"
      conaffinity="2"/></body>
  </worldbody>
</mujoco>"""

EARLY = """
<mujoco>
  <worldbody>
    <body><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body>
  </worldbody>
  <actuator>
    <general name="lazy" joint="hinge" dyntype="filter" dynprm=".1" actearly="true"/>
  </actuator>
</mujoco>"""


def test_early_activation():
    with pytest.raises(
        ValueError, match="'lazy' have `act_early` set, which MJX ignor"
    ):
        Mjx().init(eqsim.load_mjcf(EARLY))


ON_GROUND = """
<mujoco>
  <option {option}/>
  <worldbody><geom type="plane" size="1 1 1" {floor}/>
    <body pos="0 0 1"><freejoint/><geom size=".1"/></body></worldbody>
</mujoco>"""
PARTS = {
    "the noslip solver": {"option": 'noslip_iterations="3"'},
    "moving surfaces of shapes": {"floor": 'surfacevel="1 0 0 0 0 0"'},
    "contacts with adhesion or gaps": {"floor": 'adhesion="1"'},
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_that_are_not_passed_on(part):
    text = ON_GROUND.format(**{"option": "", "floor": ""} | PARTS[part])
    with pytest.raises(ValueError, match=f"The robot has {part}"):
        Mjx().init(eqsim.load_mjcf(text))


def test_attached_models():
    lazy = eqsim.load_mjcf(EARLY.replace('actearly="true"', ""))
    sys = lazy.with_actuator_model("lazy", eqsim.actuators.Delay(0.01, 5))
    with pytest.raises(ValueError, match="The robot has attached actuator models"):
        Mjx().init(sys)


def test_distance_fields():
    sys = eqsim.load_mjcf(PILE)
    with pytest.raises(ValueError, match="The robot has distance fields"):
        Mjx().init(replace_shape(sys, "two", Torus(), (0.3, 0.1)))


def test_shapes_that_mjx_cannot_collide():
    sys = eqsim.load_mjcf(PILE)
    geoms = dataclasses.replace(
        sys.geoms, kinds=(GeomKind.CYLINDER, GeomKind.BOX), conaffinity=(1, 1)
    )
    geoms = dataclasses.replace(geoms, contype=(1, 1))
    with pytest.raises(ValueError, match="MJX cannot simulate .*not implemented"):
        Mjx().init(dataclasses.replace(sys, geoms=geoms))


@pytest.mark.slow
def test_shapes_that_only_mjx_collides():
    """Two boxes, which `Generalized` lacks: one falls on the other, and stays there."""
    sys = eqsim.load_mjcf(PILE)
    geoms = dataclasses.replace(
        sys.geoms, kinds=(GeomKind.BOX, GeomKind.BOX), contype=(1, 1)
    )
    geoms = dataclasses.replace(geoms, conaffinity=(1, 1), size=0.1 * jnp.ones((2, 3)))
    sys = dataclasses.replace(sys, geoms=geoms)
    q = sys.joints.ref.at[9].set(0.199)
    found = Mjx().contacts(sys, Mjx().init(sys, q), jnp.zeros(0))
    assert len(found.geoms) > 1
    assert jnp.isclose(jnp.min(found.dist), -0.001, rtol=1e-6)
    assert jnp.sum(found.force[:, 2]) > 0.0


@pytest.mark.parametrize("field", ["iterations", "ls_iterations"])
def test_no_passes(field):
    with pytest.raises(
        ValueError, match=rf"`Mjx.{field}` must be an integer of at least 1"
    ):
        Mjx(**{field: 0})


def test_shape_of_external_forces():
    env = eqsim.make("point_mass", pipeline=Mjx())
    state = env.pipeline.init(env.sys)
    with pytest.raises((ValueError, TypeError), match="external"):
        env.pipeline.step(env.sys, state, jnp.ones(1), jnp.zeros((3, 6)))


DRAWN = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
  <worldbody>
    <body><joint axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>
      <geom name="shell" type="mesh" mesh="wedge" mass="0" contype="0" conaffinity="0"/>
    </body>
    <body pos="0 1 0"><joint axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body>
  </worldbody>
</mujoco>"""


def test_meshes_that_touch_nothing():
    """They are only drawn; those that could touch something are refused."""
    sys = eqsim.load_mjcf(DRAWN)
    qdd = Mjx().acceleration(sys, Mjx().init(sys), jnp.zeros(0))
    assert float(abs(qdd[0] - qdd[1])) < 1e-6
    geoms = dataclasses.replace(sys.geoms, contype=(1, 1, 1), conaffinity=(1, 1, 1))
    with pytest.raises(ValueError, match="contacts of meshes"):
        Mjx().init(dataclasses.replace(sys, geoms=geoms))
