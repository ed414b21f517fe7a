"""Checkpoint files of the first format: a line of JSON, and arrays as `numpy.save` writes
them. They are read, and no longer written.

The first line is a JSON object with `format`, `versions`, `about`, `leaves`, `bytes`
(length of the arrays) and `sha256` (checksum of the arrays and of the line itself, with
zeros in place of the checksum).
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

import eqsim

from .checkpoints import CheckpointError, damaged, Leaf, leaves_of, unknown, UNREADABLE


FORMAT = "eqsim-checkpoint-1"
_PREFIX = b'{"format": "eqsim-checkpoint-'
_NO_DIGEST, _LONGEST_LINE, _CHUNK = "0" * 64, 1 << 26, 1 << 20


def is_earlier(path: pathlib.Path) -> bool:
    """Return true if a file begins like one of the first format."""
    with open(path, "rb") as file:
        return file.read(len(_PREFIX)) == _PREFIX


def earlier_about(path: pathlib.Path) -> dict[str, Any]:
    """Read the metadata of the caller.

    **Raises:** `CheckpointError` if the file is damaged.
    """
    with open(path, "rb") as file:
        return _header(path, file)["about"]


def load_earlier(
    path: pathlib.Path, fitting: Callable[[list[Leaf]], set[str]]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays whose names `fitting` returns, and the metadata of the caller.

    **Raises:** `CheckpointError` if the file is damaged, or if its agent observed images.
    """
    with open(path, "rb") as file:
        header = _header(path, file)
        begin, leaves = file.tell(), leaves_of(header["leaves"])
        _check_digest(path, file, header)
        names = fitting(leaves)
        _check_no_image_encoder(path, leaves)
        file.seek(begin)
        try:
            return _arrays(file, leaves, names), header["about"]
        except Exception as error:  # A forged file with a valid checksum.
            text = f"its arrays differ from its first line ({error})"
            raise CheckpointError(damaged(path, text)) from error


def _arrays(
    file: BinaryIO, leaves: list[Leaf], names: set[str]
) -> dict[str, np.ndarray]:
    size = os.fstat(file.fileno()).st_size
    read = lambda: eqsim.io.read_array(file, size - file.tell())
    every = {leaf.path: read() for leaf in leaves}
    return {name: every[name] for name in names}


def _check_no_image_encoder(path: pathlib.Path, leaves: list[Leaf]) -> None:
    """Raise `CheckpointError` if there are convolutions, which only encoders have."""
    for leaf in leaves:
        encodes = ".senses." in leaf.path and leaf.path.endswith(".weight")
        if encodes and len(leaf.shape) >= 4:
            raise CheckpointError(
                f"{str(path)!r} has an image encoder ({leaf.path}) of an earlier version, "
                "whose images had values from 0 to 1. Now they have values from -0.5 to "
                "0.5. Train the agent again."
            )


def _line(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode() + b"\n"


def _header(path: pathlib.Path, file: BinaryIO) -> dict[str, Any]:
    line = file.readline(_LONGEST_LINE)
    try:
        header = json.loads(line)
        known = header["format"] == FORMAT
        size = int(header["bytes"])
        _ = header["versions"], header["sha256"]
        if not isinstance(header["about"], dict):
            raise TypeError("`about` is not an object")
        leaves_of(header["leaves"])
    except UNREADABLE as error:
        raise CheckpointError(damaged(path, "its first line is invalid")) from error
    if not known:
        found, written = header["format"], header["versions"]
        raise CheckpointError(unknown(path, found, FORMAT, written))
    left = os.fstat(file.fileno()).st_size - file.tell()
    if left != size:
        text = f"{left} bytes follow its first line, expected {size}"
        raise CheckpointError(damaged(path, text))
    return header


def _check_digest(path: pathlib.Path, file: BinaryIO, header: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    digest.update(_line(header | {"sha256": _NO_DIGEST}))
    if digest.hexdigest() != header["sha256"]:
        raise CheckpointError(damaged(path, "its checksum is wrong"))
