"""Sensors beside `sensordata` of MuJoCo C."""

import dataclasses
import functools as ft

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import sensor_models as models
from helpers import examples
from hypothesis import given, settings, strategies as st
from trajectories import converged

from eqsim import Generalized, load_mjcf


GROUPS = {
    "frames": models.frame_rows,
    "joints": models.joint_rows,
    "sites": models.site_rows,
    "contacts": models.contact_rows,
    "rest": models.global_rows,
}
AT_SITES = ("force", "torque", "accelerometer", "gyro")


def check(worst, tolerance=1e-8):
    bad = {name: error for name, error in worst.items() if not error < tolerance}
    assert not bad, bad


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.quick_cases("rest")
def test_robot(group):
    sys, model = models.robot(tuple(GROUPS[group]()))
    assert sys.nsensor == model.nsensor
    check(models.errors(sys, model, models.states(model, 8)))


def coupled_states(model, count, seed=0):
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        data = mujoco.MjData(model)
        mujoco.mj_integratePos(model, data.qpos, 0.2 * rng.normal(size=model.nv), 1.0)
        data.qvel[:] = rng.normal(size=model.nv)
        data.ctrl[:] = rng.normal(size=model.nu)
        data.xfrc_applied[1:] = rng.normal(size=(model.nbody - 1, 6))
        out.append(data)
    return out


@pytest.mark.parametrize(
    "text, sites",
    (
        (models.COUPLED, ("mount", *"abcdef")),
        (models.STRUNG, tuple("abcd")),
    ),
    ids=("coupled", "strung"),
)
@pytest.mark.quick_cases("strung")
def test_forces_between_links(text, sites):
    """Equality constraints and spatial tendons act on links from outside."""
    text = text.format(sensors="".join(models.rows(AT_SITES, "site", sites)))
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    check(models.errors(sys, model, coupled_states(model, 4)))


FIXED = """
<mujoco>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="hook" pos=".3 .2 2"/>
    <body name="a" pos=".2 .1 .5" euler="10 20 0"><geom size=".1" pos=".1 .05 0"/>
      <site name="a" pos=".1 0 0"/>
      <body name="b" pos=".3 .1 0"><geom size=".1"/><site name="b" pos="0 .1 0"/></body>
      <body name="c" pos="0 0 .4"><joint name="j" axis="0 1 0"/>
        <geom size=".1" pos=".1 0 0"/><site name="c" pos=".2 0 0"/></body></body>
  </worldbody>
  <tendon>
    <spatial name="t" limited="true" range="0 .5"><site site="hook"/><site site="b"/>
    </spatial>
    <fixed name="u"><joint joint="j" coef=".7"/></fixed>
  </tendon>
  <equality>
    <connect site1="hook" site2="a"/>
    <weld site1="a" site2="b"/>
    <weld body1="b" relpose=".1 .2 .3 .3 .4 .5 .6"/>
    <tendon tendon1="t" polycoef=".1 0 0 0 0"/>
    <tendon tendon1="u" polycoef=".2 0 0 0 0"/>
    <connect site1="hook" site2="c"/>
  </equality>
  <sensor>{sensors}<tendonlimitpos tendon="t"/><tendonlimitvel tendon="t"/>
    <tendonlimitfrc tendon="t"/></sensor>
</mujoco>"""


def test_constraints_of_parts_that_cannot_move():
    """MuJoCo leaves them out; their inverse weight is zero, so a force would be 1e15."""
    text = FIXED.format(sensors="".join(models.rows(AT_SITES, "site", "abc")))
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    check(models.errors(sys, model, coupled_states(model, 4)))


@given(scale=st.floats(0.05, 3.0), seed=st.integers(0, 1000))
@settings(max_examples=examples(20))
def test_cutoffs(scale, seed):
    """Cutoffs are parameters: the same program for all."""
    sys, model = cut_robot()
    cutoff = scale * np.random.default_rng(seed).uniform(0.1, 3.0, sys.nsensor)
    cutoff = np.where(sys.sensors.limited, cutoff, 0.0)
    model.sensor_cutoff[:] = cutoff
    (data,) = coupled_states(model, 1, seed)
    mujoco.mj_forward(model, data)
    sensors = eqx.tree_at(lambda s: s.cutoff, sys.sensors, jnp.asarray(cutoff))
    found = SENSORS(dataclasses.replace(sys, sensors=sensors), *models.measured(data))
    values = np.concatenate([found[name] for name in sys.sensors.names])
    np.testing.assert_allclose(values, data.sensordata, rtol=1e-8, atol=1e-8)


SENSORS = eqx.filter_jit(lambda sys, *args: Generalized().sensors(sys, *args))


CUT = """
<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body name="b" pos="0 0 .12"><joint name="j" type="slide" axis="0 0 1"/>
    <joint name="k" axis="0 1 0"/><geom size=".1" mass="1"/>
    <site name="s" size=".2" pos=".05 0 0"/></body></worldbody>
  <actuator><motor name="m" joint="k"/></actuator><sensor>
  <jointpos joint="j" cutoff="1"/><jointvel joint="k" cutoff="1"/>
  <accelerometer site="s" cutoff="1"/><gyro site="s"/><force site="s" cutoff="1"/>
  <touch site="s" cutoff="1"/><rangefinder site="s" cutoff="1"/>
  <framepos objtype="site" objname="s"/><subtreecom body="b" cutoff="1"/>
  <actuatorfrc actuator="m" cutoff="1"/></sensor></mujoco>"""


@ft.cache
def cut_robot():
    return load_mjcf(CUT), converged(mujoco.MjModel.from_xml_string(CUT))
