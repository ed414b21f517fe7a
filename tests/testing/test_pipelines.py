"""Each check of pipelines passes where it should, and sees what it is there to see."""

import re

import pytest
from testing.pipelines import MUTANTS, Refuses, Switched, SWITCHES

import eqsim
from eqsim import testing
from eqsim.testing import ConformanceError, NotApplicable, Status


slow = pytest.mark.slow


def find(checks, name):
    return next(check for check in checks if check.name == name)


@slow
@pytest.mark.parametrize(
    "kind",
    (eqsim.Generalized, eqsim.Spring, eqsim.Positional),
    ids=lambda x: x.__name__,
)
def test_built_in(kind):
    report = testing.check_pipeline(kind())
    assert report.names(Status.NOT_APPLICABLE) == ("aux",)


def test_every_check_has_a_mutant():
    names = {check.name for check in testing.pipeline_checks(eqsim.Generalized())}
    assert {name for name, _ in MUTANTS.values()} | set(SWITCHES) == names


@slow
def test_without_mistakes():
    report = testing.check_pipeline(Switched())
    assert not report.names(Status.NOT_APPLICABLE)


@slow
@pytest.mark.parametrize("name", SWITCHES)
def test_mistake_fails_one_check(name):
    with pytest.raises(ConformanceError) as caught:
        testing.check_pipeline(Switched(name), build=Switched)
    report = caught.value.report
    assert report.names(Status.FAILED) == (name,), report
    assert re.search(SWITCHES[name], report.failures[0].reason, re.DOTALL), report


CHEAP = ("structure", "rebuild", "retrace", "jit", "refusals")


@pytest.mark.parametrize(
    "mutant",
    [m if c[0] in CHEAP else pytest.param(m, marks=slow) for m, c in MUTANTS.items()],
    ids=lambda m: m.__name__,
)
def test_mutant(mutant):
    """The check that is there for it fails, and says what is wrong."""
    name, message = MUTANTS[mutant]
    with pytest.raises(Exception) as caught:
        find(testing.pipeline_checks(mutant()), name).run()
    assert not isinstance(caught.value, NotApplicable), caught.value
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


DEAR = ("grad", "gradients_", "sensitivity", "forces")


@slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_mutant_fails_one_check(mutant):
    """What is wrong in one way is reported once; derivatives, which each of them would
    have to compile, are left to the mistakes above."""
    failed = []
    for check in testing.pipeline_checks(mutant()):
        try:
            if not check.name.startswith(DEAR):
                check.run()
        except NotApplicable:
            continue
        except Exception:
            failed.append(check.name)
    assert failed == [MUTANTS[mutant][0]]


def test_a_refused_robot():
    """Is no failure; what can be checked without it is checked."""
    checks = list(testing.pipeline_checks(Refuses()))
    with pytest.raises(NotApplicable, match="rejects this robot: Nothing may touch"):
        find(checks, "jit").run()
    find(checks, "free_fall").run()
    find(checks, "linear_momentum").run()
