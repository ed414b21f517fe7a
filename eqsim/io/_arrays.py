"""Arrays in `.npz` files, read without trust in the file."""

import contextlib
import math
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


_SUFFIX = ".npy"
_FREE, _RATIO = 256 << 20, 100
"""Bytes that any archive may expand to, and the largest expansion beyond them."""
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of an open `.npz` file by name, each read when it is asked for.

    **Raises:** `KeyError` for an unknown name; `ValueError` if an array is damaged.
    """

    def __init__(self, archive: zipfile.ZipFile):
        self._archive = archive
        self._members = {
            info.filename.removesuffix(_SUFFIX): info
            for info in archive.infolist()
            if info.filename.endswith(_SUFFIX)
        }

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._members[name]
        try:
            with self._archive.open(info) as file:
                return read_array(file, info.file_size)
        except Exception as error:  # zipfile and NumPy raise many kinds.
            raise ValueError(f"array {name!r} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@contextlib.contextmanager
def open_arrays(path: str | os.PathLike) -> Iterator[Arrays]:
    """Open an `.npz` file that need not be trusted, as a context manager.

    No code in the file is executed, nothing is written, and memory is allocated only for
    data that the file has: at most 256 MiB, or 100 times the size of the file.

    **Arguments:**

    - `path`: path of the file, which must exist.

    **Returns:** the arrays by name.

    **Raises:** `ValueError` with the reason if the file is no `.npz` file, is damaged,
    contains a name twice, or expands too much.
    """
    path = pathlib.Path(path)
    try:
        archive = zipfile.ZipFile(path)
    except OSError:
        raise
    except Exception as error:  # Of a file that someone made on purpose.
        raise ValueError(f"this is not a complete `.npz` file: {error}") from error
    with archive:
        _check_members(archive, path.stat().st_size)
        yield Arrays(archive)


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    infos = archive.infolist()
    names = [info.filename for info in infos]
    twice = sorted({name for name in names if names.count(name) > 1})[:3]
    if twice:
        raise ValueError(f"the archive contains {', '.join(twice)} twice.")
    expanded, most = sum(x.file_size for x in infos), max(_FREE, _RATIO * size)
    if expanded > most:
        raise ValueError(
            f"the archive of {size:,} bytes expands to {expanded:,}, and at most {most:,} "
            "are accepted. Save it without compression (`numpy.savez`)."
        )


def read_array(file: Any, size: int) -> np.ndarray:
    """Read an array in NumPy's format (`.npy`).

    **Arguments:**

    - `file`: binary file at the beginning of the array.
    - `size`: largest number of bytes that the array may take, with its header.

    **Returns:** the array. The file is at the byte after it.

    **Raises:** `ValueError` if it is no array, contains Python objects, or is longer than
    `size`; other exceptions of NumPy for a header that cannot be parsed.
    """
    begin = file.tell()
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"version {version} of NumPy's format is not supported")
    shape, fortran, dtype = _READERS[version](file)
    if dtype.hasobject:
        raise ValueError(
            "it contains Python objects, and loading them may execute code"
        )
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"its type is {dtype} and its shape is {shape}")
    nbytes, header = math.prod(shape) * dtype.itemsize, file.tell() - begin
    if nbytes > size - header:
        raise ValueError(
            f"its shape {shape} and type {dtype} need {nbytes:,} bytes, but there are "
            f"{max(size - header, 0):,}"
        )
    content = np.empty(nbytes, np.uint8)
    view, done = content.data, 0
    while done < nbytes:
        count = file.readinto(view[done:])
        if not count:
            raise ValueError(f"{nbytes - done:,} of its bytes are missing")
        done += count
    array = content.view(dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
