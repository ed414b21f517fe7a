"""MuJoCo, whose names type checkers do not know, and MJX, which is imported in silence:
it prints that an optional package of its own is missing."""

import contextlib
import io
from typing import Any

import mujoco as _mujoco


mujoco: Any = _mujoco

with contextlib.redirect_stdout(io.StringIO()):
    from mujoco import mjx as mjx
