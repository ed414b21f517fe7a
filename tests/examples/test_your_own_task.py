"""docs/your_own_task.md: its file, its code and its commands."""

import pathlib
import re
import shutil
import sys
import tomllib

import entrypoints
import jax
import pytest

import eqsim
import eqsim_zoo
from eqsim._cli import main
from eqsim.plugins import COMMANDS, RUNS
from eqsim_zoo._cli import view_run


ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "docs" / "examples" / "swing_up.py"
PAGE = (ROOT / "docs" / "your_own_task.md").read_text()
POINTS = tomllib.loads((ROOT / "zoo" / "pyproject.toml").read_text())["project"]
COMMAND = re.compile(r"^eqsim (?!plugins).*$", re.MULTILINE)
# Fewer steps than on the page; the viewer writes a file instead of serving its page.
FEWER = {
    "--steps 5e5": "--steps 8192 --turns 2 --evaluations 1 --pool-size 8",
    "--steps 1e5": "--steps 4096",
    "eval ": "eval --episodes 2 ",
    "view ": "view --export a.html --length 3 ",
    "500_000,": "8192, turns=2, evaluations=1, pool_size=8,",
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with the file alone, in which Python and the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, target in POINTS["entry-points"]["eqsim.commands"].items():
        value = entrypoints.EntryPoint.from_string(target, name).load()
        monkeypatch.setitem(COMMANDS._registered, name, value)
    monkeypatch.setitem(eqsim.AGENTS._registered, "ppo", eqsim_zoo.PPO)
    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setitem(RUNS._registered, "zoo", view_run)
    monkeypatch.setattr(eqsim.ENVS, "_registered", {})
    shutil.copy(FILE, tmp_path)
    yield tmp_path
    sys.modules.pop("swing_up", None)


def _fewer(text):
    for old, new in FEWER.items():
        text = text.replace(old, new)
    return text


def _python():
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_code(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    namespace = {}
    # With JAX's default settings.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for block in (FILE.read_text(), *_python()):
            exec(compile(_fewer(block), "your_own_task.md", "exec"), namespace)
        assert namespace["trajectory"].obs["angle"].shape == (200, 2)
        assert type(namespace["env"]) is namespace["SwingUp"]


@pytest.mark.slow
def test_commands(folder, capsys):
    """All commands of the page, in their order; a run started in Python is one of the
    command line without its recipe."""
    lines = [_fewer(line) for line in COMMAND.findall(PAGE.replace("\\\n", ""))]
    assert sum(line.startswith("eqsim train") for line in lines) == 1
    assert len(lines) >= 7
    agent = eqsim_zoo.PPO(num_envs=64)
    sys.path.append(str(folder))
    plan = dict(steps=4096, episode_length=20, turns=2, evaluations=1, pool_size=8)
    env = eqsim.make("swing_up:SwingUp")
    eqsim_zoo.train(eqsim_zoo.Run(agent, env, **plan), out="runs/python")
    for line in lines:
        assert main(line.split()[1:]) == 0, f"{line}: {capsys.readouterr().err}"
