"""All that eqsim asks of an environment."""

import eqsim_playground
import pytest
from _installed import HAS_MENAGERIE, INSTALLED

from eqsim.testing import parametrize_with_checks


if not INSTALLED:
    pytest.skip("needs the extra `models`", allow_module_level=True)
ENVS = [eqsim_playground.Go1Joystick()]
if HAS_MENAGERIE:
    ENVS.append(eqsim_playground.PandaPickCube())


@pytest.mark.slow
@parametrize_with_checks(ENVS)
def test_conformance(check):
    check.run()
