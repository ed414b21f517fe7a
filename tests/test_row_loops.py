"""Independent rows: one after another, and many together."""

import contextlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsim._batching import batch_last
from eqsim._loops import each_row, MAX_GROUP_SIZE
from eqsim._primitive import rows_together, signature, traced


def visit(row):
    """A loop whose length depends on the row, and a branch."""
    x, y = row
    half = lambda carry: (carry[0] / 2, carry[1] + 1)
    small, count = jax.lax.while_loop(
        lambda carry: jnp.any(carry[0] > 0.1), half, (jax.lax.stop_gradient(x), 0)
    )
    branch = jax.lax.cond(jnp.any(y > 0), lambda: jnp.sin(x * y), lambda: x - y)
    return {"value": branch + small * x, "count": count}


@pytest.mark.parametrize(
    "rows", (1, 3, MAX_GROUP_SIZE, 2 * MAX_GROUP_SIZE, 2 * MAX_GROUP_SIZE + 5)
)
@pytest.mark.quick_cases("3", "69")
def test_equal(rows):
    x, y = np.random.default_rng(rows).normal(size=(2, rows, 2))
    single = jax.jit(visit)
    singles = [single(row) for row in zip(x, y, strict=True)]
    with rows_together():
        together = each_row(visit, (x, y))
    for found in (each_row(visit, (x, y)), together):
        for name, values in found.items():
            want = np.stack([one[name] for one in singles])
            np.testing.assert_allclose(values, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rows", (1, 5, MAX_GROUP_SIZE + 5))
@pytest.mark.quick_cases("37")
def test_equal_derivatives(rows):
    x, y = np.random.default_rng(rows).normal(size=(2, rows, 2))
    value = lambda x, y: jnp.sum(each_row(visit, (x, y))["value"] ** 2)
    apart = jax.grad(value, (0, 1))(x, y)
    with rows_together():
        together = jax.grad(value, (0, 1))(x, y)
        forward = jax.jvp(value, (x, y), (x, y))[1]
    np.testing.assert_allclose(together, apart, rtol=1e-12, atol=1e-14)
    assert float(forward) == pytest.approx(float(np.sum(np.stack(apart) * (x, y))))


def test_groups():
    """Within the context, `visit` is traced once for a whole group of rows."""
    loops = lambda: str(jax.make_jaxpr(lambda x: each_row(jnp.sin, x))(jnp.ones(40)))
    assert re.search(r"length=40\b", loops())
    with rows_together():
        assert re.search(r"length=2\b", loops()) and "[2,20]" in loops()
        with rows_together(False):
            assert re.search(r"length=40\b", loops())
    assert re.search(r"length=40\b", loops())


def scanned(x):
    return each_row(lambda row: jnp.sin(row) * row, x)


def nested(x):
    return batch_last(scanned)(x) + 1.0


@pytest.mark.parametrize("function", (scanned, nested))
def test_devices(function):
    """A program lowered for CUDA has no loop over a single group of rows; one for a CPU
    has."""
    call = jax.jit(batch_last(function))
    for platform, loop in (("cpu", True), ("cuda", False), ("cpu", True)):
        with _without_kernels():
            lowered = call.trace(jnp.ones((8, 3))).lower(lowering_platforms=(platform,))
            text = lowered.as_text()
        assert ("stablehlo.while" in text) == loop, platform


def test_programs_of_kernels_keep_their_loops():
    """The program of one environment is traced once, by whichever device comes first."""
    x = jnp.ones((8, 3))
    (equation,) = jax.make_jaxpr(batch_last(scanned))(x).eqns
    call = equation.params["call"]
    traced.cache_clear()
    with rows_together():
        text = str(traced(call, *signature([x]))[0])
    assert re.search(r"length=8\b", text)


@contextlib.contextmanager
def _without_kernels():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSIM_KERNELS", "off")
        yield
