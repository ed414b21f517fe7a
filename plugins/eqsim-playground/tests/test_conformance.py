"""All that eqsim asks of an environment."""

import eqsim_playground
import pytest
from _checks import HAS_MENAGERIE, INSTALLED

from eqsim.testing import parametrize_with_checks


if not INSTALLED:
    pytest.skip("needs the extra `models`", allow_module_level=True)
ENVS = [
    eqsim_playground.Go1Joystick(),
    eqsim_playground.G1Joystick(),
    eqsim_playground.T1Joystick(),
    eqsim_playground.BerkeleyHumanoidJoystick(),
    eqsim_playground.Go1Getup(),
    eqsim_playground.Go1Stand(),
    eqsim_playground.LeapRotateZ(),
    eqsim_playground.LeapReorient(),
]
if HAS_MENAGERIE:
    ENVS.append(eqsim_playground.PandaPickCube())
# Boxes begin to touch within the step of the differences, which then say little.
BENT = "LeapRotateZ-gradients_state", "LeapRotateZ-gradients_env"


@pytest.mark.slow
@parametrize_with_checks(ENVS)
def test_conformance(check, request):
    if any(name in request.node.name for name in BENT):
        pytest.xfail("contacts begin within the step of the differences")
    check.run()
