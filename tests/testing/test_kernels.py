"""`check_kernels` tells what falls back to XLA, and why."""

import jax
import jax.numpy as jnp
import pytest

import eqsim.testing
from eqsim._batching import batch_last


def doubled(x):
    return 2.0 * x


def decomposed(x):
    return jnp.linalg.eigh(x[:, None] * x[None])[0]


def test_passes():
    eqsim.testing.check_kernels(batch_last(doubled), jnp.ones(3))


def test_names_the_function_and_the_reason():
    with pytest.raises(AssertionError, match="`decomposed`: the primitive `eigh`"):
        eqsim.testing.check_kernels(batch_last(decomposed), jnp.ones(3))


def test_lowers_anew():
    """A function that has been compiled before is checked all the same."""
    fn = jax.jit(batch_last(decomposed))
    fn(jnp.ones(3))
    for _ in range(2):
        with pytest.raises(AssertionError, match="decomposed"):
            eqsim.testing.check_kernels(fn, jnp.ones(3))
