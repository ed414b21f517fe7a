"""Running statistics are those of all that was ever seen."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from eqsim_zoo.blocks import (
    init_statistics,
    mean_metrics,
    normalize,
    update_statistics,
)
from eqsim_zoo.blocks.observations import LIMIT


update = jax.jit(update_statistics)
# Few sizes, as each is compiled.
SIZES = st.lists(st.sampled_from([1, 2, 7]), min_size=0, max_size=5)


@given(SIZES, st.integers(0, 2**32 - 1))
def test_batches_are_one(sizes, seed):
    """With the observation of mean 0 and variance 1 that they begin with: which counts
    as one, and spreads by one."""
    rng = np.random.default_rng(seed)
    batches = [5.0 + 3.0 * rng.normal(size=(n, 2)) for n in sizes]
    found = init_statistics(jnp.zeros(2))
    for batch in batches:
        found = update(found, jnp.asarray(batch))
    seen = np.concatenate([np.zeros((1, 2)), *batches])
    mean, variance = np.mean(seen, axis=0), np.var(seen, axis=0) + 1.0 / len(seen)
    assert found.count == len(seen)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-12)
    x = rng.normal(size=2)
    expected = np.clip((x - mean) / np.sqrt(variance + 1e-8), -LIMIT, LIMIT)
    np.testing.assert_allclose(normalize(found, jnp.asarray(x)), expected, rtol=1e-12)


def test_clip_and_none():
    statistics = init_statistics(jnp.zeros(2))
    far = jnp.array([1e6, -1e6])
    np.testing.assert_array_equal(normalize(statistics, far), [LIMIT, -LIMIT])
    np.testing.assert_array_equal(normalize(None, far), far)


def test_far_from_zero_in_single_precision():
    """The variance does not drown in the square of the mean."""
    obs = 1e4 + jr.normal(jr.key(0), (500, 1), jnp.float32)
    statistics = init_statistics(obs[0])
    first = jnp.broadcast_to(jnp.float32(1e4), (1, 1))
    # Begun there, so that the virtual observation at 0 has no part in it.
    begin = type(statistics)(statistics.count, first[0], statistics.square)
    found = update(begin, obs)
    assert found.mean.dtype == found.square.dtype == jnp.float32
    expected = (np.var(np.asarray(obs, float)) * 500 + 1.0) / 501
    np.testing.assert_allclose(found.variance, expected, rtol=1e-2)


@given(hnp.arrays(float, (2, 3), elements=st.sampled_from([0.5, -2.0, np.nan, np.inf])))
def test_metrics_of_updates(x):
    """The mean over those that are finite, and how many are not."""
    found = mean_metrics({"x": jnp.asarray(x), "y": jnp.ones(x.shape)}, axes=2)
    fine = np.isfinite(x)
    expected = np.mean(x[fine]) if fine.any() else np.nan
    np.testing.assert_allclose(found["x"], expected, rtol=1e-12)
    assert float(found["y"]) == 1.0 and int(found["updates"]) == x.size
    assert int(found["nonfinite"]) == (~fine).sum()
    wide = mean_metrics({"x": jnp.asarray(x)})
    assert wide["x"].shape == x.shape[1:] and int(wide["updates"]) == len(x)
    assert int(wide["nonfinite"]) == (~fine).any(axis=1).sum()


def test_what_never_varies_stays_finite():
    """Also after very many observations: a constant is seen as zero."""
    found = init_statistics(jnp.zeros(1))
    for _ in range(20):
        found = update(found, jnp.full((7, 1), 3.0))
    out = normalize(found, jnp.full(1, 3.0))
    assert np.all(np.isfinite(out)) and abs(out[0]) < 1.0
