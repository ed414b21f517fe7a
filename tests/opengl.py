"""Tests that draw are left out where there is nothing to draw with."""

import pytest

from eqsim.render import NoOpenGL
from eqsim.render.drawing import context


def _reason() -> str:
    try:
        context()
    except NoOpenGL as error:
        return str(error)
    return ""


REASON = _reason()
needs_opengl = pytest.mark.skipif(bool(REASON), reason=REASON or "OpenGL works")
