"""A step can be read: tracing it enters few files, and goes down; see `docs/step.md`."""

import functools
import json
import os
import subprocess
import sys


# Functions that are cached are entered only in a fresh process.
CODE = """
import json
import os
import sys
import equinox as eqx
import jax.numpy as jnp
import eqsim

env = eqsim.make("ant")
state, ctrl = env.pipeline.init(env.sys), jnp.zeros(env.sys.nu)
root, calls, paths = os.path.dirname(eqsim.__file__), [], set()

def record(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call":
        calls.append(os.path.relpath(file, root) if file.startswith(root) else None)
        if calls[-1] is not None:
            own = [file for file in calls if file is not None]
            paths.add(tuple(b for a, b in zip([None, *own], own) if a != b))
    elif event == "return" and calls:
        calls.pop()

sys.setprofile(record)
eqx.filter_make_jaxpr(env.pipeline.step)(env.sys, state, ctrl)
sys.setprofile(None)
print(json.dumps(sorted(paths)))
"""
# One of them, `_kernels/_programs.py`, only pauses the garbage collector.
MOST = 38
# They call the function that they wrap.
CALLS_OF_PRIMITIVES = "_batching.py", "_primitive.py"


@functools.cache
def paths() -> list[list[str]]:
    """The files on each path of calls, from `step` down."""
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    command = [sys.executable, "-c", CODE]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_step_enters_few_files():
    files = {file for path in paths() for file in path}
    assert "pipelines/forward_dynamics.py" in files and len(files) <= MOST, files


def test_a_step_goes_down():
    """No path of calls comes back to a file that it left."""
    for path in paths():
        own = [file for file in path if file not in CALLS_OF_PRIMITIVES]
        own = [b for a, b in zip([None, *own], own) if a != b]
        assert len(own) == len(set(own)), path
