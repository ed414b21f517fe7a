"""Derivatives at kinks are accepted, those at jumps are not."""

import jax
import jax.numpy as jnp
import pytest

from eqsim.testing._gradients import compare, Function


def _check(function, x):
    compare(Function.of(function, jnp.asarray(x)), kinks=True)


def test_a_kink_is_accepted():
    _check(jnp.abs, [0.0, 1.0])
    _check(lambda x: jnp.maximum(x, 0.0) * jnp.cos(x), [0.0, -1.0])


@pytest.mark.parametrize("height", (1.0, 1e-6))
def test_a_jump_is_an_error(height):
    with pytest.raises(AssertionError, match="the function jumps"):
        _check(lambda x: x + jnp.where(x >= 0.0, height, 0.0), [0.0])


def test_a_wrong_slope_beside_a_kink_is_an_error():
    @jax.custom_jvp
    def steep(x):
        return jnp.maximum(x, 0.0)

    steep.defjvp(lambda x, t: (steep(*x), 1.5 * t[0]))
    with pytest.raises(AssertionError, match="forward mode against differences"):
        _check(steep, [0.0])
