"""Accelerations, steps, sensors and trajectories agree with MuJoCo C, converged, to 1e-6 (in
single precision to 1e-3), on files of Gymnasium.

`python tests/parity sweep` makes the same comparison on all files with many more states.
"""

import assets
import jax
import mujoco
import numpy as np
import pytest
from parity.compare import compare
from parity.reference import (
    converge,
    errors,
    forward,
    mujoco_trajectories,
    ours,
    quick_compile,
    solution,
    TOLERANCE,
    trajectories,
)
from parity.states import draw, drawn_states

import eqsim


STATES = 20


def mujoco_model(name):
    return converge(mujoco.MjModel.from_xml_path(str(assets.path(name))))


@pytest.mark.parametrize(
    "name, precision",
    [
        ("half_cheetah", "double"),
        pytest.param("pusher_v5", "double", marks=pytest.mark.slow),
        pytest.param("swimmer", "double", marks=pytest.mark.slow),
        ("hopper", "single"),
    ],
)
@pytest.mark.quick_cases("half_cheetah-double")
def test_one_step(name, precision):
    model = mujoco_model(name)
    states = drawn_states(model, STATES, 3, precision)
    with jax.enable_x64(precision == "double"):
        sys = eqsim.load_mjcf(assets.path(name))
        value = ours(sys, states, quick_compile())
    names, tolerance = ("", name, ""), TOLERANCE[precision]
    record = compare(names, sys, model, states, value, tolerance)
    assert not record.deviations, "\n".join(map(str, record.deviations))
    assert np.all(np.isfinite(record.qdd))


@pytest.mark.parametrize("integrator", ("rk4", "euler"))
def test_trajectory(integrator):
    model = mujoco_model("inverted_double_pendulum")
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    sys, states = eqsim.load_mjcf(model), draw(model, STATES, seed=3)
    path = trajectories(sys, states, 20)
    target = mujoco_trajectories(model, states, 20)
    assert np.all(errors(path, target) < TOLERANCE["double"])


def test_states_touch_the_ground():
    """A comparison without contacts would say little."""
    model = mujoco_model("half_cheetah")
    data, states, found = mujoco.MjData(model), draw(model, 45), []
    for i in range(len(states)):
        forward(model, data, states, i)
        found.append((data.ncon > 0, data.nefc))
    assert np.mean(found, axis=0)[0] > 0.4 and np.max(found) > 30


def test_reference_is_converged():
    """MuJoCo's own solution has no gradient left, and any other costs more."""
    model = mujoco_model("hopper")
    states, data = draw(model, 18), mujoco.MjData(model)
    for i in range(len(states)):
        forward(model, data, states, i)
        best = solution(model, data, data.qacc.copy())
        other = solution(model, data, data.qacc + 1e-3)
        assert best.residual < 1e-9
        assert other.residual > 1e-4 / max(1.0, np.max(np.abs(data.qacc)))
        assert other.cost > best.cost
