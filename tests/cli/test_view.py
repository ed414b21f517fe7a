"""`eqsim view`, within this process."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from toys import Rail
from viewer_models import POINT

import eqsim
from eqsim import viewer
from eqsim._cli import main
from eqsim.plugins import RUNS


@pytest.fixture(autouse=True)
def names(monkeypatch, tmp_path):
    """An environment, and a folder to run in."""
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setattr(viewer.Viewer, "wait", lambda _: pytest.fail("a page opened"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "point.xml").write_text(POINT)


def run(capsys, line):
    """The exit status, and what was printed, on one line each."""
    status = main(line.split())
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())


def exported(monkeypatch):
    """What `export` is called with; it writes nothing."""
    calls = []

    def export(robot, trajectory, path, **options):
        calls.append((robot, trajectory, path, options))
        return viewer.Page("<html></html>")

    monkeypatch.setattr("eqsim._cli._view_command.export", export)
    return calls


def test_an_environment_and_its_recording(capsys, monkeypatch, tmp_path):
    calls = exported(monkeypatch)
    line = "view rail --num-envs 2 --randomize masses --length 4 --export a.html --dark"
    status, out, err = run(capsys, line)
    assert (status, err) == (0, "") and "wrote a.html" in out
    robot, trajectory, path, options = calls.pop()
    assert isinstance(robot, eqsim.DomainRandomization) and str(path) == "a.html"
    assert trajectory.action.shape[:2] == (2, 4) and options["dark"]
    mass = np.asarray(trajectory.state.changed.links.mass)
    assert not np.allclose(mass[0], mass[1])

    assert run(capsys, "rollout rail --num-envs 3 --length 5 --out r")[0] == 0
    assert run(capsys, "view r.npz --num-envs 2 --export b.html")[0] == 0
    robot, q, _, options = calls.pop()
    with np.load("r.npz") as file:
        np.testing.assert_array_equal(q, file["q"][:2])
        assert options["dt"] == float(file["dt"])
    status, _, err = run(capsys, "view r.npz --randomize masses")
    assert status == 2 and "does not apply to recordings" in err


def test_a_model_and_a_saved_robot(capsys, monkeypatch):
    calls = exported(monkeypatch)
    assert run(capsys, "view point.xml --length 5 --export a.html")[0] == 0
    env, trajectory, *_ = calls.pop()
    # A robot without a task does nothing, and falls.
    np.testing.assert_array_equal(trajectory.action, 0.0)
    assert np.all(np.diff(np.asarray(trajectory.state.q)[0, :, 0]) < 0.0)
    eqsim.save("robot.eqsim", env.sys)
    line = "view robot.eqsim --length 1 --pipeline spring --export a.html"
    assert run(capsys, line)[0] == 0
    spring = calls.pop()[0]
    assert spring.sys.geoms.names == env.sys.geoms.names
    assert isinstance(spring.pipeline, eqsim.Spring)


def test_the_folder_of_a_run(capsys, monkeypatch, tmp_path):
    calls = exported(monkeypatch)
    status, _, err = run(capsys, f"view {tmp_path}")
    assert status == 2 and "Install eqsim-zoo" in err

    def reader(folder):
        if not (tmp_path / "mine").exists():
            raise FileNotFoundError("not mine")
        assert folder == str(tmp_path)
        return Rail(), lambda obs, key: 0.25 * jnp.ones(2)

    monkeypatch.setitem(RUNS._registered, "reader", reader)
    status, _, err = run(capsys, f"view {tmp_path}")
    assert status == 2 and "reader: not mine" in err
    (tmp_path / "mine").touch()
    assert run(capsys, f"view {tmp_path} --length 3 --export a.html")[0] == 0
    np.testing.assert_array_equal(calls.pop()[1].action, 0.25)


@pytest.mark.parametrize(
    "line, text",
    [
        ("view nothing", "There is no environment 'nothing'"),
        ("view nothing.xml", "There is no file or folder 'nothing.xml'"),
        ("view runs/nothing", "There is no file or folder 'runs/nothing'"),
        ("view bad.xml", "Cannot load 'bad.xml'"),
        ("view bad.npz", "is neither a recording"),
        ("view . --pipeline spring", "does not apply to runs"),
        ("view point.xml --pipeline nothing", "There is no pipeline 'nothing'"),
        ("view rail --num-envs 0", "`--num-envs` must be at least 1, got 0"),
        ("view rail --randomize nothing", "preset of randomization"),
    ],
)
def test_what_makes_no_sense(capsys, tmp_path, line, text):
    (tmp_path / "bad.xml").write_text("<mujoco><nothing/></mujoco>")
    np.savez("bad.npz", allow_pickle=False, x=np.zeros(1))
    status, _, err = run(capsys, line)
    assert status == 2 and text in err


def test_the_page_is_served_until_it_is_closed(capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(viewer.Viewer, "wait", lambda self: opened.append(self.url))
    status, out, _ = run(capsys, "view point.xml --port 0")
    assert status == 0 and f"open {opened[0]} (Ctrl-C stops)" in out


def test_without_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    status, _, err = run(capsys, "view point.xml")
    assert status == 1 and "pip install 'eqsim[viewer]'" in err
