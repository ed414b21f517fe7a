"""Bodies that begin inside each other, and joints that begin beyond their limits, come
apart without being launched: what removes the violation leaves no velocity behind."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsim import load_mjcf, Positional, Spring


PIPELINES = Spring(), Positional()
named = lambda pipeline: type(pipeline).__name__

RADIUS = 0.05
ONE = """
<mujoco>
  <option timestep="{dt}" gravity="0 0 {g}"/>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 {radius}"><freejoint/>
      <geom type="{kind}" size="{radius} 0.1" euler="0 90 0"/>
    </body>
  </worldbody>
</mujoco>
"""
TWO = """
<mujoco>
  <option timestep="{dt}" gravity="0 0 0"/>
  <worldbody>
    <body><freejoint/><geom size="{radius}" mass="1"/></body>
    <body pos="0.07 0.02 0"><freejoint/><geom size="{radius}" mass="3"/></body>
  </worldbody>
</mujoco>
"""
ARM = """
<mujoco>
  <option timestep="{dt}" gravity="0 0 0"/>
  <compiler angle="radian"/>
  <worldbody>
    <body>
      <joint axis="0 1 0" limited="true" range="-0.5 0.5"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" contype="0"/>
      <body pos="0.3 0 0">
        <joint axis="0 0 1" limited="true" range="-0.2 0.4"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" contype="0"/>
        <body pos="0.3 0 0">
          <joint type="ball" limited="true" range="0 0.6"/>
          <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.03" contype="0"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def simulated(pipeline, sys, q, seconds: float):
    """The coordinates and velocities of all steps."""
    start = eqx.tree_at(lambda state: state.q, pipeline.init(sys), jnp.asarray(q))
    return map(np.asarray, run(pipeline, sys, start, round(seconds / float(sys.dt))))


@eqx.filter_jit
def run(pipeline, sys, start, length):
    """Compiled once for all numbers of a robot."""

    def step(state, _):
        state = pipeline.step(sys, state, jnp.zeros(0))
        return state, (state.q, state.qd)

    return lax.scan(step, start, None, length)[1]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=named)
@pytest.mark.parametrize("kind", ("sphere", "capsule"))
@pytest.mark.parametrize("dt", (1e-3, 5e-3))
@pytest.mark.parametrize("g", (-9.81, 0.0))
@pytest.mark.quick_cases(
    "-9.81-0.005-capsule-Positional",
    "0.0-0.005-sphere-Positional",
)
def test_in_the_ground(pipeline, kind, dt, g):
    """It rises to where it touches, and no further than gravity moves it in a step."""
    sys = load_mjcf(ONE.format(dt=dt, g=g, kind=kind, radius=RADIUS))
    rest = np.array(pipeline.init(sys).q)
    for depth in (0.02, 0.001):
        q, qd = simulated(pipeline, sys, rest - depth * np.eye(7)[2], 0.4)
        height = q[:, 2] - RADIUS
        assert np.all(height < 1e-7 + 9.81 * dt * dt), height.max()
        assert np.all(np.abs(height[-1]) < 1e-7 + 9.81 * dt * dt)
        assert np.abs(qd).max() < 5.0 * 9.81 * dt + 1e-12


@pytest.mark.parametrize("pipeline", PIPELINES, ids=named)
@pytest.mark.quick_cases("Spring")
def test_in_each_other(pipeline):
    """They come apart, their center of mass stays, and nothing flies away."""
    sys = load_mjcf(TWO.format(dt=2e-3, radius=RADIUS))
    rest = np.array(pipeline.init(sys).q)
    q, qd = simulated(pipeline, sys, rest, 0.4)
    apart = np.linalg.norm(q[:, 7:10] - q[:, :3], axis=1)
    assert (
        np.allclose(apart[-1], 2 * RADIUS, rtol=1e-4) and apart.max() < 2.001 * RADIUS
    )
    mean = (q[:, :3] + 3.0 * q[:, 7:10]) / 4.0
    assert np.allclose(mean, (rest[:3] + 3.0 * rest[7:10]) / 4.0, atol=1e-6)
    assert np.abs(qd).max() < 1e-9


@pytest.mark.parametrize("pipeline", PIPELINES, ids=named)
@pytest.mark.quick_cases("Positional")
def test_beyond_limits(pipeline):
    """Joints return into their ranges and stay there."""
    sys = load_mjcf(ARM.format(dt=2e-3))
    half = 0.5 * 0.9
    ball = [np.cos(half), 0.0, np.sin(half), 0.0]
    q, qd = simulated(pipeline, sys, np.array([0.7, -0.35, *ball]), 0.6)
    angle = 2.0 * np.arccos(np.abs(q[:, 2]))
    assert np.allclose(q[-1, :2], [0.5, -0.2], atol=1e-3)
    assert np.allclose(angle[-1], 0.6, atol=1e-3)
    assert np.abs(qd).max() < 1e-6
