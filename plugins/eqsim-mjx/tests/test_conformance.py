"""All that every pipeline promises, without an exception."""

import pytest
from eqsim_mjx import Mjx

from eqsim import testing


@pytest.mark.slow
def test_pipeline():
    found = testing.check_conformance(Mjx())
    assert not any("expected failure" in outcome for outcome in found.values())
