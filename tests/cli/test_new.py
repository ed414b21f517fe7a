"""`eqsim plugins new`: what it writes works as it is written."""

import os
import subprocess
import sys
import venv

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from helpers import tree_allclose
from packages import publish
from zoo.agents import act, init, iterate

import eqsim
from eqsim._cli import main
from eqsim.testing import probes


KINDS = {"env": eqsim.ENVS, "pipeline": eqsim.PIPELINES, "agent": eqsim.AGENTS}


def new(capsys, *argv):
    status = main(["plugins", "new", *map(str, argv)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def written(tmp_path, capsys, monkeypatch):
    """Writes a package, and makes it known as an installation would."""
    names = []

    def write(name, kind):
        status, out, err = new(capsys, name, "--kind", kind, "--out", tmp_path)
        assert (status, err) == (0, "") and f"pip install -e '{tmp_path / name}" in out
        folder = tmp_path / name
        monkeypatch.syspath_prepend(folder / "src")
        project = (folder / "pyproject.toml").read_text()
        (module,) = [path.name for path in (folder / "src").iterdir()]
        table = f'[project.entry-points."{KINDS[kind].group}"]\n'
        line = project.partition(table)[2].partition("\n")[0]
        key, _, target = line.partition(" = ")
        publish(
            folder / "src", name, {key: target.strip('"')}, "0.1", KINDS[kind].group
        )
        names.append(module)
        KINDS[kind].refresh()
        return folder, KINDS[kind].get(module)

    yield write
    monkeypatch.undo()
    for registry in KINDS.values():
        registry.refresh()
    for name in names:
        sys.modules.pop(name, None)


def test_files(capsys, tmp_path):
    """Complete, clean, and nothing is written over."""
    for kind, name in (
        ("env", "my-robot"),
        ("pipeline", "My.Fine_one"),
        ("agent", "me"),
    ):
        folder = tmp_path / "deep" / name
        assert new(capsys, name, "--kind", kind, "--out", folder.parent)[0] == 0
        module = name.lower().replace("-", "_").replace(".", "_")
        files = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
        assert files == {
            "pyproject.toml",
            "README.md",
            f"src/{module}/__init__.py",
            f"src/{module}/py.typed",
            f"tests/test_{module}.py",
        } | {name for name in files if name.endswith("egg-info")}
        assert "$" not in "".join(
            path.read_text() for path in folder.rglob("*.*") if path.is_file()
        )
        before = (folder / "README.md").read_text()
        status, _, err = new(capsys, name, "--kind", "env", "--out", folder.parent)
        assert status == 1 and "exists already" in err
        assert (folder / "README.md").read_text() == before
    for command in (["check"], ["format", "--check"]):
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout


# Refused names, and words of the reason and of the advice.
NAMES = {
    "1robot": ("'my-1robot'",),
    "a/b": ("ASCII", "'my-a-b'"),
    "-x": (),
    "größe": ("ASCII",),
    "ant": ("environment 'ant'", "'my-ant'"),
    "class": ("keyword",),
    "json": ("module 'json'",),
    "EQsim": ("module 'eqsim'",),
    "Bool": ("class",),
    "jaxtyping": ("installed",),
}


def test_refused_names(capsys, tmp_path):
    for name, words in NAMES.items():
        status, _, err = new(capsys, name, "--kind", "env", "--out", tmp_path)
        assert status == 2 and not list(tmp_path.iterdir())
        assert all(part in err for part in words), err


def test_advice_is_accepted(capsys, tmp_path, monkeypatch):
    """Names that are taken are not advised either."""
    for name in ("my_robot", "my_robot_2"):
        monkeypatch.setitem(eqsim.ENVS._registered, name, eqsim.ENVS.get("ant"))
    status, _, err = new(capsys, "my-robot", "--kind", "env", "--out", tmp_path)
    assert status == 2 and "Try 'my-robot-3'" in err
    assert new(capsys, "my-robot-3", "--kind", "env", "--out", tmp_path)[0] == 0


def test_env(written):
    """It is found by name, and its derivatives are those of a pendulum that falls."""
    _, cls = written("my-arm", "env")
    env = eqsim.make("my_arm")
    assert type(env) is cls and isinstance(env, eqsim.AbstractTask)
    state, timestep = eqx.filter_jit(env.reset)(jr.key(0))
    assert set(timestep.terms) == {"upright", "ctrl"} and timestep.obs.shape == (3,)
    step = eqx.filter_jit(env.step)
    state, _ = env.reset(jr.key(0), {"q": jnp.array([0.1]), "qd": jnp.zeros(1)})
    new, timestep = step(state, jnp.zeros(1))
    assert new.q[0] > 0.1 and not timestep.terminated
    assert jnp.allclose(timestep.reward, jnp.cos(new.q[0]), rtol=1e-9)
    fast = eqx.tree_at(lambda state: state.qd, state, jnp.array([40.0]))
    assert step(fast, jnp.zeros(1))[1].terminated
    lost = eqx.tree_at(lambda state: state.qd, state, jnp.array([jnp.nan]))
    assert env.terminated(lost)


def test_pipeline(written):
    """It takes more, shorter steps; one of them is a step of `Generalized`."""
    _, cls = written("my-steps", "pipeline")
    env = eqsim.make("point_mass", pipeline="my_steps")
    assert type(env.pipeline) is cls
    sys_, plain = env.sys, eqsim.Generalized()
    start = plain.init(sys_, jnp.array([0.2]), jnp.array([-0.3]))
    ctrl = jnp.array([0.7])
    step = lambda pipeline: eqx.filter_jit(pipeline.step)(sys_, start, ctrl)
    assert tree_allclose(step(cls(substeps=1)), step(plain), rtol=1e-12, atol=1e-12)
    n, gain = 4, 0.1 * 3 * 0.7 / 2  # See `eqsim.envs.PointMass`.
    expected = 0.2 - 0.3 * 0.1 + (n + 1) / (2 * n) * 0.1 * gain
    assert jnp.allclose(step(cls(substeps=n)).q, expected, rtol=1e-9)
    force = cls().constraint_forces(sys_, start, ctrl)
    assert force.shape == (1,) and not force.any()
    with pytest.raises(ValueError, match="`substeps` must be at least 1, got 0"):
        cls(substeps=0)


def test_agent(written):
    """It finds that the best action is the observation; its actions are between the
    bounds of the motor."""
    _, cls = written("my-search", "agent")
    probe = probes.observed_action_reward()
    assert eqsim.AGENTS.get("my_search") is cls
    agent = cls(num_envs=32, unroll_length=8, hidden=(16,), learning_rate=1e-2)
    state = init(agent, jr.key(0), probe)
    for _ in range(100):
        state, metrics = iterate(agent, state, probe)
    assert metrics["steps"] == 32 * 8 and state.steps == 100 * 32 * 8
    assert probe.mean_reward(lambda obs: act(agent, state, obs)) > 0.9
    obs = jnp.array([0.1, -0.1])
    assert not jnp.array_equal(
        act(agent, state, obs), act(agent, state, obs, jr.key(1))
    )
    acts = jax.vmap(lambda key: act(agent, state, 100.0 * obs, key))
    actions = acts(jr.split(jr.key(2), 50))
    low, high = probe.action_range[0]
    assert low <= actions.min() < actions.max() <= high
    with pytest.raises(
        ValueError, match="`MySearch.num_envs` must be an integer of at least 1"
    ):
        cls(num_envs=0)
    with pytest.raises(ValueError, match="`MySearch.discount` must be in"):
        cls(discount=1.5)


def run_tests(folders, *args):
    """Run written tests as they are, in a process with the settings of JAX that users
    have: single precision, loose promotion."""
    paths = [str(folder / "src") for folder in folders] + sys.path
    command = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, *command, *map(str, folders), *args],
        capture_output=True,
        text=True,
        cwd=folders[0],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_written_tests(written):
    """Without the laws of the conformance kit, except one, and without learning."""
    folders = [written(f"my-{kind}", kind)[0] for kind in KINDS]
    out = run_tests(folders, "-k", "MyEnv-precision or not (conformance or learns)")
    assert "6 passed" in out


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_written_tests(written, kind):
    assert " passed" in run_tests([written(f"my-{kind}", kind)[0]], "-k", "not name")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_installed(capsys, tmp_path, kind):
    """As a user does it: `pip install -e`, its own tests, the conformance kit."""
    assert new(capsys, "my-thing", "--kind", kind, "--out", tmp_path)[0] == 0
    home = tmp_path / "venv"
    venv.create(home)
    folder = tmp_path / "my-thing"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for command in (
        ["pip", "install", "--no-deps", "-e", str(folder)],
        ["pytest", "-q", "-n", "0", str(folder)],
    ):
        run = subprocess.run(
            [home / "bin" / "python", "-m", *command],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
        )
        assert run.returncode == 0, run.stdout + run.stderr
