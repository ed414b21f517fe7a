"""`import eqsim` changes nothing, prints nothing, and loads nothing in vain."""

import os
import subprocess
import sys


CODE = """
import sys
import jax
from jax._src import xla_bridge

before = dict(jax.config.values)
import eqsim

assert dict(jax.config.values) == before, "a JAX setting was changed"
assert not xla_bridge.backends_are_initialized(), "a device was started"
heavy = {"brax", "gymnasium", "matplotlib", "mujoco", "torch"} & set(sys.modules)
assert not heavy, f"imported: {heavy}"
"""


def test_import_is_silent():
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    command = [sys.executable, "-W", "error", "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
