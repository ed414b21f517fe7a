"""Derivatives of actuator forces by velocities, which implicit integrators read."""

import actuators
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import tree_allclose

from eqsim._batching import batch_last
from eqsim.dynamics.actuation import actuation_at, velocity_gain
from eqsim.io import load_mjcf
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
        data.ctrl[:] = ctrl
        actuators.set_activations(data, sys, act)
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
