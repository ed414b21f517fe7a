"""Changes of the wall clock, such as those by a time server, have no influence on a run."""

import itertools
import os
import time

import pytest
from toys import Rail
from zoo.search import Search
from zoo.states import bits, without_times
from zoo.test_resume import AGENT, ARGS

from eqsim_zoo import load_run, resume, Run, train
from eqsim_zoo.runs import read_metrics
from eqsim_zoo.training import AbstractCallback, Checkpoint


DAY = 86_400.0


class Restless(AbstractCallback):
    """Dates all files of a run, also its lock, a day back in odd turns and a year ahead in
    even ones, as by a wrong clock, and ends the run after `stop` turns."""

    def __init__(self, folder, stop=0):
        self.folder, self.stop = folder, stop

    def start(self, run, folder, turn):
        pass

    def turn(self, turn):
        shift = -DAY if turn.counters.turn % 2 else 365 * DAY
        for file in self.folder.iterdir():
            os.utime(file, (1.8e9 + shift, 1.8e9 + shift))
        if turn.counters.turn == self.stop:
            turn.stop = "the test ends here"

    def close(self):
        pass


@pytest.fixture
def jumping(monkeypatch):
    """A wall clock of which every other reading is a day back or a year ahead."""
    real, shifts = time.time, itertools.cycle((0.0, -DAY, 365 * DAY))
    monkeypatch.setattr(time, "time", lambda: real() + next(shifts))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with a steady clock."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return train(Run(Search(), Rail(), **ARGS), out=folder)


def test_run_and_resume(whole, jumping, tmp_path):
    """States, counters and metrics are those of a steady clock, time only increases, and
    a checkpoint is written in each turn that asks for one."""
    out = tmp_path / "run"
    saves = []

    class Saving(Checkpoint):
        def save(self, state, counters):
            saves.append(counters.turn)
            return Checkpoint.save(self, state, counters)

    begin = time.monotonic()
    observers = lambda stop: [Restless(out, stop), Saving(0)]
    train(Run(Search(), Rail(), **ARGS), out=out, callbacks=observers(5))
    resume(out, **AGENT, callbacks=observers(0))
    took = time.monotonic() - begin
    assert saves == [*range(1, whole.counters.turn + 1)]
    for best in (False, True):
        one, two = (load_run(x, best=best, **AGENT) for x in (out, whole.folder))
        assert bits(one.state) == bits(two.state)
        counters = [x.counters._replace(seconds=0.0) for x in (one, two)]
        assert counters[0] == counters[1]
    rows = read_metrics(out)
    assert without_times(rows) == without_times(read_metrics(whole.folder))
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds) and 0.0 <= seconds[0] and seconds[-1] <= took
    assert all(0.0 < row["rate"] < 1e9 for row in rows)
