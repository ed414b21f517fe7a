import gc
import pathlib

import jax
import pytest


# What a shape or a type promotes to silently is a mistake more often than not.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Read from and written to the folder in JAX_COMPILATION_CACHE_DIR, if there is one.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture(scope="session")
def opengl():
    """Leaves a test out where there is nothing to draw with."""
    import jax.numpy as jnp

    import eqsim

    sys = eqsim.make("point_mass").sys
    try:
        eqsim.render.images(sys, jnp.zeros(1), width=8, height=8)
    except eqsim.render.NoOpenGL as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def few_programs():
    """A process may map so many pieces of memory, and each program takes some."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and len(maps.read_text().splitlines()) > 20_000:
        jax.clear_caches()
        gc.collect()
