"""All that eqsim asks of an environment, a pipeline and an agent.

These tests are all that a plugin needs to begin with: name the objects, and run them.
"""

import pytest
from eqsim_example import BallBeam, CrossEntropy, Richardson

from eqsim import testing


@pytest.mark.slow
def test_environment():
    testing.check_conformance(BallBeam())


@pytest.mark.slow
def test_pipeline():
    testing.check_conformance(Richardson())


@pytest.mark.slow
def test_agent():
    testing.check_conformance(CrossEntropy())
