"""Accelerations of shapes that touch, beside MuJoCo C."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from parity.reference import converge

import eqsim


# The lower shape lies on the floor, the upper one touches it.
MODEL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 {}"><freejoint/><geom {} mass="2"/></body>
    <body pos="{}" euler="{}"><freejoint/><geom {} mass="1"/></body>
  </worldbody>
</mujoco>"""
BOX = 'type="box" size=".2 .3 .1"'
SCENES = {
    "sphere-box": (0.099, BOX, ".05 .02 .29", "0 0 0", 'type="sphere" size=".1"'),
    "sphere-cylinder": (
        0.099,
        'type="cylinder" size=".2 .1"',
        ".05 .02 .29",
        "0 0 0",
        'type="sphere" size=".1"',
    ),
    "plane-ellipsoid": (
        0.099,
        'type="sphere" size=".1" contype="0" conaffinity="0"',
        "0 .4 .14",
        "30 10 0",
        'type="ellipsoid" size=".1 .15 .2"',
    ),
    "capsule-capsule": (
        0.099,
        'type="capsule" size=".1" fromto="-.2 0 0 .2 0 0"',
        ".1 .05 .28",
        "0 90 0",
        'type="capsule" size=".1 .3"',
    ),
    "capsule-box": (
        0.099,
        BOX,
        ".05 .02 .29",
        "88 0 30",
        'type="capsule" size=".1 .2"',
    ),
    "box-box": (0.099, BOX, ".05 .02 .298", "1 2 30", BOX),
    "box-box-edge": (0.099, BOX, ".25 0 .405", "35 52 64", BOX),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.quick_cases("sphere-cylinder", "capsule-box")
def test_accelerations(name):
    text = MODEL.format(*SCENES[name])
    model = mujoco.MjModel.from_xml_string(text)
    converge(model)
    data = mujoco.MjData(model)
    data.qvel[:] = np.random.default_rng(0).normal(size=model.nv) * 0.1
    mujoco.mj_forward(model, data)
    between = {tuple(sorted(pair)) for pair in data.contact.geom}
    assert (1, 2) in between or name == "plane-ellipsoid"
    sys, pipeline = eqsim.load_mjcf(text), eqsim.Generalized()
    state = pipeline.init(sys, jnp.asarray(data.qpos), jnp.asarray(data.qvel))
    found = pipeline.acceleration(sys, state, jnp.zeros(0))
    scale = np.max(np.abs(data.qacc))
    np.testing.assert_allclose(found, data.qacc, rtol=0, atol=1e-8 * scale)
