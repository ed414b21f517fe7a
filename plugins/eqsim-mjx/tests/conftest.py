import pathlib

import gymnasium
import jax
import pytest


# What a shape or a type promotes to silently is a mistake more often than not; MJX's own
# code does it, and must not be disturbed by a user who forbids it.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture(scope="session")
def models():
    """The folder of the model files that Gymnasium ships."""
    return pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
