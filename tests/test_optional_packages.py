"""Packages of extras: not imported before they are used, and named when they are missing.

Each test is a process in which packages are hidden, as if they were not installed.
"""

import os
import subprocess
import sys


HIDE = """
import importlib.machinery, sys

hidden = {"PIL", "brax", "matplotlib", "minari", "pytest", "rich", "tensorboardX",
          "torch", "trimesh", "tyro", "viser", "wandb"}
find = importlib.machinery.PathFinder.find_spec

def find_visible(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)

importlib.machinery.PathFinder.find_spec = find_visible
"""

SIMULATES = """
import eqsim, eqsim_zoo, eqsim_zoo.skills, jax

env = eqsim.make("point_mass")
policy = lambda obs, key: jax.numpy.ones(1)
trajectory = eqsim.rollout(env, policy, jax.random.key(0), 3)
assert trajectory.timestep.reward.shape == (3,)
"""

# A call for each extra and package, one hidden at a time.
NAMES = """
import contextlib, io
import numpy as np
from eqsim._cli import main
from eqsim.testing import parametrize_with_checks
from eqsim_zoo.data import from_minari
from eqsim_zoo.runs import write_curves
from eqsim_zoo.training import TensorBoard, WeightsAndBiases
from eqsim_zoo.training._progress import Bar

def command():
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        status = main(["list"])
    if status == 1:
        raise ImportError(out.getvalue())

images = np.zeros((1, 4, 4, 3), np.uint8)
key = jax.random.key(0)
cases = (
    ("PIL", "eqsim[cli]", lambda: eqsim.render.write_gif("x.gif", images, 0.1)),
    ("PIL", "eqsim[cli]", command),
    ("matplotlib", "eqsim[cli]", command),
    ("rich", "eqsim[cli]", command),
    ("tyro", "eqsim[cli]", command),
    ("rich", "eqsim[cli]", lambda: eqsim.rollout(env, policy, key, 3, progress=True)),
    ("viser", "eqsim[viewer]", lambda: eqsim.viewer.launch(env, np.zeros((3, 1)))),
    ("pytest", "eqsim[testing]", lambda: parametrize_with_checks([env])),
    ("matplotlib", "eqsim-zoo[cli]", lambda: write_curves(["x"], "x.png")),
    ("rich", "eqsim-zoo[cli]", Bar),
    ("minari", "eqsim-zoo[minari]", lambda: from_minari("x")),
    ("tensorboardX", "eqsim-zoo[tensorboard]", lambda: TensorBoard("x")),
    ("wandb", "eqsim-zoo[wandb]", lambda: WeightsAndBiases("x", "y")),
)
for package, extra, call in cases:
    hidden.clear()
    hidden.add(package)
    try:
        call()
    except ImportError as error:
        assert f"pip install '{extra}'" in str(error), (package, str(error))
    else:
        raise AssertionError(f"{extra}: nothing says that {package} is missing")
print(*sorted({extra for _, extra, _ in cases}))
"""


def run(code, folder):
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder
    )
    assert not done.returncode and not done.stderr, done.stderr
    return done.stdout.split()


def test_missing_packages_are_named_by_their_extra(tmp_path):
    """Without any of them simulation works; without one of them the error names the
    extra that has it."""
    named = run(HIDE + SIMULATES + NAMES, tmp_path)
    assert {"eqsim[cli]", "eqsim[testing]", "eqsim[viewer]"} <= set(named)
