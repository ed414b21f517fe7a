"""All that eqsim asks of an environment."""

import importlib.util

import eqsim_playground
import pytest

from eqsim.testing import parametrize_with_checks


if importlib.util.find_spec("mujoco_playground") is None:
    pytest.skip("needs the extra `models`", allow_module_level=True)


@pytest.mark.slow
@parametrize_with_checks([eqsim_playground.Go1Joystick()])
def test_conformance(check):
    check.run()
