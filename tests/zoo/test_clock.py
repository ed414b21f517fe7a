"""Changes of the wall clock, such as those by a time server, have no influence on a run."""

import ast
import itertools
import os
import pathlib
import time

import pytest
from toys import Rail
from zoo.search import Search
from zoo.states import bits, without_times
from zoo.test_resume import AGENT, ARGS

from eqsim_zoo import load_run, resume, Run, train
from eqsim_zoo.runs import read_metrics
from eqsim_zoo.training import AbstractCallback, Checkpoint


ROOT = pathlib.Path(__file__).parents[2]
DAY = 86_400.0
WALL = {"time": ("time", "time_ns", "ctime", "gmtime", "localtime", "strftime")}
WALL |= {"datetime": ("now", "today", "utcnow"), "date": ("today",)}
FILE_TIMES = ("st_mtime", "st_ctime", "getmtime", "getctime")
WALL |= {"os": ("utime",), "path": ("getmtime", "getctime", "getatime")}


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


@pytest.mark.slow
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


def wall_clocks(source):
    """Return the calls of a source file that read the wall clock."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in WALL.get(owner, ()) or node.attr.startswith(FILE_TIMES):
                yield f"{owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom):
            known = (*WALL.get(node.module or "", ()), *FILE_TIMES)
            yield from (x.name for x in node.names if x.name in known)
        if isinstance(node, ast.Import):
            renamed = [x for x in node.names if x.asname and x.name in WALL]
            yield from (f"{x.name} as {x.asname}" for x in renamed)


def test_no_wall_clock():
    """No package reads the wall clock, or the times of files that come from it."""
    assert [*wall_clocks("import time\nbegin = time.time()")] == ["time.time"]
    assert [*wall_clocks("from time import time")] == ["time"]
    assert [*wall_clocks("import time as t")] == ["time as t"]
    assert [*wall_clocks("a = path.stat().st_mtime_ns")] == ["stat().st_mtime_ns"]
    assert [*wall_clocks("a = os.path.getmtime(b)")] == ["path.getmtime"]
    assert [*wall_clocks("from os.path import getmtime")] == ["getmtime"]
    packages = [ROOT / "eqsim", ROOT / "zoo" / "eqsim_zoo"]
    packages += (ROOT / "plugins").glob("eqsim-*/eqsim_*")
    files = [path for package in packages for path in package.rglob("*.py")]
    assert len(files) > 100
    found = {str(path): [*wall_clocks(path.read_text())] for path in files}
    assert {path: calls for path, calls in found.items() if calls} == {}
