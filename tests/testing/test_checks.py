"""How checks become reports, errors and tests of pytest."""

import equinox as eqx
import jax.numpy as jnp
import pytest
from testing.wrong_envs import Backwards, rail

import eqsim
from eqsim.testing import (
    Check,
    ConformanceError,
    env_checks,
    NotApplicable,
    parametrize_with_checks,
    Status,
    tree_allclose,
)
from eqsim.testing._check import bind, Law, run_checks


class Thing:
    __eqsim_expected_failures__ = {}


def good(kit):
    """It is good.

    Be good.
    """


def bad(kit):
    """It is not bad.

    Be less bad.
    """
    raise AssertionError("it is bad")


def odd(kit):
    """It is not odd.

    Be even.
    """
    raise KeyError("odd")


def skipped(kit):
    """Never mind."""
    raise NotApplicable("no reason to")


def after_bad(kit):
    """It is fine if it is not bad."""


def after_that(kit):
    """It is fine, too."""


LAWS = (
    *(Law(good), Law(bad), Law(odd), Law(skipped)),
    *(Law(after_bad, ("good", "bad")), Law(after_that, ("after_bad",))),
    Law(lambda kit: None, ("skipped",)),
)


def run(expected={}, thing=Thing):
    return run_checks(thing(), bind(None, LAWS), expected)


def test_error_lists_all_failures():
    with pytest.raises(ConformanceError) as caught:
        run()
    assert str(caught.value).splitlines() == [
        "Thing: 2 passed, 2 failed, 3 not applicable",
        "",
        "bad: It is not bad.",
        "  it is bad",
        "  -> Be less bad.",
        "",
        "odd: It is not odd.",
        "  KeyError: 'odd'",
        "  -> Be even.",
        "",
        "skipped: not applicable: no reason to",
        "after_bad: not applicable: it needs `bad`, which does not pass",
        "after_that: not applicable: it needs `after_bad`, which does not pass",
    ]
    assert caught.value.report.names(Status.FAILED) == ("bad", "odd")
    assert isinstance(caught.value, AssertionError)


def test_expected_failures():
    report = run({"bad": "young", "odd": "old"})
    assert report.names(Status.EXPECTED) == ("bad", "odd")
    assert "bad: expected failure: young" in str(report)
    with pytest.raises(ConformanceError, match="passed, though.*shy.*take it off") as e:
        run({"bad": "young", "odd": "old", "good": "shy"})
    assert e.value.report.names(Status.FAILED) == ("good",)


def test_expected_failures_of_a_class():
    class Declared(Thing):
        __eqsim_expected_failures__ = {"bad": "young"}

    report = run({"odd": "old"}, Declared)
    assert report.names(Status.EXPECTED) == ("bad", "odd")


def test_unknown_expected_failures():
    with pytest.raises(ValueError, match="'baad'.*Did you mean 'bad'.*good, bad, odd"):
        run({"baad": "young"})
    with pytest.raises(
        ValueError, match=r"\['bad'\]` must be a reason, in words, got ''"
    ):
        run({"bad": ""})

    class Declared(Thing):
        __eqsim_expected_failures__ = {"evil": "young"}

    with pytest.raises(
        ValueError, match="Declared.__eqsim_expected_failures__.*'evil'"
    ):
        run({}, Declared)


def test_a_check_is_computed_once():
    count = []

    def law(kit):
        """It holds."""
        count.append(kit)
        raise AssertionError("never")

    checks = list(bind("kit", [Law(law), Law(after_bad, ("law",))]))
    for check in (checks[1], checks[0], checks[0]):
        with pytest.raises((AssertionError, NotApplicable)):
            check.run()
    assert count == ["kit"]


def test_every_check_says_what_holds_and_what_to_do():
    every = (
        eqsim.testing.env_checks(rail()),
        eqsim.testing.pipeline_checks(eqsim.Generalized()),
    )
    for checks in every:
        for check in checks:
            assert isinstance(check, Check) and check.name.isidentifier()
            assert check.law.endswith(".") and check.advice.endswith("."), check.name


def test_wrong_kinds():
    for checks in (
        eqsim.testing.env_checks,
        eqsim.testing.pipeline_checks,
        eqsim.testing.agent_checks,
        lambda x: eqsim.testing.checks_of(x),
    ):
        # Where types are checked, that comes first.
        with pytest.raises(TypeError, match="is expected, but got|Type-check error"):
            checks(Thing())
    with pytest.raises(TypeError, match="call the class"):
        eqsim.testing.checks_of(eqsim.envs.PointMass)


def test_needs_are_known_and_come_first():
    from eqsim.testing import _agent, _env, _pipeline

    for laws in (_env.LAWS, _pipeline.LAWS, _agent.LAWS):
        names = [law.name for law in laws]
        assert len(set(names)) == len(names)
        for k, law in enumerate(laws):
            assert set(law.needs) <= set(names[:k]), law.name


def test_one_check_runs_alone():
    check = next(c for c in env_checks(Backwards()) if c.name == "dt")
    with pytest.raises(AssertionError, match="positive"):
        check.run()


def test_parametrize():
    mark = parametrize_with_checks(
        [rail(), Backwards(), rail(), eqsim.Generalized()],
        lambda x: {"dt": "time flies"} if isinstance(x, Backwards) else {},
    ).mark
    assert mark.args[0] == "check"
    by_id = {parameter.id: parameter for parameter in mark.args[1]}
    assert {"Rail1-jit", "Rail2-jit", "Backwards-dt", "Generalized-energy"} <= set(
        by_id
    )
    (xfail,) = by_id["Backwards-dt"].marks
    assert xfail.kwargs == {"reason": "time flies", "strict": True}
    assert not by_id["Rail1-dt"].marks
    skip = by_id["Rail1-dt"].values[0]
    assert skip.run() is None
    with pytest.raises(ValueError, match="no_such"):
        parametrize_with_checks([rail()], {"no_such": "reason"})


@parametrize_with_checks([Backwards()], {"dt": "time flies"})
def test_parametrized(check):
    """The real thing, of checks that need no compilation: one passes, one is expected to
    fail."""
    if check.name not in ("dt", "action_range", "rebuild"):
        pytest.skip("takes longer")
    check.run()


def test_not_applicable_is_skipped():
    from eqsim.testing import _parametrize

    (check,) = bind(None, [Law(skipped)])
    with pytest.raises(pytest.skip.Exception, match="no reason to"):
        _parametrize.skipping(check).run()


def test_tree_allclose_of_keys_and_other_leaves():
    import jax.random as jr

    assert tree_allclose(jr.key(1), jr.key(1))
    assert not tree_allclose(jr.key(1), jr.key(2))
    assert tree_allclose({"a": "text"}, {"a": "text"})
    assert not tree_allclose({"a": "text"}, {"a": "word"})


def test_same_shapes_tells_weak_types():
    from eqsim.testing._compare import same_shapes

    strong, weak = jnp.ones((), jnp.float64), jnp.asarray(1.0)
    assert same_shapes(strong, strong)
    assert "weak" in repr(same_shapes(strong, weak))
    assert not same_shapes((strong,), [strong])
    shape = eqx.filter_eval_shape(lambda: strong)
    assert same_shapes(shape, strong)
