"""Files of metrics, and callbacks that hand metrics to other programs."""

import csv
import math
import pathlib
import sys
import time
import types
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from toys import Rail
from zoo.disturbed_runs import ARGS
from zoo.search import Search

from eqsim.plugins import CommandError
from eqsim_zoo import Run, SAC
from eqsim_zoo._cli._reading import write_run_page
from eqsim_zoo.runs import read_metrics, write_curves, write_page
from eqsim_zoo.runs.folders import write_config
from eqsim_zoo.runs.metrics import BEGIN, END, MetricsFile
from eqsim_zoo.runs.pages import _returns, Series
from eqsim_zoo.runs.run import Counters
from eqsim_zoo.training import callbacks, TensorBoard, train, Turn, WeightsAndBiases


def row(turn, member=0, **more):
    begin = dict(zip(BEGIN, (turn, member, 2 * turn, 16 * turn, 0.5 * turn, 10.0)))
    return begin | {"loss": 0.1 * turn, "b, m": math.inf if turn == 2 else 1.0} | more


def evaluated(turn, member=0):
    return row(turn, member, **dict(zip(END, (1.0, 2.0, 3.0, 4.0))))


def read_csv(folder):
    with open(folder / "metrics.csv") as file:
        return list(csv.DictReader(file))


class Metrics:
    """Both files."""

    def __init__(self, folder, turn):
        make = MetricsFile.json_lines, MetricsFile.csv
        self.files = [one(folder, turn) for one in make]

    def write(self, rows):
        for file in self.files:
            file.write(rows, pytest.fail)


def test_both_files_have_the_same_rows(tmp_path):
    metrics = Metrics(tmp_path, 0)
    rows = [row(1), row(2), evaluated(3)]
    for one in rows:
        metrics.write([one])
    assert [*read_csv(tmp_path)[0]] == [*BEGIN, "b, m", "loss", *END]
    found = read_metrics(tmp_path)
    assert [x.keys() for x in found] == [x.keys() for x in rows]
    assert found[0] == rows[0] and found[2] == rows[2] and math.isnan(found[1]["b, m"])
    for one, line in zip(rows, read_csv(tmp_path)):
        assert {k: float(x) for k, x in line.items() if x} == one


def test_going_on(tmp_path):
    """Names of columns stay; later rows and half lines are cut off."""
    metrics = Metrics(tmp_path, 0)
    metrics.write([row(1), row(1, 1)])
    metrics.write([row(2), row(2, 1)])
    text = (tmp_path / "metrics.csv").read_text()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"turn": 3, "mem')
    assert len(read_metrics(tmp_path)) == 4
    again = Metrics(tmp_path, 1)
    again.write([row(2), row(2, 1)])
    assert (tmp_path / "metrics.csv").read_text() == text
    assert [x["turn"] for x in read_metrics(tmp_path)] == [1, 1, 2, 2]
    Metrics(tmp_path, 0).write([row(1)])
    assert len(read_metrics(tmp_path)) == len(read_csv(tmp_path)) == 1


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="Pass the folder of a run"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("no\n{}\n")
    with pytest.raises(ValueError, match="line 1"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="has no metrics yet"):
        write_curves([tmp_path], tmp_path / "x.png")


class Balanced(HTMLParser):
    """Text of a page whose elements are closed in order."""

    VOID = "meta", "img"

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.found.append(data)


@pytest.mark.parametrize("seeds", (1, 2))
def test_a_page(tmp_path, capsys, seeds):
    """It tells evaluations, settings and videos, and names are text, not markup."""
    folder = tmp_path / "<b>"
    run = Run(SAC(learning_rate=0.25), Rail(), 64, num_seeds=seeds)
    folder.mkdir()
    write_config(folder, run, given=False)
    with pytest.raises(FileNotFoundError, match="metrics"):
        write_page(folder)
    metrics = MetricsFile.json_lines(folder, 0)
    names = "eval/return", "eval/error", "eval/length"
    for turn in (1, 2, 3):
        found = lambda m: dict(zip(names, (10.0 * turn + m, 0.5, 7.0)))
        rows = [row(turn, m, **found(m), **{"task/level": 2.5}) for m in range(seeds)]
        metrics.write(rows, pytest.fail)
    (folder / "videos").mkdir()
    for name in ("videos/steps_0000000048.gif", "episode.gif"):
        (folder / name).write_bytes(b"")
    write_run_page(str(folder))
    path = folder / "index.html"
    assert (
        "wrote " in capsys.readouterr().out and (folder / "curves.png").stat().st_size
    )
    text = path.read_text(encoding="utf-8")
    words = "|".join(x for x in Balanced(text).found if x.strip())
    spread = "± (95 %)" if seeds == 1 else "lowest seed|highest seed"
    assert f"steps|return|{spread}|length|16" in words
    last = "30|0.5" if seeds == 1 else "30.5|30|31"
    assert f"48|{last}|7|" in words and "75 % of 64 steps" in words
    assert "Task, in the last turn of training|run|level" in words and "|2.5|" in words
    assert "eqsim resume" in words
    assert "learning_rate|0.25" in words and "48 steps" in words
    for name in ("videos/steps_0000000048.gif", "episode.gif", "curves.png"):
        assert f'src="{name}"' in text
    assert "<b>" not in text and "&lt;b&gt;" in text


@pytest.mark.parametrize("names", (("return",), ("eval/return", "eval/error")))
def test_curves_are_named(names):
    """Once each, also without evaluations."""
    columns = dict.fromkeys(("steps", *names), np.ones((1, 2)))
    axes = Figure().subplots()
    _returns(axes, Series("some run", columns), "steps", "red")
    assert axes.get_legend_handles_labels()[1] == ["some run"]


def test_runs_write_a_page(tmp_path, monkeypatch):
    """At their end; a new run in the folder deletes pictures of the one before."""
    monkeypatch.setattr(callbacks, "write_page", write_page)
    train(Run(Search(), Rail(), **ARGS), out=tmp_path)
    assert "eqsim resume" not in (tmp_path / "index.html").read_text()
    monkeypatch.setattr(callbacks, "write_page", lambda folder: folder / "none")
    for name in ("episode.gif", "skills_0.png", "skills.png"):
        (tmp_path / name).write_bytes(b"")
    train(Run(Search(), Rail(), **ARGS), out=tmp_path, overwrite=True)
    assert not [*tmp_path.glob("*.gif"), *tmp_path.glob("skills*")]
    assert not (tmp_path / "index.html").exists()


def test_the_command_of_pages(tmp_path):
    with pytest.raises(CommandError, match="Pass the folder of a run"):
        write_run_page(str(tmp_path))


@pytest.mark.parametrize(
    "make, package, extra",
    (
        (lambda: TensorBoard("x"), "tensorboardX", "tensorboard"),
        (lambda: WeightsAndBiases("x", "y"), "wandb", "wandb"),
    ),
)
def test_missing_packages_are_named(monkeypatch, make, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}.*eqsim-zoo\[{extra}\]"):
        make()


def a_run():
    return Run(SAC(learning_rate=0.25), None, 7)


def told(run, *rows, videos=()):
    """A turn that has these rows."""
    flags = False, False, None, lambda: False, pytest.fail
    return Turn(run, Counters(), rows, None, *flags, videos=[*videos])


def test_loggers(monkeypatch, tmp_path):
    """What is called of packages that are not installed here: name, number, step."""
    calls = []

    class Writer:
        def __init__(self, folder, filename_suffix):
            self.folder = folder

        def add_scalar(self, *scalar):
            calls.append((self.folder, *scalar))

        def flush(self):
            pass

        close = flush

    stand_in = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "tensorboardX", stand_in)
    logger = TensorBoard(tmp_path)
    run = a_run()
    logger.start(run, None, 0)
    logger.turn(told(run, row(1), row(1, 1)))
    logger.close()
    assert (str(tmp_path / "member1"), "loss", 0.1, 16) in calls
    assert (str(tmp_path / "member0"), "rate", 10.0, 16) in calls

    class Remote:
        def log(self, numbers, step):
            calls.append((numbers, step))

        def finish(self):
            calls.append("finished")

    def begin(project, name, config):
        calls.append(config)
        return Remote()

    stand_in = types.SimpleNamespace(init=begin, Video=lambda path: ("video", path))
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    logger = WeightsAndBiases("project", "name")
    logger.start(run, None, 0)
    assert calls[-1]["run"]["steps"] == 7
    assert calls[-1]["agents"][0]["fields"]["learning_rate"] == 0.25
    logger.turn(told(run, evaluated(3), videos=[pathlib.Path("one.gif")]))
    logger.close()
    assert calls[-1] == "finished"
    numbers, step = calls[-2]
    assert numbers["video"] == ("video", "one.gif")
    assert step == 3 and numbers["steps"] == 48 and numbers["eval/return"] == 1.0


def test_tensorboard_keeps_files(monkeypatch, tmp_path):
    """tensorboardX names a file by the second at which it is opened: that of a resumed
    run replaces none, even if the clock shows the same second again."""
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(time, "time", lambda: 1.8e9)
    run = a_run()

    def log(turn):
        logger = TensorBoard(tmp_path)
        logger.start(run, None, turn)
        logger.turn(told(run, row(turn + 1)))
        logger.close()

    log(0)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    log(4)
    assert path.read_bytes() == before and len([*tmp_path.iterdir()]) == 2
