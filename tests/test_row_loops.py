"""Independent rows: one after another, and many together."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsim._batching import batch_last
from eqsim._row_loops import each_row, MOST_TOGETHER, rows_together


def visit(row):
    """A loop whose length depends on the row, and a branch."""
    x, y = row
    half = lambda carry: (carry[0] / 2, carry[1] + 1)
    small, count = jax.lax.while_loop(
        lambda carry: jnp.any(carry[0] > 0.1), half, (jax.lax.stop_gradient(x), 0)
    )
    branch = jax.lax.cond(jnp.any(y > 0), lambda: jnp.sin(x * y), lambda: x - y)
    return {"value": branch + small * x, "count": count}


@pytest.mark.parametrize("rows", (1, 3, MOST_TOGETHER, 2 * MOST_TOGETHER + 5))
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


@pytest.mark.parametrize("rows", (1, 5, MOST_TOGETHER + 5))
def test_equal_derivatives(rows):
    x, y = np.random.default_rng(rows).normal(size=(2, rows, 2))
    value = lambda x, y: jnp.sum(each_row(visit, (x, y))["value"] ** 2)
    apart = jax.grad(value, (0, 1))(x, y)
    with rows_together():
        together = jax.grad(value, (0, 1))(x, y)
        forward = jax.jvp(value, (x, y), (x, y))[1]
    np.testing.assert_allclose(together, apart, rtol=1e-12, atol=1e-14)
    assert float(forward) == pytest.approx(float(np.sum(np.stack(apart) * (x, y))))


def test_visits_together():
    """Within the context, `visit` is traced once for a whole group of rows."""
    loops = lambda: str(jax.make_jaxpr(lambda x: each_row(jnp.sin, x))(jnp.ones(40)))
    assert "length=40" in loops()
    with rows_together():
        assert "length=2" in loops() and "20" in loops()
    assert "length=40" in loops()


def test_only_devices_other_than_cpus_visit_together():
    """What XLA compiles for a GPU has one loop less than what it compiles for a CPU."""

    def f(x):
        return each_row(lambda row: jnp.sin(row) * row, x)

    call = jax.jit(batch_last(f))
    texts = {}
    for platform in ("cpu", "cuda"):
        with _without_kernels():
            traced = call.trace(jnp.ones((8, 3)))
            texts[platform] = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.while" in texts["cpu"]
    assert "stablehlo.while" not in texts["cuda"]


@contextlib.contextmanager
def _without_kernels():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSIM_KERNELS", "off")
        yield
