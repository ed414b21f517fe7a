import zlib

import jax
import jax.random as jr
import pytest


# What a shape or a type promotes to silently is a mistake more often than not.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Read from and written to the folder in JAX_COMPILATION_CACHE_DIR, if there is one.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture
def getkey(request):
    """Random keys that depend on the name of the test, and on nothing else."""
    key = jr.key(zlib.crc32(request.node.name.encode()))

    def next_key():
        nonlocal key
        key, out = jr.split(key)
        return out

    return next_key
