"""How laws become outcomes, errors and tests of pytest, and how values are compared."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from testing.wrong_envs import MUTANTS, rail

import eqsim
from eqsim._batching import batch_last
from eqsim.testing import (
    _agent_laws,
    _environment_laws,
    _pipeline_laws,
    check_conformance,
    check_kernels,
    component_laws,
    conformance,
    ConformanceError,
    parametrize_with_checks,
    tree_allclose,
)
from eqsim.testing.comparisons import compare, Function, NotApplicable, same_shapes


(Backwards,) = (cls for cls in MUTANTS if cls.__name__ == "Backwards")


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


def after_skipped(kit):
    """A law that is not applicable does not block others."""


LAWS = {
    **{good: (), bad: (), odd: (), skipped: ()},
    **{after_bad: ("good", "bad"), after_that: ("after_bad",)},
    after_skipped: ("skipped",),
}


def run(expected={}, thing=Thing):
    checks = conformance._bind(None, LAWS)
    found = conformance.outcomes(thing(), checks, expected)
    return conformance._run_all("Thing", found)


def test_error_lists_all_failures():
    with pytest.raises(ConformanceError) as caught:
        run()
    assert [*caught.value.failures] == ["bad", "odd"]
    for words in ("bad: It is not bad.", "it is bad", "KeyError: 'odd'", "-> Be even."):
        assert words in str(caught.value)
    assert isinstance(caught.value, AssertionError)


def test_outcomes():
    found = run({"bad": "young", "odd": "old"})
    assert found["good"] == found["after_skipped"] == "passed"
    assert found["bad"] == "expected failure: young"
    assert found["skipped"] == "not applicable: no reason to"
    assert "needs `bad`" in found["after_bad"] and "`after_bad`" in found["after_that"]


def test_expected_failures():
    class Declared(Thing):
        __eqsim_expected_failures__ = {"bad": "young"}

    assert run({"odd": "old"}, Declared)["bad"] == "expected failure: young"
    with pytest.raises(ConformanceError, match="shy") as caught:
        run({"bad": "young", "odd": "old", "good": "shy"})
    assert [*caught.value.failures] == ["good"]
    with pytest.raises(ValueError, match="'baad'.*'bad'.*good, bad, odd"):
        run({"baad": "young"})
    with pytest.raises(ValueError, match=r"\['bad'\].* got ''"):
        run({"bad": ""})


def test_a_check_is_computed_once():
    count = []

    def law(kit):
        """It holds."""
        count.append(kit)
        raise AssertionError("never")

    checks = conformance._bind("kit", {law: (), after_bad: ("law",)})
    for check in (checks[1], checks[0], checks[0]):
        with pytest.raises((AssertionError, NotApplicable)):
            check.run()
    assert count == ["kit"]


def test_every_law_says_what_holds_and_what_to_do():
    """And the laws that it needs come first."""
    for laws in (
        _environment_laws.LAWS,
        _pipeline_laws.LAWS,
        _agent_laws.LAWS,
        component_laws.COLLIDER_LAWS,
        component_laws.CONSTRAINT_LAWS,
    ):
        checks = conformance._bind(None, laws)
        names = [check.name for check in checks]
        assert len(set(names)) == len(names)
        for k, (check, needs) in enumerate(zip(checks, laws.values(), strict=True)):
            assert set(needs) <= set(names[:k]), check.name
            assert check.law.endswith(".") and check.advice.endswith("."), check.name


def test_wrong_kinds():
    for wrong in (Thing(), eqsim.envs.PointMass):
        with pytest.raises(TypeError):
            check_conformance(wrong)


def test_parametrize():
    objects = [rail(), Backwards(), rail(), eqsim.Generalized()]
    mark = parametrize_with_checks(objects[1:2], {"dt": "time flies"}).mark
    (xfail,) = next(p for p in mark.args[1] if p.id == "Backwards-dt").marks
    assert xfail.kwargs == {"reason": "time flies", "strict": True}
    mark = parametrize_with_checks(objects).mark
    assert mark.args[0] == "check"
    by_id = {parameter.id: parameter for parameter in mark.args[1]}
    expected = {"Rail1-jit", "Rail2-jit", "Backwards-dt", "Generalized-energy"}
    assert expected <= set(by_id)
    assert not by_id["Rail1-dt"].marks
    by_id["Rail1-dt"].values[0].run()
    with pytest.raises(AssertionError, match="positive"):
        by_id["Backwards-dt"].values[0].run()
    with pytest.raises(ValueError, match="no_such"):
        parametrize_with_checks([rail()], {"no_such": "reason"})


@parametrize_with_checks([Backwards()], {"dt": "time flies"})
def test_parametrized(check):
    """Checks that need no compilation: two pass, one is expected to fail."""
    if check.name not in ("dt", "action_range", "rebuild"):
        pytest.skip("takes longer")
    check.run()


def test_not_applicable_is_skipped(monkeypatch):
    monkeypatch.setattr(conformance, "checks_of", lambda _: conformance._bind(0, LAWS))
    mark = parametrize_with_checks([Thing()]).mark
    (case,) = (p for p in mark.args[1] if p.id == "Thing-skipped")
    with pytest.raises(pytest.skip.Exception, match="no reason to"):
        case.values[0].run()


def test_tree_allclose_of_keys_and_other_leaves():
    assert tree_allclose(jr.key(1), jr.key(1))
    assert not tree_allclose(jr.key(1), jr.key(2))
    assert tree_allclose({"a": "text"}, {"a": "text"})
    assert not tree_allclose({"a": "text"}, {"a": "word"})


def test_same_shapes_distinguishes_weak_types():
    strong, weak = jnp.ones((), jnp.float64), jnp.asarray(1.0)
    assert same_shapes(strong, strong)
    assert "weak" in repr(same_shapes(strong, weak))
    assert not same_shapes((strong,), [strong])
    shape = eqx.filter_eval_shape(lambda: strong)
    assert same_shapes(shape, strong)


def _agree(function, x):
    compare(Function.of(function, jnp.asarray(x)), kinks=True)


def test_derivatives_at_kinks_and_jumps():
    _agree(jnp.abs, [0.0, 1.0])
    _agree(lambda x: jnp.maximum(x, 0.0) * jnp.cos(x), [0.0, -1.0])
    for height in (1.0, 1e-6):
        with pytest.raises(AssertionError, match="the function jumps"):
            _agree(lambda x: x + jnp.where(x >= 0.0, height, 0.0), [0.0])

    @jax.custom_jvp
    def steep(x):
        return jnp.maximum(x, 0.0)

    steep.defjvp(lambda x, t: (steep(*x), 1.5 * t[0]))
    with pytest.raises(AssertionError, match="forward mode against differences"):
        _agree(steep, [0.0])


def decomposed(x):
    return jnp.linalg.eigh(x[:, None] * x[None])[0]


def test_check_kernels():
    """It names the function and the reason, also if it was compiled before."""
    check_kernels(batch_last(lambda x: 2.0 * x), jnp.ones(3))
    fn = jax.jit(batch_last(decomposed))
    fn(jnp.ones(3))
    for _ in range(2):
        with pytest.raises(AssertionError, match="`decomposed`.*`eigh`"):
            check_kernels(fn, jnp.ones(3))
