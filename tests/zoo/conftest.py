"""Fixtures of all tests of the zoo."""

import entrypoints
import pytest
from toys import Rail
from zoo.commands import PUBLISHED
from zoo.disturbed_runs import ARGS
from zoo.search import Search

import eqsim
import eqsim_zoo as zoo
from eqsim.plugins import COMMANDS, RUNS
from eqsim_zoo._cli import view_run
from eqsim_zoo.training import callbacks


@pytest.fixture(autouse=True)
def no_pages(monkeypatch):
    """Pages are written by `test_metrics.py` only: they take longer than a tiny run."""
    _skip_pages(monkeypatch)


def _skip_pages(patch):
    def empty(folder):
        for name in ("curves.png", "index.html"):
            (folder / name).write_text("")

    patch.setattr(callbacks, "write_page", empty)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run that is not disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        _skip_pages(patch)
        return zoo.train(zoo.Run(Search(), Rail(), **ARGS), out=folder)


@pytest.fixture
def names(monkeypatch, tmp_path):
    """Publish the commands, a tiny agent and environment, and enter an empty folder."""
    for name, target in PUBLISHED["eqsim.commands"].items():
        value = entrypoints.EntryPoint.from_string(target, name).load()
        monkeypatch.setitem(COMMANDS._registered, name, value)
    agents = {"search": Search, "ppo": zoo.PPO, "dads": zoo.DADS, "iql": zoo.IQL}
    for name, make in agents.items():
        monkeypatch.setitem(eqsim.AGENTS._registered, name, make)
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setitem(RUNS._registered, "zoo", view_run)
    monkeypatch.chdir(tmp_path)
