"""Moving surfaces of shapes: conveyor belts and turntables, beside MuJoCo C."""

import copy
import re

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from trajectories import converged, expected, follow

from eqsim import Generalized, load_mjcf, Positional, Spring
from eqsim.collision.plan import split_plan
from eqsim.io import write_mjcf


# A belt, a turntable that is not at the origin, and an inclined wall; what lies on them
# rolls and slides. The second shape of the cart has a belt itself.
BELTS = """
<mujoco>
  <option timestep=".004" cone="{cone}"/>
  <default><geom condim="{condim}" friction=".7 .05 .01" solimp=".8 .95 .01 .5 2"/></default>
  <worldbody>
    <geom name="belt" type="plane" size="2 2 .1" pos=".2 .1 0" euler="0 2 30"
      friction=".8 .06 .02" surfacevel=".5 .2 3 0 0 {spin}"/>
    <geom name="table" type="sphere" size=".3" pos="1 .2 .1" friction=".9 .04 .03"
      surfacevel="0 .1 0 .3 .5 2"/>
    <body pos="0 0 .12"><freejoint/>
      <geom type="{kind}" size=".1 .08 .1" mass="1" surfacevel=".1 0 0 0 .3 0"/>
    </body>
    <body pos="1.02 .22 .49"><freejoint/><geom size=".1" mass="1"/></body>
    {more}
  </worldbody>
</mujoco>"""
CART = """
    <body pos="-.6 .1 .1"><freejoint/>
      <geom name="cart" type="capsule" size=".09 .2" mass="2" surfacevel="0 0 1 .2 0 .5"/>
      <body pos="0 .02 .16"><joint type="slide" axis="1 .2 0" damping=".1"/>
        <joint type="slide" axis="0 0 1"/>
        <geom type="ellipsoid" size=".07 .08 .09" mass=".5" friction=".6 .04 .03"
          surfacevel="0 .3 0 0 1 0"/>
      </body></body>"""


def belts(cone="pyramidal", condim=4, kind="box", spin=0.7, more=""):
    return BELTS.format(cone=cone, condim=condim, kind=kind, spin=spin, more=more)


# A ball on the belt.
FEW = re.sub(
    '(<geom name="table"|<body pos="1.02)(.|\n)*?>\n', "", belts(kind="sphere")
)
CASES = {
    "computed": (belts(), True, False),
    "elliptic": (belts("elliptic", 6, "sphere"), True, False),
    "without friction": (belts(condim=1), True, False),
    "listed": (belts("elliptic", 4, "cylinder", more=CART), False, True),
    "listed, pyramids": (belts(kind="ellipsoid", condim=3, more=CART), False, True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases("elliptic", "without friction", "listed, pyramids")
def test_trajectory(name):
    text = CASES[name][0]
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    data = mujoco.MjData(model)
    for _ in range(20):
        mujoco.mj_step(model, data)
    assert data.ncon >= 2 and not sys.notes
    still = mujoco.MjModel.from_xml_string(re.sub(' surfacevel="[^"]*"', "", text))
    others = expected(still, [copy.copy(data)], 30)
    ours, theirs = follow(sys, [data], 30), expected(model, [data], 30)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    assert "friction" in name or np.max(np.abs(others - theirs)) > 1e-2


def test_cases_are_computed_both_ways():
    for text, computed, listed in CASES.values():
        plan, pairs = split_plan(load_mjcf(text))
        assert (plan.size > 0) >= computed and (pairs is not None) >= listed


@pytest.mark.parametrize("name", ("few", "computed", "listed"))
@pytest.mark.quick_cases("few")
def test_gradients(name):
    text = FEW if name == "few" else CASES[name][0]
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    for _ in range(20):
        mujoco.mj_step(model, data)
    start = Generalized().init(sys, jnp.asarray(data.qpos), jnp.asarray(data.qvel))

    def speed(velocity, pos, quat, friction, qd):
        where = lambda s: (
            s.geoms.surface_velocity,
            s.geoms.pos,
            s.geoms.quat,
            s.geoms.friction,
        )
        robot = eqx.tree_at(where, sys, (velocity, pos, quat, friction))
        state = eqx.tree_at(lambda s: s.qd, start, qd)
        return Generalized().step(robot, state, jnp.zeros(0)).qd

    geoms = sys.geoms
    given = geoms.surface_velocity, geoms.pos, geoms.quat, geoms.friction, start.qd
    largest = check_gradients(eqx.filter_jit(speed), *given)
    assert all(size > 1e-4 for size in largest.values())


def test_at_belt_speed():
    """What lies on a belt is carried along."""
    text = """
    <mujoco><worldbody><geom type="plane" size="1 1 1" surfacevel=".3 0 0"/>
      <body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    </worldbody></mujoco>"""
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    path = follow(sys, [mujoco.MjData(model)], 300)
    assert path[0, -1, 7] == pytest.approx(0.3, abs=1e-3)


def test_round_trip():
    """Also of a height field, which MJCF places elsewhere, and of a mesh."""
    text = """
    <mujoco><asset>
      <hfield name="hills" nrow="2" ncol="3" size="1 1 .2 .1" elevation="1 2 1 3 2 1"/>
      <mesh name="rock" vertex=".3 0 0 -.1 .2 0 0 -.13 .05 0 .02 .2"/></asset>
    <worldbody>
      <geom type="hfield" hfield="hills" pos="0 .1 0" euler="9 0 0"
        surfacevel="1 2 3 .1 .2 .3"/>
      <body pos="0 0 1"><freejoint/>
        <geom type="mesh" mesh="rock" surfacevel=".1 0 .2 0 .3 .4"/></body>
    </worldbody></mujoco>"""
    sys = load_mjcf(text)
    assert sys.geoms.surface_velocity is not None
    again = load_mjcf(write_mjcf(sys)).geoms
    found, wanted = ((x.pos, x.quat, x.surface_velocity) for x in (again, sys.geoms))
    assert tree_allclose(found, wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("pipeline", (Spring(), Positional()))
def test_maximal_pipelines_refuse_it(pipeline):
    with pytest.raises(ValueError, match="Surfaces of shapes move"):
        pipeline.init(load_mjcf(belts(condim=3, kind="sphere")))
