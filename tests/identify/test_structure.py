"""What can be found, before any data."""

import numpy as np
import pytest
from recorded_arm import ARM

import eqsim
from eqsim import identify


UNKNOWNS = {
    "armature": identify.Positive(lambda s: s.joints.armature, entries=(0,)),
    "inertia": identify.Positive(lambda s: s.links.inertia, entries=((0, 1),)),
    "mass": identify.Positive(lambda s: s.links.mass, entries=(1,)),
}


@pytest.fixture(scope="module")
def sys():
    return eqsim.load_mjcf(ARM)


def test_structure_names_what_no_motion_can_tell(sys):
    found = identify.structural_identifiability(sys, UNKNOWNS, length=0.5, motions=3)
    assert len(found.unknown) == 1
    text = found.unknown[0].text
    assert "armature" in text and "inertia" in text and "mass" not in text
    # One of the two is enough.
    one = {k: v for k, v in UNKNOWNS.items() if k != "armature"}
    assert not identify.structural_identifiability(
        sys, one, length=0.5, motions=3
    ).unknown


def test_design_is_better_than_its_rivals(sys):
    one = {k: v for k, v in UNKNOWNS.items() if k != "armature"}
    design = lambda limits, count: identify.design_experiment(
        sys, one, 0.5, limits, candidates=count
    )
    single, best, strong = design(0.5, 1), design(0.5, 4), design(2.0, 1)
    # The first candidate is among the four, and is not the best; stronger ones tell more.
    assert single.information < best.information < strong.information
    assert np.abs(best.ctrl).max() == pytest.approx(0.5)
    assert best.ctrl.shape == (len(best.time), sys.nu)
