"""Fixtures of all tests of the zoo."""

import pytest

from eqsim_zoo.training import callbacks


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """Curves are drawn by `test_metrics.py` only: they take longer than a tiny run."""
    monkeypatch.setattr(callbacks, "write_curves", lambda _, path: path.write_text(""))
