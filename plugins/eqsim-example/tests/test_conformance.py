"""All that eqsim asks of an environment, a pipeline and an agent.

These tests are all that a plugin needs to begin with: name the objects, and run them.
"""

import pytest
from eqsim_example import BallBeam, CrossEntropy, Richardson

from eqsim.testing import parametrize_with_checks


@pytest.mark.slow
@parametrize_with_checks([BallBeam(), Richardson(), CrossEntropy()])
def test_conformance(check):
    check.run()
