"""The line search on convex functions of which some parts are much stiffer than others."""

import jax
import jax.numpy as jnp
import numpy as np

from eqsim.constraint.newton import least_share


COUNT = 2000


def test_it_decreases_the_cost():
    """Never more than at the start, and mostly nearly as much as possible."""
    rng = np.random.default_rng(0)
    kink = 10.0 ** rng.uniform(-6.0, -0.1, (COUNT, 8))
    weight = 10.0 ** rng.uniform(-2.0, 6.0, (COUNT, 8))

    def slope(share):
        beyond = jnp.maximum(share[:, None] - kink, 0.0)
        return -1.0 + 0.3 * share + jnp.sum(weight * beyond, axis=1)

    def cost(share):
        beyond = np.maximum(share[:, None] - kink, 0.0)
        return -share + 0.15 * share**2 + 0.5 * np.sum(weight * beyond**2, axis=1)

    low, high = np.zeros(COUNT), np.ones(COUNT)
    rising = jax.jit(lambda x: slope(x) > 0.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        above = np.asarray(rising(middle))
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = np.asarray(jax.jit(lambda one: least_share(slope, one))(jnp.ones(COUNT)))
    share = cost(found) / cost(low)
    assert np.min(share) > 0.0 and np.median(share) > 0.999
    assert np.quantile(share, 0.1) > 0.4
