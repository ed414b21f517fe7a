"""Actuators and passive joint forces against MuJoCo C."""

import actuators
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import tree_allclose

import eqsim
from eqsim.dynamics import actuator_forces, actuator_states, passive_forces
from eqsim.io import load_mjcf, write_mjcf
from eqsim.model import Integrator, State
from eqsim.testing import random_configuration, random_system


def compare(model, sys, state, ctrl):
    """Forces now, and the state after a step."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = state.q, state.qd
    data.act[:], data.ctrl[:] = state.act, ctrl
    mujoco.mj_forward(model, data)
    own = actuator_states(sys, state, ctrl)
    found = (
        *(own.length, own.velocity, own.force),
        actuator_forces(sys, state, ctrl),
        passive_forces(sys, state.q, state.qd),
    )
    expected = (
        *(data.actuator_length, data.actuator_velocity, data.actuator_force),
        *(data.qfrc_actuator, data.qfrc_passive),
    )
    names = ("length", "velocity", "force", "qfrc_actuator", "qfrc_passive")
    for name, a, b in zip(names, found, expected, strict=True):
        assert tree_allclose(a, jnp.asarray(b), rtol=1e-9, atol=1e-9), name
    new = eqsim.Generalized().step(sys, state, ctrl)
    mujoco.mj_step(model, data)
    for name, a, b in (
        ("act", new.act, data.act),
        ("qpos", new.q, data.qpos),
        ("qvel", new.qd, data.qvel),
    ):
        assert tree_allclose(a, jnp.asarray(b), rtol=1e-9, atol=1e-9), name


def draw(sys, seed, scale=0.5):
    """A state and controls, some of them out of their ranges."""
    rng = np.random.default_rng(seed)
    q, qd = random_configuration(seed, sys, scale)
    act, ctrl = scale * rng.normal(size=sys.na), rng.normal(size=sys.nu)
    return State(q, qd, jnp.asarray(act)), jnp.asarray(ctrl)


def check_random(seed):
    sys = random_system(
        seed,
        1 + seed % 4,
        num_roots=1,
        with_geoms=False,
        with_laws=True,
        integrator=(Integrator.EULER, Integrator.RK4)[seed % 3 == 0],
    )
    text = write_mjcf(sys)
    again = load_mjcf(text)
    assert jax.tree.structure(again.actuators) == jax.tree.structure(sys.actuators)
    for part in ("actuators", "joints"):
        a, b = (jax.tree.leaves(vars(s)[part]) for s in (again, sys))
        assert tree_allclose(a, b, rtol=1e-9, atol=1e-12)
    compare(mujoco.MjModel.from_xml_string(text), sys, *draw(sys, seed))


# Of RK4, seeds 0 and 3.
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.quick_cases("1")
def test_random_robots(seed):
    check_random(seed)


# Forces do not depend on the integrator. `test_actuator_gradients.py` has all files.
@pytest.mark.parametrize("integrator", ("Euler", "RK4"))
@pytest.mark.parametrize("name", actuators.FILES)
@pytest.mark.quick_cases("muscles-Euler", "pids-RK4")
def test_every_kind(name, integrator):
    text = actuators.text(name, integrator)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    for seed in range(3):
        compare(model, sys, *draw(sys, seed, scale=float(seed)))


def test_states_at_which_laws_change():
    """Muscles at the ends of their lengths and speeds, and without activation."""
    text = actuators.text("muscles", "Euler")
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    for length in (-1.0, -0.8, -0.4, 0.0, 0.3, 0.6, 1.0, 2.0):
        for speed in (-9.0, -1.0, 0.0, 1.0, 9.0):
            act = jnp.zeros(sys.na)
            state = State(jnp.full(sys.nq, length), jnp.full(sys.nv, speed), act)
            compare(model, sys, state, jnp.full(sys.nu, 0.5))


@pytest.mark.parametrize("off", ("", "1", "all"))
@pytest.mark.quick_cases("1")
def test_switched_off(off):
    text = actuators.text("groups", "Euler", off)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    compare(model, sys, *draw(sys, 1))
    compare(mujoco.MjModel.from_xml_string(write_mjcf(sys)), sys, *draw(sys, 2))


def test_adhesion():
    """Forces that need contacts come from the step."""
    text = actuators.ADHESION
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    data = mujoco.MjData(model)
    data.ctrl[:] = 1.0
    data.qvel[:] = 0.1
    state = eqsim.Generalized().init(sys)
    state = eqx.tree_at(lambda s: s.qd, state, jnp.full(sys.nv, 0.1))
    for _ in range(5):
        mujoco.mj_step(model, data)
        state = eqsim.Generalized().step(sys, state, jnp.ones(sys.nu))
    assert data.ncon and np.any(data.qfrc_actuator)
    assert tree_allclose(state.q, jnp.asarray(data.qpos), rtol=1e-9, atol=1e-9)
    assert tree_allclose(state.qd, jnp.asarray(data.qvel), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="contacts of a link"):
        actuator_forces(sys, state, jnp.ones(sys.nu))


def test_singular_inertia_is_refused():
    """MuJoCo's `general_dyntype.xml` slides one body along four axes."""
    slides = "".join(
        f'<joint type="slide" axis="{axis}"/>'
        for axis in ("1 0 0", "0 1 0", "0 0 1", "1 1 0")
    )
    body = f'<body>{slides}<geom type="box" size="1 1 1" mass="1"/></body>'
    with pytest.raises(ValueError, match="linearly dependent"):
        load_mjcf(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    turned = body.replace("/>", ' armature=".1"/>', 4)
    load_mjcf(f"<mujoco><worldbody>{turned}</worldbody></mujoco>")


MUSCLE = """
<mujoco><worldbody><site name="a" pos="0 0 1"/>
  <body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/>
    <site name="b" pos=".5 0 .2"/></body></worldbody>
<tendon><spatial name="t" armature=".7"><site site="a"/><site site="b"/></spatial></tendon>
<actuator><muscle joint="j" lengthrange="-1 1" scale="30"/></actuator></mujoco>"""


def test_strength_of_muscles_with_heavy_tendons():
    """The armature of tendons counts for the strength that follows from the inertia."""
    model, sys = mujoco.MjModel.from_xml_string(MUSCLE), load_mjcf(MUSCLE)
    compare(model, sys, *draw(sys, 1))


LIMITED_CURRENT = """
<mujoco><option integrator="implicitfast"/><worldbody>
  <body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".1 0 0"/></body></worldbody>
<actuator><dcmotor joint="j" motorconst="1" resistance="2" inductance="0 .02"/></actuator>
</mujoco>"""


@pytest.mark.parametrize("rate", (0.0, 20.0))
@pytest.mark.quick_cases("0.0")
def test_current_at_its_largest_rate_does_not_damp(rate):
    """Implicit integrators then see no change of the current with the velocity."""
    model = mujoco.MjModel.from_xml_string(LIMITED_CURRENT)
    model.actuator_dynprm[:, 1] = rate
    sys = load_mjcf(model)
    assert float(sys.actuators.motors.max_current_rate[0]) == rate
    state = State(jnp.array([0.2]), jnp.array([1.5]), jnp.array([0.1]))
    compare(model, sys, state, jnp.array([4.0]))


SATURATED = """
<mujoco><option integrator="implicit"/><worldbody>
  <body><joint name="j" type="ball"/>
    <geom type="box" size=".1 .2 .15" pos=".1 .05 0"/></body></worldbody>
<actuator><orientation joint="j" kp="3" kv=".5" input="quat" forcerange="0 .7"/></actuator>
</mujoco>"""


def test_saturated_servo_of_orientation_does_not_damp():
    """MuJoCo decides by the norm of a torque that it has scaled to the bound, which
    rounding puts below the bound in some states: lift it above."""
    model, sys = mujoco.MjModel.from_xml_string(SATURATED), load_mjcf(SATURATED)
    step, below = jax.jit(eqsim.Generalized().step), 0
    for seed in range(20):
        (state, ctrl), data = draw(sys, seed), mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state.q, state.qd, ctrl
        mujoco.mj_forward(model, data)
        assert np.isclose(np.linalg.norm(data.actuator_force), 0.7, rtol=1e-12)
        below += np.linalg.norm(data.actuator_force) < 0.7
        data.actuator_force[:] *= 1.0 + 1e-14
        mujoco.mj_implicit(model, data)
        new = step(sys, state, ctrl)
        assert tree_allclose(new.qd, jnp.asarray(data.qvel), rtol=1e-9, atol=1e-9)
    assert 0 < below < 20
