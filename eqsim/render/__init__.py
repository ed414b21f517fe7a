"""Images of robots, drawn by MuJoCo, which is imported on first use.

`draw` is part of a compiled program; `images` and `write_gif` make animations from a
trajectory. `cameras` collects what is in an image, the shapes with their poses and colors
and the camera, and `drawing` draws it. Environments with pixels, the viewer and the
command line import this package; it imports models and kinematics only.
"""

from .cameras import Camera as Camera, camera_for as camera_for
from .drawing import (
    draw as draw,
    images as images,
    NoOpenGL as NoOpenGL,
    write_gif as write_gif,
)
