"""Accelerations and steps against MuJoCo C, converged, on files of others and on ours.

`benchmarks/parity.py` makes the same comparison on all files with many more states.
"""

import jax
import mujoco
import numpy as np
import pytest
from _agreement import quick_compile
from _cases import drawn_states
from _models import mujoco_model, system
from _reference import (
    accelerations,
    converge,
    disagreements,
    errors,
    forward,
    reference,
    solution,
    TOLERANCE,
    trajectories,
)
from _states import draw


STATES = 20


def _assert_agreement(name, model, states, qdd, target, tolerance):
    error = errors(qdd, target.qdd)
    found = disagreements(name, model, states, qdd, error, tolerance)
    assert not found, "\n".join(map(str, found))
    assert not np.any(np.isnan(error))


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
def test_acceleration(name, precision):
    tolerance = TOLERANCE[precision]
    with jax.enable_x64(precision == "double"):
        model, sys = converge(mujoco_model(name)), system(name)
        states = drawn_states(model, STATES, 3, precision)
        qdd = accelerations(sys, states, quick_compile())
    target = reference(model, states, 0)
    _assert_agreement(name, model, states, qdd, target, tolerance)


@pytest.mark.parametrize("euler", (False, True))
def test_trajectory(euler):
    """By Runge and Kutta, as the file says, and by Euler."""
    name = "inverted_double_pendulum"
    model = converge(mujoco_model(name, euler=euler))
    sys = system(name, euler=euler)
    states = draw(model, STATES, seed=3)
    path = trajectories(sys, states, 20)
    target = reference(model, states, 20)
    assert np.all(errors(path, target.path) < TOLERANCE["double"])


def test_states_touch_the_ground():
    """A comparison without contacts would say little."""
    model = converge(mujoco_model("half_cheetah"))
    target = reference(model, draw(model, 45), 0)
    assert np.mean(target.contacts > 0) > 0.4
    assert np.max(target.rows) > 30


def test_reference_is_converged():
    """MuJoCo's own solution has no gradient left, and any other costs more."""
    model = converge(mujoco_model("hopper"))
    states, data = draw(model, 18), mujoco.MjData(model)
    for i in range(len(states)):
        forward(model, data, states, i)
        best = solution(model, data, data.qacc.copy())
        other = solution(model, data, data.qacc + 1e-3)
        assert best.residual < 1e-9
        assert other.residual > 1e-4 / max(1.0, np.max(np.abs(data.qacc)))
        assert other.cost > best.cost


def test_disagreement_is_explained():
    model = converge(mujoco_model("hopper"))
    states = draw(model, 9)
    target = reference(model, states, 0)
    qdd = target.qdd.copy()
    qdd[4, 0] *= 1.01
    error = errors(qdd, target.qdd)
    (found,) = disagreements("hopper", model, states, qdd, error, 1e-6)
    assert (found.index, found.kind) == (4, "shallow")
    assert str(found).startswith("hopper, state 4 (shallow")
    assert "eqsim is not converged" in found.cause
    assert found.eqsim.cost > found.mujoco.cost
