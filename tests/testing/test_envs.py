"""Each check of environments passes where it should, and sees what it is there to see."""

import re

import jax.numpy as jnp
import pytest
from testing.wrong_envs import MUTANTS, rail

import eqsim
from eqsim import testing
from eqsim.testing import ConformanceError, NotApplicable, probes, Status
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


slow = pytest.mark.slow


def find(checks, name):
    return next(check for check in checks if check.name == name)


def test_rail():
    report = testing.check_env(rail())
    assert report.names(Status.PASSED) == tuple(o.check.name for o in report.outcomes)
    assert "Rail: 26 passed" == str(report)


@slow
@pytest.mark.parametrize("name", ("point_mass", "inverted_pendulum"))
def test_built_in(name):
    report = testing.check_env(eqsim.make(name))
    assert not report.names(Status.NOT_APPLICABLE)


WRAPPERS = {
    "reset": lambda env: AutoReset(TimeLimit(env, 7)),
    "robots": lambda env: DomainRandomization(env, eqsim.randomize.masses(0.5, 2.0)),
}


@pytest.mark.parametrize("name", (pytest.param("reset", marks=slow), "robots"))
@pytest.mark.slow
def test_wrappers(name):
    wrapped = WRAPPERS[name](rail())
    report = testing.check_env(wrapped, build=lambda: WRAPPERS[name](rail()))
    assert set(report.names(Status.NOT_APPLICABLE)) <= {"truncated"}


@pytest.mark.parametrize(
    "make",
    (pytest.param(probes.constant_reward, marks=slow), probes.delayed_reward),
)
@pytest.mark.slow
def test_probes(make):
    report = testing.check_env(make())
    assert report.names(Status.EXPECTED) == ("mass",)
    assert not report.names(Status.NOT_APPLICABLE)


everyone = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)


def test_every_check_has_a_mutant():
    names = {check.name for check in testing.env_checks(rail())}
    assert {name for name, _ in MUTANTS.values()} == names


@everyone
@pytest.mark.quick_cases(
    "BranchesInPython",
    "DrawsInNumPy",
    "Remembers",
    "IgnoresKey",
    "WrongInBatches",
    "SinglePrecision",
    "HoldsCopy",
    "WrongInFleets",
    "RewardsReset",
    "AlwaysFirst",
    "NotTheSum",
    "PhysicsTooLong",
    "IgnoresOptions",
    "TakesNaN",
    "CutsState",
)
def test_mutant(mutant):
    """The check that is there for it fails, and says what is wrong."""
    name, message = MUTANTS[mutant]
    with pytest.raises(Exception) as caught:
        find(testing.env_checks(mutant()), name).run()
    assert not isinstance(caught.value, NotApplicable), caught.value
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


@slow
@everyone
def test_mutant_fails_one_check(mutant):
    """What is wrong in one way is reported once."""
    name, _ = MUTANTS[mutant]
    with pytest.raises(ConformanceError) as caught:
        testing.check_env(mutant())
    assert caught.value.report.names(Status.FAILED) == (name,)


def test_a_fixed_start():
    from testing.wrong_envs import _Wrong

    class Fixed(_Wrong):
        def initial(self, key):
            return self.pipeline.init(self.sys, jnp.full(2, 0.1, jnp.float64))

    with pytest.raises(NotApplicable, match="the initial state is fixed"):
        find(testing.env_checks(Fixed()), "keys").run()
