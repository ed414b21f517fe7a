"""`eqsim plugins check`"""

from typing import Any

from rich.text import Text

from ..envs import is_import_path, make
from ..testing import checks_of, Outcome, outcomes, Status
from ._plugins import find, Kind
from ._tables import console


class ChecksFailed(Exception):
    """Some checks of a plugin have failed."""


_WORDS = {
    Status.PASSED: ("passed", "green"),
    Status.FAILED: ("failed", "bold red"),
    Status.EXPECTED: ("expected", "yellow"),
    Status.NOT_APPLICABLE: ("skipped", ""),
}


def check_plugin(name: str, kind: Kind | None) -> None:
    """Run the conformance kit; print one line per check.

    **Raises:** `ChecksFailed` if a check failed.
    """
    failed = total = 0
    own = kind in (None, "env") and is_import_path(name)
    kinds: list[tuple[Kind, Any]] = [("env", make)] if own else find(name, kind)
    for found, maker in kinds:
        build = (lambda: make(name)) if found == "env" else maker
        total += 1
        try:
            value = build()
            checks = tuple(checks_of(value))
        except Exception as error:
            failed += 1
            reason = f"{type(error).__name__}: {error}"
            _say(found, "is made without options", Status.FAILED, reason)
            continue
        _say(found, "is made without options", Status.PASSED, "")
        for outcome in outcomes(value, checks):
            total, failed = total + 1, failed + _tell(found, outcome)
    if failed:
        raise ChecksFailed(f"{failed} of {total} checks of {name!r} failed.")


def _tell(kind: Kind, outcome: Outcome) -> bool:
    """Print an outcome; return True if it is a failure."""
    check, reason = outcome.check, outcome.reason
    failed = outcome.status is Status.FAILED
    if failed:
        reason = f"{check.law}\n{reason}\n-> {check.advice}"
    _say(kind, check.name, outcome.status, reason)
    return failed


def _say(kind: Kind, check: str, status: Status, reason: str) -> None:
    word, style = _WORDS[status]
    line = Text(f"{word:9}", style=style)
    line.append(f"{kind} {check}", style="")
    if reason:
        line.append(": " + reason.strip().replace("\n", "\n" + 10 * " "), style="")
    console().print(line, soft_wrap=True)
