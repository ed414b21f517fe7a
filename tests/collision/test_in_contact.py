"""`in_contact` beside MuJoCo's number of contacts."""

import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest

import eqsim
from eqsim.collision import in_contact
from eqsim.testing import check_kernels


XML = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1" margin="0.05"/>
    <body name="one" pos="0 0 0.5"><freejoint/>
      <geom type="box" size="0.1 0.2 0.15" margin="0.02"/></body>
    <body name="two" pos="0.3 0 0.5"><freejoint/>
      <geom type="capsule" size="0.1 0.2"/>
      <body pos="0 0 0.2"><joint axis="0 1 0"/>
        <geom type="sphere" size="0.1" pos="0 0 0.1"/></body></body>
  </worldbody>
</mujoco>
"""


def test_in_contact(getkey):
    """With margins; links that are joined do not touch each other."""
    model = mujoco.MjModel.from_xml_string(XML)
    data, sys = mujoco.MjData(model), eqsim.load_mjcf(XML)
    noise = 0.3 * np.asarray(jr.normal(getkey(), (200, model.nq)))
    q = jnp.asarray(model.qpos0 + noise)
    found = jax.jit(jax.vmap(lambda q: in_contact(sys, q)))(q)
    expected = []
    for row in np.asarray(q):
        data.qpos[:] = row
        mujoco.mj_forward(model, data)
        expected.append(data.ncon > 0)
    np.testing.assert_array_equal(found, expected)
    assert 0.2 < np.mean(expected) < 0.8


def test_nothing_to_touch():
    sys = eqsim.load_mjcf(
        '<mujoco><worldbody><body><joint/><geom size="1"/></body></worldbody></mujoco>'
    )
    assert not in_contact(sys, jnp.zeros(1))


@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_kernels():
    sys = eqsim.load_mjcf(XML)
    check_kernels(lambda q: in_contact(sys, q), jnp.zeros(sys.nq))
