"""`eqsim plugins check`"""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.text import Text

from ..envs import make
from ._plugins import find, Kind
from ._tables import console


class ChecksFailed(Exception):
    """Not all checks of a plugin have passed."""


_STYLES = {"passed": "green", "failed": "bold red", "expected": "yellow", "skipped": ""}


def check_plugin(name: str, kind: Kind | None) -> None:
    """Runs the conformance kit; one line per check.

    **Raises:** `ChecksFailed` if a check failed.
    """
    failed = total = 0
    for found, maker in find(name, kind):
        build = (lambda: make(name)) if found == "env" else maker
        outcomes = _outcomes(found, build)
        for check, outcome, reason in outcomes:
            total, failed = total + 1, failed + (outcome == "failed")
            _say(found, check, outcome, reason)
    if failed:
        raise ChecksFailed(f"{failed} of {total} checks of {name!r} failed.")


def _say(kind: Kind, check: str, outcome: str, reason: str) -> None:
    line = Text(f"{outcome:9}", style=_STYLES[outcome])
    line.append(f"{kind} {check}", style="")
    if reason:
        line.append(": " + reason.strip().replace("\n", "\n" + 10 * " "), style="")
    console().print(line, soft_wrap=True)


def _outcomes(kind: Kind, build: Callable[[], Any]) -> Iterator[tuple[str, str, str]]:
    """Name, outcome and reason of each check, one after the other."""
    try:
        value = build()
    except Exception as error:
        yield "is made without options", "failed", f"{type(error).__name__}: {error}"
        return
    yield "is made without options", "passed", ""
    kit: Any = importlib.import_module("eqsim.testing")
    checks = {
        "env": lambda: kit.env_checks(value),
        "pipeline": lambda: kit.pipeline_checks(value),
        "agent": lambda: kit.agent_checks(value),
    }[kind]
    expected = inspect.getattr_static(type(value), "__eqsim_expected_failures__", {})
    known = set()
    for check in checks():
        known.add(check.name)
        yield (check.name, *_outcome(check, expected, kit.NotApplicable))
    for name in sorted(set(expected) - known):
        reason = "is an expected failure of the class, but there is no such check"
        yield name, "failed", reason


def _outcome(
    check: Any, expected: Mapping[str, str], skip: type[Exception]
) -> tuple[str, str]:
    try:
        check.run()
    except skip as reason:
        return "skipped", str(reason)
    except Exception as error:
        if check.name in expected:
            return "expected", expected[check.name]
        return "failed", f"{type(error).__name__}: {error}"
    if check.name in expected:
        return "failed", "passed, but the class says that it fails. Remove that entry"
    return "passed", ""
