"""Densities integrate to one, and stay numbers far out."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients
from scipy import integrate, special, stats

from eqsim_zoo.blocks.policies import Categorical, log_slope, Normal, TanhNormal


MEAN, LOG_STD = np.array([0.3, -1.2, 4.0]), np.array([-1.0, 0.2, 1.5])
NORMAL = Normal(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
LOGITS = np.array([[0.0, 1.0, -2.0], [5.0, 5.0, -40.0]])


def test_normal_is_scipy(getkey):
    x = jr.normal(getkey(), (20, 3)) * 5.0
    expected = stats.norm(MEAN, np.exp(LOG_STD)).logpdf(x).sum(axis=1)
    np.testing.assert_allclose(jax.vmap(NORMAL.log_prob)(x), expected, rtol=1e-12)
    entropy = stats.norm(MEAN, np.exp(LOG_STD)).entropy().sum()
    np.testing.assert_allclose(NORMAL.entropy(), entropy, rtol=1e-12)
    np.testing.assert_array_equal(NORMAL.mode(), MEAN)


def test_normal_draws(getkey):
    drawn = jax.vmap(NORMAL.sample)(jr.split(getkey(), 4000))
    for x, mean, log_std in zip(drawn.T, MEAN, LOG_STD):
        assert stats.kstest(x, stats.norm(mean, np.exp(log_std)).cdf).pvalue > 1e-3


def one(mean, log_std):
    return TanhNormal(Normal(jnp.array([mean]), jnp.array([log_std])))


def density(distribution):
    """Of the squashed number, as a function of it."""
    at = eqx.filter_jit(lambda y: jnp.exp(distribution.log_prob(jnp.arctanh(y)[None])))
    return lambda y: float(at(jnp.asarray(y)))


def test_tanh_normal_is_a_density():
    """Its integral is one, and over an interval it is the probability of the numbers that
    are squashed there."""
    mean, log_std = 0.7, 0.0
    find = density(one(mean, log_std))
    total, _ = integrate.quad(find, -1.0 + 1e-12, 1.0 - 1e-12, limit=200)
    assert total == pytest.approx(1.0, abs=1e-6)
    low, high = -0.2, 0.9
    part, _ = integrate.quad(find, low, high)
    normal = stats.norm(mean, np.exp(log_std))
    inside = normal.cdf(np.arctanh(high)) - normal.cdf(np.arctanh(low))
    assert part == pytest.approx(inside, rel=1e-9)


def test_tanh_normal_changes_variables():
    """The density of `tanh(u)` is that of `u` over the slope, by finite differences."""
    squashed = TanhNormal(NORMAL)
    for u in (np.zeros(3), np.array([0.5, -2.0, 3.0])):
        step = 1e-6
        slope = (np.tanh(u + step) - np.tanh(u - step)) / (2 * step)
        normal = stats.norm(MEAN, np.exp(LOG_STD)).logpdf(u)
        expected = np.sum(normal - np.log(slope))
        found = squashed.log_prob(jnp.asarray(u))
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_tanh_normal_draws(getkey):
    squashed, key = TanhNormal(NORMAL), getkey()
    y, log_prob = squashed.sample_and_log_prob(key)
    u = NORMAL.sample(key)
    np.testing.assert_array_equal(y, jnp.tanh(u))
    np.testing.assert_array_equal(log_prob, squashed.log_prob(u))
    np.testing.assert_allclose(squashed.mode(), np.tanh(MEAN), rtol=1e-15)


def test_tanh_normal_entropy(getkey):
    """Draws of the density estimate the entropy, which is an integral."""
    distribution = one(0.7, 0.0)
    find = density(distribution)
    at = lambda y: -special.xlogy(find(y), find(y))
    expected, _ = integrate.quad(at, -1.0 + 1e-12, 1.0 - 1e-12, limit=200)
    keys = jr.split(getkey(), 20_000)
    _, log_prob = jax.vmap(distribution.sample_and_log_prob)(keys)
    assert -jnp.mean(log_prob) == pytest.approx(expected, abs=0.03)
    # What PPO takes: the entropy of the normal and the mean of the slope.
    draws = jax.vmap(distribution.normal.sample)(keys)
    found = distribution.normal.entropy() + jnp.mean(log_slope(draws[:, 0]))
    assert found == pytest.approx(expected, abs=0.03)


FAR = np.array([0.0, 1e-4, 0.5, 3.0, 9.0, 20.0, 50.0])
FAR = np.concatenate([-FAR[::-1], FAR])


def exact_slope(u):
    """Without cancellation: 4 / (e^u + e^-u)^2."""
    u = abs(np.float64(u))
    return np.log(4.0) - 2 * u - 2 * np.log1p(np.exp(-2 * u))


def test_log_slope_far_out_in_single_precision():
    u = jnp.asarray(FAR, jnp.float32)
    found = jax.jit(log_slope)(u)
    assert found.dtype == jnp.float32
    expected = [exact_slope(x) for x in FAR]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    # The gradient is the derivative of log(1 - tanh^2), -2 tanh.
    slopes = jax.vmap(jax.grad(lambda x: log_slope(x[None])[0]))(u)
    np.testing.assert_allclose(slopes, -2 * np.tanh(FAR), atol=1e-6)


@pytest.mark.parametrize("log_std", (-5.0, 0.0, 2.0))
@pytest.mark.quick_cases("-5.0")
def test_tanh_normal_is_finite_far_out(log_std):
    """Densities and their derivatives in single precision."""
    single = lambda *x: jnp.array(x, jnp.float32)

    @jax.jit
    def of(u, mean, log_std):
        return TanhNormal(Normal(mean, log_std)).log_prob(u)

    for u, mean in itertools.product(FAR, (0.0, -50.0, 50.0)):
        args = single(u), single(mean), single(log_std)
        value, slopes = jax.value_and_grad(of, argnums=(0, 1, 2))(*args)
        assert np.all(np.isfinite([value, *np.ravel(slopes)])), (u, mean)
        expected = stats.norm(mean, np.exp(log_std)).logpdf(u) - exact_slope(u)
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("u", (0.0, 0.3, -6.0, 50.0))
@pytest.mark.quick_cases("0.0", "50.0")
def test_gradients(u):
    u = jnp.full(3, u)
    check_gradients(lambda u, normal: TanhNormal(normal).log_prob(u), u, NORMAL)


def test_draws_are_differentiable(getkey):
    """By mean and deviation: what SAC ascends."""
    key = getkey()

    def draw(normal):
        return TanhNormal(normal).sample_and_log_prob(key)

    check_gradients(draw, Normal(jnp.array([0.0, 0.8]), jnp.array([-1.0, 0.5])))


def test_categorical_is_scipy():
    """Over all combinations of independent levels."""
    distribution = Categorical(jnp.asarray(LOGITS))
    chances = special.softmax(LOGITS, axis=1)
    combinations = list(itertools.product(range(3), repeat=2))
    expected = [chances[0, i] * chances[1, j] for i, j in combinations]
    x = jnp.array(combinations, jnp.int32)
    found = np.exp(jax.vmap(distribution.log_prob)(x))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(1.0)
    entropy = stats.entropy(chances, axis=1).sum()
    np.testing.assert_allclose(distribution.entropy(), entropy, rtol=1e-12)
    np.testing.assert_array_equal(distribution.mode(), [1, 0])


def test_categorical_draws(getkey):
    distribution = Categorical(jnp.asarray(LOGITS))
    drawn = jax.vmap(distribution.sample)(jr.split(getkey(), 4000))
    chances = special.softmax(LOGITS, axis=1)
    counts = [np.sum(np.asarray(drawn[:, 0]) == k) for k in range(3)]
    assert stats.chisquare(counts, 4000 * chances[0]).pvalue > 1e-3
    assert not np.any(drawn[:, 1] == 2)


def test_categorical_is_finite_far_out():
    """Where one level is all but certain, and by far."""
    logits = jnp.array([[0.0, 1e4], [-300.0, 300.0]], jnp.float32)
    x = jnp.zeros(2, jnp.int32)
    for fn in (lambda d: d.entropy(), lambda d: d.log_prob(x)):
        value, slope = jax.value_and_grad(lambda z: fn(Categorical(z)))(logits)
        assert np.isfinite(value) and np.all(np.isfinite(slope))
    assert Categorical(logits).entropy() == pytest.approx(0.0, abs=1e-6)


def test_categorical_gradients():
    distribution = Categorical(jnp.asarray(LOGITS))
    x = jnp.array([2, 1], jnp.int32)
    check_gradients(lambda d: (d.log_prob(x), d.entropy()), distribution)
