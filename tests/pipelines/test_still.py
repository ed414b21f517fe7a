"""Robots without joints: nothing moves, but poses, sensors and gradients are there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, Positional, set_mocap, Spring
from eqsim.dynamics import kinetic_energy
from eqsim.io import write_mjcf
from eqsim.kinematics import forward, integrate
from eqsim.pipelines import Euler, Implicit, ImplicitFast, RungeKutta4


SCENE = """
<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body name="target" mocap="true" pos="0 .2 1" quat=".9 .1 .2 .3"><geom size=".1"/>
    <site name="mark" pos=".1 .2 .3"/></body>
  <body name="table" pos="1 0 0"><geom size=".2"/></body></worldbody>
  <sensor><framepos objtype="site" objname="mark"/><accelerometer site="mark"/>
    <rangefinder site="mark"/></sensor></mujoco>"""
PIPELINES = (
    *(Generalized(integrator=one) for one in (Euler(), Implicit(), ImplicitFast())),
    *(Generalized(smoothing=0.01, integrator=RungeKutta4()), Spring(), Positional()),
)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.quick_cases("pipeline0", "pipeline2", "pipeline4")
def test_nothing_moves(pipeline):
    sys = load_mjcf(SCENE)
    state = pipeline.init(sys)
    new, solved = pipeline.advance(sys, state, jnp.zeros(0))
    assert new.q.shape == new.qd.shape == solved.qdd.shape == (0,)
    assert solved.contacts.geoms.shape == (0, 2) and solved.converged
    states = jax.tree.map(lambda x: jnp.zeros((5, *x.shape)), state)
    step = eqx.filter_vmap(lambda s: pipeline.step(sys, s, jnp.zeros(0)))
    assert step(states).q.shape == (5, 0)


def test_sensors_are_those_of_mujoco():
    sys, model = load_mjcf(SCENE), mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    pos, quat = np.array([0.3, -0.1, 0.8]), np.array([0.5, -0.5, 0.3, 0.6])
    data.mocap_pos[0], data.mocap_quat[0] = pos, quat
    mujoco.mj_forward(model, data)
    sys = set_mocap(sys, "target", jnp.asarray(pos), jnp.asarray(quat))
    values = Generalized().sensors(sys, Generalized().init(sys), jnp.zeros(0))
    found = np.concatenate([np.asarray(x) for x in values.values()])
    np.testing.assert_allclose(found, data.sensordata, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", (SCENE, "<mujoco><worldbody/></mujoco>"))
def test_kinematics_and_files(text):
    sys = load_mjcf(text)
    q = jnp.zeros(0)
    assert forward(sys, q).pos.shape == (sys.nlink, 3)
    assert integrate(sys, q, q).shape == (0,)
    assert kinetic_energy(sys, q, q) == 0.0
    again = load_mjcf(write_mjcf(sys))
    assert again.links.names == sys.links.names
