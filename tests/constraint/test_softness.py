"""Impedance and reference acceleration beside the formulas of MuJoCo's documentation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import check_gradients

from eqsim.constraint.costs import impedance, softness


DT = jnp.array(0.002)


def soft(solref=(0.02, 1.0), solimp=(0.9, 0.95, 0.001, 0.5, 2.0), safe=True):
    array = lambda values: [jnp.asarray(float(x)) for x in values]
    return softness(array(solref), array(solimp), DT, safe)


def documented(violation, d0, width_d, width, midpoint, power):
    """*Modeling*, "Solver parameters": $d(r)$, written as there."""
    x = abs(violation) / width
    if x >= 1.0:
        return width_d
    if x <= midpoint:
        y = x**power / midpoint ** (power - 1)
    else:
        y = 1 - (1 - x) ** power / (1 - midpoint) ** (power - 1)
    return d0 + y * (width_d - d0)


@pytest.mark.parametrize(
    "solimp",
    (
        (0.9, 0.95, 0.001, 0.5, 2.0),
        (0.2, 0.99, 0.01, 0.3, 1.0),
        (0.2, 0.99, 0.01, 0.7, 6.0),
        (0.95, 0.5, 0.02, 0.5, 1.5),
    ),
)
def test_impedance(solimp):
    violations = -np.linspace(0.0, 1.5, 31) * solimp[2]
    curve = jax.vmap(lambda r: impedance(soft(solimp=solimp), r))
    expected = [documented(r, *solimp) for r in violations]
    np.testing.assert_allclose(curve(jnp.asarray(violations)), expected, rtol=1e-12)


def test_impedance_out_of_range():
    """Numbers outside of their range are clipped, and a width of zero is the mean."""
    bad = soft(solimp=(-1.0, 2.0, 0.01, 3.0, 0.5))
    expected = documented(-0.004, 1e-4, 0.9999, 0.01, 0.9999, 1.0)
    assert float(impedance(bad, jnp.array(-0.004))) == pytest.approx(expected)
    flat = soft(solimp=(0.8, 0.9, 0.0, 0.5, 2.0))
    assert float(impedance(flat, jnp.array(-0.1))) == pytest.approx(0.85)


def value(solimp, violation):
    return impedance(softness([DT * 10, DT], solimp, DT, True), violation)


# Compiled once for all cases.
SLOPES = jax.jit(jax.grad(value, argnums=(0, 1)))


@pytest.mark.parametrize("power", (1.0, 1.5, 2.0, 3.0))
@pytest.mark.parametrize("depth", (0.0, 0.004, 0.005, 0.007, 0.01, 0.02))
@pytest.mark.quick_cases("0.0-1.0", "0.005-1.5", "0.007-2.0", "0.02-3.0")
def test_derivatives_are_finite(power, depth):
    """Also at the start, where the pieces meet, and at the width."""
    solimp = [jnp.asarray(x) for x in (0.8, 0.95, 0.01, 0.5, power)]
    grads = SLOPES(solimp, jnp.array(-depth))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(grads))
    if depth in (0.004, 0.007) and power > 1.0:
        largest = check_gradients(value, solimp, jnp.array(-depth))
        assert all(x > 0 for x in largest.values())


def test_reference_acceleration():
    """*Modeling*, "Solver parameters": stiffness and damping from `solref`."""
    dmax = 0.95
    standard = soft((0.03, 0.7))
    assert float(standard.b) == pytest.approx(2 / (dmax * 0.03))
    assert float(standard.k) == pytest.approx(1 / (dmax**2 * 0.03**2 * 0.7**2))
    direct = soft((-100.0, -5.0))
    assert float(direct.b) == pytest.approx(5 / dmax)
    assert float(direct.k) == pytest.approx(100 / dmax**2)


def test_short_time_constants():
    """They are raised to two time steps, unless that is switched off."""
    short, limit = soft((0.001, 1.0)), soft((0.004, 1.0))
    assert float(short.k) == float(limit.k) and float(short.b) == float(limit.b)
    free = soft((0.001, 1.0), safe=False)
    assert float(free.b) == pytest.approx(2 / (0.95 * 0.001))


def test_mixed_formats_are_the_default():
    for mixed in ((-0.1, 1.0), (0.05, -1.0)):
        assert float(soft(mixed).k) == float(soft((0.02, 1.0)).k)
