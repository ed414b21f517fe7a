"""Equality constraints: parity with MuJoCo, active flags as data, gradients, round trip."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from trajectories import converged

from eqsim import Generalized, State
from eqsim.io import load_mjcf, write_mjcf
from eqsim.testing import random_system


ROBOT = """
<mujoco><option timestep="0.002"/>
<worldbody>
  <body name="a" pos="0 0 .5"><freejoint/><geom size=".1"/><site name="sa" pos=".1 0 0"/>
    <body name="b" pos=".3 0 0"><joint name="b1" axis="0 1 0"/>
      <geom type="capsule" size=".05 .1"/>
      <body name="c" pos=".3 0 0"><joint name="c1" axis="0 1 1"/>
        <joint name="c2" type="slide" axis="1 0 0"/>
        <geom type="capsule" size=".05 .1"/><site name="sc" pos="0 .1 0" euler="20 0 9"/>
      </body>
    </body>
  </body>
  <body name="d" pos="0 .6 .6"><joint name="d1" type="ball"/>
    <geom type="capsule" size=".04 .2" pos=".1 0 0"/></body>
  <body name="e" pos="0 -.6 .6"><freejoint/>
    <geom type="capsule" size=".04 .2" pos=".1 0 0"/></body>
</worldbody>
<tendon>
  <fixed name="t1"><joint joint="b1" coef="1"/><joint joint="c1" coef="-.7"/></fixed>
  <spatial name="t2"><site site="sa"/><site site="sc"/></spatial>
</tendon>
<equality>{}</equality></mujoco>"""
CASES = {
    "connect": '<connect body1="c" body2="d" anchor=".1 0 .05"/>',
    "connect to the world": '<connect body1="e" anchor=".1 0 .05"/>',
    "connect of sites": '<connect site1="sc" site2="sa"/>',
    "weld": '<weld body1="e" body2="c" torquescale=".7"/>',
    "weld far from its pose": """<weld body1="e" body2="c" torquescale="1.7"
      relpose=".1 .2 .3 .3 .4 .5 .6" anchor=".1 .1 0"/>""",
    "weld to the world": '<weld body1="b" solref=".05 .8" solimp=".5 .9 .3"/>',
    "weld of sites": '<weld site1="sa" site2="sc"/>',
    "joint": '<joint joint1="b1" joint2="c1" polycoef=".1 .5 .3 .2 .1"/>',
    "joint alone": '<joint joint1="c2" polycoef=".02 0 0 0 0"/>',
    "tendon": '<tendon tendon1="t1" tendon2="t2" polycoef=".1 .5 .2 .1 .3"/>',
    "several": """<connect body1="c" body2="d" anchor=".1 0 .05"/>
      <weld body1="e" body2="c" active="false"/><joint joint1="b1" joint2="c2"/>""",
}


def states(model, count=12):
    """States around the reference, and MuJoCo's accelerations there."""
    rng, out = np.random.default_rng(0), []
    for k in range(count):
        data = mujoco.MjData(model)
        mujoco.mj_integratePos(model, data.qpos, 0.1 * k * rng.normal(size=model.nv), 1)
        data.qvel[:] = rng.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        out.append((data.qpos.copy(), data.qvel.copy(), data.qacc.copy()))
    return [np.stack(x) for x in zip(*out, strict=True)]


def accelerations(sys, q, qd):
    def one(q, qd):
        state = State(q, qd, jnp.zeros(sys.na))
        return Generalized().acceleration(sys, state, jnp.zeros(sys.nu))

    return eqx.filter_jit(eqx.filter_vmap(one))(q, qd)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases("joint")  # `test_active_is_data` has a connection.
def test_is_that_of_mujoco(name):
    text = ROBOT.format(CASES[name])
    q, qd, expected = states(converged(mujoco.MjModel.from_xml_string(text)))
    found = accelerations(load_mjcf(text), q, qd)
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=1, keepdims=True))
    assert np.max(np.abs(found - expected) / scale) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_round_trip(name):
    sys = load_mjcf(ROBOT.format(CASES[name]))
    again = load_mjcf(write_mjcf(sys))
    assert tree_allclose(sys.equalities, again.equalities, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_round_trip_of_random_systems(seed):
    sys = random_system(seed, nlink=5, with_equalities=True)
    again = load_mjcf(write_mjcf(sys))
    assert len(sys.equalities.names) >= 4
    # Rounding decides which numbers are exactly zero.
    robots = sys.without_pattern(), again.without_pattern()
    assert tree_allclose(*robots, rtol=1e-10, atol=1e-12)


def test_active_is_data():
    """Switching a constraint on and off, in a batch, is one program."""
    text = ROBOT.format(CASES["several"])
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    q, qd, _ = states(model, 1)
    flags = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])

    def at(active):
        new = eqx.tree_at(lambda s: s.equalities.active, sys, active)
        state = State(jnp.asarray(q[0]), jnp.asarray(qd[0]), jnp.zeros(0))
        return Generalized().acceleration(new, state, jnp.zeros(0))

    found = eqx.filter_jit(eqx.filter_vmap(at))(jnp.asarray(flags))
    data = mujoco.MjData(model)
    for row, active in zip(found, flags, strict=True):
        data.qpos[:], data.qvel[:], data.eq_active[:] = q[0], qd[0], active
        mujoco.mj_forward(model, data)
        assert np.allclose(row, data.qacc, rtol=1e-9, atol=1e-9)


# One link: derivatives take long to compile.
PENDULUM = """
<mujoco><option timestep="0.002"/><worldbody><site name="sa" pos=".3 -.5 0"/>
  <body><joint axis="1 .2 1"/><geom size=".1" pos=".2 0 .1"/>
    <site name="sc" pos=".2 .1 0" euler="20 0 9"/></body></worldbody>
<equality><weld site1="sa" site2="sc"/></equality></mujoco>"""


def test_gradients():
    """By coordinates, velocities, softness and the parameters of the constraint. The
    derivative matrix has all kinds."""
    sys = load_mjcf(PENDULUM)
    fields = lambda s: (
        s.equalities.coefficients,
        s.equalities.torque_scale,
        s.equalities.solref,
        s.sites.pos,
        s.links.mass,
    )

    def run(q, qd, values):
        state = State(q, qd, jnp.zeros(0))
        robot = eqx.tree_at(fields, sys, values)
        new = Generalized().step(robot, state, jnp.zeros(0))
        return new.q, new.qd

    q, qd = jnp.array([-0.3]), jnp.array([0.4])
    largest = check_gradients(run, q, qd, fields(sys))
    assert all(largest[name] > 0.0 for name in ("[0]", "[1]")), largest


@pytest.mark.slow
def test_satisfied_weld_has_finite_derivatives():
    """At the pose of the weld the norm of the violation is zero."""
    sys = load_mjcf(ROBOT.format(CASES["weld"]))
    state = Generalized().init(sys)
    step = lambda q: Generalized().step(
        sys, State(q, state.qd, state.act), jnp.zeros(0)
    )
    assert np.all(np.isfinite(jax.jacrev(lambda q: step(q).qd)(state.q)))
