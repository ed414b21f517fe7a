"""OpenGL without a window."""

import atexit
import functools as ft
import importlib
import os
import sys
from typing import Any

from ..io.mjcf._mujoco import engine


class NoOpenGL(RuntimeError):
    """There is no OpenGL to draw with."""


_MODULES = {
    "egl": "egl",
    "osmesa": "osmesa",
    "glfw": "glfw",
    "glx": "glfw",
    "cgl": "cgl",
    "wgl": "glfw",
}


def _libraries() -> list[str]:
    """What to try: the library in MUJOCO_GL, or those that may be there."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("disable", "disabled", "off", "false", "0"):
        raise NoOpenGL(
            f"MUJOCO_GL={wanted} forbids drawing. Unset it, or choose MUJOCO_GL=egl."
        )
    if wanted in _MODULES:
        return [wanted]
    if wanted:
        known = ", ".join(_MODULES)
        raise NoOpenGL(
            f"MUJOCO_GL={wanted} is no library. Unset it, or choose: {known}."
        )
    if sys.platform == "darwin":
        return ["cgl", "glfw"]
    if sys.platform == "win32":
        return ["glfw"]
    screen = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return ["egl", "osmesa", *(["glfw"] if screen else [])]


@ft.cache
def context() -> Any:
    """The OpenGL context that all pictures are drawn with; made once.

    **Raises:** `NoOpenGL` if no library works.
    """
    found = []
    for library in _libraries():
        try:
            out = _try(_MODULES[library])
        except Exception as error:  # Each library fails in its own way.
            text = str(error).strip().splitlines() or [type(error).__name__]
            found.append(f"{library}: {text[0]}")
            continue
        # What is registered last is called first: before MuJoCo closes the display.
        atexit.register(out.free)
        return out
    raise NoOpenGL(
        f"MuJoCo finds no OpenGL to draw with ({'; '.join(found)}). Install a library, for "
        "instance `apt-get install libegl1` or `libosmesa6`, which need no graphics card, "
        "and choose it by MUJOCO_GL=egl or MUJOCO_GL=osmesa in the environment."
    )


def _try(module: str) -> Any:
    mujoco = engine()

    out = importlib.import_module(f"mujoco.{module}").GLContext(64, 64)
    # A context may be of no use, which shows when MuJoCo takes it.
    with out.as_current():
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), 100).free()
    return out
