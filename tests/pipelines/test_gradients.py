"""A step is differentiable: forward mode = reverse mode = differences, by every number.

Each model takes one step from several states at once. Outputs are kept apart by state, so
that what is wrong in one cannot hide behind another.
"""

import jax.tree_util as jtu
import mujoco
import numpy as np
import pytest
from parity.derivatives import (
    Derivatives,
    ENGINES,
    forces,
    GROUND,
    ground_places,
    states,
)

from eqsim import Generalized, load_mjcf, Positional, Spring


def check(step, pipeline=None):
    """Asserts that derivatives are right to 2e-5 where the model is smooth, all but
    everywhere, and the two modes equal to 1e-9; returns the gradients."""
    found, gradients = step.compare(pipeline)
    bent = [x for x in found if not x.smooth]
    # Substeps end pieces of the model far more often than one converged solve.
    most = 0.0 if isinstance(step.inputs[2], Generalized) else 0.03
    assert len(bent) <= most * len(found), bent
    for x in found:
        if x.smooth:
            assert x.forward <= 1e-6 + 2e-5 * x.size, f"forward mode: {x}"
        assert x.reverse <= 1e-9 * (1.0 + x.size), f"reverse mode: {x}"
    return gradients


def assert_counted(gradients, must_count, part=0):
    """No zero where a number of one part of the inputs matters, and no NaN anywhere."""
    for state, inputs in gradients.items():
        for leaf in jtu.tree_leaves(inputs):
            assert np.all(np.isfinite(leaf)), state
        for name, where in must_count.get(state, {}).items():
            entries = where(inputs[part])
            assert np.all(entries != 0), f"{state}: {name}: {entries}"


EVERYWHERE = {
    "mass": lambda s: s.links.mass,
    "com": lambda s: s.links.com,
    "gravity": lambda s: s.gravity,
    "compensation": lambda s: s.links.gravity_compensation[:1],
    "dt": lambda s: s.dt,
    "gear": lambda s: s.actuators.gear[0, 0],
    "gain": lambda s: s.actuators.gain[0, 0],
    "bias": lambda s: s.actuators.bias[0, 0],
    "time constant": lambda s: s.actuators.time_constant,
    "armature": lambda s: s.joints.armature[6],
    "stiffness": lambda s: s.joints.stiffness[1],
    "spring": lambda s: s.joints.spring_ref[7],
    "inertia": lambda s: s.links.inertia,
    "inertia axes": lambda s: s.links.inertia_quat[0],
    "place of a link": lambda s: s.links.pos[1],
    "axis": lambda s: s.joints.axis[1],
}
TOUCHING = {
    "size": lambda s: s.geoms.size[1, :2],
    "place": lambda s: s.geoms.pos[1],
    "orientation": lambda s: s.geoms.quat[1],
    "friction": lambda s: s.geoms.friction[1, 0],
    "solref": lambda s: s.geoms.solref[:2],
    "solmix": lambda s: s.geoms.solmix[:2],
    "largest impedance": lambda s: s.geoms.solimp[:2, 1],
    "impratio": lambda s: s.impratio,
}
MUST_COUNT = {
    "neutral": {"dry friction": lambda s: s.joints.friction_solimp[6, 0]},
    "air": {
        "damping": lambda s: s.joints.damping[6],
        "dry friction": lambda s: s.joints.frictionloss[6],
    },
    "sliding": TOUCHING
    | {
        "damping": lambda s: s.joints.damping[6],
        "solimp": lambda s: s.geoms.solimp[1],
        "margin": lambda s: s.geoms.margin[:2],
    },
    "sticking": TOUCHING | {"radius": lambda s: s.geoms.size[2, 0]},
    "just above": {},
    "just below": TOUCHING | {"solimp": lambda s: s.geoms.solimp[1, :2]},
    "rest": TOUCHING | {"solimp": lambda s: s.geoms.solimp[1]},
    "limit": {
        "range": lambda s: s.joints.range[1, 1],
        "solref": lambda s: s.joints.limit_solref[1],
        "solimp": lambda s: s.joints.limit_solimp[1],
        "margin": lambda s: s.joints.limit_margin[1],
    },
}


# By the numbers of pipelines.
MUST_COUNT_IN = {
    Generalized: {"sticking": {"smoothing": lambda p: p.smoothing}},
    Spring: {
        "air": {"joints": lambda p: np.stack([p.stiffness, p.damping])},
        "sticking": {"contacts": lambda p: p.erp},
        "just below": {"rebound": lambda p: p.restitution},
    },
    Positional: {
        "air": {"joints": lambda p: np.stack([p.compliance, p.angular_compliance])},
        "sticking": {"contacts": lambda p: p.relaxation},
        "just below": {"rebound": lambda p: p.restitution},
    },
}

# Limits and contacts of the others are hard.
SOFT = "solref", "solmix", "solimp", "largest impedance", "impratio"
# A joint that dry friction or a limit holds, and a contact that sticks, stay where they are.
STUCK = {
    "neutral": ("gear", "gain", "bias", "stiffness", "spring", "dry friction"),
    "limit": ("gear", "gain", "bias", "stiffness", "spring", "dry friction"),
    "sticking": ("friction",),
    "rest": ("friction",),
    "just below": ("friction",),
}


def must_count(pipeline):
    """What must have a derivative in the states of `GROUND`."""
    must = {k: EVERYWHERE | v for k, v in MUST_COUNT.items()}
    if isinstance(pipeline, Generalized):
        return must
    left = lambda state, name: name not in (*SOFT, *STUCK.get(state, ()))
    return {k: {n: w for n, w in v.items() if left(k, n)} for k, v in must.items()}


@pytest.fixture(scope="module")
def ground():
    text = GROUND
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    return model, sys, ground_places(model)


def test_ground_states_are_what_they_are_called(ground):
    model, _, places = ground
    at = {k: forces(model, *place) for k, place in places.items()}
    kinds = mujoco.mjtConstraint
    select = lambda d, kind: d.efc_force[d.efc_type == kind]
    edges = {k: select(d, kinds.mjCNSTR_CONTACT_PYRAMIDAL) for k, d in at.items()}
    free = ("neutral", "air", "limit", "just above")
    assert all(edges[k].size == 0 for k in free)
    assert edges["just below"].size == 4
    assert np.any(edges["sliding"] == 0) and np.any(edges["sliding"] > 0)
    assert all(np.all(edges[k] > 0) and edges[k].size for k in ("sticking", "rest"))
    limits = select(at["limit"], kinds.mjCNSTR_LIMIT_JOINT)
    assert limits.size and np.all(limits > 0)
    rubbing = {k: select(d, kinds.mjCNSTR_FRICTION_DOF) for k, d in at.items()}
    assert np.all(np.abs(rubbing["neutral"]) < 1.0)
    assert np.all(np.abs(rubbing["air"]) == 1.5)


@pytest.mark.parametrize(
    "pipeline", (Generalized(), Spring(), Positional()), ids=lambda p: type(p).__name__
)
@pytest.mark.slow  # `test_contacts.py` has a quick one.
def test_ground(ground, pipeline):
    """The whole system; in `Generalized`, on the path without a dense matrix."""
    _, sys, places = ground
    step, kind = Derivatives(sys, states(sys, places), pipeline), type(pipeline)
    assert_counted(check(step), must_count(pipeline))
    step = Derivatives(sys, states(sys, places), ENGINES[kind])
    assert_counted(check(step, ENGINES[kind]), MUST_COUNT_IN[kind], part=2)
