"""Dynamics against MuJoCo C."""

import assets
import mujoco
import pytest
import reference
import systems

from eqsim.io import write_mjcf


def compare(model, name):
    x = systems.inputs(name)
    ours = systems.dynamic_report(systems.system(name), x)
    errors = reference.worst(ours, lambda k: reference.dynamic(model, x, k), len(x.q))
    assert all(error < 1e-12 for error in errors.values()), errors


@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.quick_cases("forest", "floating")
def test_random_systems(name):
    text = write_mjcf(systems.system(name))
    compare(mujoco.MjModel.from_xml_string(text), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("swimmer", "half_cheetah"))
def test_files(name):
    compare(mujoco.MjModel.from_xml_path(str(assets.path(name))), name)
