"""Each check of the conformance kit passes where it should, and sees what it is there to
see: for each there is an object that is wrong in one way."""

import re

import jax
import jax.numpy as jnp
import pytest
from testing import wrong_agents, wrong_envs, wrong_pipelines
from testing.wrong_agents import Ascent, Recorded, Remembers
from testing.wrong_envs import rail, Wrong
from testing.wrong_pipelines import Refuses, Switched, SWITCHES

import eqsim
from eqsim.testing import check_conformance, ConformanceError, probes
from eqsim.testing.comparisons import NotApplicable, require_precision
from eqsim.testing.conformance import checks_of
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


slow = pytest.mark.slow


def find(subject, name, **options):
    """The check of the given name."""
    checks = checks_of(subject, **options)
    return next(check for check in checks if check.name == name)


@slow
def test_environment():
    assert set(check_conformance(rail()).values()) == {"passed"}


@slow
@pytest.mark.parametrize("name", ("point_mass", "inverted_pendulum"))
def test_built_in_environments(name):
    assert set(check_conformance(eqsim.make(name)).values()) == {"passed"}


WRAPPERS = {
    "reset": lambda: AutoReset(TimeLimit(rail(), 7)),
    "robots": lambda: DomainRandomization(rail(), eqsim.randomize.masses(0.5, 2.0)),
}


@slow
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers(name):
    found = check_conformance(WRAPPERS[name](), build=WRAPPERS[name])
    assert {name for name, text in found.items() if text != "passed"} <= {"truncated"}


@slow
@pytest.mark.parametrize("make", (probes.constant_reward, probes.delayed_reward))
def test_probes(make):
    found = check_conformance(make())
    assert found.pop("mass").startswith("expected failure: ")
    assert set(found.values()) == {"passed"}


@slow
@pytest.mark.parametrize("kind", (eqsim.Generalized, eqsim.Spring, eqsim.Positional))
def test_built_in_pipelines(kind):
    found = check_conformance(kind())
    assert found.pop("aux").startswith("not applicable: ")
    assert set(found.values()) == {"passed"}


@slow
def test_pipeline_without_mistakes():
    assert set(check_conformance(Switched()).values()) == {"passed"}


@slow
@pytest.mark.parametrize("name", SWITCHES)
def test_mistake_of_a_pipeline(name):
    """All mistakes are in one program, so that each can be checked for all that fails."""
    with pytest.raises(ConformanceError) as caught:
        check_conformance(Switched(name), build=Switched)
    failures = caught.value.failures
    assert [*failures] == [name]
    assert re.search(SWITCHES[name], failures[name], re.DOTALL), failures


def test_refused_robot():
    """It is no failure, and what can be checked without it is checked."""
    checks = {check.name: check for check in checks_of(Refuses())}
    with pytest.raises(NotApplicable, match="rejects this robot: Nothing may touch"):
        checks["jit"].run()
    checks["free_fall"].run()
    checks["linear_momentum"].run()


@pytest.mark.parametrize("x64", (False, True))
def test_precision_does_not_depend_on_the_setting(x64):
    """Users run the kit without `jax_enable_x64`, the tests of eqsim with it."""
    shape = lambda dtype: {"it": jax.ShapeDtypeStruct((), dtype)}
    fixed = lambda dtype: {"it": jax.ShapeDtypeStruct((), jnp.float32)}
    with jax.enable_x64(x64):
        require_precision(shape)
        with pytest.raises(AssertionError, match="float32 for a robot in float64"):
            require_precision(fixed)
        find(rail(), "precision").run()


def test_agent():
    assert set(check_conformance(Ascent(), iterations=50).values()) == {"passed"}


def test_agent_with_memory():
    find(Remembers(), "memory").run()


def test_agent_without_iterate():
    found = check_conformance(Recorded())
    skipped = {name for name, text in found.items() if text.startswith("not appl")}
    assert {"learns_action", "structure", "metrics", "vmap"} <= skipped
    assert {found[name] for name in ("jit", "bounds", "serialization")} == {"passed"}


def test_budget_of_an_agent():
    with pytest.raises(AssertionError, match="after 1 iterations"):
        find(Ascent(), "learns_action", iterations=1).run()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        check_conformance(Ascent(), iterations=0)


def test_fixed_initial_state():
    class Fixed(Wrong):
        def initial(self, key):
            return self.pipeline.init(self.sys, jnp.full(2, 0.1, jnp.float64))

    with pytest.raises(NotApplicable, match="the initial state is fixed"):
        find(Fixed(), "keys").run()


MUTANTS = {
    f"{kind}-{mutant.__name__}": (mutant, *words)
    for kind, module in (
        ("env", wrong_envs),
        ("agent", wrong_agents),
        ("pipeline", wrong_pipelines),
    )
    for mutant, words in module.MUTANTS.items()
}
QUICK = (
    *("env-BranchesInPython", "env-DrawsInNumPy", "env-SinglePrecision", "env-Text"),
    *("env-RangeUpsideDown", "env-NotTheSum", "env-IgnoresOptions", "env-CutsState"),
    *("agent-GrowsItsState", "agent-IgnoresKey", "agent-StaticFloat", "agent-Blind"),
    *("pipeline-GrowsItsState", "pipeline-Anew", "pipeline-TakesAnyShape"),
)


def test_every_check_has_a_mutant():
    for kind, subject in (
        ("env", rail()),
        ("agent", Ascent()),
        ("pipeline", eqsim.Generalized()),
    ):
        names = {x[1] for key, x in MUTANTS.items() if key.startswith(kind)}
        names |= set(SWITCHES) if kind == "pipeline" else set()
        assert {check.name for check in checks_of(subject)} == names


@pytest.mark.parametrize("key", MUTANTS)
@pytest.mark.quick_cases(*QUICK)
def test_mutant(key):
    """The check that is there for it fails, and says what is wrong."""
    mutant, name, message = MUTANTS[key]
    with pytest.raises(Exception) as caught:
        find(mutant(), name, iterations=50).run()
    assert not isinstance(caught.value, NotApplicable), caught.value
    assert re.search(message, str(caught.value), re.DOTALL), caught.value


# Derivatives, which each pipeline would have to compile, are left to `SWITCHES`.
DEAR = ("grad", "gradients_", "sensitivity", "forces")


@slow
@pytest.mark.parametrize("key", MUTANTS)
def test_mutant_fails_one_check(key):
    """What is wrong in one way is reported once."""
    mutant, name, _ = MUTANTS[key]
    failed, dear = [], DEAR if key.startswith("pipeline") else ()
    for check in checks_of(mutant(), iterations=50):
        try:
            if not check.name.startswith(dear):
                check.run()
        except NotApplicable:
            continue
        except Exception:
            failed.append(check.name)
    assert failed == [name]


def test_retrace_after_cleared_caches():
    """Programs that earlier checks compiled may be gone."""
    checks = {check.name: check for check in checks_of(probes.constant_reward())}
    checks["jit"].run()
    jax.clear_caches()
    checks["retrace"].run()
