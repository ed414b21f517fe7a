"""`eqsim train`, `resume`, `eval` and `runs`, within this process."""

import functools as ft
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import entrypoints
import equinox as eqx
import jax
import numpy as np
import pytest
from opengl import needs_opengl
from PIL import Image
from toys import Rail
from zoo.commands import PUBLISHED, run, SHORT
from zoo.search import Search
from zoo.skills import TINY

import eqsim
import eqsim_zoo as zoo
from eqsim.testing import probes
from eqsim_zoo import load_run
from eqsim_zoo._cli import view_run
from eqsim_zoo._cli._printing import console
from eqsim_zoo._cli._train_commands import (
    _note_annealing,
    _run,
    _start,
    agent_options,
    field_help,
    Names,
    Request,
)
from eqsim_zoo.runs import read_about, read_metrics, save_checkpoint
from eqsim_zoo.runs._presets import _TABLE
from eqsim_zoo.runs.folders import write_config
from eqsim_zoo.training.train_resume import ended


pytestmark = pytest.mark.usefixtures("names")
POINTS, AGENTS = PUBLISHED["eqsim.commands"], PUBLISHED["eqsim.agents"]


def test_help(capsys):
    status, out, err = run(capsys, "--help")
    assert status == 0 and not err
    names = {"train", "resume", "eval", "export", "record", "replay", "runs"}
    assert {*POINTS} == names
    assert all(name in out for name in (*POINTS, "list", "rollout"))
    for name in POINTS:
        status, out, _ = run(capsys, f"{name} --help")
        assert status == 0 and f"usage: eqsim {name}" in out
    status, out, _ = run(capsys, "runs")
    assert status == 0 and "compare" in out


def test_a_run(capsys, tmp_path):
    """Trained, made longer, evaluated and compared; `resume` knows all by name."""
    line = f"train search rail {SHORT} --rate 0.2 --num-envs 3 --seed 5"
    line += " --activation RELU"
    status, out, err = run(capsys, line)
    assert status == 0 and not err
    assert (
        "search on rail: 120 steps, with its defaults, as there is no preset, into "
        "runs/search-rail" in out
    )
    assert "100 % 120 steps" in out and "± (95 %)" in out
    folder = tmp_path / "runs" / "search-rail"
    config = json.loads((folder / "config.json").read_text())
    fields = config["agents"][0]["fields"]
    assert (fields["rate"], fields["activation"], fields["num_envs"]) == (
        0.2,
        "RELU",
        3,
    )
    assert config["run"]["seed"] == 5 and config["run"]["episode_length"] == 10
    status, _, err = run(capsys, line)
    assert status == 2 and "eqsim resume runs/search-rail" in err
    status, _, err = run(capsys, "resume runs/search-rail")
    assert status == 2 and "is complete: 120 of 120 steps" in err
    status, out, _ = run(capsys, "resume runs/search-rail --steps 60")
    assert status == 0 and "100 % 180 steps" in out
    status, out, _ = run(capsys, "eval runs/search-rail --episodes 3 --last")
    words = "Search on Rail, after 180 steps: 3 episodes of at most 10 steps"
    assert status == 0 and words in out
    status, out, _ = run(capsys, "eval runs/search-rail --episodes 3")
    best = read_about(folder / "best.ckpt")["counters"]["steps"]
    assert status == 0 and f"after {best} steps" in out
    env, policy = view_run(str(folder))
    agent, state = load_run(folder, best=True).member(0)
    _, timestep = env.reset(jax.random.key(0))
    expected = agent.act(state, timestep.obs)
    assert jax.numpy.array_equal(policy(timestep.obs, jax.random.key(1)), expected)
    status, out, _ = run(capsys, "runs compare runs/search-rail --out two.png")
    assert status == 0 and "search-rail 180" in out
    assert (tmp_path / "two.png").stat().st_size > 10_000


@needs_opengl
@pytest.mark.slow
def test_animations_of_a_run(capsys, tmp_path):
    """With `--video 2`: at the second of two evaluations, and when it is resumed."""
    line = f"train search rail {SHORT} --out run --video 2"
    assert run(capsys, line)[0] == 0
    names = lambda: sorted(x.name for x in (tmp_path / "run" / "videos").iterdir())
    assert names() == ["steps_0000000120.gif"]
    status, out, _ = run(capsys, "eval run --episodes 2 --picture")
    assert status == 0 and "wrote run/episode.gif" in out
    with Image.open(tmp_path / "run" / "episode.gif") as image:
        assert image.n_frames == 10
        assert image.info["duration"] == pytest.approx(1000 * float(Rail().dt), abs=10)
    assert run(capsys, "resume run --steps 40 --video 1")[0] == 0
    assert names() == ["steps_0000000120.gif", "steps_0000000160.gif"]
    status, _, err = run(capsys, "resume run --steps 40 --video -1")
    assert status == 2 and "`--video` must be at least 0, got -1" in err


def test_fields_of_the_agent_are_options(capsys, monkeypatch, tmp_path):
    """Typed, documented, with the values of the preset as defaults."""
    preset(monkeypatch, rate=0.7)
    status, out, _ = run(capsys, "train search rail --help")
    assert status == 0 and "--rate FLOAT (default: 0.7)" in out.replace("│ ", "")
    status, out, _ = run(capsys, "train search --help")
    assert status == 0 and "--rate FLOAT (default: 0.3)" in out.replace("│ ", "")
    fields = "--rate 1e-1 --bad-after=1e6 --num_envs 3 --sizes 4 5,6 --loud true"
    line = f"train --steps 60 search rail --turns 3 --pool-size 4 {fields} --out r"
    status, _, err = run(capsys, line)
    assert status == 0, err
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["agents"][0]["fields"] == {
        "rate": 0.1,
        "bad_after": 10**6,
        "anneal_steps": 0.0,
        "num_envs": 3,
        "unroll": 4,
        "sizes": [4, 5, 6],
        "activation": "TANH",
        "loud": True,
    }


def test_help_describes_fields(capsys):
    """From the docstrings, also of the base class and of what an agent holds."""
    status, out, _ = run(capsys, "train ppo rail --help")
    out = out.replace("│ ", "")
    assert "--discount FLOAT Discount gamma. (default: 0.99)" in out
    assert "--activation {ELU,RELU,SWISH,TANH} Nonlinearity of the hidden" in out
    status, out, _ = run(capsys, "train dads rail --help")
    out = out.replace("│ ", "")
    assert "--capacity INT, --sac.capacity INT Transitions in the replay." in out
    # Both DADS and its SAC have one.
    assert "--sac.learning-rate FLOAT Adam step size of actor and critic." in out
    status, out, _ = run(capsys, "train iql rail --help")
    assert "--expectile FLOAT, --agent.expectile FLOAT Expectile tau" in out.replace(
        "│ ", ""
    )


def test_every_field_is_described():
    for target in AGENTS.values():
        make = entrypoints.EntryPoint.from_string(target, "agent").load()
        agent = make()
        _, fields = agent_options(agent, make)
        assert len(fields) > 3
        for field in fields.values():
            *path, own = field.split(".")
            holder = ft.reduce(lambda x, name: vars(x)[name], path, agent)
            assert len(field_help(type(holder)).get(own, "")) > 3, (target, field)


@pytest.mark.slow  # `test_members_learn_as_by_themselves` is the quick one.
def test_a_sweep(capsys, tmp_path):
    line = f"train search rail {SHORT} --sweep rate=0.1,0.2 --num-seeds 2 --out s"
    line += " --option noise=0.05"
    status, out, _ = run(capsys, line)
    assert status == 0 and "2 settings, 2 seeds" in out and "into s" in out
    run_ = load_run(tmp_path / "s")
    fields = [(label["rate"], label["seed"]) for label in run_.members.labels()]
    assert fields == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    assert {row["member"] for row in read_metrics("s")} == {0, 1, 2, 3}
    status, out, _ = run(capsys, "runs compare s s")
    assert status == 0 and "s rate 0.1 (2 seeds)" in out and "s rate 0.2" in out
    assert (tmp_path / "compare.png").exists()
    status, out, _ = run(capsys, "eval s --episodes 2")
    assert status == 0 and "seed, rate return" in out and "1, 0.2" in out
    assert "Search on Rail with noise=0.05, after" in out
    assert "2 seeds, rate 0.1: interquartile mean" in out
    status, text, _ = run(capsys, "eval s --episodes 2 --json")
    found = json.loads(text)
    assert status == 0 and found["agent"] == "Search" and found["episodes"] == 2
    assert found["options"] == {"noise": 0.05}
    assert [(m["rate"], m["seed"]) for m in found["members"]] == fields
    for member in found["members"]:
        assert member["return"] == pytest.approx(np.mean(member["returns"]))
    for group, members in zip(
        found["groups"], (found["members"][:2], found["members"][2:])
    ):
        means = [m["return"] for m in members]
        assert group["seeds"] == [0, 1] and group["mean"] == pytest.approx(
            np.mean(means)
        )
        assert min(means) <= group["interval"][0] <= group["interval"][1] <= max(means)


@pytest.mark.slow
def test_skills(capsys, monkeypatch, tmp_path):
    """Trained by the name of a prior, and drawn."""
    tiny = ft.partial(zoo.DADS, sac=TINY, hidden=(8,))
    monkeypatch.setitem(eqsim.AGENTS._registered, "dads", tiny)
    monkeypatch.setitem(eqsim.ENVS._registered, "plane", probes.point_mass)
    line = "train dads plane --skills one_hot:3 --capacity 70 --num-envs 5"
    status, out, err = run(capsys, f"{line} {SHORT} --out r")
    assert status == 0, err
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["run"]["skills"] == "one_hot:3"
    assert config["agents"][0]["fields"]["sac.capacity"] == 70
    assert config["agents"][0]["fields"]["sac.num_envs"] == 5
    status, out, _ = run(capsys, "eval r --episodes 2")
    assert status == 0 and "3 skills in 3 episodes: reward" in out
    assert "% of the descriptors" in out
    assert (tmp_path / "r" / "skills.png").stat().st_size > 10_000
    (tmp_path / "r" / "skills.png").unlink()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        status, out, err = run(capsys, "eval r --episodes 7")
    assert status == 0, err
    assert "3 skills in 9 episodes: reward" in out and "wrote" not in out
    table, _, last = out.partition("No plot was written: ")
    assert "± (95 %)" in table and "pip install 'eqsim-zoo[cli]'" in last
    assert not (tmp_path / "r" / "skills.png").exists()
    last, best = load_run("r"), tmp_path / "r" / "best.ckpt"
    grown = lambda x: 3.0 * x if eqx.is_inexact_array(x) else x
    save_checkpoint(best, jax.tree.map(grown, last.state), read_about(best))
    env, policy = view_run("r")
    obs, (agent, state) = env.reset(jax.random.key(0))[1].obs, last.member(0)
    assert np.array_equal(policy(obs, jax.random.key(1)), agent.act(state, obs))
    status, _, err = run(capsys, f"train dads point_mass {SHORT} --out s")
    assert (
        status == 2
        and "but `PointMass` has none. These environments have one: ant_omni" in err
    )


def preset(monkeypatch, *, env_options=None, **settings):
    """Publish a preset of 64 steps for the tiny agent."""
    fixed = {"episode_length": 9, "pool_size": 3, "options": env_options or {}}

    def make(steps=64):
        end = {"anneal_steps": float(steps)} if "anneal_steps" in settings else {}
        return zoo.Run("search", "rail", steps, **fixed, settings=settings | end)

    monkeypatch.setitem(_TABLE, ("search", "rail"), make)


def test_presets_are_defaults(capsys, monkeypatch):
    """Of a run that is what it was, whatever becomes of the preset; additional steps at a
    learning rate of zero are reported."""
    preset(monkeypatch, rate=0.7, num_envs=4, anneal_steps=64.0)
    line = "train search rail --pool-size 4 --turns 6 --evaluations 2 --num-envs 2"
    status, out, err = run(capsys, line)
    assert status == 0 and "64 steps, by its preset" in out, err
    config = json.loads(pathlib.Path("runs/search-rail/config.json").read_text())
    fields = config["agents"][0]["fields"]
    assert fields["rate"] == 0.7 and fields["num_envs"] == 2
    assert config["run"]["episode_length"] == 9
    monkeypatch.delitem(_TABLE, ("search", "rail"))
    assert float(load_run("runs/search-rail").members.agent(0).rate) == 0.7
    status, out, err = run(capsys, "resume runs/search-rail --steps 32")
    assert status == 0 and "learning rate of this run is zero" in out, err


@pytest.mark.parametrize(
    "line",
    (
        "train search --rate 0.3 rail --steps 16 --anneal-steps 64",
        "train --out rail search --anneal-steps=64 --steps=16 --rate=0.3 rail",
    ),
)
def test_options_that_equal_defaults(capsys, monkeypatch, tmp_path, line):
    """Options count wherever they stand and whatever the preset says, also those that
    equal the defaults of the agent, or of the preset with its own number of steps. Size
    of the pool, which is not given, is that of the preset."""
    preset(monkeypatch, rate=0.7, anneal_steps=64.0)
    line = f"{line} --turns 1 --evaluations 0"
    assert run(capsys, line)[0] == 0
    (path,) = tmp_path.rglob("config.json")
    config = json.loads(path.read_text())
    fields = config["agents"][0]["fields"]
    assert fields["rate"] == pytest.approx(0.3) and fields["anneal_steps"] == 64.0
    assert config["run"]["steps"] == 16 and config["run"]["pool_size"] == 3


def test_presets_belong_to_names(monkeypatch):
    """And not to an environment of the user whose class or function has that name."""
    preset(monkeypatch, rate=0.7)
    found = lambda env: _start(Names("search", env, None, None, 32.0)).preset
    assert found("rail").steps == 32 and found("some_module:rail") is None


def test_options_of_a_preset_remain(monkeypatch):
    """Also entries of mappings, unless the option or the entry is given."""
    before = {"edge": 2.0, "commands": {"high": 1.0, "mean_time": 2.0}, "n": {"a": 1}}
    preset(monkeypatch, env_options=before)

    def merged(*given):
        return _run(Request("search", "rail", option=given), {})[0].options

    assert merged() == before
    changed = {"high": [1.5, 0.5], "mean_time": 2.0}
    given = 'commands={"high": [1.5, 0.5]}', "noise=0.2", "n=3"
    assert merged(*given) == before | {"commands": changed, "noise": 0.2, "n": 3}
    assert merged('edge={"x": 1}') == before | {"edge": {"x": 1}}
    assert before["commands"] == {"high": 1.0, "mean_time": 2.0}


@pytest.mark.parametrize("name", ("anneal_steps", "agent.anneal_steps"))
def test_rates_of_zero_are_noted(capsys, name):
    """Also those of agents that learn from a dataset."""
    config = {"agents": [{"fields": {name: 64.0}}], "run": {"steps": 64}}
    _note_annealing(console(), config, 1.0)
    assert "learning rate of this run is zero after 64 steps" in capsys.readouterr().out


WRONG = {
    "train": "AGENT",
    "train serch rail --steps 9": "search",
    "train search ral --steps 9": "'ral'",
    "train search rail": "--steps 1e6",
    "train search rail --steps x": "--steps",
    "train search rail --steps 0.5": "`steps` must be an integer of at least 1, got 0.5",
    "train search rail --steps 9 --rat 2": "--rate FLOAT",
    "train search rail --steps 9 --num-envs 1.5": "'1.5' is not an integer",
    "train search rail --steps 9 --loud maybe": "invalid choice 'maybe'",
    "train ppo rail --steps 9 --discount 1.5": "`PPO.discount` must be in [0, 1], got 1.5",
    "train iql rail --steps 9 --expectile 0.8": "--data FILE",
    "train iql rail --steps 9 --data f --batch-size 0.5": "'0.5' is not an integer",
    "train iql rail --steps 9 --data f --batch-size 2e1": "No dataset",
    "train iql rail --steps 9 --data f --batch-size None": "No dataset",
    "train search rail --steps 9 --sweep sizes=1,2": "sizes",
    "train search rail --steps 9 --sweep num_envs=1,2": "`num_envs` cannot be swept",
    "train search rail --steps 9 --sweep rate": "--sweep learning_rate=1e-4,1e-3",
    "train search rail --steps 9 --option length": "--option start=2.5",
    "train search rail --steps 9 --option a=1 --option a=2": "given twice",
    "train search rail --steps 9 --option lenth=2": "Cannot make 'rail'",
    "train search rail --steps 9 --randomize hrd": "'hard'",
    "train search rail --steps 9 --skills one_hot:5,least=3": "'least'",
    "train search rail --steps 9 --logger tensorbord": "tensorboard",
    "resume nothing": "'nothing' is not the folder of a run",
    "eval nothing --best --last": "`--best` and `--last`",
    "eval nothing --episodes 0": "`--episodes` must be at least 1",
    "runs compare": "run folder",
    "runs compare nothing": "Pass the folder of a run",
    "runs page nothing": "Pass the folder of a run",
    "runs list": "list",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments(capsys, tmp_path, line):
    """Status 2 and a sentence; nothing is written."""
    status, _, err = run(capsys, line)
    assert status == 2 and WRONG[line] in err
    assert not [*tmp_path.iterdir()]


def test_damaged_files(capsys, tmp_path):
    assert run(capsys, f"train search rail {SHORT} --out r")[0] == 0
    for name in ("last.ckpt", "best.ckpt"):
        data = (tmp_path / "r" / name).read_bytes()
        (tmp_path / "r" / name).unlink()
        (tmp_path / "r" / name).write_bytes(data[:-1])
    for line in ("eval r", "eval r --last", "resume r --steps 9"):
        status, _, err = run(capsys, line)
        assert status == 1 and ".ckpt' is damaged" in err and "Traceback" not in err


def test_numbers_that_are_not_finite(capsys):
    status, _, err = run(capsys, f"train search rail {SHORT} --bad-after 2")
    assert status == 1 and "`state.weight` became NaN or infinite in turn 2" in err
    assert "There was no checkpoint yet" in err and "Traceback" not in err


@pytest.mark.filterwarnings("default::eqsim_zoo.runs.EnvironmentWarning")
def test_trained_by_the_place_of_its_class(capsys):
    status, out, err = run(capsys, f"train search toys:Rail {SHORT} --rate 0.2 --out a")
    assert status == 0 and "search on toys:Rail" in out, err
    for line in ("eval a", "resume a --steps 60", "view a --export a.html"):
        status, _, err = run(capsys, line)
        assert status == 2 and "`--env toys:Rail`" in err
    status, out, err = run(capsys, "eval a --env toys:Rail --episodes 4 --json")
    assert status == 0 and not err
    assert json.loads(out)["env"] == "Rail"
    loaded = zoo.load_run("a", best=True, env="toys:Rail")
    found = zoo.evaluate(
        *loaded.member(0),
        loaded.environment(),
        jax.random.key(0),
        episodes=4,
        episode_length=10,
    )
    returns = json.loads(out)["members"][0]["returns"]
    np.testing.assert_allclose(returns, found.returns, rtol=1e-9)
    status, out, err = run(capsys, "eval a --env toys:Tracked --episodes 4 --json")
    assert "Tracked here" in err
    errors = json.loads(out)["members"][0]["tracking"]
    assert status == 0 and min(errors["v, m/s"], errors["x, m"]) > 0.0, err
    status, out, err = run(capsys, "resume a --steps 60 --env toys:Rail")
    assert status == 0 and "184 steps" in out, err
    status, _, err = run(capsys, "record toys:rails --policy a --out b.npz")
    assert status == 2


def test_started_in_python(capsys, tmp_path):
    """An environment that was given as an object has no name."""
    write_config(tmp_path, zoo.Run(Search(), Rail(), 9), False)
    status, _, err = run(capsys, "eval .")
    assert status == 2 and "`--env module:Class`" in err


class Parts(Rail):
    def observe(self, state, action):
        return {"q": state.q, "qd": state.qd}


@pytest.mark.slow  # `test_record.py` has rollouts with vectors.
def test_rollouts_with_dictionaries_are_datasets(capsys, monkeypatch):
    monkeypatch.setitem(eqsim.ENVS._registered, "parts", Parts)
    assert run(capsys, "rollout parts --num-envs 3 --length 5 --out a")[0] == 0
    data = zoo.data.load_data("a.npz", clip=True)
    with np.load("a.npz") as file:
        rows = file["observations/qd"].reshape(-1, 2)[file["valid"].reshape(-1)]
    batch = data.sample(jax.random.key(0), 64)
    found = np.asarray(batch.obs["qd"])
    assert {*batch.obs} == {"q", "qd"} and found.shape == (64, 2)
    assert all(np.any(np.all(row == rows, axis=1)) for row in found)


def test_interrupted_run_says_how_to_resume(capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        result = zoo.train(*args, **kwargs)
        raise ended(signal.SIGINT, result)

    monkeypatch.setattr("eqsim_zoo._cli._train_commands.train", interrupted)
    status, out, err = run(capsys, f"train search toys:Rail {SHORT} --out a")
    assert status == 130, err
    assert "Resume with `eqsim resume a --env toys:Rail`." in out


class Unregistered(Search):
    """An agent that no plugin publishes."""


def test_agent_that_is_not_registered(capsys, tmp_path):
    write_config(tmp_path, zoo.Run(Unregistered(), Rail(), 9), False)
    status, _, err = run(capsys, "eval . --env toys:Rail")
    assert status == 2 and "no agent of the class 'Unregistered'" in err
    assert "Pass the `agent`" in err


CODE = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
from toys import Rail
from zoo.search import Search
import eqsim
from eqsim._cli import main
from eqsim.plugins import COMMANDS, RUNS
from eqsim_zoo import _cli
COMMANDS.register("train", _cli.train_agent, replace=True)
eqsim.AGENTS.register("search", Search)
eqsim.ENVS.register("rail", Rail)
sys.exit(main(sys.argv[1:]))
"""


def started(folder, options, turns):
    """A run in a process of its own, once it has taken some turns."""
    tests = str(pathlib.Path(__file__).parents[1])
    path = [tests, *filter(None, [os.environ.get("PYTHONPATH")])]
    line = [*f"train search rail {options} --out".split(), str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *line],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    rows, begin = folder / "metrics.jsonl", time.monotonic()
    while not rows.exists() or rows.read_text().count("\n") < turns:
        assert process.poll() is None and time.monotonic() - begin < 60
        time.sleep(0.002)
    return process


@pytest.mark.slow  # `test_resume.py` sends one signal, within the process.
def test_ctrl_c_twice(capsys, tmp_path):
    """In the middle of a turn that would take an hour. Meanwhile nobody else may write."""
    options = "--steps 1e9 --episode-length 10 --pool-size 4 --turns 1"
    process = started(tmp_path / "a", options, 1)
    status, _, err = run(capsys, "resume a")
    assert status == 2 and "Another process is writing to the run in 'a'" in err
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while "Stopping after this turn" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == -signal.SIGINT
    process.stdout.close()
