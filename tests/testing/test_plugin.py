"""`pytest --eqsim-plugins` finds what is installed, and runs the checks of it."""

import os
import pathlib
import subprocess
import sys

import pytest


ROOT = pathlib.Path(__file__).parents[2]
MODULE = """
from testing.wrong_envs import Backwards, rail


class Known(Backwards):
    __eqsim_expected_failures__ = {"dt": "time flies"}
"""
POINTS = {
    "good": "throwaway_envs:rail",
    "wrong": "throwaway_envs:Backwards",
    "known": "throwaway_envs:Known",
    "broken": "not_there:Thing",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what `pip install` leaves behind of a package."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "throwaway_envs.py").write_text(MODULE)
    info = folder / "throwaway_envs-1.0.dist-info"
    info.mkdir()
    lines = "".join(f"{name} = {target}\n" for name, target in POINTS.items())
    (info / "entry_points.txt").write_text(f"[eqsim.envs]\n{lines}")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: throwaway-envs\nVersion: 1.0\n"
    )
    return folder


def run(folder, *options):
    """pytest in an empty folder, with the plugin, and with no other that is installed."""
    (folder / "empty").mkdir(exist_ok=True)
    paths = [folder, ROOT, ROOT / "tests"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # Installed beside eqsim, and checked by tests of its own.
        "EQSIM_PLUGINS_DENY": "eqsim-zoo",
        "JAX_ENABLE_X64": "1",
    }
    command = [sys.executable, "-m", "pytest", "-p", "eqsim_pytest", "-rA", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder / "empty"), *options]
    done = subprocess.run(
        command, cwd=folder / "empty", env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


CHEAP = "dt or action_range or rebuild or load"


def test_all(installed):
    """Those of other packages; a broken one is one failure, and stops no other."""
    code, out = run(installed, "--eqsim-plugins=all", "-k", CHEAP)
    assert code == 1, out
    node = "eqsim-plugins::envs::"
    for line in (
        f"PASSED {node}good::dt",
        f"FAILED {node}wrong::dt - `dt` is -0.1",
        f"PASSED {node}wrong::action_range",
        f"XFAIL {node}known::dt - time flies",
        f"FAILED {node}broken::load",
    ):
        assert line in out, out
    assert "throwaway-envs 1.0 (not_there:Thing)" in out
    assert "2 failed, 7 passed" in out and "1 xfailed" in out
    assert "envs::ant" not in out


@pytest.mark.slow
def test_names(installed):
    names = "throwaway-envs:good,known,generalized"
    code, out = run(installed, f"--eqsim-plugins={names}", "-k", "dt or rebuild")
    assert code == 0, out
    assert "envs::throwaway-envs:good::dt" in out
    assert "pipelines::generalized::rebuild" in out
    assert "4 passed" in out and "1 xfailed" in out


@pytest.mark.slow
def test_unknown_name(installed):
    code, out = run(installed, "--eqsim-plugins=goood")
    assert code == pytest.ExitCode.USAGE_ERROR, out
    assert "'goood' is installed. Did you mean 'good'?" in out
    assert "Traceback" not in out


def test_without_the_option_nothing_is_imported():
    code = (
        "import sys, eqsim_pytest; print({'eqsim', 'jax', 'numpy'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


def test_the_kit_needs_no_pytest():
    code = "import sys; sys.modules['pytest'] = None; import eqsim.testing.probes"
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
