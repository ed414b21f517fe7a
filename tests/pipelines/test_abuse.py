"""Extreme numbers: the state stays finite, or a message says why, and energy grows only
where MuJoCo's does."""

import abuse
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import eqsim


# Ratios of 1e12, which rounding (6e-8) does not resolve.
TOO_MUCH_IN_SINGLE = ("inertias of 1, 1 and 1e-12 kg m^2", "damping of 1e9 N m s/rad")
# Explicit integration of these diverges in any precision.
DIVERGES = (
    "a joint with 1e4 rad/s against its limit",
    "a joint 100 rad beyond its limit",
    "a spring of 1e9 N m/rad",
)


def test_double_precision():
    check(jnp.float64, DIVERGES)


@pytest.mark.slow
def test_single_precision():
    check(jnp.float32, (*DIVERGES, *TOO_MUCH_IN_SINGLE))


def check(dtype, diverges):
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        expected = {name: abuse.in_mujoco(name) for name in abuse.CASES}
    finally:
        mujoco.set_mju_user_warning(None)
    found = abuse.in_eqsim(abuse.CASES, dtype)
    for name, ours in found.items():
        theirs = expected[name]
        if ours.refusal:
            assert "limited to [0.5, -0.5]" in ours.refusal, name
        elif name in diverges:
            # What is not finite is never reported as converged.
            assert not (ours.finite or ours.converged), name
            assert name in TOO_MUCH_IN_SINGLE or not theirs.finite, name
        else:
            assert ours.finite and ours.converged and theirs.finite, name
            assert ours.energy <= 1.05 * theirs.energy + 1e-3, name


@pytest.mark.slow  # `test_double_precision` has shapes of size zero.
def test_box_without_thickness_lies_on_the_ground():
    """Its corners are at the height of its center; MuJoCo has four contacts."""
    model, q, _ = abuse.prepared("shapes of size zero")
    model.geom_size[1], model.geom_rbound[1] = (0.1, 0.1, 0.0), 0.15
    q[2] = -0.001
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    assert sum(1 in contact.geom for contact in data.contact) == 4
    sys = eqsim.load_mjcf(model)
    pipeline = eqsim.Generalized()
    solved = pipeline.solve(sys, pipeline.init(sys, jnp.asarray(q)), jnp.zeros(1))
    np.testing.assert_allclose(solved.qdd, data.qacc, rtol=1e-6, atol=1e-6)
