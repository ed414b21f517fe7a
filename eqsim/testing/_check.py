"""A check, and how checks become a report or an error."""

import dataclasses
import difflib
import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


class NotApplicable(Exception):
    """A check that makes no sense for an object, and why.

    **Arguments:**

    - `reason`: in words.
    - `blocked`: whether that is because another check fails.
    """

    def __init__(self, reason: str, blocked: bool = False):
        self.reason, self.blocked = reason, blocked

    def __str__(self) -> str:
        return self.reason


class ConformanceError(AssertionError):
    """An object does not do what its kind promises; the message lists all of it.

    **Arguments:**

    - `report`: of all checks.
    """

    def __init__(self, report: "Report"):
        self.report = report

    def __str__(self) -> str:
        return str(self.report)


class Status(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    EXPECTED = "expected failure"
    NOT_APPLICABLE = "not applicable"


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one object.

    **Arguments:**

    - `name`: as used in expected failures.
    - `law`: what must hold, in a sentence.
    - `advice`: what to do if it does not.
    - `function`: what `run` calls.
    """

    name: str
    law: str
    advice: str
    function: Callable[[], None] = dataclasses.field(repr=False)

    def run(self) -> None:
        """Checks.

        **Raises:** `NotApplicable` if that makes no sense here; `AssertionError`, or
        whatever the object raises, if the law does not hold.
        """
        self.function()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a check.

    **Arguments:**

    - `check`: which.
    - `status`: how it ended.
    - `reason`: why, unless it passed.
    """

    check: Check
    status: Status
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of all checks of an object. `print` shows it.

    **Arguments:**

    - `subject`: what was checked.
    - `outcomes`: one per check, in their order.
    """

    subject: str
    outcomes: tuple[Outcome, ...]

    def names(self, status: Status) -> tuple[str, ...]:
        """The checks that ended so."""
        return tuple(o.check.name for o in self.outcomes if o.status is status)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes of the checks that failed unexpectedly."""
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
    """A check of every object of a kind: a function of what is prepared for an object,
    whose name, and docstring (what holds, then what to do), are those of the check.

    **Arguments:**

    - `function`: raises if the law does not hold.
    - `needs`: names of the laws without which this one says nothing.
    """

    function: Callable[[Any], None]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the function."""
        return self.function.__name__


def bind(kit: Any, laws: Iterable[Law]) -> Iterator[Check]:
    """The checks of one object. Each is computed once, however often it runs.

    **Arguments:**

    - `kit`: what the functions of the laws take.
    - `laws`: in an order in which each one comes after those that it needs.
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
            # What makes no sense for this object is no reason to skip the rest.
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
    """What becomes of the checks of an object, one after the other.

    **Arguments:** as of `run_checks`.

    **Raises:** `ValueError` if a check that is expected to fail does not exist.
    """
    checks = tuple(checks)
    expected = expected_of(subject, checks, expected_failures)
    for check in checks:
        yield _outcome(check, expected.get(check.name))


def run_checks(
    subject: Any, checks: Iterable[Check], expected_failures: Mapping[str, str]
) -> Report:
    """Runs all checks of an object.

    **Arguments:**

    - `subject`: the object.
    - `checks`: of it.
    - `expected_failures`: reasons by name of check, besides what the class declares.

    **Raises:** `ConformanceError` if a check fails, or passes though it is expected to
    fail; `ValueError` if a check that is expected to fail does not exist.
    """
    found = tuple(outcomes(subject, checks, expected_failures))
    report = Report(type(subject).__name__, found)
    if report.failures:
        raise ConformanceError(report)
    return report


def expected_of(
    subject: Any, checks: Iterable[Check], given: Mapping[str, str]
) -> dict[str, str]:
    """Which checks are expected to fail, and why: as the class of the object declares in
    `__eqsim_expected_failures__`, and as is given.

    **Raises:** `ValueError` if there is no check of such a name, or it has no reason.
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
                    f"`{where}` names {key!r}, which is no check of this kind of object."
                    f"{hint} Checks: {', '.join(names)}."
                )
            if not (isinstance(reason, str) and reason):
                raise ValueError(
                    f"`{where}[{key!r}]` is {reason!r}: the reason is expected, in words."
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
