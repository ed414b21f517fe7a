"""The command `eqsim`, within this process."""

import importlib.util
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

import eqsim
from eqsim import randomize
from eqsim._cli import main
from eqsim._cli._simulation_commands import RandomPolicy
from eqsim.plugins import Plugin
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


def looping(n: int = 2):
    """An environment that resets itself, and does not let one choose the physics."""
    return AutoReset(TimeLimit(Rail(n), 7))


@pytest.fixture
def rail(monkeypatch):
    """Two environments of someone else's."""
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setitem(eqsim.ENVS._registered, "looping", looping)


def run(capsys, *argv):
    """The exit status, and what was printed, on one line each."""
    status = main(argv)
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())


def test_help(capsys):
    status, out, err = run(capsys)
    assert status == 0 and not err
    assert all(command in out for command in ("list", "show", "rollout", "plugins"))
    status, out, _ = run(capsys, "rollout", "--help")
    assert status == 0 and "--num-envs" in out and "--randomize" in out


def test_list(capsys, monkeypatch):
    """Other packages are named, and not imported for it."""
    plugins = eqsim.ENVS.plugins()
    foreign = Plugin("far", "no_such_module:Env", "third-party", "1.2", "Far away.")
    odd = Plugin("odd", "no such: target", "odd-one", "0.1")
    monkeypatch.setitem(plugins, "far", foreign)
    monkeypatch.setitem(plugins, "odd", odd)
    monkeypatch.setattr(eqsim.ENVS, "_errors", {})
    status, out, err = run(capsys, "list")
    assert status == 0
    for name in (*eqsim.ENVS.names(), *eqsim.PIPELINES.names(), *randomize.presets()):
        assert name in out
    assert "far third-party Far away." in out
    assert "odd odd-one broken, see below" in out and "no such: target" in err
    assert "no_such_module" not in err
    status, _, err = run(capsys, "show", "far")
    assert status == 1 and "third-party 1.2" in err and "no_such_module" in err


def test_show(capsys, rail):
    status, out, _ = run(capsys, "show", "point_mass", "--pipeline", "spring")
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
    status, out, _ = run(capsys, "show", "looping")
    assert status == 0 and "Rail in TimeLimit in AutoReset" in out
    assert "motor0 [-2, 3]" in out and "observation 4" in out


def test_show_descriptor(capsys, monkeypatch):
    make = lambda: eqsim.wrappers.TorsoPosition(Rail(), 5.0)
    monkeypatch.setitem(eqsim.ENVS._registered, "placed", make)
    status, out, _ = run(capsys, "show", "eqsim:point_mass")
    assert status == 0 and "PointMass" in out
    status, out, _ = run(capsys, "show", "placed")
    assert status == 0 and "descriptor x [-5, 5] y [-5, 5]" in out


WRONG = {
    "show antt": "no environment 'antt'. Did you mean 'ant'",
    "show point_mass --pipeline sprong": "no pipeline 'sprong'. Did you mean 'spring'",
    "show looping --pipeline spring": "has no option 'pipeline'",
    "rollout point_mass --randomize hardd": "randomization 'hardd'. Did you mean 'hard'",
    "rollout point_mass --num-envs 0": "`--num-envs` must be at least 1, got 0",
    "rollout point_mass --length -3": "`--length` must be at least 1, got -3",
    "rollout looping --randomize hard": "'looping' resets itself (`AutoReset`)",
    "rollout point_mass --num-envs x": "--num-envs",
    "rollout": "ENV",
    "roll": "roll",
    "plugins lst": "lst",
    "plugins list --timeout 0": "`--timeout` must be positive, got 0.0",
    "plugins show antt": "no plugin 'antt'. Did you mean 'ant'",
    "plugins show ant --kind pipeline": "no pipeline 'ant'",
    "plugins check ant --kind robot": "robot",
    "plugins new my-robot": "--kind",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments(capsys, rail, line, tmp_path, monkeypatch):
    """Status 2 and a sentence, before anything is computed or written."""
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *line.split())
    assert status == 2 and WRONG[line] in err and "Traceback" not in err
    assert not out and not list(tmp_path.iterdir())


def test_missing_packages(capsys, monkeypatch):
    find = importlib.util.find_spec
    missing = lambda name: None if name == "tyro" else find(name)
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    status, out, err = run(capsys, "list")
    assert status == 1 and not out
    assert "needs tyro" in err and "pip install 'eqsim[cli]'" in err


def test_unwritable(capsys, rail, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, "rollout", "rail", "--out", f"{tmp_path}/file/x")
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
def test_rollout(capsys, rail, tmp_path, name, preset):
    """The numbers are those of `eqsim.rollout`, and the table is of them."""
    line = f"rollout {name} --num-envs 5 --length 12 --seed 3 --out {tmp_path}/a/b.npz"
    options = () if preset is None else ("--randomize", preset)
    status, out, err = run(capsys, *line.split(), *options)
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


def test_rollout_of_fast(capsys, tmp_path):
    """Another pipeline, one environment, and motors without bounds."""
    line = f"rollout point_mass --pipeline positional --num-envs 1 --length 4 --out {tmp_path}/x"
    status, out, _ = run(capsys, *line.split())
    assert status == 0 and "1 environments" not in out.split("wrote")[1]
    with np.load(tmp_path / "x.npz") as file:
        assert file["observations"].shape == (1, 4, 2)
        assert np.array_equal(
            file["observations"][:, 1:], file["next_observations"][:, :3]
        )
    assert (tmp_path / "x.png").exists() and not (tmp_path / "x.gif").exists()


def test_no_episode_has_ended(capsys, rail, tmp_path):
    line = f"rollout looping --num-envs 2 --length 3 --out {tmp_path}/x"
    status, out, _ = run(capsys, *line.split())
    assert status == 0 and "none has ended" in out and "length 3 0" in out


@needs_opengl
@pytest.mark.slow
def test_animation(capsys, rail, tmp_path):
    line = f"rollout rail --num-envs 2 --length 5 --picture --out {tmp_path}/x"
    status, out, _ = run(capsys, *line.split(), "--randomize", "masses")
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


def test_numbers_that_are_too_large(capsys):
    """One message instead of a traceback."""
    for argv in (("--length", "9" * 30), ("--seed", "9" * 30)):
        status, _, err = run(capsys, "rollout", "point_mass", *argv)
        assert status == 2 and "too large" in err


def test_a_command_restores_the_warnings_of_its_caller(capsys):
    """Hook and filters are those from before, also after an error."""
    before = warnings.showwarning, list(warnings.filters)
    for argv in (("list",), ("show", "no_such_environment")):
        run(capsys, *argv)
        assert (warnings.showwarning, list(warnings.filters)) == before


@pytest.mark.parametrize("words", (["--help"], ["plugins", "list", "--json"]))
@pytest.mark.quick_cases("words1")
def test_closed_pipe_prints_no_message(words):
    """As in `eqsim --help | head -1`, when `head` has read its line and exited."""
    code = f"import sys; from eqsim._cli import main; sys.exit(main({words}))"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=pipe, stderr=pipe
    ) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait() == 1
