"""Derivatives of actuators: forward mode = reverse mode = differences, and those by
velocities, which implicit integrators read."""

import dataclasses

import actuators
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose

import eqsim
from eqsim._batching import batch_last
from eqsim.dynamics import actuator_forces, actuator_states, passive_forces
from eqsim.dynamics._actuation import actuation_at, velocity_gain
from eqsim.io import load_mjcf
from eqsim.model import State
from eqsim.testing import random_configuration


@batch_last
def gains(sys, q, qd, act, ctrl):
    now = actuation_at(sys, q, qd, act, ctrl)
    return velocity_gain(sys, now), now.moments.dense(sys.nv)


def point(sys, seed, scale=0.5):
    rng = np.random.default_rng(seed)
    q, qd = random_configuration(seed, sys, scale)
    act, ctrl = scale * rng.normal(size=sys.na), scale * rng.normal(size=sys.nu)
    return q, qd, jnp.asarray(act), jnp.asarray(ctrl)


def outputs(sys, q, qd, act, ctrl):
    state = State(q, qd, act)
    now = actuator_states(sys, state, ctrl)
    new = eqsim.Generalized().step(sys, state, ctrl)
    tau = actuator_forces(sys, state, ctrl), passive_forces(sys, q, qd)
    return now.length, now.velocity, now.force, tau, new.act


def _with_bounds(sys):
    """The robot with bounds where zero means that there is none: at zero a derivative
    by the bound does not exist."""
    for family in ("motors", "pids"):
        table = vars(sys.actuators)[family]
        if table is not None:
            bounds = [
                name
                for name in vars(table)
                if name in ("max_voltage", "max_integral", "max_current_rate")
            ]
            known = {name: vars(table)[name] for name in bounds}
            table = dataclasses.replace(
                table, **{k: jnp.where(x > 0, x, 1e3) for k, x in known.items()}
            )
            part = dataclasses.replace(sys.actuators, **{family: table})
            sys = dataclasses.replace(sys, actuators=part)
    return sys


# Derivatives take half a minute or more to compile. The family "laws" of
# `test_derivative_matrix.py` has all actuators with states, and below, files are
# differentiated by velocities.
@pytest.mark.parametrize("name", actuators.FILES)
@pytest.mark.slow
def test_every_parameter(name):
    """At a state at random. What has no influence anywhere is listed."""
    sys = _with_bounds(load_mjcf(actuators.text(name, "Euler")))
    largest = check_gradients(outputs, sys, *point(sys, 1), rtol=1e-4, atol=1e-6)
    parts = "muscles", "muscle_activations", "motors", "pids"
    moved = {key for key, value in largest.items() if value != 0}
    prefix = "[0].actuators."
    assert prefix + "gear" in moved and "[4]" in moved
    for part in parts:
        if vars(sys.actuators)[part] is not None:
            assert any(key.startswith(prefix + part) for key in moved)


@pytest.mark.parametrize("length", (-0.8, 0.0, 0.2, 1.0))
@pytest.mark.slow  # `test_every_parameter` is the quick one.
def test_muscles_where_laws_change(length):
    """Finite, and equal in both modes, at rest and without activation."""
    sys = load_mjcf(actuators.text("muscles", "Euler"))
    q, qd = jnp.full(sys.nq, length), jnp.zeros(sys.nv)
    zero = jnp.zeros(sys.na), jnp.zeros(sys.nu)
    arrays, rest = eqx.partition(sys, eqx.is_inexact_array)

    def force(arrays, q, qd, act, ctrl):
        return actuator_states(eqx.combine(arrays, rest), State(q, qd, act), ctrl).force

    forward = jax.jacfwd(force, argnums=(0, 1, 2, 3, 4))(arrays, q, qd, *zero)
    reverse = jax.jacrev(force, argnums=(0, 1, 2, 3, 4))(arrays, q, qd, *zero)
    assert all(jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(forward))
    assert tree_allclose(forward, reverse, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ("joints", "sites", "cranks", "tendons", "muscles"))
@pytest.mark.quick_cases("tendons")
def test_velocity_gain_is_the_derivative(name):
    sys = load_mjcf(actuators.text(name, "Euler"))
    # MuJoCo takes the derivative of a limited torque to be zero in all directions.
    free = dataclasses.replace(sys.actuators, force_limited=(False,) * sys.nactuator)
    sys = dataclasses.replace(sys, actuators=free)
    q, qd, act, ctrl = point(sys, 3, 0.3)
    gain, moments = gains(sys, q, qd, act, ctrl)
    force = lambda qd: actuator_states(sys, State(q, qd, act), ctrl).force
    expected = gain[:, None] * moments
    found = jax.jacfwd(force)(qd)
    # The forces on a tendon with a limit depend on each other, which MuJoCo ignores.
    if name == "tendons":
        expected, found = expected[:4], found[:4]
    assert tree_allclose(expected, found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", actuators.FILES)
@pytest.mark.quick_cases("sites", "tendons", "muscles", "dc_motors", "pids")
def test_velocity_gain_is_that_of_mujoco(name):
    """With it, the derivative of joint forces by velocities is MuJoCo's."""
    text = actuators.text(name, "Euler")
    # Motors are at their limits, and have friction there, in states 5, 6 and 9.
    for seed in (3, 5, 6, 9) if name == "dc_motors" else (3,):
        compare_velocity_gain(text, seed)


def compare_velocity_gain(text: str, seed: int) -> None:
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    model.opt.integrator = int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_DAMPER)
    q, qd, act, ctrl = point(sys, seed, 0.3)
    found = []
    for off in (0, int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)):
        model.opt.disableflags |= off
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = q, qd
        data.act[:], data.ctrl[:] = act, ctrl
        mujoco.mj_step(model, data)
        found.append(derivative(model, data))
    gain, moments = gains(sys, q, qd, act, ctrl)
    expected = np.asarray(moments.T @ (gain[:, None] * moments))
    kept = structure(model)
    difference = (found[0] - found[1]) * kept
    assert tree_allclose(difference, expected * kept, rtol=1e-9, atol=1e-9)


def derivative(model, data):
    """MuJoCo's derivative of smooth forces by velocities, of which it keeps the entries
    of degrees of freedom that move each other."""
    dense = np.zeros((model.nv, model.nv))
    for row, (start, count) in enumerate(zip(model.D_rowadr, model.D_rownnz)):
        places = slice(start, start + count)
        dense[row, model.D_colind[places]] = data.qDeriv[places]
    return dense


def structure(model):
    marks = np.zeros((model.nv, model.nv))
    for row, (start, count) in enumerate(zip(model.D_rowadr, model.D_rownnz)):
        marks[row, model.D_colind[start : start + count]] = 1.0
    return marks
