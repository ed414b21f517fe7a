"""Packages of others: `eqsim plugins`, their commands, and environments that are named by
the place of their class, `module:object`. Some of them misbehave."""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from packages import publish
from toys import Rail

import eqsim
from eqsim._cli import _plugin_commands, main
from eqsim.envs import is_import_path
from eqsim.plugins import COMMANDS, RUNS
from eqsim.testing.comparisons import NotApplicable
from eqsim.testing.conformance import Check


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
    "good_commands": """
import eqsim
import tyro
def hello(name: str, loud: bool = False) -> None:
    \"""Says hello.

    Args:
        name: to whom.
    \"""
    print(f"hello {name}" + "!" * loud)
def fails() -> None:
    raise eqsim.plugins.CommandError("no such thing", 2)
def breaks() -> None:
    raise eqsim.plugins.CommandError("it broke", 1)
def ends() -> None:
    raise SystemExit(130)
many = {"one": hello, "two": fails}
def build(argv):
    if not argv or argv[0] == "nobody":
        raise eqsim.plugins.CommandError("name somebody")
    def answer(name: str, volume: int = len(argv[0])) -> None:
        \"\"\"Answers.

        Args:
            volume: number of marks.
        \"\"\"
        print(f"hello {name}" + "!" * volume)
    answer.__annotations__["name"] = tyro.conf.Positional[str]
    return answer
depends = eqsim.plugins.DynamicCommand("Options by name.", build)
number = 3
""",
    "sick_commands": "raise RuntimeError('no license')",
}


REGISTRIES = eqsim.ENVS, eqsim.PIPELINES, eqsim.AGENTS, COMMANDS


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A function that publishes a package in a folder with modules; cleaned up
    afterwards."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    before = set(sys.modules)

    def add(package, points, version="1.0", kind="envs"):
        publish(tmp_path, package, points, version, f"eqsim.{kind}")
        for registry in REGISTRIES:
            registry.refresh()

    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield add
    for registry in REGISTRIES:
        registry.refresh()
    for name in set(sys.modules) - before:
        if name in MODULES:
            del sys.modules[name]


def listed(capsys, line="plugins list --json"):
    """Rows by name, of packages that are not ours."""
    assert main(line.split()) == 0
    rows = json.loads(capsys.readouterr().out)
    keys = {"name", "kind", "package", "version", "target", "status", "reason"}
    assert all(row.keys() == keys for row in rows)
    assert {"ant", "spring"} <= {x["name"] for x in rows if x["package"] == "eqsim"}
    return {row["name"]: row for row in rows if row["package"].startswith("my-")}


def test_listing_imports_nothing(run, capsys, site):
    points = {"loud": "loud_thing:Loud", "slow": "slow_thing:X", "odd": "no module!"}
    site("my-loud", points, "1.1")
    site("my-agent", {"sick": "sick_thing:X"}, "0.2", "agents")
    rows = listed(capsys)
    assert [*rows] == ["loud", "odd", "slow", "sick"]
    assert [*rows["loud"].values()] == [
        *("loud", "env", "my-loud", "1.1", "loud_thing:Loud", "available", "")
    ]
    assert rows["odd"]["status"] == "broken" and "'no module!'" in rows["odd"]["reason"]
    assert rows["sick"]["kind"] == "agent" and rows["sick"]["status"] == "available"
    status, out, err = run("plugins list")
    assert status == 0 and not err
    assert "loud env my-loud 1.1 loud_thing:Loud available" in out
    status, out, _ = run("list")
    assert status == 0 and "What my-agent is." in out
    # Its source has a docstring; that of `slow` is no class of its module.
    assert "my-loud Louder than others" in out and "my-loud What my-loud is." in out
    assert not set(MODULES) & set(sys.modules)


@pytest.mark.slow
def test_listing_with_imports(capsys, site):
    """Each in turn, whatever those before it have done."""
    targets = {"a": "gone", "b": "loud", "c": "sick", "d": "slow", "e": "loud"}
    site("my-things", {name: f"{word}_thing:Loud" for name, word in targets.items()})
    rows = listed(capsys, "plugins list --json --check --timeout 3")
    reasons = {name: row["reason"] for name, row in rows.items()}
    assert reasons["b"] == reasons["e"] == "" and rows["e"]["status"] == "available"
    for name, words in {"a": "status 7", "c": "no license", "d": "3 s"}.items():
        assert words in reasons[name] and rows[name]["status"] == "broken"
    assert not set(MODULES) & set(sys.modules)


def test_hidden_and_twice(run, capsys, site, monkeypatch):
    monkeypatch.setenv("EQSIM_PLUGINS", "my-first,my-second")
    for package in ("my-first", "my-second", "my-third"):
        site(package, {"same": "loud_thing:Loud"})
    rows = listed(capsys)
    assert {name: row["package"] for name, row in rows.items()} == {
        "same": "my-first",
        "my-second:same": "my-second",
        "my-third:same": "my-third",
    }
    hidden = rows["my-third:same"]
    assert hidden["status"] == "hidden" and "EQSIM_PLUGINS" in hidden["reason"]
    eqsim.ENVS.refresh()
    status, _, err = run("plugins list")
    assert status == 0 and err.count("eqsim: 'same'") == 1
    assert "my-first" in err and "my-second" in err
    status, _, err = run("plugins show my-third:same")
    assert status == 1 and "my-third" in err


def test_show(run, site):
    site("my-loud", {"loud": "loud_thing:Loud", "quiet": "loud_thing:quiet"}, "1.1")
    site("my-other", {"loud": "eqsim:Spring"}, "2.2", "pipelines")
    status, out, err = run("plugins show loud --kind env")
    assert status == 0 and "hello" in err and "hello" not in out
    for text in (
        "package my-loud 1.1",
        "target loud_thing:Loud",
        "Louder than others. option",
        "sys None pipeline None frame_skip 1",
    ):
        assert text in out, text
    status, out, _ = run("plugins show loud")
    assert status == 0 and "my-loud 1.1" in out and "my-other 2.2" in out
    status, out, _ = run("plugins show my-loud:quiet")
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
    names = functions if isinstance(subject, Checked) else ["good"]
    return [Check(name, f"{name} law", "do good", functions[name]) for name in names]


def test_check(run, site, monkeypatch):
    monkeypatch.setattr(_plugin_commands, "checks_of", some_checks)
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)
    monkeypatch.setitem(eqsim.ENVS._registered, "checked", Checked)
    monkeypatch.setitem(eqsim.ENVS._registered, "choosy", lambda option: Rail())
    site("my-other", {"rail": "eqsim:Spring"}, kind="pipelines")
    status, out, err = run("plugins check rail")
    assert (status, err) == (0, "")
    for kind in ("env", "pipeline"):
        made = f"passed {kind} is made without options passed {kind} good"
        assert made in out
    status, out, _ = run("plugins check my-other:rail --kind pipeline")
    assert status == 0 and out.count("passed") == 2
    status, out, err = run("plugins check checked")
    assert status == 1 and "2 of 6 checks of 'checked' failed" in err
    for words in (
        "passed env good",
        "failed env bad: bad law two lines -> do good",
        "expected failure env known: it is so",
        "failed env cured: cured law",
        "(it was so)",
        "not applicable env odd: makes no sense",
    ):
        assert words in out, words
    status, out, err = run("plugins check choosy")
    assert status == 1 and "failed env is made without options: TypeError" in out


# --- Commands of other packages ---


def points(*names):
    return {name: f"good_commands:{name}" for name in names}


def test_published_commands(run, site):
    site(
        "my-commands",
        points("hello", "fails", "breaks", "ends", "many"),
        "1",
        "commands",
    )
    assert run("hello --name you --loud") == (0, "hello you!", "")
    assert run("many one --name you") == (0, "hello you", "")
    assert run("fails") == (2, "", "eqsim: no such thing")
    assert run("many two") == (2, "", "eqsim: no such thing")
    assert run("breaks") == (1, "", "eqsim: it broke")
    assert run("ends")[0] == 130
    status, out, _ = run("hello --help")
    assert status == 0 and "usage: eqsim hello" in out and "to whom." in out
    status, out, _ = run("many")
    assert status == 0 and "usage: eqsim many" in out and "Says hello." in out
    status, _, err = run("hello")
    assert status == 2 and "--name" in err
    status, out, err = run("--help")
    assert status == 0 and "Says hello." in out and "Subcommands: one, two" in out
    assert err == ""


def test_options_that_depend_on_arguments(run, site):
    site("my-commands", points("depends"), "1", "commands")
    assert run("depends you") == (0, "hello you!!!", "")
    assert run("depends me --volume 1") == (0, "hello me!", "")
    status, out, _ = run("depends them --help")
    assert status == 0 and "number of marks. (default: 4)" in out
    assert run("depends nobody") == (2, "", "eqsim: name somebody")


def test_broken_commands_hide_nothing(run, site):
    """What is built in needs no other package, and cannot be replaced by one."""
    odd = {"hello": "good_commands:hello", "odd": "good_commands:number"}
    site("my-commands", odd, "1", "commands")
    sick = {"sick": "sick_thing:x", "list": "sick_thing:x"}
    site("my-sick", sick, "1", "commands")
    status, out, err = run("list")
    assert status == 0 and "inverted_pendulum" in out and "license" not in err
    assert run("sik")[0] == 2 and "sick_thing" not in sys.modules
    status, out, err = run("--help")
    assert status == 0 and "hello" in out and "rollout" in out
    assert "my-sick" in err and "no license" in err and "'odd'" in err
    status, _, err = run("sick")
    assert status == 1 and "no license" in err
    status, _, err = run("odd")
    assert status == 1 and "a function, a dictionary of functions" in err
    assert run("hello --name you")[0] == 0


def test_where_commands_come_from(run, monkeypatch):
    monkeypatch.setattr(COMMANDS, "_plugins", {})
    status, _, err = run("train ppo ant")
    assert status == 2 and "pip install 'eqsim-zoo[cli]'" in err


# --- Environments by the place of their class ---

TASK = """
from toys import Rail

made = []

class Mine(Rail):
    def observe(self, state, action):
        return {"q": state.q, "more": {"qd": state.qd}}

def long(n=3):
    made.append(n)
    return Mine(n)

def wrong():
    return 3
"""


@pytest.fixture
def task(monkeypatch, tmp_path):
    """A file in the current folder, which is not on the path of Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(eqsim.ENVS, "_registered", {"rail": Rail})
    (tmp_path / "my_task.py").write_text(TASK)
    yield
    sys.modules.pop("my_task", None)


def test_import_paths():
    assert is_import_path("toys:Rail") and is_import_path("a.b.c:make")
    plugins = "ant", "eqsim:ant", "some-package:ant", "a/b:c", "a:b.c", ":c", "a:"
    assert not any(map(is_import_path, plugins))


def test_make_by_import_path():
    assert isinstance(eqsim.make("toys:Rail"), Rail)
    assert eqsim.make("toys:Rail", n=3).sys.nq == 3
    with pytest.raises(TypeError, match="'toys:Rail' has no option 'm'"):
        eqsim.make("toys:Rail", m=3)
    with pytest.raises(TypeError, match="makes an object of type `System`"):
        eqsim.make("toys:rails")
    with pytest.raises(ValueError, match="'toys' has no class or function 'Rai'.*Rail"):
        eqsim.make("toys:Rai")
    with pytest.raises(ValueError, match="no module 'toyz'.*`toyz.py`.*PYTHONPATH"):
        eqsim.make("toyz:Rail")


def test_commands_with_import_paths(run, task, monkeypatch):
    """Observations are a dictionary, in a dictionary."""
    status, out, err = run("show my_task:Mine")
    assert status == 0 and "observation more qd 2 q 2 action" in out, err
    assert run("show my_task:long")[0] == 0
    line = "rollout my_task:long --num-envs 3 --length 4"
    status, out, err = run(line)
    assert status == 0, err
    with np.load("out/rollout.npz") as file:
        np.testing.assert_array_equal(file["observations/q"], file["q"])
        np.testing.assert_array_equal(file["observations/more/qd"], file["qd"])
        assert file["next_observations/q"].shape == (3, 4, 3)
    assert run("view my_task:Mine --length 3 --export a.html")[0] == 0
    # The checks themselves are tested elsewhere.
    monkeypatch.setattr(_plugin_commands, "checks_of", lambda value: ())
    status, out, _ = run("plugins check my_task:Mine")
    assert status == 0 and "passed env is made without options" in out
    for line, text in {
        "show my_task:Min": "no class or function 'Min'. Known: Mine, long, wrong.",
        "show my_tusk:Mine": "Python finds no module 'my_tusk'",
        "show my_task:wrong": "makes an object of type `int`",
    }.items():
        status, _, err = run(line)
        assert status == 2 and text in err


def test_files_import_nothing(run, task, tmp_path):
    """A recording names a module, which is imported only if the user names it."""
    arrays = {"q": np.zeros((1, 4, 2)), "dt": np.array(0.1)}
    np.savez("a.npz", allow_pickle=False, env=np.array("my_task:Mine"), **arrays)
    status, _, err = run("view a.npz --export a.html")
    assert status == 2 and "`--env my_task:Mine`" in err
    assert "my_task" not in sys.modules
    assert run("view a.npz --env my_task:Mine --export a.html")[0] == 0
    assert "my_task" in sys.modules
    status, _, err = run("view rail --env my_task:Mine --export a.html")
    assert status == 2 and "`--env` is for runs and recordings" in err


def test_view_passes_the_name_to_readers(run, task, monkeypatch, tmp_path):
    def reader(folder, env="rail"):
        return eqsim.make(env), lambda obs, key: jnp.zeros(2)

    monkeypatch.setattr(RUNS, "_plugins", {})
    monkeypatch.setitem(RUNS._registered, "reader", reader)
    line = f"view {tmp_path} --length 3 --export a.html"
    assert run(line)[0] == 0 and "my_task" not in sys.modules
    assert run(f"{line} --env my_task:Mine")[0] == 0
    assert "my_task" in sys.modules
