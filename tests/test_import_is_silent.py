"""Imports change nothing, print nothing, and load nothing in vain.

The budget of an import counts modules and not seconds, which depend on the machine.
"""

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

def check(package, most):
    lazy = {"PIL", "brax", "glfw", "gymnasium", "llvmlite", "matplotlib", "mujoco",
            "pytest", "rich", "tensorboardX", "torch", "trimesh", "tyro", "viser"}
    assert not lazy & set(sys.modules), f"imported: {lazy & set(sys.modules)}"
    own = [name for name in sys.modules if name.partition(".")[0] == package]
    assert f"{package}._cli" not in own, "the command line was imported"
    assert len(own) <= most, f"{package} imports {len(own)} modules of its own"

assert "optax" not in sys.modules
check("eqsim", 390)
import eqsim_zoo
check("eqsim_zoo", 130)
assert dict(jax.config.values) == before, "a JAX setting was changed"
assert not xla_bridge.backends_are_initialized(), "a device was started"
"""


def test_import_is_silent():
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    command = [sys.executable, "-W", "error", "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
