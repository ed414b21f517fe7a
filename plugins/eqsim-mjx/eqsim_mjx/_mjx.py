"""MJX, imported in silence: it prints that an optional package of its own is missing."""

import contextlib
import io


with contextlib.redirect_stdout(io.StringIO()):
    from mujoco import mjx as mjx
