"""Files of named arrays in the safetensors format, with a checksum of all bytes."""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save_file

from ._leaves import CheckpointError, damaged, foreign


_NO_DIGEST, _CHUNK = "0" * 64, 1 << 20
# Those that safetensors both writes and reads as NumPy arrays.
_TYPES = {"bool", "complex64", "bfloat16", "float16", "float32", "float64"}
_TYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def write_tensors(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write arrays and metadata, which gets the entry `sha256`. An existing file is
    replaced only when the new one is complete.

    **Raises:** `OSError` if the file cannot be written; `TypeError` for arrays of a type
    that safetensors does not support.
    """
    # The library writes temporary files beside its target: they get a folder of their own,
    # so that those of a killed process can be removed.
    folder = path.with_name(f".{path.name}.incomplete")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    part = folder / path.name
    try:
        _save(part, arrays, {**metadata, "sha256": _NO_DIGEST})
        _sign(part)
        with contextlib.suppress(PermissionError):  # Not on every file system.
            part.chmod(folder.stat().st_mode & 0o666)  # As the process creates files.
        os.replace(part, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _sync(path.parent)


@contextlib.contextmanager
def open_tensors(path: pathlib.Path) -> Iterator[tuple[Any, BinaryIO]]:
    """Open a file as a `safetensors.safe_open` and as bytes.

    **Raises:** `CheckpointError` if it is not a safetensors file, or is damaged.
    """
    while True:
        before = path.stat()
        with _safe_open(path) as tensors, open(path, "rb") as file:
            # Another process may have replaced the file between the calls.
            if os.path.samestat(before, os.fstat(file.fileno())):
                yield tensors, file
                return


def digest_fits(file: BinaryIO, digest: str) -> bool:
    """Return true if the bytes of an opened file have the checksum in its metadata."""
    signed, blank = _entry(digest), _entry(_NO_DIGEST)
    header = _header(file)
    return header.count(signed) == 1 and digest == _digest(
        header.replace(signed, blank), file
    )


def _safe_open(path: pathlib.Path) -> Any:
    try:
        return safe_open(path, "numpy")
    except SafetensorError as error:
        with open(path, "rb") as file:
            similar = file.read(9)[8:] == b"{"
        text = damaged(path, str(error)) if similar else foreign(path)
        raise CheckpointError(text) from error


def _save(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    # The library writes the memory of an array without regard to its strides.
    plain = {name: np.ascontiguousarray(x) for name, x in arrays.items()}
    plain = {name: x.reshape(arrays[name].shape) for name, x in plain.items()}
    if others := sorted({x.dtype.name for x in plain.values()} - _TYPES):
        raise TypeError(
            f"Arrays of type {', '.join(others)} cannot be saved. Convert them to one of "
            f"{', '.join(sorted(_TYPES))}."
        )
    try:
        save_file(plain, path, dict(metadata))
    except SafetensorError as error:
        found = re.search(r"(?:I/O error: )?(.*) \(os error (\d+)\)", str(error))
        if not found:
            raise
        code = int(found[2])  # That of Windows is another than `errno` there.
        codes = (0, found[1], str(path), code) if os.name == "nt" else None
        raise OSError(*(codes or (code, os.strerror(code), str(path)))) from error


def _sign(path: pathlib.Path) -> None:
    """Write the checksum in place of its zeros, and flush the file to disk."""
    with open(path, "r+b") as file:
        header = _header(file)
        digest = _digest(header, file)
        file.seek(header.index(_entry(_NO_DIGEST)))
        file.write(_entry(digest))
        file.flush()
        os.fsync(file.fileno())


def _entry(digest: str) -> bytes:
    """Return the checksum as in the first bytes of a file. It cannot occur in a string
    there, where quotes are escaped."""
    return f'"sha256":"{digest}"'.encode()


def _header(file: BinaryIO) -> bytes:
    """Read the length of the JSON at the beginning of a valid file, and the JSON."""
    length = file.read(8)
    return length + file.read(int.from_bytes(length, "little"))


def _digest(header: bytes, file: BinaryIO) -> str:
    digest = hashlib.sha256(header)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _sync(folder: pathlib.Path) -> None:
    """Flush a folder to disk, on systems that support it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
