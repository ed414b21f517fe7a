"""A run that was stopped, however that happened, ends as if it had not been."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import equinox as eqx
import numpy as np
import pytest
from toys import Rail
from zoo.agents import AGENTS
from zoo.full_disk import no_room as no_room
from zoo.search import Search
from zoo.states import bits, without_times

import eqsim
from eqsim_zoo import load_run, resume, Run, train
from eqsim_zoo.runs import (
    CheckpointError,
    EnvironmentWarning,
    read_about,
    read_metrics,
)
from eqsim_zoo.runs.folders import read_run
from eqsim_zoo.training import (
    AbstractCallback,
    EarlyStop,
    Interrupted,
    Terminated,
)


TESTS = pathlib.Path(__file__).parents[1]
ARGS = {
    "steps": 400,
    "episode_length": 10,
    "pool_size": 8,
    "turns": 12,
    "evaluations": 4,
    "episodes": 4,
}
SLOW = ARGS | {"steps": 20_000, "turns": 200, "evaluations": 20}
AGENT = {"agent": Search(), "env": Rail()}


def double(x):
    return 2.0 * x


class Signal(AbstractCallback):
    """Sends a signal to this process after some turns."""

    def __init__(self, turn, number=signal.SIGINT):
        self.when, self.number, self.closed = turn, number, False

    def start(self, run, folder, turn):
        pass

    def turn(self, turn):
        if turn.counters.turn == self.when:
            os.kill(os.getpid(), self.number)

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was not stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return train(Run(Search(), Rail(), **ARGS), out=folder)


def same(result, whole, agent=Search()):
    """Whether two runs ended alike: states, counters, files."""
    assert bits(result.state) == bits(whole.state)
    times = {"seconds": 0.0}
    assert result.counters._replace(**times) == whole.counters._replace(**times)
    for folder in (result.folder, whole.folder):
        assert (folder / "curves.png").exists()
    one, two = (read_metrics(folder) for folder in (result.folder, whole.folder))
    assert without_times(one) == without_times(two)
    tables = [
        [line.split(",")[:4] + line.split(",")[6:] for line in text.splitlines()]
        for text in (
            (folder / "metrics.csv").read_text()
            for folder in (result.folder, whole.folder)
        )
    ]
    assert tables[0] == tables[1]
    made = {"agent": agent, "env": Rail()}
    best = [load_run(x.folder, best=True, **made) for x in (result, whole)]
    assert bits(best[0].state) == bits(best[1].state)


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
@pytest.mark.quick_cases("15")
def test_a_signal_saves_and_returns(whole, tmp_path, number):
    logger, before = Signal(5, number), signal.getsignal(number)
    out = tmp_path / "run"
    kind = Interrupted if number == signal.SIGINT else Terminated
    with pytest.raises(kind) as caught:
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[logger])
    result = caught.value.result
    assert isinstance(caught.value, KeyboardInterrupt | SystemExit) and logger.closed
    assert signal.getsignal(number) is before
    assert result.counters.turn == 5 == read_metrics(out)[-1]["turn"]
    assert bits(load_run(out, **AGENT).state) == bits(result.state)
    same(resume(out, **AGENT), whole)


def test_rows_after_the_checkpoint_are_cut(whole, tmp_path):
    """As a crash leaves them: with more turns, and half a line."""
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[Signal(5)])
    late = (whole.folder / "metrics.jsonl").read_text().splitlines()[5:8]
    with open(out / "metrics.jsonl", "a") as file:
        file.write("\n".join(late)[:-9])
    late = (whole.folder / "metrics.csv").read_text().splitlines()[6:8]
    with open(out / "metrics.csv", "a") as file:
        file.write("\n".join(late)[:-3])
    same(resume(out, **AGENT), whole)


def test_without_a_checkpoint_it_begins_anew(whole, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[Signal(2)])
    (out / "last.ckpt").unlink()
    same(resume(out, **AGENT), whole)


CODE = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
from toys import Rail
from zoo.agents import AGENTS
from eqsim_zoo import Run, train
from eqsim_zoo.training import Checkpoint
run = Run(AGENTS["ppo"], Rail(), **{args})
train(run, out=sys.argv[1], callbacks=[Checkpoint(0.0)])
"""


def started(out):
    """The same run in a process of its own, once it has written some turns."""
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", CODE.format(args=SLOW), str(out)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )
    rows, begin = out / "metrics.jsonl", time.monotonic()
    while not rows.exists() or rows.read_text().count("\n") < 20:
        assert process.poll() is None and time.monotonic() - begin < 60
        time.sleep(0.002)
    return process


@pytest.mark.slow  # `test_a_signal_saves_and_returns` resumes too.
def test_kill_and_resume(tmp_path):
    agent = AGENTS["ppo"]
    process = started(tmp_path / "killed")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    turn = read_about(tmp_path / "killed" / "last.ckpt")["counters"]["turn"]
    assert 0 < turn < 150
    whole = train(Run(agent, Rail(), **SLOW), out=tmp_path / "whole")
    resumed = resume(tmp_path / "killed", agent=agent, env=Rail())
    same(resumed, whole, agent)


def test_longer(whole, tmp_path):
    """A run that is made longer is a longer run; one that is complete says so."""
    out = tmp_path / "run"
    train(Run(Search(), Rail(), **ARGS | {"steps": 200, "turns": 6}), out=out)
    with pytest.raises(ValueError, match="is complete: 200 of 200 steps"):
        resume(out, **AGENT)
    result = resume(out, more_steps=200, **AGENT)
    assert bits(result.state) == bits(whole.state)
    assert load_run(out, **AGENT).run.steps == 400
    with pytest.raises(
        ValueError, match="`steps` must be an integer of at least 0, got -1"
    ):
        resume(out, more_steps=-1, **AGENT)


def test_another_agent_is_refused(whole):
    folder = whole.folder
    for words, change in {
        "num_envs: 2 in the run, 3 here": {"agent": Search(num_envs=3)},
        "rate: 0.3 in the run, 0.2 here": {"agent": Search(rate=0.2)},
        r"members: 1 in the run, 2 here": {"agent": [Search(), Search(rate=0.2)]},
    }.items():
        with pytest.raises(ValueError, match=words):
            resume(folder, more_steps=10, **(AGENT | change))
    words = r"\.envs\[0\]\.inner\.inner\.q: float64\[2, 2\] in the file"
    with (
        pytest.warns(EnvironmentWarning, match="sys.links.names"),
        pytest.raises(ValueError, match=words),
    ):
        resume(folder, more_steps=10, agent=Search(), env=Rail(3))
    with pytest.raises(ValueError, match="'Search' is registered. Pass the `agent`"):
        resume(folder, more_steps=10, env=Rail())
    with pytest.raises(ValueError, match="environment as an object .Rail."):
        resume(folder, more_steps=10, agent=Search())
    with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
        resume(folder.parent)


@pytest.mark.parametrize(
    ("change", "words"),
    (
        (
            lambda env: eqx.tree_at(lambda e: e.sys.links.mass, env, replace_fn=double),
            r"sys\.links\.mass: \[1\.0, 2\.0\] in the run, \[2\.0, 4\.0\] here",
        ),
        (lambda env: Rail(frame_skip=2), r"Rail\.frame_skip: 1 in the run, 2 here"),
        (lambda env: Rail(spring=1.0), r"pipeline\.spring: 0\.0 in the run, 1\.0 here"),
        (
            lambda env: eqsim.ClipAction(env),
            "environment: Rail in the run, Rail in ClipAction here",
        ),
    ),
)
def test_another_environment_causes_a_warning(whole, change, words):
    with pytest.warns(EnvironmentWarning, match=words):
        read_run(whole.folder, Search(), change(Rail()), learns=False)


def test_a_longer_run_stores_the_environment_in_which_it_goes_on(whole, tmp_path):
    out, env = tmp_path / "run", Rail(spring=1.0)
    shutil.copytree(whole.folder, out)
    with pytest.warns(EnvironmentWarning, match="spring"):
        resume(out, agent=Search(), env=env, more_steps=10)
    load_run(out, agent=Search(), env=env)


def test_a_damaged_run_is_refused(tmp_path):
    out = tmp_path / "run"
    train(Run(Search(), Rail(), **ARGS), out=out)
    data = (out / "last.ckpt").read_bytes()
    (out / "last.ckpt").unlink()  # It may be the same file as `best.ckpt`.
    (out / "last.ckpt").write_bytes(data[:-100])
    with pytest.raises(CheckpointError, match="last.ckpt' is damaged"):
        resume(out, more_steps=10, **AGENT)
    assert load_run(out, best=True, **AGENT).state is not None
    (out / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="config.json' is damaged"):
        load_run(out, **AGENT)


def test_early_stop(whole, tmp_path):
    """At the first evaluation that reaches the target, or the first one that is not the
    best; and a run that was stopped goes on as if it had not been."""
    means = [float(found.mean()[0]) for _, found in whole.evaluations]
    worse = [k for k in range(1, 4) if means[k] <= max(means[:k])]
    for stop, number in (
        (EarlyStop(-np.inf), 1),
        (EarlyStop(patience=1), worse[0] + 1),
    ):
        out = tmp_path / str(number)
        result = train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[stop])
        assert len(result.evaluations) == number
        assert (
            read_about(out / "last.ckpt")["counters"]["steps"] == result.counters.steps
        )
    same(resume(out, **AGENT), whole)
