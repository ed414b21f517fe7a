"""Some situations in every run of the tests; `make situations` tries all kinds."""

import pathlib
import subprocess
import sys

import pytest


FOLDER = pathlib.Path(__file__).parent


def tried(*options):
    """Return the status and the output of a process without type checks."""
    command = [sys.executable, str(FOLDER), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow  # `make situations` runs them each night.
def test_quick_kinds():
    status, text = tried("--count", 8, "--kinds", "counts", "coordinates")
    assert status == 0 and "8 situations, 0 failed" in text, text


@pytest.mark.slow
def test_all_kinds():
    status, text = tried("--count", 240)
    assert status == 0 and "240 situations, 0 failed" in text, text
