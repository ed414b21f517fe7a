"""Commands of other packages: throw-away packages, some of which misbehave."""

import sys

import pytest
from packages import publish

from eqsim._cli import main
from eqsim.plugins import COMMANDS


MODULES = {
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


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with modules, in which packages are published; cleaned up afterwards."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield tmp_path
    COMMANDS.refresh()
    for name in MODULES:
        sys.modules.pop(name, None)


def add(site, package, **points):
    publish(site, package, points, group="eqsim.commands")
    COMMANDS.refresh()


def run(capsys, line):
    status = main(line.split())
    printed = capsys.readouterr()
    return status, " ".join(printed.out.split()), " ".join(printed.err.split())


def test_published_commands(capsys, site):
    names = ("hello", "fails", "breaks", "ends", "many")
    add(site, "my-commands", **{name: f"good_commands:{name}" for name in names})
    assert run(capsys, "hello --name you --loud") == (0, "hello you!", "")
    assert run(capsys, "many one --name you") == (0, "hello you", "")
    assert run(capsys, "fails") == (2, "", "eqsim: no such thing")
    assert run(capsys, "many two") == (2, "", "eqsim: no such thing")
    assert run(capsys, "breaks") == (1, "", "eqsim: it broke")
    assert run(capsys, "ends")[0] == 130
    status, out, _ = run(capsys, "hello --help")
    assert status == 0 and "usage: eqsim hello" in out and "to whom." in out
    status, out, _ = run(capsys, "many")
    assert status == 0 and "usage: eqsim many" in out and "Says hello." in out
    status, _, err = run(capsys, "hello")
    assert status == 2 and "--name" in err
    status, out, err = run(capsys, "--help")
    assert status == 0 and "Says hello." in out and "Subcommands: one, two" in out
    assert err == ""


def test_options_that_depend_on_arguments(capsys, site):
    add(site, "my-commands", depends="good_commands:depends")
    assert run(capsys, "depends you") == (0, "hello you!!!", "")
    assert run(capsys, "depends me --volume 1") == (0, "hello me!", "")
    status, out, _ = run(capsys, "depends them --help")
    assert status == 0 and "number of marks. (default: 4)" in out
    assert run(capsys, "depends nobody") == (2, "", "eqsim: name somebody")
    status, out, err = run(capsys, "--help")
    assert status == 0 and "Options by name." in out and not err


def test_broken_commands_hide_nothing(capsys, site):
    add(site, "my-commands", hello="good_commands:hello", odd="good_commands:number")
    add(site, "my-sick", sick="sick_commands:x", list="sick_commands:x")
    status, out, err = run(capsys, "--help")
    assert status == 0 and "hello" in out and "rollout" in out
    assert (
        "'sick' in 'eqsim.commands' comes from my-sick" in err and "no license" in err
    )
    assert "The command 'odd' must be a function" in err
    status, _, err = run(capsys, "sick")
    assert status == 1 and "no license" in err
    status, _, err = run(capsys, "odd")
    assert status == 1 and "a function, a dictionary of functions" in err
    assert run(capsys, "hello --name you")[0] == 0


def test_nothing_is_imported_in_vain(capsys, site):
    """What is built in needs no other package, and cannot be replaced by one."""
    add(site, "my-sick", sick="sick_commands:x", list="sick_commands:x")
    status, out, err = run(capsys, "list")
    assert status == 0 and "inverted_pendulum" in out and "license" not in err
    assert "sick_commands" not in sys.modules
    assert run(capsys, "sik")[0] == 2
    assert "sick_commands" not in sys.modules


def test_where_commands_come_from(capsys, monkeypatch):
    monkeypatch.setattr(COMMANDS, "_plugins", {})
    status, _, err = run(capsys, "train ppo ant")
    assert status == 2 and "pip install 'eqsim-zoo[cli]'" in err
