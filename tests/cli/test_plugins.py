"""`eqsim plugins`: throw-away packages, some of which misbehave."""

import inspect
import json
import sys

import pytest
from packages import publish
from toys import Rail

import eqsim
from eqsim._cli import _plugin_commands as _check, main
from eqsim.testing import Check, NotApplicable


KEYS = {"name", "kind", "package", "version", "target", "status", "reason"}

MODULES = {
    "loud_thing": """
import os, sys
print("{ hello")
os.write(1, b"hello } again")
sys.stderr.write("hello")
import eqsim
class Loud(eqsim.envs.PointMass):
    \"""Louder
    than others.

    And more.\"""
def quiet(volume, pitch=1.0): ...
""",
    "slow_thing": "import time\nwhile True: time.sleep(1)",
    "gone_thing": "import os\nos._exit(7)",
    "sick_thing": "raise RuntimeError('no license')",
}


def refresh():
    for registry in (eqsim.ENVS, eqsim.PIPELINES, eqsim.AGENTS):
        registry.refresh()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with modules, in which packages are published; cleaned up afterwards."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    before = set(sys.modules)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        refresh()
        yield tmp_path
    refresh()
    for name in set(sys.modules) - before:
        if name in MODULES:
            del sys.modules[name]


def run(capsys, line):
    status = main(line.split())
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def listed(capsys, line="plugins list --json"):
    """Rows by name, of packages that are not ours."""
    status, out, _ = run(capsys, line)
    assert status == 0
    rows = json.loads(out)
    assert all(row.keys() == KEYS for row in rows)
    assert {row["name"] for row in rows if row["package"] == "eqsim"} >= {
        "ant",
        "spring",
    }
    return {row["name"]: row for row in rows if row["package"].startswith("my-")}


def test_listing_imports_nothing(capsys, site):
    points = {"loud": "loud_thing:Loud", "slow": "slow_thing:X", "odd": "no module!"}
    publish(site, "my-loud", points, "1.1", "eqsim.envs")
    publish(site, "my-agent", {"sick": "sick_thing:X"}, "0.2", "eqsim.agents")
    refresh()
    rows = listed(capsys)
    assert [*rows] == ["loud", "odd", "slow", "sick"]
    assert rows["loud"] == {
        "name": "loud",
        "kind": "env",
        "package": "my-loud",
        "version": "1.1",
        "target": "loud_thing:Loud",
        "status": "available",
        "reason": "",
    }
    assert rows["odd"]["status"] == "broken" and "'no module!'" in rows["odd"]["reason"]
    assert rows["sick"]["kind"] == "agent" and rows["sick"]["status"] == "available"
    status, out, err = run(capsys, "plugins list")
    assert status == 0 and not err
    words = [line.split() for line in out.splitlines()]
    assert "name kind package version target status".split() == words[0]
    assert "loud env my-loud 1.1 loud_thing:Loud available".split() in words
    status, out, _ = run(capsys, "list")
    assert status == 0 and "What my-agent is." in out
    rows = {row.split()[0]: row for row in out.splitlines() if "my-loud" in row}
    # Its source has a docstring; that of `slow` is no class of its module.
    assert "Louder than others" in rows["loud"]
    assert "What my-loud is." in rows["slow"]
    assert not set(MODULES) & set(sys.modules)


def test_descriptions_of_agents(capsys):
    """`eqsim list` describes each agent by the first sentence of its own docstring."""
    status, out, _ = run(capsys, "list")
    assert status == 0
    words = " ".join(out.split())
    assert "Proximal policy optimization: several gradient steps" in words
    assert "ant_uni Ant with the descriptor FeetContact" in words  # A factory.
    for name in eqsim.AGENTS.names():
        docstring = inspect.getdoc(eqsim.AGENTS.get(name)) or ""
        opening = " ".join(docstring.replace("`", "").split()[:3]).rstrip(".")
        assert opening in words, name


@pytest.mark.slow
def test_listing_with_imports(capsys, site):
    """Each in turn, whatever those before it have done."""
    targets = {"a": "gone", "b": "loud", "c": "sick", "d": "slow", "e": "loud"}
    points = {name: f"{word}_thing:Loud" for name, word in targets.items()}
    publish(site, "my-things", points, group="eqsim.envs")
    refresh()
    rows = listed(capsys, "plugins list --json --check --timeout 3")
    reasons = {name: row["reason"] for name, row in rows.items()}
    assert reasons["b"] == reasons["e"] == "" and rows["e"]["status"] == "available"
    for name, words in {
        "a": "crashes: its import ended Python with status 7",
        "c": "RuntimeError: no license",
        "d": "hangs: its import did not end within 3 s",
    }.items():
        assert words in reasons[name] and rows[name]["status"] == "broken"
    assert not set(MODULES) & set(sys.modules)


def test_hidden_and_twice(capsys, site, monkeypatch):
    for package in ("my-first", "my-second", "my-third"):
        publish(site, package, {"same": "loud_thing:Loud"}, group="eqsim.envs")
    monkeypatch.setenv("EQSIM_PLUGINS_DENY", "my-third")
    refresh()
    rows = listed(capsys)
    assert {name: row["package"] for name, row in rows.items()} == {
        "same": "my-first",
        "my-second:same": "my-second",
        "my-third:same": "my-third",
    }
    hidden = rows["my-third:same"]
    assert hidden["status"] == "hidden" and "EQSIM_PLUGINS_DENY" in hidden["reason"]
    refresh()
    status, _, err = run(capsys, "plugins list")
    assert status == 0 and err.count("\n") == 1
    assert err.startswith("eqsim: 'same' in 'eqsim.envs' is published by my-first and")
    status, _, err = run(capsys, "plugins show my-third:same")
    assert status == 1 and "names my-third" in err


def test_show(capsys, site):
    points = {"loud": "loud_thing:Loud", "quiet": "loud_thing:quiet"}
    publish(site, "my-loud", points, "1.1", "eqsim.envs")
    publish(site, "my-other", {"loud": "eqsim:Spring"}, "2.2", "eqsim.pipelines")
    refresh()
    status, out, err = run(capsys, "plugins show loud --kind env")
    assert status == 0 and "hello" in err and "hello" not in out
    out = " ".join(out.split())
    for text in (
        "package my-loud 1.1",
        "target loud_thing:Loud",
        "Louder than others. option",
        "sys None pipeline None frame_skip 1",
    ):
        assert text in out, text
    status, out, _ = run(capsys, "plugins show loud")
    assert status == 0 and "my-loud 1.1" in out and "my-other 2.2" in out
    status, out, _ = run(capsys, "plugins show my-loud:quiet")
    out = " ".join(out.split())
    assert status == 0 and "volume none: must be given pitch 1.0" in out


class Checked(Rail):
    """An environment of which one check fails, as it says, and one as it does not."""

    __eqsim_expected_failures__ = {"known": "it is so", "cured": "it was so"}


def some_checks(subject):
    """All that can become of a check."""

    def fail(error):
        raise error

    functions = {
        "good": lambda: None,
        "bad": lambda: fail(AssertionError("two\nlines")),
        "known": lambda: fail(ValueError("no")),
        "cured": lambda: None,
        "odd": lambda: fail(NotApplicable("makes no sense")),
    }
    for name in functions if isinstance(subject, Checked) else ["good"]:
        yield Check(name, f"{name} law", "do good", functions[name])


def test_check(capsys, site, monkeypatch):
    monkeypatch.setattr(_check, "checks_of", some_checks)
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setitem(eqsim.ENVS._registered, "checked", Checked)
    monkeypatch.setitem(eqsim.ENVS._registered, "choosy", lambda option: Rail())
    publish(site, "my-other", {"rail": "eqsim:Spring"}, group="eqsim.pipelines")
    refresh()
    status, out, err = run(capsys, "plugins check rail")
    assert (status, err) == (0, "")
    lines = ["env is made without options", "env good"]
    lines += [line.replace("env", "pipeline") for line in lines]
    assert out.splitlines() == [f"passed   {line}" for line in lines]
    status, out, _ = run(capsys, "plugins check my-other:rail --kind pipeline")
    assert status == 0 and out.count("passed") == 2
    status, out, err = run(capsys, "plugins check checked")
    assert status == 1 and "2 of 6 checks of 'checked' failed" in err
    assert out.splitlines()[1:] == [
        "passed   env good",
        "failed   env bad: bad law",
        "          two",
        "          lines",
        "          -> do good",
        "expected env known: it is so",
        "failed   env cured: cured law",
        "          passed, though it is expected to fail (it was so): take it off the list",
        "          -> do good",
        "skipped  env odd: makes no sense",
    ]
    status, out, err = run(capsys, "plugins check choosy")
    assert status == 1 and "failed   env is made without options: TypeError" in out
