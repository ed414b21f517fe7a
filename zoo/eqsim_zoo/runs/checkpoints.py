"""Checkpoints: states of agents in files of the safetensors format, without code.

The tensors are named by their paths in the state; random keys are stored as their data. The
metadata of a file are strings: `format`, `versions` and `about` (metadata of the caller) as
JSON, and `sha256` (checksum of the whole file, with zeros in place of the checksum).

First come the checkpoints, then the files of named arrays in which they are written: a file
is complete, or is not there.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save_file

from eqsim.bridges import is_key


FORMAT = "eqsim-checkpoint-3"
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")
_PACKAGES = ("eqsim", "eqsim-zoo", "jax", "equinox")
_NO_DIGEST, _CHUNK = "0" * 64, 1 << 20
# Those that safetensors both writes and reads as NumPy arrays.
_TYPES = {"bool", "complex64", "bfloat16", "float16", "float32", "float64"}
_TYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or does not fit the agent."""


def versions() -> dict[str, str]:
    """Return the versions of the packages that define the state of an agent."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def save_checkpoint(
    path: str | os.PathLike, state: Any, about: Mapping[str, Any] = {}
) -> None:
    """Write a state to a file in the safetensors format. An existing file is replaced
    only when the new one is complete.

    **Arguments:**

    - `path`: path of the file.
    - `state`: PyTree of arrays and keys of `jax.random.key`; other leaves are not written.
    - `about`: metadata for `read_about`, in types that JSON supports.

    **Raises:** `OSError` if the file cannot be written, for instance because the disk is
    full; an existing file is then unchanged. `TypeError` for arrays of a type that cannot
    be saved, such as complex numbers of double precision.
    """
    metadata = {
        "format": FORMAT,
        "versions": json.dumps(versions()),
        "about": json.dumps(dict(about)),
    }
    raw = lambda x: jr.key_data(x) if is_key(x) else x
    arrays = {name: np.asarray(raw(x), _native(raw(x))) for name, x in _leaves(state)}
    write_tensors(pathlib.Path(path), arrays, metadata)


def read_about(path: str | os.PathLike) -> dict[str, Any]:
    """Read the metadata `about` of a checkpoint, without its arrays.

    **Raises:** the exceptions of `load_checkpoint`.
    """
    path = _existing(path)
    with open_tensors(path) as (tensors, _):
        return _about(path, tensors)


def load_checkpoint(path: str | os.PathLike, like: Any) -> tuple[Any, dict[str, Any]]:
    """Read a checkpoint, after verifying its checksum.

    **Arguments:**

    - `path`: path of the file.
    - `like`: state of the same structure, for instance
        `eqx.filter_eval_shape(agent.init, key, env)`.

    **Returns:** the state and `about`.

    **Raises:** `FileNotFoundError` if there is no such file; `CheckpointError` if it is
    not a checkpoint, is damaged, or its arrays differ from those of `like`.
    """
    path = _existing(path)
    with open_tensors(path) as (tensors, file):
        about = _about(path, tensors)
        if not digest_fits(file, tensors.metadata()["sha256"]):
            raise CheckpointError(damaged(path, "its checksum is wrong"))
        try:
            arrays = {name: tensors.get_tensor(name) for name in tensors.keys()}
        except Exception as error:  # A forged file with a valid checksum.
            raise CheckpointError(damaged(path, f"its arrays ({error})")) from error
    _check_fits(path, arrays, like)
    place = lambda where, x: _placed(arrays, jtu.keystr(where), x)
    return jtu.tree_map_with_path(place, like), about


def _about(path: pathlib.Path, tensors: Any) -> dict[str, Any]:
    metadata = tensors.metadata() or {}
    found = metadata.get("format", "")
    if not found.startswith("eqsim-checkpoint-"):
        raise CheckpointError(foreign(path))
    if found != FORMAT:
        raise CheckpointError(
            f"{str(path)!r} has the format {found!r}, but this version of eqsim-zoo reads "
            f"{FORMAT!r}. It was written with {metadata.get('versions', 'others')}: load it "
            "with these versions, or train again."
        )
    try:
        _ = metadata["sha256"], json.loads(metadata["versions"])
        about = json.loads(metadata["about"])
        if not isinstance(about, dict):
            raise TypeError("`about` is not an object")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(damaged(path, "its metadata are invalid")) from error
    return about


def _existing(path: str | os.PathLike) -> pathlib.Path:
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"No checkpoint {str(path)!r} (relative to {pathlib.Path.cwd()})."
        )
    return path


def _placed(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    """Return the array of a leaf, with the type of `like`."""
    if not _is_array(like):
        return like
    array = arrays.pop(name)  # Released when it is on the device.
    if is_key(like):
        fits = lambda generator: jr.key(0, impl=generator).dtype == like.dtype
        data = jnp.asarray(array)
        return jr.wrap_key_data(data, impl=next(filter(fits, _GENERATORS)))
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


def _leaves(state: Any) -> list[tuple[str, Any]]:
    """Return the arrays of a state with their paths."""
    found, _ = jtu.tree_flatten_with_path(state)
    return [(jtu.keystr(path), leaf) for path, leaf in found if _is_array(leaf)]


def _native(x: Any) -> np.dtype:
    """Return the type of an array in the byte order of this machine, which files have."""
    return np.dtype(x.dtype).newbyteorder("=")


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _check_fits(path: pathlib.Path, arrays: dict[str, np.ndarray], like: Any) -> None:
    """Raise `CheckpointError` unless the arrays of a file fit those of `like`."""
    raw = lambda x: jax.eval_shape(jr.key_data, x) if is_key(x) else x
    kind = lambda x: (str(_native(x)), [*x.shape])
    wanted = {name: kind(raw(x)) for name, x in _leaves(like)}
    found = {name: kind(x) for name, x in arrays.items()}
    if found == wanted:
        return
    single = lambda kinds: {
        k: (x.replace("64", "32"), n) for k, (x, n) in kinds.items()
    }
    if single(found) == single(wanted):
        double = any(found[k][0].endswith("64") for k in found if found[k] != wanted[k])
        one, two = ("double", "single") if double else ("single", "double")
        raise CheckpointError(
            f"{str(path)!r} was written in {one} precision, but the agent here has {two} "
            f"precision: `jax_enable_x64` is {'off' if double else 'on'}. Load it with "
            f"`with jax.enable_x64({double}):` around `load_run` and `make`, or set "
            "`jax_enable_x64` as in the run."
        )
    shown = lambda kinds, name: "".join(map(str, kinds.get(name, ("missing",))))
    lines = [
        f"  {name}: {shown(found, name)} in the file, {shown(wanted, name)} in the agent"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]
    lines[10:] = [f"  and {len(lines) - 10} more"] if len(lines) > 10 else []
    raise CheckpointError(
        f"{str(path)!r} does not fit the agent in this environment:\n"
        + "\n".join(lines)
        + "\nPass the agent and the environment of the run; `eqsim_zoo.runs.read_about` "
        "describes them."
    )


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
