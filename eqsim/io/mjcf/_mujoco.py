"""MuJoCo, imported when a file is read and not before."""

from typing import Any


def engine() -> Any:
    """The module `mujoco`, whose names type checkers do not know."""
    import mujoco

    return mujoco
