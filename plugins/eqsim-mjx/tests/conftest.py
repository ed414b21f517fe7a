import pathlib

import gymnasium
import pytest


@pytest.fixture(scope="session")
def models():
    """The folder of the model files that Gymnasium ships."""
    return pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
