"""Bounds and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from eqsim.spatial import clamp, outside, positive_part
from eqsim.spatial.clamps import at_least, at_most


numbers = st.sampled_from((-2.0, -1.0, 0.0, 0.5, 1.0, 3.0))


@given(numbers, numbers, numbers)
def test_values(x, one, two):
    low, high = sorted((one, two))
    assert at_least(x, one) == max(x, one)
    assert at_most(x, one) == min(x, one)
    assert clamp(x, low, high) == np.clip(x, low, high)
    assert positive_part(x) == max(x, 0.0)
    assert outside(x, low, high) == x - np.clip(x, low, high)


AT_BOUNDS = {
    "at_least": (at_least, (1.0, 1.0), (1.0, 0.0)),
    "at_most": (at_most, (1.0, 1.0), (1.0, 0.0)),
    "clamp, lower": (clamp, (-1.0, -1.0, 2.0), (1.0, 0.0, 0.0)),
    "clamp, upper": (clamp, (2.0, -1.0, 2.0), (1.0, 0.0, 0.0)),
    "clamp, unlimited": (clamp, (2.0, -np.inf, np.inf), (1.0, 0.0, 0.0)),
    "clamp, one value": (clamp, (2.0, 2.0, 2.0), (0.0, 0.5, 0.5)),
    "positive_part": (positive_part, (0.0,), (0.0,)),
    "outside, lower": (outside, (-1.0, -1.0, 2.0), (0.0, 0.0, 0.0)),
    "outside, upper": (outside, (2.0, -1.0, 2.0), (0.0, 0.0, 0.0)),
    "outside, unlimited": (outside, (2.0, -np.inf, np.inf), (0.0, 0.0, 0.0)),
    "outside, one value": (outside, (2.0, 2.0, 2.0), (1.0, -0.5, -0.5)),
}


@pytest.mark.parametrize("function, at, rates", AT_BOUNDS.values(), ids=AT_BOUNDS)
def test_derivatives_at_bounds(function, at, rates):
    at = tuple(map(jnp.asarray, at))
    every = tuple(range(len(at)))
    np.testing.assert_array_equal(jax.grad(function, every)(*at), rates)
    np.testing.assert_array_equal(jax.jacfwd(function, every)(*at), rates)


def test_not_a_number_stays():
    nan = jnp.nan
    for found in (
        at_least(nan, 0.0),
        at_most(nan, 0.0),
        clamp(nan, 0.0, 1.0),
        positive_part(nan),
        outside(nan, 0.0, 1.0),
    ):
        assert jnp.isnan(found)
