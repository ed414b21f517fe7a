"""Random robots in which every feature of MuJoCo occurs, beside MuJoCo C.

The law: accelerations, one step and all sensors agree to 1e-6, or a known limit of
MuJoCo explains the difference. `python tests/parity sweep --random` checks it on more robots.
"""

import os

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, Phase, settings, strategies as st
from parity.causes import at_our_geometry, deviations, UNEXPLAINED
from parity.compare import check_structure
from parity.reference import (
    converge,
    Errors,
    errors,
    forward,
    ours,
    Outcome,
    quick_compile,
    theirs,
    TOLERANCE,
)
from parity.robots import features, GROUPS, random_case
from parity.separation import largest_separation, separation
from parity.states import States

import eqsim


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
@settings(max_examples=examples(3), phases=PHASES)
def test_random_systems(seed):
    check(seed, 4, links=2, variations=2)


@pytest.mark.slow
@given(seed=st.integers(0, 1_000_000))
@settings(max_examples=examples(MANY), phases=PHASES)
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


PRESSED = """
<mujoco><worldbody>
  <geom type="capsule" size=".1 .1" pos=".03 .02 0" euler="70 10 0"/>
  <body pos="0 0 .22"><freejoint/>
    <geom type="ellipsoid" size=".1 .15 .2" euler="50 20 0"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_inexact_contacts_of_mujoco_are_a_cause():
    """Some normals of MuJoCo can be improved, eqsim's cannot; with these, accelerations
    agree."""
    model, sys = mujoco.MjModel.from_xml_string(PRESSED), eqsim.load_mjcf(PRESSED)
    data, rng = mujoco.MjData(converge(model)), np.random.default_rng(0)
    quats = rng.normal(size=(8, 4))
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    q = np.concatenate([np.tile([0.0, 0.0, 0.2], (8, 1)), quats], axis=1)
    none = np.zeros((8, 0))
    states = States(q, np.full((8, 6), 0.1), none, none, 8 * ("pressed",))
    solve = eqx.filter_jit(eqsim.Generalized().solve)
    inexact = 0
    for i in range(8):
        forward(model, data, states, i)
        (contact,) = data.contact
        state = eqsim.State(*(jnp.asarray(x[i]) for x in states[:3]))
        found = solve(sys, state, jnp.zeros(0))
        assert _gain(model, data, found.contacts.frame[0, 0]) < 1e-18
        assert contact.dist == pytest.approx(float(found.contacts.dist[0]), abs=1e-10)
        if _gain(model, data, contact.frame[:3]) > 1e-16:
            inexact += 1
            given = at_our_geometry(sys, model, data, states, i)
            assert given == "contact points of capsules and ellipsoids"
            assert errors(np.asarray(found.qdd)[None], data.qacc[None])[0] < 1e-12
    assert inexact


def _gain(model, data, normal) -> float:
    best = largest_separation(model, data, (0, 1), normal)
    return float(best - separation(model, data, (0, 1), normal))
