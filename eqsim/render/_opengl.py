"""OpenGL contexts without a window."""

import atexit
import functools as ft
import importlib
import os
import sys
from typing import Any

from ..io.mjcf.mujoco_names import engine


class NoOpenGL(RuntimeError):
    """OpenGL is not available for rendering."""


_MODULES = {
    "egl": "egl",
    "osmesa": "osmesa",
    "glfw": "glfw",
    "glx": "glfw",
    "cgl": "cgl",
    "wgl": "glfw",
}


def _libraries() -> list[str]:
    """Return the libraries to try: that of MUJOCO_GL, or the common ones."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("disable", "disabled", "off", "false", "0"):
        raise NoOpenGL(
            f"MUJOCO_GL={wanted} disables rendering. Unset it, or set MUJOCO_GL=egl."
        )
    if wanted in _MODULES:
        return [wanted]
    if sys.platform == "darwin":
        return ["cgl", "glfw"]
    if sys.platform == "win32":
        return ["glfw"]
    screen = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return ["egl", "osmesa", *(["glfw"] if screen else [])]


@ft.cache
def context() -> Any:
    """Return the OpenGL context for all images, created on the first call.

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
        # Functions registered last are called first, so this runs before MuJoCo
        # closes the display.
        atexit.register(out.free)
        return out
    raise NoOpenGL(
        f"MuJoCo found no usable OpenGL library ({'; '.join(found)}). Install one, for "
        "instance with `apt-get install libegl1` or `libosmesa6`, which need no GPU, and "
        "select it with the environment variable MUJOCO_GL=egl or MUJOCO_GL=osmesa."
    )


def _try(module: str) -> Any:
    mujoco = engine()

    out = importlib.import_module(f"mujoco.{module}").GLContext(64, 64)
    # A context may be unusable, which shows only when MuJoCo uses it.
    with out.as_current():
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), 100).free()
    return out
