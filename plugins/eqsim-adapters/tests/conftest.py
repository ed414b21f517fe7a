import jax
import pytest


# What a shape or a type promotes to silently is a mistake more often than not.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Read from and written to the folder in JAX_COMPILATION_CACHE_DIR, if there is one.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture
def lenient():
    """Other libraries promote shapes and types silently."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
