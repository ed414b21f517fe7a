"""Environments that are named by the place of their class: `module:object`."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from toys import Rail

import eqsim
from eqsim._cli import main
from eqsim.envs import is_import_path
from eqsim.plugins import RUNS


TASK = """
from toys import Rail

made = []

class Mine(Rail):
    def observe(self, state, action):
        return {"q": state.q, "more": {"qd": state.qd}}

def long(n=3):
    made.append(n)
    return Mine(n)

def wrong():
    return 3
"""


@pytest.fixture
def task(monkeypatch, tmp_path):
    """A file in the current folder, which is not on the path of Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(eqsim.ENVS, "_registered", {"rail": Rail})
    (tmp_path / "my_task.py").write_text(TASK)
    yield
    sys.modules.pop("my_task", None)


def run(capsys, line):
    status = main(line.split())
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())


def test_names():
    assert is_import_path("toys:Rail") and is_import_path("a.b.c:make")
    plugins = "ant", "eqsim:ant", "some-package:ant", "a/b:c", "a:b.c", ":c", "a:"
    assert not any(map(is_import_path, plugins))


def test_make():
    assert isinstance(eqsim.make("toys:Rail"), Rail)
    assert eqsim.make("toys:Rail", n=3).sys.nq == 3
    with pytest.raises(TypeError, match="'toys:Rail' has no option 'm'"):
        eqsim.make("toys:Rail", m=3)
    with pytest.raises(TypeError, match="makes an object of type `System`"):
        eqsim.make("toys:rails")
    with pytest.raises(ValueError, match="'toys' has no class or function 'Rai'.*Rail"):
        eqsim.make("toys:Rai")
    with pytest.raises(ValueError, match="no module 'toyz'.*`toyz.py`.*PYTHONPATH"):
        eqsim.make("toyz:Rail")


def test_commands(capsys, task, tmp_path):
    """Observations are a dictionary, in a dictionary."""
    status, out, err = run(capsys, "show my_task:Mine")
    assert status == 0 and "observation more qd 2 q 2 action" in out, err
    assert run(capsys, "show my_task:long")[0] == 0
    line = "rollout my_task:long --num-envs 3 --length 4"
    status, out, err = run(capsys, line)
    assert status == 0, err
    with np.load("out/rollout.npz") as file:
        np.testing.assert_array_equal(file["observations/q"], file["q"])
        np.testing.assert_array_equal(file["observations/more/qd"], file["qd"])
        assert file["next_observations/q"].shape == (3, 4, 3)
    assert run(capsys, "view my_task:Mine --length 3 --export a.html")[0] == 0
    for line, text in {
        "show my_task:Min": "no class or function 'Min'. Known: Mine, long, wrong.",
        "show my_tusk:Mine": "Python finds no module 'my_tusk'",
        "show my_task:wrong": "makes an object of type `int`",
    }.items():
        status, _, err = run(capsys, line)
        assert status == 2 and text in err


def test_conformance(capsys, task, monkeypatch):
    """The checks themselves are tested elsewhere."""
    monkeypatch.setattr("eqsim._cli._plugin_commands.checks_of", lambda value: [])
    status, out, _ = run(capsys, "plugins check my_task:Mine")
    assert status == 0 and "passed env is made without options" in out


def test_files_import_nothing(capsys, task, tmp_path):
    """A recording names a module, which is imported only if the user names it."""
    arrays = {"q": np.zeros((1, 4, 2)), "dt": np.array(0.1)}
    np.savez("a.npz", allow_pickle=False, env=np.array("my_task:Mine"), **arrays)
    status, _, err = run(capsys, "view a.npz --export a.html")
    assert status == 2 and "if you trust this one, pass `--env my_task:Mine`" in err
    assert "my_task" not in sys.modules
    assert run(capsys, "view a.npz --env my_task:Mine --export a.html")[0] == 0
    assert "my_task" in sys.modules
    status, _, err = run(capsys, "view rail --env my_task:Mine --export a.html")
    assert status == 2 and "`--env` is for runs and recordings" in err


def test_view_passes_the_name_to_readers(capsys, task, monkeypatch, tmp_path):
    def reader(folder, env="rail"):
        return eqsim.make(env), lambda obs, key: jnp.zeros(2)

    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setitem(RUNS._registered, "reader", reader)
    line = f"view {tmp_path} --length 3 --export a.html"
    assert run(capsys, line)[0] == 0 and "my_task" not in sys.modules
    assert run(capsys, f"{line} --env my_task:Mine")[0] == 0
    assert "my_task" in sys.modules
