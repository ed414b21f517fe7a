"""Descriptions of the arrays in a checkpoint, and errors of reading it."""

import pathlib
from typing import Any, NamedTuple


UNREADABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions of reading JSON that has another form than expected."""


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or does not fit the agent."""


class Leaf(NamedTuple):
    """Description of an array: path in the state, shape and type."""

    path: str
    shape: list[int]
    dtype: str


def leaves_of(stored: Any) -> list[Leaf]:
    """Return leaves from JSON.

    **Raises:** `TypeError` unless each has a path, a shape and a type.
    """
    leaves = [Leaf(**leaf) for leaf in stored]
    for leaf in leaves:
        sizes = isinstance(leaf.shape, list) and all(type(n) is int for n in leaf.shape)
        if not (isinstance(leaf.path, str) and sizes and isinstance(leaf.dtype, str)):
            raise TypeError(f"{leaf} is no leaf")
    return leaves


def foreign(path: pathlib.Path) -> str:
    """Return the message for a file that is not a checkpoint."""
    return (
        f"{str(path)!r} is not a checkpoint of eqsim-zoo. Checkpoints are the files "
        "`last.ckpt` and `best.ckpt` in the folder of a run."
    )


def damaged(path: pathlib.Path, reason: str) -> str:
    """Return the message for a damaged checkpoint."""
    return (
        f"{str(path)!r} is damaged: {reason}. Load another checkpoint, such as `best.ckpt` "
        "or a copy."
    )


def unknown(path: pathlib.Path, found: str, expected: str, written: Any) -> str:
    """Return the message for a checkpoint of another format."""
    return (
        f"{str(path)!r} has the format {found!r}, but this version of eqsim-zoo reads "
        f"{expected!r}. The file was written with {written}."
    )
