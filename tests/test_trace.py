"""A step can be read: tracing it enters few files, see `docs/step.md`."""

import os
import subprocess
import sys


# Functions that are cached are entered only in a fresh process.
CODE = """
import os
import sys
import equinox as eqx
import jax.numpy as jnp
import eqsim

env = eqsim.make("ant")
state, ctrl = env.pipeline.init(env.sys), jnp.zeros(env.sys.nu)
root, files = os.path.dirname(eqsim.__file__), set()

def record(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(root):
        files.add(os.path.relpath(frame.f_code.co_filename, root))

sys.setprofile(record)
eqx.filter_make_jaxpr(env.pipeline.step)(env.sys, state, ctrl)
sys.setprofile(None)
print(*sorted(files))
"""
MOST = 37


def test_a_step_enters_few_files():
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    command = [sys.executable, "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    files = run.stdout.split()
    assert "pipelines/forward_dynamics.py" in files and len(files) <= MOST, files
