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
import g1_flip
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


SEGMENT = """<body name="{side}_{link}" pos="{pos}"><joint name="{side}_{name}_joint"
  axis="0 1 0" range="-3 3" armature="0.02"/>
  <geom type="capsule" fromto="0 0 0 0 0 {end}" size="0.03" mass="{mass}"/>"""
FOOT = """<geom type="sphere" size="0.005" pos="{x} 0 -0.03"/>"""


def humanoid() -> str:
    """A robot with the names of those joints of the G1 that its backflip uses."""
    pelvis, joints = "", []
    for side, y in (("left", 0.1), ("right", -0.1)):
        part = lambda link, name, pos, end, mass: SEGMENT.format(
            side=side, link=link, name=name, pos=pos, end=end, mass=mass
        )
        pelvis += part("hip_link", "hip_pitch", f"0 {y} -0.1", -0.32, 3)
        pelvis += part("knee_link", "knee", "0 0 -0.32", -0.3, 2)
        pelvis += part("ankle_roll_link", "ankle_pitch", "0 0 -0.32", -0.01, 0.6)
        pelvis += FOOT.format(x=-0.05) + FOOT.format(x=0.12) + 3 * "</body>"
        pelvis += part("shoulder_link", "shoulder_pitch", f"0 {2 * y} 0.3", -0.2, 1)
        pelvis += part("elbow_link", "elbow", "0 0 -0.2", -0.2, 1) + 2 * "</body>"
        joints += [f"{side}_{name}_joint" for name in g1_flip.JOINTS]
    servos = "".join(
        f'<position name="{name}" joint="{name}" kp="300" kv="10" inheritrange="1"/>'
        for name in joints
    )
    at = " ".join(["0 0 0.75 1 0 0 0", *("0" for _ in joints)])
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
      <option timestep="0.002" integrator="implicitfast"/>
      <worldbody><geom name="floor" type="plane" size="0 0 1"/>
        <body name="pelvis" pos="0 0 0.75"><freejoint/>
          <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.08" mass="15"/>{pelvis}
      </body></worldbody><actuator>{servos}</actuator>
      <keyframe><key name="stand" qpos="{at}"/></keyframe></mujoco>"""


def test_keyframes_of_a_backflip_are_tracked(tmp_path):
    """In flight, the reference falls freely; the robot crouches as it does."""
    file = tmp_path / "scene.xml"
    file.write_text(humanoid())
    with jax.enable_x64(False):
        robot, states, wanted = g1_flip.flip(str(file), 18)
        com = jax.vmap(lambda q: eqsim.kinematics.center_of_mass(robot, q))(wanted.q)
    flight = com[g1_flip.TAKEOFF : g1_flip.LANDING]
    fall = np.diff(np.asarray(flight), 2, axis=0) / g1_flip.DT**2
    np.testing.assert_allclose(fall[:, 2], -9.81, atol=0.7)
    size = np.linalg.norm(np.asarray(wanted.q[:, 3:7]), axis=1)
    np.testing.assert_allclose(size, 1.0, rtol=1e-5)
    away = np.abs(np.asarray(states.q - wanted.q[: len(states.q)]))
    assert wanted.q[18, 2] < wanted.q[0, 2] - 0.1
    assert away[:, 2].max() < 0.03 and away[:, :2].max() < 0.1
