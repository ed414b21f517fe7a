"""Each check of agents passes where it should, and sees what it is there to see."""

import re

import pytest
from testing.agents import Ascent, MUTANTS, Recorded, Remembers

from eqsim import testing
from eqsim.testing import ConformanceError, NotApplicable, Status


slow = pytest.mark.slow


def find(checks, name):
    return next(check for check in checks if check.name == name)


def test_ascent():
    report = testing.check_agent(Ascent(), iterations=50)
    assert not report.names(Status.NOT_APPLICABLE)


def test_with_memory():
    find(testing.agent_checks(Remembers()), "memory").run()


def test_without_iterate():
    report = testing.check_agent(Recorded())
    skipped = report.names(Status.NOT_APPLICABLE)
    assert {"learns_action", "structure", "metrics", "vmap"} <= set(skipped)
    assert {"jit", "bounds", "serialization"} <= set(report.names(Status.PASSED))


def test_budget():
    with pytest.raises(AssertionError, match="after 1 iterations the mean reward"):
        find(testing.agent_checks(Ascent(), iterations=1), "learns_action").run()
    with pytest.raises(ValueError, match="`iterations` must be at least 1, got 0"):
        testing.agent_checks(Ascent(), iterations=0)


everyone = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)


def test_every_check_has_a_mutant():
    names = {check.name for check in testing.agent_checks(Ascent())}
    assert {name for name, _ in MUTANTS.values()} == names


@everyone
@pytest.mark.quick_cases(
    "GrowsItsState",
    "IgnoresKey",
    "Unbounded",
    "ChangesItsMemory",
    "StaticFloat",
    "WrongInBatches",
    "ReportsText",
    "Blind",
)
def test_mutant(mutant):
    """The check that is there for it fails, and says what is wrong."""
    name, message = MUTANTS[mutant]
    with pytest.raises(Exception) as caught:
        find(testing.agent_checks(mutant(), iterations=50), name).run()
    assert not isinstance(caught.value, NotApplicable), caught.value
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


@slow
@everyone
def test_mutant_fails_one_check(mutant):
    """What is wrong in one way is reported once."""
    name, _ = MUTANTS[mutant]
    with pytest.raises(ConformanceError) as caught:
        testing.check_agent(mutant(), iterations=50)
    assert caught.value.report.names(Status.FAILED) == (name,)
