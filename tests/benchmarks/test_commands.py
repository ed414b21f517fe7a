"""Every command of the benchmarks starts, and so do those of the comparisons."""

import os
import pathlib
import subprocess
import sys

import pytest


ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
COMMANDS = sorted(path.name for path in FOLDER.glob("[!_]*.py"))
PARITY = ("sweep", "scenes", "files", "colliders", "environments", "drift")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMMANDS, reason="a source distribution has no benchmarks"),
]


def _help(*words) -> str:
    path = f"{ROOT}{os.pathsep}{ROOT / 'zoo'}"
    command = [sys.executable, *map(str, words), "--help"]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_benchmarks(name):
    assert "usage:" in _help(FOLDER / name)


@pytest.mark.parametrize("name", (*PARITY, "derivatives"))
def test_comparisons(name):
    assert "usage:" in _help(ROOT / "tests" / "parity", name)
