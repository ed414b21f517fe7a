"""Robots with so many points against the world that these are visited in a loop, too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from trajectories import converged

import eqsim
from eqsim import Generalized, State
from eqsim.constraint.contact import contact_groups


PAD = '<geom size=".03" pos="{} {} 0" mass=".05" contype="2" conaffinity="1"/>'
BODY = """
<body pos="{x} 0 {z}"><freejoint/>{pads}
  <geom size=".1" pos="0 0 .1" contype="4" conaffinity="4"/></body>"""
ROBOT = """
<mujoco><option cone="{cone}" timestep=".004"/>
  <default><geom condim="{condim}" solimp=".8 .95 .01 .5 2"/></default>
  <worldbody><geom type="plane" size="2 2 1" contype="1" conaffinity="2"/>{bodies}
  </worldbody></mujoco>"""


def robot(cone, condim):
    """Two plates with 25 balls each, which touch with a ball above them."""
    grid = np.linspace(-0.2, 0.2, 5)
    pads = "".join(PAD.format(x, y) for x in grid for y in grid)
    bodies = "".join(
        BODY.format(x=x, z=z, pads=pads) for x, z in ((0, 0.029), (0.199, 0.0295))
    )
    text = ROBOT.format(cone=cone, condim=condim, bodies=bodies)
    return eqsim.load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))


@pytest.mark.parametrize(
    "cone, condim",
    (("pyramidal", 3), pytest.param("elliptic", 4, marks=pytest.mark.slow)),
)
@pytest.mark.slow
def test_many_contacts(cone, condim):
    """Accelerations of MuJoCo, and the derivatives of finite differences."""
    sys, model = robot(cone, condim)
    assert not any(group.anchored for group in contact_groups(sys))
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    data.qvel[:] = 0.1 * rng.normal(size=model.nv)
    mujoco.mj_forward(model, data)
    assert data.ncon > 40
    q, qd = jnp.asarray(data.qpos), jnp.asarray(data.qvel)

    def acceleration(q, qd, friction):
        slippery = eqx.tree_at(lambda s: s.geoms.friction, sys, friction)
        state = State(q, qd, jnp.zeros(0))
        return Generalized().acceleration(slippery, state, jnp.zeros(0))

    qdd = np.asarray(jax.jit(acceleration)(q, qd, sys.geoms.friction))
    size = np.max(np.abs(data.qacc))
    np.testing.assert_allclose(qdd, data.qacc, rtol=0, atol=1e-8 * size)
    largest = check_gradients(
        jax.jit(acceleration), q, qd, sys.geoms.friction, rtol=1e-4
    )
    assert all(value > 0.0 for value in largest.values())
