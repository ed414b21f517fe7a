"""Descriptions of the arrays in a checkpoint, and errors of reading it."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from safetensors import safe_open, SafetensorError
from safetensors.numpy import save_file

from eqsim.bridges import is_key


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


FORMAT = "eqsim-checkpoint-2"
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")
_PACKAGES = ("eqsim", "eqsim-zoo", "jax", "equinox")


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
        "leaves": json.dumps([leaf._asdict() for leaf in _leaves(state)]),
    }
    found = jtu.tree_flatten_with_path(_without_keys(state))[0]
    arrays = {
        jtu.keystr(path): np.asarray(x, _native(x)) for path, x in found if _is_array(x)
    }
    write_tensors(pathlib.Path(path), arrays, metadata)


def read_about(path: str | os.PathLike) -> dict[str, Any]:
    """Read the metadata `about` of a checkpoint, without its arrays.

    **Raises:** the exceptions of `load_checkpoint`.
    """
    path = _existing(path)
    with open_tensors(path) as (tensors, _):
        return _described(path, tensors)[1]


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
        leaves, about = _described(path, tensors)
        if not digest_fits(file, tensors.metadata()["sha256"]):
            raise CheckpointError(damaged(path, "its checksum is wrong"))
        _check_fits(path, leaves, like)
        try:
            arrays = {leaf.path: tensors.get_tensor(leaf.path) for leaf in leaves}
        except Exception as error:  # A forged file with a valid checksum.
            text = f"its arrays differ from its metadata ({error})"
            raise CheckpointError(damaged(path, text)) from error
    place = lambda where, x: _placed(path, arrays, jtu.keystr(where), x)
    return jtu.tree_map_with_path(place, like), about


def _described(path: pathlib.Path, tensors: Any) -> tuple[list[Leaf], dict[str, Any]]:
    """Return the leaves that a file describes, and `about`."""
    metadata = tensors.metadata() or {}
    found = metadata.get("format", "")
    if not found.startswith("eqsim-checkpoint-"):
        raise CheckpointError(foreign(path))
    try:
        _ = metadata["sha256"]
        written = json.loads(metadata["versions"])
        about = json.loads(metadata["about"])
        leaves = leaves_of(json.loads(metadata["leaves"]))
        if not isinstance(about, dict):
            raise TypeError("`about` is not an object")
    except UNREADABLE as error:
        raise CheckpointError(damaged(path, "its metadata are invalid")) from error
    if found != FORMAT:
        raise CheckpointError(unknown(path, found, FORMAT, written))
    return leaves, about


def _existing(path: str | os.PathLike) -> pathlib.Path:
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"No checkpoint {str(path)!r} (relative to {pathlib.Path.cwd()})."
        )
    return path


def _placed(
    path: pathlib.Path, arrays: dict[str, np.ndarray], name: str, like: Any
) -> Any:
    """Return the array of a leaf, with the type of `like`."""
    if not _is_array(like):
        return like
    array = arrays.pop(name)  # Released when it is on the device.
    raw = jax.eval_shape(jr.key_data, like) if is_key(like) else like
    if (array.shape, array.dtype) != (raw.shape, _native(raw)):
        found, expected = (f"{x.dtype}{[*x.shape]}" for x in (array, raw))
        text = f"{name} is {found}, but is described as {expected}"
        raise CheckpointError(damaged(path, text))
    if is_key(like):
        fits = lambda generator: jr.key(0, impl=generator).dtype == like.dtype
        data = jnp.asarray(array)
        return jr.wrap_key_data(data, impl=next(filter(fits, _GENERATORS)))
    return array if isinstance(like, np.ndarray) else jnp.asarray(array)


def _leaves(state: Any) -> list[Leaf]:
    found, _ = jtu.tree_flatten_with_path(state)
    where = [(jtu.keystr(path), leaf) for path, leaf in found if _is_array(leaf)]
    return [Leaf(path, [*x.shape], str(_native(x))) for path, x in where]


def _native(x: Any) -> Any:
    """Return the type of an array in the byte order of this machine, which files have."""
    return x.dtype if is_key(x) else np.dtype(x.dtype).newbyteorder("=")


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _without_keys(tree: Any) -> Any:
    """Replace keys by their data."""
    plain = lambda x: jr.key_data(x) if is_key(x) else x
    return jtu.tree_map(plain, tree)


def _check_precision(
    path: pathlib.Path, found: dict[str, Leaf], wanted: dict[str, Leaf]
) -> None:
    """Raise `CheckpointError` if a file and an agent differ in nothing but precision."""
    single = lambda leaf: (leaf.shape, leaf.dtype.replace("64", "32"))
    if {k: single(x) for k, x in found.items()} != {
        k: single(x) for k, x in wanted.items()
    }:
        return
    floats = {found[k].dtype for k in found if found[k].dtype != wanted[k].dtype}
    double = any(dtype.endswith("64") for dtype in floats)
    one, two = ("double", "single") if double else ("single", "double")
    raise CheckpointError(
        f"{str(path)!r} was written in {one} precision, but the agent here has {two} "
        f"precision: `jax_enable_x64` is {'off' if double else 'on'}. Load it with `with "
        f"jax.enable_x64({double}):` around `load_run` and `make`, or set "
        "`jax_enable_x64` as in the run."
    )


def _check_fits(path: pathlib.Path, stored: list[Leaf], like: Any) -> None:
    """Raise `CheckpointError` unless the arrays of a file fit those of `like`."""
    wanted = {leaf.path: leaf for leaf in _leaves(like)}
    found = {leaf.path: leaf for leaf in stored}
    kind = lambda leaf: f"{leaf.dtype}{leaf.shape}"
    lines = []
    for name in [*wanted, *(n for n in found if n not in wanted)]:
        one = kind(found[name]) if name in found else "missing"
        two = kind(wanted[name]) if name in wanted else "missing"
        if one != two:
            lines.append(f"  {name}: {one} in the file, {two} in the agent")
    if not lines:
        return
    _check_precision(path, found, wanted)
    shown = lines[:10] + ([f"  and {len(lines) - 10} more"] if len(lines) > 10 else [])
    raise CheckpointError(
        f"{str(path)!r} does not fit the agent in this environment:\n"
        + "\n".join(shown)
        + "\nPass the agent and the environment of the run; `eqsim_zoo.runs.read_about` "
        "describes them."
    )
