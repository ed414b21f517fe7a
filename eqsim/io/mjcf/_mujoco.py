"""Lazy import of MuJoCo, when a file is read."""

from typing import Any


def engine() -> Any:
    """Return the module `mujoco`, whose names type checkers do not know."""
    import mujoco

    return mujoco
