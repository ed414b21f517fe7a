"""The model files that gymnasium ships."""

import pathlib

import gymnasium


FOLDER = pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
FILES = (
    "ant",
    "half_cheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher_v5",
    "reacher",
    "swimmer",
    "walker2d_v5",
)


def path(name):
    return FOLDER / f"{name}.xml"
