"""A run that was stopped, however that happened, ends as if it had not been."""

import itertools
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
from zoo.disturbed_runs import AGENT, ARGS, EachTurn, same, signaled
from zoo.full_disk import no_room as no_room
from zoo.search import Search
from zoo.states import bits

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
    Checkpoint,
    EarlyStop,
    Interrupted,
    Terminated,
)


TESTS = pathlib.Path(__file__).parents[1]
SLOW = ARGS | {"steps": 20_000, "turns": 200, "evaluations": 20}


def double(x):
    return 2.0 * x


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
@pytest.mark.quick_cases("15")
def test_a_signal_saves_and_returns(whole, tmp_path, number):
    logger, before = signaled(5, number), signal.getsignal(number)
    out = tmp_path / "run"
    kind = Interrupted if number == signal.SIGINT else Terminated
    with pytest.raises(kind) as caught:
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[logger])
    result = caught.value.result
    assert isinstance(caught.value, KeyboardInterrupt | SystemExit) and logger.closed
    assert signal.getsignal(number) is before
    assert result.counters.turn == 5 == read_metrics(out)[-1]["turn"]
    assert bits(load_run(out, **AGENT).state) == bits(result.state)
    resume(out, **AGENT)
    same(out, whole.folder)


def test_rows_after_the_checkpoint_are_cut(whole, tmp_path):
    """As a crash leaves them: with more turns, and half a line."""
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[signaled(5)])
    late = (whole.folder / "metrics.jsonl").read_text().splitlines()[5:8]
    with open(out / "metrics.jsonl", "a") as file:
        file.write("\n".join(late)[:-9])
    late = (whole.folder / "metrics.csv").read_text().splitlines()[6:8]
    with open(out / "metrics.csv", "a") as file:
        file.write("\n".join(late)[:-3])
    resume(out, **AGENT)
    same(out, whole.folder)


def test_without_a_checkpoint_it_begins_anew(whole, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(Run(Search(), Rail(), **ARGS), out=out, callbacks=[signaled(2)])
    (out / "last.ckpt").unlink()
    resume(out, **AGENT)
    same(out, whole.folder)


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
    same(resumed.folder, whole.folder, agent)


def test_longer(whole, tmp_path):
    """A run that is made longer is a longer run; one that is complete says so."""
    out = tmp_path / "run"
    train(
        Run(Search(), Rail(), **ARGS | {"steps": 200, "turns": 6, "evaluations": 6}),
        out=out,
    )
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


def test_environment_of_evaluations_is_asked_for(tmp_path):
    """As others would be compared with its returns."""
    run = Run(Search(), Rail(), **ARGS | {"steps": 16}, eval_env=Rail())
    train(run, out=tmp_path)
    with pytest.raises(ValueError, match=r"\(Rail\), which is not .*eval_env=\.\.\."):
        resume(tmp_path, more_steps=8, **AGENT)
    longer = resume(tmp_path, more_steps=8, **AGENT, eval_env=Rail())
    assert longer.counters.steps == 24 == load_run(tmp_path, **AGENT).counters.steps


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
    worse = [k for k in range(1, len(means)) if means[k] <= max(means[:k])]
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
    resume(out, **AGENT)
    same(out, whole.folder)


def test_patience_includes_evaluations_before_resuming(whole, tmp_path):
    """Stopped in the midst of the evaluations that are not the best."""
    known = [x for x in read_metrics(whole.folder) if "eval/return" in x]
    means = np.array([x["eval/return"] for x in known])
    best = means > np.maximum.accumulate(np.append(-np.inf, means[:-1]))
    (first, *_) = [k for k in range(len(best)) if not best[k : k + 2].any()]
    middle, last = known[first]["turn"], known[first + 1]["turn"]
    options = {"out": tmp_path, "callbacks": [EarlyStop(patience=2), signaled(middle)]}
    with pytest.raises(KeyboardInterrupt):
        train(Run(Search(), Rail(), **ARGS), **options)
    result = resume(tmp_path, **AGENT, callbacks=[EarlyStop(patience=2)])
    assert result.counters.turn == last < whole.counters.turn


DAY = 86_400.0


@pytest.fixture
def jumping(monkeypatch):
    """A wall clock of which every other reading is a day back or a year ahead."""
    real, shifts = time.time, itertools.cycle((0.0, -DAY, 365 * DAY))
    monkeypatch.setattr(time, "time", lambda: real() + next(shifts))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))


def test_wall_clock_has_no_influence(whole, jumping, tmp_path):
    """States, counters and metrics are those of a steady clock, also with wrong dates of
    all files; time only increases, and a checkpoint is written in each turn that asks for
    one."""
    out, saves = tmp_path / "run", []

    class Saving(Checkpoint):
        def save(self, state, counters):
            saves.append(counters.turn)
            return Checkpoint.save(self, state, counters)

    def observers(stop):
        def act(turn):
            shift = -DAY if turn.counters.turn % 2 else 365 * DAY
            for file in out.iterdir():
                os.utime(file, (1.8e9 + shift, 1.8e9 + shift))
            if turn.counters.turn == stop:
                turn.stop = "the test ends here"

        return [EachTurn(act), Saving(0)]

    begin = time.monotonic()
    train(Run(Search(), Rail(), **ARGS), out=out, callbacks=observers(5))
    resume(out, **AGENT, callbacks=observers(0))
    took = time.monotonic() - begin
    assert saves == [*range(1, whole.counters.turn + 1)]
    same(out, whole.folder)
    rows = read_metrics(out)
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds) and 0.0 <= seconds[0] and seconds[-1] <= took
    assert all(0.0 < row["rate"] < 1e9 for row in rows)
