"""Random robots in which every feature of MuJoCo occurs, beside MuJoCo C.

The law: accelerations, one step and all sensors agree to 1e-6, or a known limit of
MuJoCo explains the difference. `benchmarks/parity.py --random` checks it on more robots.
"""

import os

import numpy as np
import pytest
from _agreement import Errors, ours, Outcome, quick_compile, theirs
from _cases import GROUPS, random_case
from _causes import deviations, UNEXPLAINED
from _feature_parity import check_one, check_structure, feature_report
from _features import features
from _reference import TOLERANCE
from hypothesis import given, Phase, settings, strategies as st


DOUBLE = TOLERANCE["double"]
# Robots are not shrunk: every attempt compiles.
PHASES = (Phase.explicit, Phase.generate)
MANY = int(os.environ.get("EQSIM_PARITY_SYSTEMS", "60"))


def check(seed, count, links, variations):
    records = check_structure(seed, count, "double", links, DOUBLE, variations)
    assert len(records) == 1 + variations
    lines = [line for record in records for line in record.deviations]
    bad = [line for line in lines if line.cause == UNEXPLAINED]
    assert not bad, "\n".join(map(str, bad))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=3, phases=PHASES)
def test_random_systems(seed):
    check(seed, 4, links=2, variations=2)


@pytest.mark.slow
@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=MANY, phases=PHASES)
def test_many_random_systems(seed):
    check(seed, 9, links=4, variations=0)


def test_every_feature_occurs():
    """Also every group alone."""
    cases = [random_case(seed, 1) for seed in range(3 * len(GROUPS))]
    assert {case.alone for case in cases} == {None, *GROUPS}
    found = {name for case in cases for name in features(case.sys)}
    assert len(found) > 80
    assert {name.partition(":")[0] for name in found} >= {
        *("actuator", "bias", "body", "contact", "dyntype", "equality", "gain"),
        *("integrator", "joint", "limit", "medium", "sensor", "spring", "tendon"),
        "transmission",
    }


def test_report():
    """A deviation is listed with its cause, and features are counted."""
    record = check_one(0, 2, "double", 2, DOUBLE)
    text = "\n".join(feature_report([record], DOUBLE))
    assert "1 random systems by feature" in text and "No state deviates." in text
    assert all(f"| {name} " in text for name in record.features)


def test_deviations_have_causes():
    case = random_case(0, 2)
    sys, model, states = case.sys, case.model, case.states
    value = ours(sys, states, quick_compile())
    target, _ = theirs(sys, model, states)
    wrong = value.qdd + np.array([[0.0], [1e-3]])
    error = Errors(np.array([0.0, 1e-3]), np.zeros(2), {})
    (line,) = deviations(
        "a robot", sys, model, states, Outcome(wrong, value.step, {}), error, DOUBLE
    )
    assert (line.state, line.quantity, line.cause) == (1, "qdd", UNEXPLAINED)
    assert target.qdd.shape == value.qdd.shape
