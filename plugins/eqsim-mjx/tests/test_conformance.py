"""All that every pipeline promises, without an exception."""

import pytest
from eqsim_mjx import Mjx

from eqsim import testing


@pytest.mark.slow
def test_pipeline():
    report = testing.check_pipeline(Mjx())
    assert not report.names(testing.Status.EXPECTED)
