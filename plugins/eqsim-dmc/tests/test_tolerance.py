"""`tolerance` beside that of dm_control, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from eqsim_dmc import sigmoids, tolerance
from jax.test_util import check_grads


NAMES = (
    "cosine",
    "gaussian",
    "hyperbolic",
    "linear",
    "long_tail",
    "quadratic",
    "reciprocal",
    "tanh_squared",
)
TAKE_ZERO = "cosine", "linear", "quadratic"
BOUNDS = (0.0, 0.0), (-0.5, 1.5), (0.3, np.inf), (-np.inf, -0.2)
X = np.concatenate([np.linspace(-4.0, 4.0, 161), [-50.0, 50.0]])

each = pytest.mark.parametrize("name", NAMES)


def sigmoid(name):
    return vars(sigmoids)[name]


@each
@pytest.mark.parametrize("bounds", BOUNDS)
def test_values(name, bounds):
    rewards = pytest.importorskip("dm_control.utils.rewards")
    for margin in (0.0, 0.4, 3.0):
        for value in (0.0, 0.1, 0.7):
            if value == 0.0 and name not in TAKE_ZERO:
                continue
            ours = tolerance(jnp.asarray(X), bounds, margin, sigmoid(name), value)
            theirs = rewards.tolerance(X, bounds, margin, name, value)
            np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@each
def test_definition(name):
    """1 inside and at the bounds, the value at the margin, less and less beyond."""
    x = jnp.asarray([-1.0, 0.0, 0.5, 1.0, 3.0])
    near = tolerance(x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3)
    np.testing.assert_allclose(near, [1.0, 1.0, 1.0, 1.0, 0.3], 1e-12)
    x = jnp.linspace(1.0, 9.0, 60)
    far = tolerance(x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3)
    assert np.all(np.diff(far) <= 0.0) and np.all(far >= 0.0)
    np.testing.assert_allclose(far, tolerance(-x, (-1.0, 1.0), 2.0, sigmoid(name), 0.3))


@each
def test_gradients(name):
    """By the number, the bounds, the margin and the value, against differences."""

    @jax.jit
    def value(x, low, high, margin, least):
        return tolerance(x, (low, high), margin, sigmoid(name), least)

    for x in (-1.3, -0.4, 0.2, 1.7):
        numbers = tuple(jnp.asarray(a) for a in (x, -0.5, 1.0, 1.5, 0.2))
        check_grads(value, numbers, order=1, modes=("fwd", "rev"), rtol=1e-5)


@each
def test_gradients_are_finite(name):
    """With infinite bounds, far away, at the bounds and without margin."""
    for bounds in BOUNDS:
        for margin in (0.0, 1.0):
            slope = jax.grad(lambda x: tolerance(x, bounds, margin, sigmoid(name), 0.1))
            slopes = jax.vmap(slope)(jnp.asarray([*X, 0.3, -0.2, 1.5, -1e9, 1e9]))
            assert np.all(np.isfinite(slopes))


def test_single_precision():
    x = jnp.asarray([0.0, 2.0], jnp.float32)
    assert tolerance(x, (0.0, 1.0), 1.0).dtype == jnp.float32


def test_errors():
    x = jnp.zeros(())
    with pytest.raises(ValueError, match=r"ascending order, got \(1.0, 0.0\)"):
        tolerance(x, (1.0, 0.0))
    with pytest.raises(ValueError, match="`margin` must be at least 0, got -1.0"):
        tolerance(x, margin=-1.0)
    with pytest.raises(ValueError, match="0 < value < 1 for `gaussian`, got 0.0"):
        tolerance(x, margin=1.0, value_at_margin=0.0)
    with pytest.raises(ValueError, match="0 <= value < 1 for `linear`, got 1.0"):
        tolerance(x, margin=1.0, sigmoid=sigmoids.linear, value_at_margin=1.0)
