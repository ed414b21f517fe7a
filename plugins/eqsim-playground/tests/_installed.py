"""Which model files are there."""

import importlib.util

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
