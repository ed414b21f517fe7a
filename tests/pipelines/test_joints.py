"""What acts along joints in maximal coordinates, against closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim import load_mjcf, Positional, Spring, State


PIPELINES = Spring(), Positional()
M, G = 2.0, 9.81

# Robots far from each other, each with the mass M and one thing that acts on it.
BENCH = f"""
<mujoco>
  <option timestep="0.005"/>
  <default><geom type="box" size=".1 .2 .3" mass="{M}" contype="0" conaffinity="0"/>
  </default>
  <worldbody>
    <body name="limit"><joint axis="0 1 0" range="-20 20" limited="true"/>
      <geom pos=".5 0 0"/></body>
    <body name="dry" pos="0 5 0"><joint axis="0 1 0" frictionloss="12"/>
      <geom pos=".5 0 0"/></body>
    <body name="slips" pos="0 10 0">
      <joint type="slide" axis="0 0 1" frictionloss="4"/><geom/></body>
    <body name="spring" pos="0 15 0">
      <joint type="slide" axis="1 0 0" stiffness="50" springref=".1"/><geom/></body>
    <body name="damper" pos="0 20 0">
      <joint type="slide" axis="1 0 0" damping="3"/><geom/></body>
    <body name="motor" pos="0 25 0">
      <joint name="motor" type="slide" axis="1 0 0" armature="1.5"/><geom/></body>
    <body name="pushed" pos="0 30 0">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom/></body>
    <body name="stacked" pos="0 35 0">
      <joint type="slide" axis="0 0 1" range="-1 .0" limited="true"/>
      <joint type="slide" axis="1 0 0" frictionloss="4"/><geom/></body>
    <body name="ball" pos="0 40 0">
      <joint type="ball" range="0 30" limited="true"/><geom pos=".5 0 0"/></body>
  </worldbody>
  <actuator><motor joint="motor" gear="2"/></actuator>
</mujoco>"""
SYS = load_mjcf(BENCH)
NAMES = SYS.links.names
LENGTH = 200
TIME = 0.005 * np.arange(1, LENGTH + 1)


def dof(name, k=0):
    """The number of a degree of freedom of a robot."""
    return SYS.joints.v_starts[SYS.joints.links.index(NAMES.index(name))] + k


def coordinate(name, k=0):
    return SYS.joints.q_starts[SYS.joints.links.index(NAMES.index(name))] + k


@pytest.fixture(scope="module", params=PIPELINES, ids=lambda x: type(x).__name__)
def path(request):
    """The states of a second in which everything happens."""
    pipeline, q = request.param, SYS.joints.ref
    qd = jnp.zeros(SYS.nv).at[dof("damper")].set(1.0).at[dof("stacked", 1)].set(0.5)
    ctrl, push = jnp.array([3.0]), jnp.zeros((SYS.nlink, 6))
    push = push.at[NAMES.index("pushed"), 3:].set(jnp.array([4.0, 0.0, M * G]))
    push = push.at[NAMES.index("stacked"), 5].set(100.0)

    @jax.jit
    def run(state):
        def step(state, _):
            new = pipeline.step(SYS, state, ctrl, push)
            return new, new

        return eqsim.scan(step, state, length=LENGTH)[1]

    return run(pipeline.init(SYS, q, qd))


@pytest.mark.quick_cases("Positional")
def test_limits_hold(path):
    """A weight leans on the limit of a hinge, without bouncing back."""
    angle, rate = path.q[:, coordinate("limit")], path.qd[:, dof("limit")]
    assert np.max(angle) < np.deg2rad(20) + 0.02
    np.testing.assert_allclose(angle[-50:], np.deg2rad(20), atol=1e-3)
    np.testing.assert_allclose(rate[-50:], 0.0, atol=1e-3)


def test_limit_of_a_ball_joint(path):
    k = coordinate("ball")
    angle = 2 * np.arccos(np.clip(np.abs(path.q[:, k]), 0.0, 1.0))
    assert np.max(angle) < np.deg2rad(30) + 0.02
    np.testing.assert_allclose(angle[-50:], np.deg2rad(30), atol=2e-3)


def test_dry_friction(path):
    """It holds a torque that is smaller, and takes its part of a force that is not."""
    np.testing.assert_allclose(path.q[:, coordinate("dry")], 0.0, atol=1e-6)
    fall = -(G - 4.0 / M) * TIME
    np.testing.assert_allclose(path.qd[:, dof("slips")], fall, rtol=1e-3)


def test_limit_and_dry_friction_of_one_link(path):
    """Of two joints: one stops the link, the other slows it down until it stands."""
    np.testing.assert_allclose(path.q[:, coordinate("stacked")], 0.0, atol=1e-4)
    speed = np.maximum(0.5 - 4.0 / M * TIME, 0.0)
    np.testing.assert_allclose(path.qd[:, dof("stacked", 1)], speed, atol=5e-3)


def test_spring(path):
    """It swings about its reference, and loses little."""
    omega = np.sqrt(50.0 / M)
    expected = 0.1 * (1.0 - np.cos(omega * TIME))
    np.testing.assert_allclose(path.q[:, coordinate("spring")], expected, atol=5e-3)


def test_damping(path):
    expected = np.exp(-3.0 / M * TIME)
    np.testing.assert_allclose(path.qd[:, dof("damper")], expected, atol=2e-3)


def test_motor_and_armature(path):
    expected = 2.0 * 3.0 / (M + 1.5) * TIME
    np.testing.assert_allclose(path.qd[:, dof("motor")], expected, rtol=1e-6)


def test_external_force(path):
    np.testing.assert_allclose(path.qd[:, dof("pushed")], 4.0 / M * TIME, rtol=1e-6)
    np.testing.assert_allclose(path.qd[:, dof("pushed", 1)], 0.0, atol=1e-9)


# A weight that a joint carries.
CARRIED = f"""
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <body><joint type="slide" axis="1 0 0"/>
      <geom type="box" size=".1 .2 .3" mass="{M}"/></body>
  </worldbody>
</mujoco>"""


def test_compliance_is_displacement_over_load():
    """A weight hangs on a joint that carries it: it sinks by the compliance times its
    weight, and turns by the angular compliance times its torque."""
    sys = load_mjcf(CARRIED)
    soft = Positional(compliance=1e-9, angular_compliance=2e-9)
    torque = jnp.array([[0.0, 5.0, 0.0, 0.0, 0.0, 0.0]])
    drift = soft.joint_drift(sys, soft.init(sys), jnp.zeros(0), torque)[0]
    np.testing.assert_allclose(drift[5], -1e-9 * M * G, rtol=0.02)
    np.testing.assert_allclose(drift[1], 2e-9 * 5.0, rtol=0.1)
    np.testing.assert_allclose(drift[jnp.array([0, 2, 3, 4])], 0.0, atol=1e-15)


def test_spring_constant():
    r"""A weight sinks until the spring, of the constant $\kappa m/h^2$, carries what
    the damper leaves of the weight."""
    sys = load_mjcf(CARRIED)
    engine = Spring(substeps=64, stiffness=0.4, damping=0.7)
    h = 0.005 / 64
    drift = engine.joint_drift(sys, engine.init(sys), jnp.zeros(0))[0]
    np.testing.assert_allclose(drift[5], -(1.0 - 0.7) * G * h * h / 0.4, rtol=1e-3)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda x: type(x).__name__)
def test_activation_follows_its_input(pipeline):
    """A filter in front of a motor: exact at the end of each substep, as in MuJoCo."""
    sys = load_mjcf("""
    <mujoco><option timestep="0.01"/><worldbody><body>
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom type="sphere" size=".1" mass="1"/></body></worldbody>
      <actuator><general joint="x" dyntype="filterexact" dynprm=".05"/></actuator>
    </mujoco>""")
    state = dataclasses.replace(pipeline.init(sys), act=jnp.array([0.5]))
    new = pipeline.step(sys, state, jnp.array([2.0]))
    assert isinstance(new, State)
    expected = 2.0 - 1.5 * np.exp(-0.01 / 0.05)
    np.testing.assert_allclose(new.act, [expected], rtol=1e-9)
