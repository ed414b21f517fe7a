"""Which model files are there, and checks of numbers."""

import importlib.util

import equinox as eqx
import jax
import numpy as np
import pytest
from eqsim_playground._models import menagerie_file


def _has_menagerie() -> bool:
    try:
        menagerie_file("franka_emika_panda/mjx_panda.xml")
    except (ImportError, FileNotFoundError):
        return False
    return True


INSTALLED = importlib.util.find_spec("mujoco_playground") is not None
HAS_MENAGERIE = _has_menagerie()
needs_models = pytest.mark.skipif(not INSTALLED, reason="needs the extra `models`")
needs_menagerie = pytest.mark.skipif(
    not HAS_MENAGERIE, reason="needs MuJoCo Menagerie, see `EQSIM_MENAGERIE`"
)


# One program in the place of hundreds of small ones.
reset = eqx.filter_jit(lambda env, key, options=None: env.reset(key, options))
initial = eqx.filter_jit(lambda env, keys: jax.vmap(env.initial)(keys))


def close(ours, theirs, tolerance=1e-8, name=""):
    """Check that numbers are equal, by relative and absolute tolerance."""
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance, err_msg=name)


def spread(values, low, high):
    """Check that values are within a range, and reach the lowest and highest tenth of it."""
    assert np.all((values >= low - 1e-9) & (values <= high + 1e-9))
    assert np.min(values) < low + 0.1 * (high - low)
    assert np.max(values) > high - 0.1 * (high - low)
