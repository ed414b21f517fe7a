"""Calls of `batch_last` within another one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import tree_allclose

import eqsim.testing
from eqsim._batching import batch_last, over_batch


def _step_fn(a, x):
    """`a` has shape (2, *batch), `x` has shape (3, *batch)."""
    return x + 0.1 * jnp.sin(a[0:1] * x) + a[1:2] * x**2


step = batch_last(_step_fn)


def _rolled(a, x):
    body = lambda x, _: (step(a, x), jnp.sum(x))
    return jax.lax.scan(body, x, None, length=4)


def _sensitivity(a, x):
    """Derivatives of a call within another: several tangents at once."""
    return jax.jacfwd(step, 1)(a, x)


def _product(a, x):
    return jax.vjp(step, a, x)[1](jnp.ones_like(x))


def _outer(fn):
    """Wrap a function that contains a call of a wrapped one."""

    def outer(a, x):
        return over_batch(fn, x.ndim - 1, a, x)

    return batch_last(outer)


FUNCTIONS = {
    "scan": (_rolled, _outer(_rolled)),
    "tangents": (_sensitivity, _outer(_sensitivity)),
    "cotangent": (_product, _outer(_product)),
}
a, X = jnp.array([1.0, -0.2]), jnp.arange(15.0).reshape(5, 3) / 7.0
A = jnp.stack([a, 0.5 * a, -a, 2.0 * a, 0.0 * a])
CASES = {
    "one": lambda f: f(a, X[0]),
    "batch": lambda f: jax.vmap(f, (None, 0))(a, X),
    "both": lambda f: jax.vmap(f)(A, X),
    "twice": lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(A[:2], X),
}


@pytest.mark.parametrize("kernels", ("on", "off"))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.quick_cases(
    "scan-batch-on",
    "scan-one-off",
    "tangents-twice-on",
    "cotangent-both-on",
)
def test_equals_the_function(name, case, kernels, monkeypatch):
    monkeypatch.setenv("EQSIM_KERNELS", kernels)
    plain, wrapped = FUNCTIONS[name]
    run = jax.jit(lambda: CASES[case](wrapped))
    assert tree_allclose(run(), CASES[case](plain), rtol=1e-6)


def test_is_one_kernel():
    for _, wrapped in FUNCTIONS.values():
        eqsim.testing.check_kernels(wrapped, a, X[0])


def test_sizes_of_one():
    """A batch of one, and an argument that all environments share."""
    out = over_batch(
        lambda x, y: (x + y, 2.0 * y), 1, jnp.ones((3, 1)), jnp.ones((3, 1))
    )
    assert [x.shape for x in out] == [(3, 1), (3, 1)]
    np.testing.assert_array_equal(out[0], 2.0)


def _square_fn(x):
    return x * x


def _double_fn(x):
    return x + x


INNER = batch_last(_square_fn), batch_last(_double_fn)


def _summed_fn(inner, x):
    body = lambda total, _: (total + inner(x), None)
    return jax.lax.scan(body, 0.0 * x, None, length=3)[0]


def test_cached_programs_differ_by_what_is_called(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", str(tmp_path))
    x = jnp.array([2.0, 3.0])
    for inner, one in zip(INNER, (x * x, x + x), strict=True):
        found = jax.jit(lambda x, inner=inner: batch_last(_summed_fn)(inner, x))(x)
        np.testing.assert_allclose(found, 3.0 * one)
