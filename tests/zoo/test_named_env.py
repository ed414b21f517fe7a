"""Runs whose environment has no name: `--env` of the commands that read runs."""

import json
import pathlib
import signal
import tomllib
import warnings

import entrypoints
import jax
import numpy as np
import pytest
from toys import Rail
from zoo.search import Search

import eqsim
import eqsim_zoo as zoo
from eqsim._cli import main
from eqsim._registry import COMMANDS, RUNS
from eqsim_zoo._cli import view_run
from eqsim_zoo.runs import EnvironmentWarning
from eqsim_zoo.training._train import ended


ZOO = pathlib.Path(__file__).parents[2] / "zoo" / "pyproject.toml"
POINTS = tomllib.loads(ZOO.read_text())["project"]["entry-points"]["eqsim.commands"]
SHORT = "--steps 120 --episode-length 10 --pool-size 4 --turns 6 --evaluations 2"
PLAN = dict(
    steps=120, episode_length=10, pool_size=4, turns=6, evaluations=2, num_seeds=2
)


@pytest.fixture(autouse=True)
def names(monkeypatch, tmp_path):
    for name, target in POINTS.items():
        value = entrypoints.EntryPoint.from_string(target, name).load()
        monkeypatch.setitem(COMMANDS._registered, name, value)
    monkeypatch.setitem(eqsim.AGENTS._registered, "search", Search)
    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setitem(RUNS._registered, "zoo", view_run)
    monkeypatch.chdir(tmp_path)


def run(capsys, line):
    status = main(line.split())
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())


def test_trained_by_the_place_of_its_class(capsys):
    status, out, err = run(capsys, f"train search toys:Rail {SHORT} --rate 0.2 --out a")
    assert status == 0 and "search on toys:Rail" in out, err
    for line in ("eval a", "resume a --steps 60", "view a --export a.html"):
        status, _, err = run(capsys, line)
        assert status == 2 and "pass" in err and "`--env toys:Rail`" in err
    with pytest.raises(ValueError, match=r"`env=eqsim.make\('toys:Rail'\)`"):
        zoo.load_run("a")
    status, out, err = run(capsys, "eval a --env toys:Rail --episodes 4 --json")
    assert status == 0 and not err
    assert json.loads(out)["env"] == "Rail"
    loaded = zoo.load_run("a", best=True, env=eqsim.make("toys:Rail"))
    found = zoo.evaluate(
        loaded.members.agent(0),
        loaded.state,
        loaded.environment(),
        jax.random.key(0),
        episodes=4,
        episode_length=10,
    )
    returns = json.loads(out)["members"][0]["returns"]
    np.testing.assert_allclose(returns, found.returns, rtol=1e-9)
    status, out, err = run(capsys, "resume a --steps 60 --env toys:Rail")
    assert status == 0 and "184 steps" in out, err
    line = "view a --env toys:Rail --length 3 --export a.html"
    assert run(capsys, line)[0] == 0
    line = "record toys:Rail --policy a --steps 40 --episodes 4 --out a.npz"
    status, out, err = run(capsys, line)
    assert status == 0 and "40 steps" in out, err
    status, _, err = run(capsys, "record toys:rails --policy a --out b.npz")
    assert status == 2


def test_started_in_python(capsys):
    agents = [Search(), Search(rate=1.0)]
    zoo.train(zoo.Run(agents, Rail(), **PLAN), out="a")
    status, _, err = run(capsys, "eval a")
    assert status == 2 and "started in Python" in err and "`--env module:Class`" in err
    status, out, err = run(capsys, "eval a --env toys:Rail --episodes 4 --json")
    assert status == 0, err
    members = json.loads(out)["members"]
    assert [(x["seed"], x["rate"]) for x in members] == [
        (0, agents[0].rate.item()),
        (1, agents[0].rate.item()),
        (0, 1.0),
        (1, 1.0),
    ]
    status, out, err = run(capsys, "resume a --env toys:Rail --steps 60")
    assert status == 0 and "184 steps" in out, err
    line = "record toys:Rail --policy a --steps 40 --episodes 4 --out a.npz"
    assert run(capsys, line)[0] == 0


def test_another_environment_than_trained(capsys, monkeypatch):
    monkeypatch.setitem(eqsim.ENVS._registered, "wide", lambda: Rail(edge=9.0))
    zoo.train(zoo.Run(Search(), Rail(), **PLAN), out="a")
    with pytest.warns(EnvironmentWarning, match="Rail.edge: 5.0 in the run, 9.0 here"):
        zoo.load_run("a", agent=Search(), env=eqsim.make("wide"))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        status, _, err = run(capsys, "eval a --env wide --episodes 4")
    assert status == 0 and "Rail.edge: 5.0 in the run, 9.0 here" in err


class Parts(Rail):
    def observe(self, state, action):
        return {"q": state.q, "qd": state.qd}


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

    monkeypatch.setattr("eqsim_zoo._cli._train.train", interrupted)
    status, out, err = run(capsys, f"train search toys:Rail {SHORT} --out a")
    assert status == 130, err
    assert "Resume with `eqsim resume a --env toys:Rail`." in out


class Unregistered(Search):
    """An agent that no plugin publishes."""


def test_agent_that_is_not_registered(capsys):
    zoo.train(zoo.Run(Unregistered(), Rail(), **PLAN), out="a")
    status, _, err = run(capsys, "eval a --env toys:Rail")
    assert status == 2 and "no agent of the class 'Unregistered'" in err
    assert "load_run('a', agent=..., env=...)" in err
