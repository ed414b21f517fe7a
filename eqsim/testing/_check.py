"""Checks, and their reports and errors."""

import dataclasses
import difflib
import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


class NotApplicable(Exception):
    """A check has no meaning for an object.

    **Arguments:**

    - `reason`: reason, in words.
    - `blocked`: true if the reason is that another check fails.
    """

    def __init__(self, reason: str, blocked: bool = False):
        self.reason, self.blocked = reason, blocked

    def __str__(self) -> str:
        return self.reason


class ConformanceError(AssertionError):
    """An object does not conform to its interface; the message lists all failures.

    **Arguments:**

    - `report`: report of all checks.
    """

    def __init__(self, report: "Report"):
        self.report = report

    def __str__(self) -> str:
        return str(self.report)


class Status(enum.Enum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    EXPECTED = "expected failure"
    NOT_APPLICABLE = "not applicable"


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one object.

    **Arguments:**

    - `name`: name of the check, as used in expected failures.
    - `law`: requirement, in a sentence.
    - `advice`: advice for the case that it fails.
    - `function`: function called by `run`.
    """

    name: str
    law: str
    advice: str
    function: Callable[[], None] = dataclasses.field(repr=False)

    def run(self) -> None:
        """Run the check.

        **Raises:** `NotApplicable` if the check is not applicable; `AssertionError`, or
        any exception of the object, if the requirement is not met.
        """
        self.function()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a check, with its reason.

    **Arguments:**

    - `check`: the check.
    - `status`: its outcome.
    - `reason`: reason, unless it passed.
    """

    check: Check
    status: Status
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """Outcomes of all checks of an object. `print` shows them.

    **Arguments:**

    - `subject`: name of the object.
    - `outcomes`: one outcome per check, in order.
    """

    subject: str
    outcomes: tuple[Outcome, ...]

    def names(self, status: Status) -> tuple[str, ...]:
        """Return the names of the checks with a given outcome."""
        return tuple(o.check.name for o in self.outcomes if o.status is status)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes of unexpected failures."""
        return tuple(o for o in self.outcomes if o.status is Status.FAILED)

    def __str__(self) -> str:
        counts = [f"{len(self.names(s))} {s.value}" for s in Status if self.names(s)]
        lines = [f"{self.subject}: {', '.join(counts)}"]
        for outcome in self.failures:
            check = outcome.check
            lines += ["", f"{check.name}: {check.law}"]
            lines += [f"  {line}" for line in outcome.reason.splitlines()]
            lines += [f"  -> {check.advice}"]
        rest = [o for o in self.outcomes if o.status in _EXPLAINED]
        lines += [""] if rest else []
        lines += [f"{o.check.name}: {o.status.value}: {o.reason}" for o in rest]
        return "\n".join(lines)


_EXPLAINED = Status.EXPECTED, Status.NOT_APPLICABLE


@dataclasses.dataclass(frozen=True)
class Law:
    """A check of every object of a kind. Its function takes the kit of an object; name
    and docstring (requirement, then advice) of the function are those of the check.

    **Arguments:**

    - `function`: function that raises if the requirement is not met.
    - `needs`: names of the laws that must hold for this one to be meaningful.
    """

    function: Callable[[Any], None]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__


def bind(kit: Any, laws: Iterable[Law]) -> Iterator[Check]:
    """Return the checks of one object. Each is computed once, however often it runs.

    **Arguments:**

    - `kit`: argument of the functions of the laws.
    - `laws`: laws, ordered so that each comes after those that it needs.
    """
    known: dict[str, Law] = {law.name: law for law in laws}
    errors: dict[str, Exception | None] = {}

    def error(name: str) -> Exception | None:
        if name not in errors:
            errors[name] = _error(known[name])
        return errors[name]

    def _error(law: Law) -> Exception | None:
        for name in law.needs:
            found = error(name)
            # A law that is not applicable does not block others.
            fine = isinstance(found, NotApplicable) and not found.blocked
            if not (found is None or fine):
                reason = f"it needs `{name}`, which does not pass"
                return NotApplicable(reason, blocked=True)
        try:
            law.function(kit)
        except Exception as caught:
            return caught
        return None

    def run(name: str) -> None:
        found = error(name)
        if found is not None:
            raise found

    for law in known.values():
        text = inspect.getdoc(law.function) or ""
        says, _, advice = (" ".join(part.split()) for part in text.partition("\n\n"))
        yield Check(law.name, says, advice, lambda name=law.name: run(name))


def outcomes(
    subject: Any, checks: Iterable[Check], expected_failures: Mapping[str, str] = {}
) -> Iterator[Outcome]:
    """Run the checks of an object, and yield their outcomes.

    **Arguments:** as for `run_checks`.

    **Raises:** `ValueError` if a check that is expected to fail does not exist.
    """
    checks = tuple(checks)
    expected = expected_of(subject, checks, expected_failures)
    for check in checks:
        yield _outcome(check, expected.get(check.name))


def run_checks(
    subject: Any, checks: Iterable[Check], expected_failures: Mapping[str, str]
) -> Report:
    """Run all checks of an object.

    **Arguments:**

    - `subject`: the object.
    - `checks`: its checks.
    - `expected_failures`: reasons by name of check, in addition to those declared by
        the class.

    **Raises:** `ConformanceError` if a check fails or passes unexpectedly; `ValueError`
    if a check that is expected to fail does not exist.
    """
    found = tuple(outcomes(subject, checks, expected_failures))
    report = Report(type(subject).__name__, found)
    if report.failures:
        raise ConformanceError(report)
    return report


def expected_of(
    subject: Any, checks: Iterable[Check], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the reasons of expected failures by name of check: those declared in
    `__eqsim_expected_failures__` of the class, and given ones.

    **Raises:** `ValueError` if there is no check of this name, or it has no reason.
    """
    name, declared = "__eqsim_expected_failures__", {}
    for cls in reversed(type(subject).__mro__):
        declared = vars(cls).get(name, declared)
    names = [check.name for check in checks]
    for where, failures in ((f"{type(subject).__name__}.{name}", declared),) + (
        ("expected_failures", given),
    ):
        for key, reason in failures.items():
            if key not in names:
                close = difflib.get_close_matches(str(key), names, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise ValueError(
                    f"`{where}` names {key!r}, which is not a check of this kind of "
                    f"object.{hint} Checks: {', '.join(names)}."
                )
            if not (isinstance(reason, str) and reason):
                raise ValueError(
                    f"`{where}[{key!r}]` must be a reason, in words, got {reason!r}."
                )
    return {**declared, **given}


UNEXPECTED = "passed, though it is expected to fail ({}): take it off the list"


def _outcome(check: Check, expected: str | None) -> Outcome:
    try:
        check.run()
    except NotApplicable as reason:
        return Outcome(check, Status.NOT_APPLICABLE, reason.reason)
    except Exception as error:
        if expected is not None:
            return Outcome(check, Status.EXPECTED, expected)
        kind = "" if type(error) is AssertionError else f"{type(error).__name__}: "
        return Outcome(check, Status.FAILED, f"{kind}{error}")
    if expected is not None:
        return Outcome(check, Status.FAILED, UNEXPECTED.format(expected))
    return Outcome(check, Status.PASSED)
