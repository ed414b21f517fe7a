"""The layers of CONTRIBUTING.md, as written in pyproject.toml, hold."""

import pathlib
import subprocess
import sys


ROOT = pathlib.Path(__file__).parents[1]


def test_layers():
    code = "import importlinter.cli as cli; cli.lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
