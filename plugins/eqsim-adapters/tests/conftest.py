import jax
import pytest


@pytest.fixture
def lenient():
    """Other libraries promote shapes and types silently."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
