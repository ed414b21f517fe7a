"""Imports of MuJoCo, whose names type checkers do not know, and of MJX without its
message about a missing optional package."""

import contextlib
import io
from typing import Any

import mujoco as _mujoco


mujoco: Any = _mujoco

with contextlib.redirect_stdout(io.StringIO()):
    from mujoco import mjx as mjx
