"""The examples of control, design and identification reach what they say."""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest


EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))

import arm_payload
import cart_pole
import throwing_arm

import eqsim


pytestmark = pytest.mark.slow

LINK = """<body name="link{k}" pos="0 0 0.3"><joint name="joint{k}" axis="{axis}"
  range="-1.5 1.5" armature="0.05" damping="0.5"/>
  <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.03" mass="1"/>"""
AXES = "0 0 1", "0 1 0", "0 1 0", "1 0 0"


def arm() -> str:
    """An arm of four joints with position servos."""
    links = "".join(LINK.format(k=k, axis=axis) for k, axis in enumerate(AXES))
    servos = "".join(
        f'<position joint="joint{k}" kp="200" kv="10" inheritrange="1"/>'
        for k in range(len(AXES))
    )
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
      <worldbody>{links}{"</body>" * len(AXES)}</worldbody>
      <actuator>{servos}</actuator></mujoco>"""


def test_a_cart_pole_swings_up_and_stays_up():
    plan = cart_pole.swing_up()
    assert not eqsim.RESULTS[plan.result] and np.all(np.abs(plan.actions) <= 10.0)
    np.testing.assert_allclose(plan.states.q[-1], [0.0, np.pi], atol=0.05)
    np.testing.assert_allclose(plan.states.qd[-1], 0.0, atol=0.3)
    tilt = np.asarray(cart_pole.stay_up().q[:, 1]) - np.pi
    assert 0.05 < np.abs(tilt).max() < 0.5 and abs(tilt[-1]) < 0.1


def test_design_by_gradient():
    """The gradient of the range is that of differences, and climbs farther than sampling."""
    start = jnp.zeros((11, 2)).at[1:].set(0.1)
    range_of = jax.jit(lambda design: throwing_arm.throw(design)[0])
    grad = jax.grad(range_of)(start)
    way = np.random.default_rng(0).normal(size=start.shape)
    low, high = range_of(start - 1e-5 * way), range_of(start + 1e-5 * way)
    np.testing.assert_allclose(np.sum(grad * way), (high - low) / 2e-5, rtol=1e-5)
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes types.
        climbed = jax.jit(lambda d: throwing_arm.by_gradient(d, 100))(start)
    sampled = jax.jit(lambda d: throwing_arm.by_sampling(d, 100))(start)
    climbed, sampled = range_of(climbed), range_of(sampled)
    assert climbed > sampled > range_of(start)


def test_a_payload_is_found(tmp_path):
    file = tmp_path / "arm.xml"
    file.write_text(arm())
    result = arm_payload.estimate(str(file), "link3")
    mass, center, side = arm_payload.REAL
    inertia = mass * side**2 / 6
    truth = [mass, *center, inertia, inertia, inertia, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(result.values[:4], truth[:4], rtol=0.02, atol=1e-3)
    low, high = result.interval(0.9999)
    assert np.all((low < truth) & (truth < high))
