"""Measurements: poses of free bodies, sensors, functions, and spaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import tree_allclose

import eqsim
from eqsim import identify


BODY = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body name="box"><freejoint/>
      <inertial mass="1" pos="0 0 0" diaginertia="0.01 0.02 0.03"/>
      <site name="top" pos="0 0 0.1"/>
    </body>
  </worldbody>
  <sensor>
    <framepos name="place" objtype="site" objname="top"/>
    <framequat name="attitude" objtype="site" objname="top"/>
  </sensor>
</mujoco>
"""


def _flight(sys, gravity: float):
    """A tumbling flight."""
    other = eqsim.load_mjcf(BODY.replace("<option", f'<option gravity="0 0 {gravity}"'))
    pipeline = eqsim.Generalized()
    q = jnp.array([0.1, 0.0, 1.0, 0.8, 0.6, 0.0, 0.0])
    first = pipeline.init(other, q, jnp.array([1.0, -0.5, 2.0, 3.0, -4.0, 5.0]))
    step = lambda state, _: (pipeline.step(other, state, jnp.zeros(0)), state)
    _, states = eqsim.scan(step, first, None, 160)
    return states


GRAVITY = {"gravity": identify.Unbounded(lambda s: s.gravity, entries=(2,))}


@pytest.mark.parametrize(
    "measure",
    (
        (identify.JointPositions(), identify.FreeBodyPose("box")),
        # The same with another measurement; it compiles as long.
        pytest.param(
            (identify.JointPositions(), identify.SensorMeasurement()),
            marks=pytest.mark.slow,
        ),
    ),
    ids=("pose", "sensors"),
)
@pytest.mark.slow
def test_gravity_is_found_from_a_tumbling_body(measure):
    """The sign of a measured quaternion does not matter."""
    sys = eqsim.load_mjcf(BODY)
    states = _flight(sys, -8.5)
    q = np.array(states.q)
    q[::3, 3:] *= -1
    get = lambda s: measure[1].predict(sys, s, jnp.zeros(0))
    values = {k: np.array(v) for k, v in jax.vmap(get)(states).items()}
    if "pos" in values:
        # The pose of the link is that of its free joint.
        assert tree_allclose(values["pos"], q[:, :3], atol=1e-12)
        np.testing.assert_allclose(np.abs((values["quat"] * q[:, 3:]).sum(axis=1)), 1.0)
    predicted = {"q": q} | values
    time = 0.005 * np.arange(len(q))
    recording = identify.Recording(time, np.zeros((len(q), 0)), predicted)
    result = identify.fit(
        sys, recording, GRAVITY, measure=measure, windows=identify.Windows(0.25)
    )
    assert result.values[0] == pytest.approx(-8.5, abs=1e-3)


def test_orientation_steps():
    """A step from one orientation to another leads there, up to sign."""
    space = identify.Orientation()
    a = jnp.array([0.8, 0.6, 0.0, 0.0])
    b = -jnp.array([0.5, 0.5, 0.5, 0.5])
    there = space.integrate(a, space.difference(a, b))
    assert abs(float(there @ b)) == pytest.approx(1.0)
    assert float(jnp.linalg.norm(space.difference(b, -b))) == pytest.approx(0.0)
