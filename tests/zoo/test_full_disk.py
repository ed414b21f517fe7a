"""A run whose disk is full for a while, or whose process dies, loses nothing."""

import os
import pathlib

import pytest
from toys import Rail
from zoo.disturbed_runs import AGENT, ARGS, EachTurn, same
from zoo.full_disk import no_room as no_room
from zoo.search import Search
from zoo.states import bits

from eqsim_zoo import resume, Run, train
from eqsim_zoo.runs import read_about
from eqsim_zoo.training import Checkpoint, UnsavedError


needs_full = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is full"
)


CHECKPOINTS = ("last.ckpt", "best.ckpt")


class Fill:
    """The disk is full in some turns, for some files; the process dies after `death`."""

    def __init__(self, out, turns, files, no_room, death=0):
        self.out, self.turns, self.files, self.death = out, turns, files, death
        self.no_room = no_room
        self.callbacks = [EachTurn(self.turn), Checkpoint(0.0)]

    def turn(self, turn):
        now = turn.counters.turn
        if self.death and now > self.death:
            raise KeyboardInterrupt
        for name in self.files:
            self.free(name)
            if now in self.turns and name in CHECKPOINTS:
                self.no_room.add(name)
            elif now in self.turns:
                path, kept = self.out / name, self.out / f"{name}.kept"
                if path.exists():
                    path.rename(kept)
                path.symlink_to("/dev/full")

    def free(self, name):
        """Make room for a file."""
        path = self.out / name
        kept = path.with_name(path.name + ".kept")
        self.no_room.discard(name)
        if path.is_symlink():
            path.unlink()
        if kept.exists():
            kept.rename(path)

    def train(self):
        """Start the run."""
        return train(
            Run(Search(), Rail(), **ARGS), out=self.out, callbacks=self.callbacks
        )


@needs_full
def test_full_disk_does_not_end_a_run(whole, tmp_path, no_room):
    """Checkpoints and metrics that cannot be written are reported, and written later."""
    files = "metrics.csv", "last.ckpt"
    fill = Fill(tmp_path / "run", range(2, 7), files, no_room)
    with pytest.warns() as said:
        fill.train()
    text = [str(one.message) for one in said]
    checkpoints = [x for x in text if "The checkpoint after turn" in x]
    assert len(checkpoints) == 5 and "No space left" in checkpoints[0]
    assert sum("Metrics could not be written" in x for x in text) == 1
    same(fill.out, whole.folder)


@pytest.mark.filterwarnings("ignore::eqsim_zoo.training.RunWarning")
def test_best_state_on_a_full_disk(whole, tmp_path, no_room):
    """The best state is written later if there is no room when it is found."""
    best = whole.counters.best_turn
    assert 1 < best < whole.counters.turn
    fill = Fill(tmp_path / "run", (best, best + 1), CHECKPOINTS, no_room)
    fill.train()
    same(fill.out, whole.folder)


@pytest.mark.parametrize("copies", (False, True))
@pytest.mark.slow
def test_best_state_at_each_moment(whole, tmp_path, monkeypatch, copies):
    """A process may die between two files: `last.ckpt` names no best state that
    `best.ckpt` does not hold."""
    out, moments, replace = tmp_path / "run", [], os.replace

    def spied(one, two):
        replace(one, two)
        if pathlib.Path(two).name.endswith(".ckpt") and (out / "last.ckpt").exists():
            last = read_about(out / "last.ckpt")["counters"]
            best = out / "best.ckpt"
            held = read_about(best)["counters"]["turn"] if best.exists() else 0
            moments.append((last["turn"], last["best_turn"], held))

    def refused(*_):
        raise OSError("no links")

    monkeypatch.setattr(os, "replace", spied)
    if copies:
        monkeypatch.setattr(os, "link", refused)
    callbacks = [Checkpoint(0.0)]
    train(Run(Search(), Rail(), **ARGS), out=out, callbacks=callbacks)
    assert len({best for _, best, _ in moments}) > 1
    for turn, best, held in moments:
        # A newer best state is found again when the run resumes from `last.ckpt`.
        assert held == best or held > turn, (turn, best, held)
    same(out, whole.folder)


@needs_full
@pytest.mark.filterwarnings("ignore::eqsim_zoo.training.RunWarning")
@pytest.mark.parametrize("name", ("metrics.jsonl", "metrics.csv"))
@pytest.mark.quick_cases("metrics.jsonl")
def test_no_checkpoint_without_its_metrics(whole, tmp_path, no_room, name):
    """Rows that are not on the disk when the process dies are computed again."""
    fill = Fill(tmp_path / "run", (3, 4, 5, 6), (name,), no_room, death=5)
    with pytest.raises(KeyboardInterrupt):
        fill.train()
    fill.free(name)
    assert read_about(fill.out / "last.ckpt")["counters"]["turn"] == 2
    resume(fill.out, **AGENT)
    same(fill.out, whole.folder)


@needs_full
@pytest.mark.filterwarnings("ignore::eqsim_zoo.training.RunWarning")
@pytest.mark.parametrize("files", (CHECKPOINTS, ("metrics.jsonl",)))
@pytest.mark.quick_cases("files1")
def test_full_disk_at_the_end(whole, tmp_path, no_room, files):
    """An error says that the end is missing; its result is kept, and the run resumes."""
    last = whole.counters.turn
    fill = Fill(tmp_path / "run", (last - 1, last), files, no_room)
    with pytest.raises(UnsavedError, match="No space left") as error:
        fill.train()
    assert f"turn {last - 2}" in str(error.value)
    result = error.value.result
    assert result is not None and bits(result.state) == bits(whole.state)
    for name in files:
        fill.free(name)
    resume(fill.out, **AGENT)
    same(fill.out, whole.folder)


def test_full_disk_at_the_start(whole, tmp_path, no_room):
    """A given state cannot be computed again, so the run does not begin without it."""
    out = tmp_path / "run"
    out.mkdir()
    no_room.add("last.ckpt")
    given = {"state": whole.state, "out": out}
    with pytest.raises(UnsavedError, match="initial state"):
        train(Run(Search(), Rail(), **ARGS), **given)
    with pytest.raises(ValueError, match="initial state"):
        resume(out, **AGENT)
