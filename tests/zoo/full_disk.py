"""A disk without room for some checkpoints."""

import pathlib

import pytest
from safetensors import SafetensorError

from eqsim_zoo.runs import checkpoints


save_file = checkpoints.save_file


@pytest.fixture
def no_room(monkeypatch):
    """Names of checkpoints that cannot be written: an empty set, to be filled."""
    names = set()

    def write(arrays, path, metadata):
        if pathlib.Path(path).name in names:
            raise SafetensorError(
                "Error while serializing: I/O error: No space left on device (os error 28)"
            )
        save_file(arrays, path, metadata)

    monkeypatch.setattr(checkpoints, "save_file", write)
    return names
