"""`eqsim list`, `show`, `rollout`, `control` and `view`."""

import importlib.util
import json
import subprocess
import sys
import warnings

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from opengl import needs_opengl
from PIL import Image
from toys import Rail
from viewer_models import POINT

import eqsim
from eqsim import randomize, viewer
from eqsim._cli._simulation_commands import RandomPolicy
from eqsim.plugins import Plugin, RUNS
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


def looping(n: int = 2):
    """An environment that resets itself, and does not let one choose the physics."""
    return AutoReset(TimeLimit(Rail(n), 7))


@pytest.fixture
def rail(monkeypatch):
    """Two environments of someone else's."""
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setitem(eqsim.ENVS._registered, "looping", looping)


def test_help(run):
    status, out, err = run()
    assert status == 0 and not err
    assert all(command in out for command in ("list", "show", "rollout", "plugins"))
    status, out, _ = run("rollout", "--help")
    assert status == 0 and "--num-envs" in out and "--randomize" in out


def test_list(run, monkeypatch):
    """Other packages are named, and not imported for it."""
    plugins = eqsim.ENVS.plugins()
    foreign = Plugin("far", "no_such_module:Env", "third-party", "1.2", "Far away.")
    odd = Plugin("odd", "no such: target", "odd-one", "0.1")
    monkeypatch.setitem(plugins, "far", foreign)
    monkeypatch.setitem(plugins, "odd", odd)
    monkeypatch.setattr(eqsim.ENVS, "_errors", {})
    status, out, err = run("list")
    assert status == 0
    for name in (*eqsim.ENVS.names(), *eqsim.PIPELINES.names(), *randomize.presets()):
        assert name in out
    assert "far third-party Far away." in out
    assert "odd odd-one broken, see below" in out and "no such: target" in err
    assert "no_such_module" not in err
    assert not set(out) & set("$\\`"), "markup in a terminal"
    status, _, err = run("show", "far")
    assert status == 1 and "third-party 1.2" in err and "no_such_module" in err


def test_show(run, rail, monkeypatch):
    status, out, _ = run("show", "eqsim:point_mass", "--pipeline", "spring")
    assert status == 0
    expected = (
        "point 2 kg",
        "pipeline Spring",
        "control step 0.1 s (10 Hz)",
        "observation 2",
        "motor [-inf, inf]",
        "ctrl + distance",
        "default",
        "total 2",
    )
    for text in expected:
        assert text in out, text
    status, out, _ = run("show", "looping")
    assert status == 0 and "Rail in TimeLimit in AutoReset" in out
    assert "motor0 [-2, 3]" in out and "observation 4" in out
    make = lambda: eqsim.wrappers.TorsoPosition(Rail(), 5.0)
    monkeypatch.setitem(eqsim.ENVS._registered, "placed", make)
    status, out, _ = run("show", "placed")
    assert status == 0 and "descriptor x [-5, 5] y [-5, 5]" in out


# Lines, and words of the message: the field, its value, or the remedy.
WRONG = {
    "show antt": "environment 'antt'. Did you mean 'ant'",
    "show point_mass --pipeline sprong": "'sprong'. Did you mean 'spring'",
    "show looping --pipeline spring": "no option 'pipeline'",
    "rollout point_mass --randomize hardd": "'hardd'. Did you mean 'hard'",
    "rollout point_mass --num-envs 0": "`--num-envs`",
    "rollout point_mass --length -3": "got -3",
    "rollout looping --randomize hard": "`AutoReset`",
    f"rollout point_mass --length {'9' * 30}": "too large",
    "rollout": "ENV",
    "roll": "command 'roll'. Did you mean 'rollout'",
    "trian ppo x": "command 'trian'. Did you mean 'train'",
    "control reacher --horizon 0": "`--horizon`",
    "control reacher --contact -1": "got -1.0",
    "control reacher --contact 0.1 --solver cem": "`--contact` requires `--solver ilqr`",
    "control reacher --samples 8": "leave out `--samples`",
    "view rail --length 5": "`--length` requires `--export`",
    "view rail --port 8081 --export a.html": "needs no `--port`",
    "view nothing": "environment 'nothing'",
    "view nothing.xml": "'nothing.xml'",
    "view runs/nothing": "'runs/nothing'",
    "view . --pipeline spring": "`--pipeline` does not apply to runs",
    "plugins lst": "lst",
    "plugins list --timeout 0": "got 0.0",
    "plugins show antt": "plugin 'antt'. Did you mean 'ant'",
    "plugins show ant --kind pipeline": "pipeline 'ant'",
    "plugins check ant --kind robot": "robot",
    "plugins new my-robot": "--kind",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments(run, rail, line, tmp_path, monkeypatch):
    """Status 2 and a sentence, before anything is computed or written."""
    monkeypatch.chdir(tmp_path)
    status, out, err = run(line)
    assert status == 2 and WRONG[line] in err and "Traceback" not in err
    assert not out and not list(tmp_path.iterdir())


def test_missing_packages(run, monkeypatch):
    find = importlib.util.find_spec
    missing = lambda name: None if name == "tyro" else find(name)
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    status, out, err = run("list")
    assert status == 1 and not out
    assert "needs tyro" in err and "pip install 'eqsim[cli]'" in err


def test_unwritable(run, rail, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = run("rollout", "rail", "--out", f"{tmp_path}/file/x")
    assert status == 1 and "file" in err


def expected_arrays(env, num_envs, length, seed):
    """What the docstring of the command says that it runs."""
    key_reset, key = jr.split(jr.key(seed))
    start = eqx.filter_vmap(env.reset)(jr.split(key_reset, num_envs))
    policy = RandomPolicy(env.action_range)
    keys = jr.split(key, num_envs)
    return eqsim.rollout(env, policy, keys, length, start=start)


@pytest.mark.parametrize("name, preset", [("rail", "masses"), ("looping", None)])
@pytest.mark.quick_cases("looping-None")
def test_rollout(run, rail, tmp_path, name, preset):
    """The numbers are those of `eqsim.rollout`, and the table is of them."""
    line = f"rollout {name} --num-envs 5 --length 12 --seed 3 --out {tmp_path}/a/b.npz"
    options = () if preset is None else ("--randomize", preset)
    status, out, err = run(*line.split(), *options)
    assert (status, err) == (0, "")
    env = looping()
    if preset is not None:
        change = randomize.presets()[preset]
        env = AutoReset(TimeLimit(DomainRandomization(Rail(), change), 12))
    expected = expected_arrays(env, 5, 12, 3)
    steps, robot = expected.timestep, env.physics(expected.state)
    with np.load(tmp_path / "a" / "b.npz") as file:
        got = dict(file)
    assert str(got.pop("env")) == name
    wanted = {
        "observations": expected.obs,
        "next_observations": steps.final_obs,
        "actions": expected.action,
        "rewards": steps.reward,
        "terminated": steps.terminated,
        "truncated": steps.truncated,
        "valid": expected.valid,
        "q": robot.q,
        "qd": robot.qd,
        "dt": env.dt,
        "terms/place": steps.terms["place"],
        "terms/ctrl": steps.terms["ctrl"],
    }
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert tree_allclose(got[key], np.asarray(value), rtol=1e-9, atol=1e-12), key
    mean = expected.episodes().mean()
    assert f"5 environments x 12 steps: {mean['episodes']} episodes ended" in out
    for key in ("return", "length", "place", "ctrl"):
        assert f"{key} {mean[key]:.4g}" in out
    _check_picture(tmp_path / "a" / "b.png")


def _check_picture(path):
    """There is something in all corners of a figure that can be read."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 400
    for half in np.array_split(pixels, 2):
        for part in np.array_split(half, 3, axis=1)[:2]:
            assert np.mean(part < 200) > 0.002


@needs_opengl
@pytest.mark.slow
def test_animation(run, rail, tmp_path):
    line = f"rollout rail --num-envs 2 --length 5 --picture --out {tmp_path}/x"
    status, out, _ = run(*line.split(), "--randomize", "masses")
    assert status == 0 and "x.gif" in out
    with Image.open(tmp_path / "x.gif") as image:
        assert image.n_frames == 5


def test_policy(getkey):
    """Uniform within bounds, normal without, and half of that with one."""
    inf = jnp.inf
    policy = RandomPolicy(
        jnp.array([[-2.0, 3.0], [-inf, inf], [1.0, inf], [-inf, -1.0]])
    )
    draw = eqx.filter_vmap(lambda key: policy(jnp.zeros(2), key))
    x = np.asarray(draw(jr.split(getkey(), 4000)))
    assert np.all(np.isfinite(x))
    assert x[:, 0].min() >= -2.0 and x[:, 0].max() <= 3.0
    assert x[:, 0].mean() == pytest.approx(0.5, abs=0.1)
    assert x[:, 0].std() == pytest.approx(5 / np.sqrt(12), rel=0.05)
    assert x[:, 1].mean() == pytest.approx(0.0, abs=0.06)
    assert x[:, 1].std() == pytest.approx(1.0, rel=0.05)
    assert x[:, 2].min() >= 1.0 and x[:, 3].max() <= -1.0


def test_a_command_restores_the_warnings_of_its_caller(run):
    """Hook and filters are those from before, also after an error."""
    before = warnings.showwarning, list(warnings.filters)
    for argv in (("list",), ("show", "no_such_environment")):
        run(*argv)
        assert (warnings.showwarning, list(warnings.filters)) == before


def test_closed_pipe_prints_no_message():
    """As in `eqsim plugins list | head -1`, when `head` has read its line and exited."""
    words = ["plugins", "list", "--json"]
    code = f"import sys; from eqsim._cli import main; sys.exit(main({words}))"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=pipe, stderr=pipe
    ) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 1


@pytest.mark.parametrize("solver", ("ilqr", "cem"))
@pytest.mark.quick_cases("cem")
def test_writes_a_plan(solver, run, rail, tmp_path):
    """The plan is better than its first guess; the page needs no other file."""
    file = tmp_path / "new" / "plan"
    options = ["--horizon", "10", "--steps", "5", "--out", str(file)]
    options += ["--samples", "16"] if solver == "cem" else []
    status, out, err = run("control", "rail", "--solver", solver, *options)
    assert status == 0, err
    report = json.loads(file.with_suffix(".json").read_text())
    assert report["cost"] < report["before"]
    with np.load(file.with_suffix(".npz"), allow_pickle=False) as arrays:
        assert arrays["q"].shape[0] == 11 and arrays["actions"].shape == (10, 2)
        assert np.all((arrays["actions"] >= -2.0) & (arrays["actions"] <= 3.0))
        np.testing.assert_allclose(arrays["rewards"].sum(), report["return"], rtol=1e-5)
        assert ("gains" in arrays) == (solver == "ilqr")
    page = file.with_suffix(".html").read_text()
    assert "data:image/png;base64," in page and 'src="http' not in page
    assert str(report["result"]) in page
    assert "plan.html" in out


@needs_opengl
@pytest.mark.slow  # Compiles once more, for pictures.
def test_animation_of_a_plan(run, tmp_path):
    file = tmp_path / "plan"
    options = "--solver", "mppi", "--horizon", "3", "--steps", "1", "--samples", "4"
    status, _, err = run(
        "control", "reacher", *options, "--picture", "--out", str(file)
    )
    assert status == 0, err
    with Image.open(file.with_suffix(".gif")) as image:
        assert image.n_frames == 4


@pytest.fixture
def view_names(monkeypatch, tmp_path):
    """An environment, and a folder to run in."""
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setattr(viewer.Viewer, "wait", lambda _: pytest.fail("a page opened"))
    monkeypatch.chdir(tmp_path)
    # A ball that falls, without contacts to compile.
    floor = '<geom name="floor" type="plane" size="0 0 1"/>'
    (tmp_path / "point.xml").write_text(POINT.replace(floor, ""))


def exported(monkeypatch):
    """What `export` is called with; it writes nothing."""
    calls = []

    def export(robot, trajectory, path, **options):
        calls.append((robot, trajectory, path, options))
        return viewer.Page("<html></html>")

    monkeypatch.setattr("eqsim._cli._view_command.export", export)
    return calls


def test_an_environment_and_its_recording(run, monkeypatch, tmp_path, view_names):
    calls = exported(monkeypatch)
    line = "view rail --num-envs 2 --randomize masses --length 4 --export a.html --dark"
    status, out, err = run(line)
    assert (status, err) == (0, "") and "wrote a.html" in out
    robot, trajectory, path, options = calls.pop()
    assert isinstance(robot, eqsim.DomainRandomization) and str(path) == "a.html"
    assert trajectory.action.shape[:2] == (2, 4) and options["dark"]
    mass = np.asarray(trajectory.state.changed.links.mass)
    assert not np.allclose(mass[0], mass[1])

    assert run("rollout rail --num-envs 3 --length 5 --out r")[0] == 0
    assert run("view r.npz --num-envs 2 --export b.html")[0] == 0
    robot, q, _, options = calls.pop()
    with np.load("r.npz") as file:
        np.testing.assert_array_equal(q, file["q"][:2])
        assert options["dt"] == float(file["dt"])
    status, _, err = run("view r.npz --randomize masses")
    assert status == 2 and "does not apply to recordings" in err


def test_a_model_and_a_saved_robot(run, monkeypatch, view_names):
    calls = exported(monkeypatch)
    assert run("view point.xml --length 5 --export a.html")[0] == 0
    env, trajectory, *_ = calls.pop()
    # A robot without a task does nothing, and falls.
    np.testing.assert_array_equal(trajectory.action, 0.0)
    assert np.all(np.diff(np.asarray(trajectory.state.q)[0, :, 0]) < 0.0)
    eqsim.save("robot.eqsim", env.sys)
    line = "view robot.eqsim --length 1 --pipeline spring --export a.html"
    assert run(line)[0] == 0
    spring = calls.pop()[0]
    assert spring.sys.geoms.names == env.sys.geoms.names
    assert isinstance(spring.pipeline, eqsim.Spring)


def test_the_folder_of_a_run(run, monkeypatch, tmp_path, view_names):
    calls = exported(monkeypatch)
    status, _, err = run(f"view {tmp_path}")
    assert status == 2 and "Install eqsim-zoo" in err

    def reader(folder):
        if not (tmp_path / "mine").exists():
            raise FileNotFoundError("not mine")
        assert folder == str(tmp_path)
        return Rail(), lambda obs, key: 0.25 * jnp.ones(2)

    monkeypatch.setitem(RUNS._registered, "reader", reader)
    status, _, err = run(f"view {tmp_path}")
    assert status == 2 and "reader: not mine" in err
    (tmp_path / "mine").touch()
    assert run(f"view {tmp_path} --length 3 --export a.html")[0] == 0
    np.testing.assert_array_equal(calls.pop()[1].action, 0.25)


def test_files_that_cannot_be_shown(run, view_names, tmp_path):
    (tmp_path / "bad.xml").write_text("<mujoco><nothing/></mujoco>")
    shape = '<collision><geometry><mesh filename="package://a/b.stl"/></geometry></collision>'
    (tmp_path / "bad.urdf").write_text(f"<robot><link name='a'>{shape}</link></robot>")
    np.savez("bad.npz", allow_pickle=False, x=np.zeros(1))
    for line, words in {
        "view bad.xml": "'bad.xml'",
        "view bad.urdf": "mesh files of collisions",
        "view bad.npz": "neither a recording",
        "view point.xml --pipeline nothing": "pipeline 'nothing'",
    }.items():
        status, _, err = run(line)
        assert status == 2 and words in err


def test_the_page_is_served_until_it_is_closed(run, monkeypatch, view_names):
    opened = []
    monkeypatch.setattr(viewer.Viewer, "wait", lambda self: opened.append(self.url))
    status, out, _ = run("view point.xml --port 0")
    assert status == 0 and f"open {opened[0]} (Ctrl-C stops)" in out


def test_viewer_without_the_extra(run, monkeypatch, view_names):
    monkeypatch.setitem(sys.modules, "viser", None)
    status, _, err = run("view point.xml")
    assert status == 1 and "pip install 'eqsim[viewer]'" in err
