"""Images, by the laws of Gymnasium's tests of rendering."""

import itertools

import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv

from eqsim.render import Camera


SIZES = 10, 100, 200, 480
# The last is larger than the buffer of a file that asks for none, 640 by 480.
QUICK = (10, 10), (480, 200), (1000, 700)
SLOW = [
    pytest.param(*size, marks=pytest.mark.slow)
    for size in itertools.product(SIZES, SIZES)
    if size not in QUICK
]


def drawn(name="point_mass", **options):
    env = EqsimEnv(name, render_mode="rgb_array", **options)
    env.reset(seed=0)
    return env.render()


@pytest.mark.parametrize("width, height", (*QUICK, *SLOW))
def test_image_size(width, height, opengl):
    """Gymnasium: `test_offscreen_viewer_custom_dimensions`,
    `test_offscreen_framebuffer_not_shrunk`."""
    image = drawn(width=width, height=height)
    assert image.shape == (height, width, 3) and image.dtype == np.uint8


def test_camera(opengl):
    """Gymnasium: `test_camera_id`."""
    size = {"width": 60, "height": 40}
    cameras = Camera(azimuth=90.0), Camera(azimuth=90.0), Camera(azimuth=150.0)
    first, same, other = (drawn(camera=camera, **size) for camera in cameras)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
