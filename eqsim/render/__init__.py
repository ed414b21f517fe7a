"""Rendering: images of robots, drawn by MuJoCo, which is imported on first use."""

from ._camera import Camera as Camera, camera_for as camera_for
from ._draw import draw as draw, images as images
from ._gif import write_gif as write_gif
from ._opengl import NoOpenGL as NoOpenGL
