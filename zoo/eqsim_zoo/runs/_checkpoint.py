"""Checkpoint files of agent states: a line of JSON and the bytes of arrays, without code.

The first line is a JSON object with `format`, `versions`, `about` (metadata of the caller),
`leaves` (path, shape and type of each array), `bytes` (length of the arrays) and `sha256`
(checksum of the arrays and of the line itself, with zeros in place of the checksum). The
arrays follow in the format of `eqx.tree_serialise_leaves`.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

import eqsim


FORMAT = "eqsim-checkpoint-1"
_NO_DIGEST, _LONGEST_LINE, _CHUNK = "0" * 64, 1 << 26, 1 << 20
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")
# Unused standard deviation of the deterministic policy in earlier versions of TD3+BC.
_REMOVED = (".network.raw",)
_PACKAGES = ("eqsim", "eqsim-zoo", "jax", "equinox")


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or does not fit the agent."""


def versions() -> dict[str, str]:
    """Return the versions of the packages that define the state of an agent."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def save_checkpoint(
    path: str | os.PathLike, state: Any, about: Mapping[str, Any] = {}
) -> None:
    """Write a state to a file. An existing file is replaced only when the new one is
    complete.

    **Arguments:**

    - `path`: path of the file.
    - `state`: PyTree of arrays and keys of `jax.random.key`; other leaves are not written.
    - `about`: metadata for `read_about`, in types that JSON supports.

    **Raises:** `OSError` if the file cannot be written, for instance because the disk is
    full; an existing file is then unchanged.
    """
    path = pathlib.Path(path)
    part = path.with_name(path.name + ".part")
    header = {
        "format": FORMAT,
        "sha256": _NO_DIGEST,
        "bytes": f"{0:020d}",
        "versions": versions(),
        "about": dict(about),
        "leaves": [leaf._asdict() for leaf in _leaves(state)],
    }
    try:
        with open(part, "wb") as file:
            _write(file, header, state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def read_about(path: str | os.PathLike) -> dict[str, Any]:
    """Read the metadata `about` of a checkpoint, without its arrays.

    **Raises:** the exceptions of `load_checkpoint`.
    """
    with _opened(pathlib.Path(path)) as file:
        return _header(pathlib.Path(path), file)["about"]


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
    path = pathlib.Path(path)
    with _opened(path) as file:
        header = _header(path, file)
        begin = file.tell()
        _check_digest(path, file, header)
        _check_fits(path, header["leaves"], like)
        file.seek(begin)
        try:
            raw = eqx.filter_eval_shape(_without_keys, like)
            read = _reader(header["leaves"], like)
            arrays = eqx.tree_deserialise_leaves(file, raw, read)
            return jtu.tree_map(_with_key, arrays, like), header["about"]
        except Exception as error:  # A forged file with a valid checksum.
            raise CheckpointError(
                f"The arrays of {str(path)!r} do not match its first line ({error})."
            ) from error


class _Leaf(NamedTuple):
    path: str
    shape: list[int]
    dtype: str


def _leaves(state: Any) -> list[_Leaf]:
    found, _ = jtu.tree_flatten_with_path(state)
    where = [(jtu.keystr(path), leaf) for path, leaf in found if _is_array(leaf)]
    return [_Leaf(path, [*x.shape], str(x.dtype)) for path, x in where]


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _without_keys(tree: Any) -> Any:
    """Replace keys by their data."""
    plain = lambda x: jr.key_data(x) if _is_array(x) and _is_key(x) else x
    return jtu.tree_map(plain, tree)


def _with_key(x: Any, like: Any) -> Any:
    if not (_is_array(like) and _is_key(like)):
        return x
    fits = lambda name: jr.key(0, impl=name).dtype == like.dtype
    return jr.wrap_key_data(x, impl=next(filter(fits, _GENERATORS)))


class _Hashing:
    """A file that computes the checksum of the bytes written to it."""

    def __init__(self, file: BinaryIO):
        self.file, self.digest, self.size = file, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return self.file.write(data)


def _write(file: BinaryIO, header: dict[str, Any], state: Any) -> None:
    file.write(_line(header))
    hashing = _Hashing(file)
    eqx.tree_serialise_leaves(hashing, _without_keys(state), _write_leaf)
    header = header | {"bytes": f"{hashing.size:020d}"}
    hashing.digest.update(_line(header))
    file.seek(0)
    # This line has the same length as the first version.
    file.write(_line(header | {"sha256": hashing.digest.hexdigest()}))


def _line(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode() + b"\n"


def _write_leaf(file: Any, x: Any) -> None:
    if _is_array(x):
        np.save(file, np.asarray(x), allow_pickle=False)


def _reader(stored: list[dict[str, Any]], like: Any) -> Callable[[Any, Any], Any]:
    """Return a function that reads the next leaf and skips leaves that are not in `like`."""
    wanted = {leaf.path for leaf in _leaves(like)}
    names = iter(leaf["path"] for leaf in stored)

    def read(file: Any, like: Any) -> Any:
        if not _is_array(like):
            return like
        size = lambda: os.fstat(file.fileno()).st_size - file.tell()
        while next(names) not in wanted:
            eqsim.io.read_array(file, size())
        array = eqsim.io.read_array(file, size())
        if array.dtype != like.dtype:  # Types unknown to NumPy, such as bfloat16.
            array = array.view(like.dtype)
        return array if isinstance(like, np.ndarray) else jnp.asarray(array)

    return read


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


def _opened(path: pathlib.Path) -> BinaryIO:
    if not path.is_file():
        raise FileNotFoundError(
            f"No checkpoint {str(path)!r} (relative to {pathlib.Path.cwd()})."
        )
    return open(path, "rb")


def _header(path: pathlib.Path, file: BinaryIO) -> dict[str, Any]:
    line = file.readline(_LONGEST_LINE)
    if not line.startswith(b'{"format": "eqsim-checkpoint-'):
        raise CheckpointError(
            f"{str(path)!r} is not a checkpoint of eqsim-zoo. Checkpoints are the files "
            "`last.ckpt` and `best.ckpt` in the folder of a run."
        )
    try:
        header = json.loads(line)
        known = header["format"] == FORMAT
        size = int(header["bytes"])
        _ = header["versions"], header["sha256"]
        if not isinstance(header["about"], dict):
            raise TypeError("`about` is not an object")
        for leaf in header["leaves"]:
            _check_leaf(_Leaf(**leaf))
    except (
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CheckpointError(_damaged(path, "its first line is invalid")) from error
    if not known:
        raise CheckpointError(
            f"{str(path)!r} has the format {header['format']!r}, but this version of "
            f"eqsim-zoo reads {FORMAT!r}. The file was written with {header['versions']}."
        )
    left = os.fstat(file.fileno()).st_size - file.tell()
    if left != size:
        text = f"{left} bytes follow its first line, expected {size}"
        raise CheckpointError(_damaged(path, text))
    return header


def _check_leaf(leaf: _Leaf) -> None:
    """Raise `TypeError` unless a leaf has a name, a shape and a type."""
    sizes = isinstance(leaf.shape, list) and all(type(n) is int for n in leaf.shape)
    if not (isinstance(leaf.path, str) and sizes and isinstance(leaf.dtype, str)):
        raise TypeError(f"{leaf} is no leaf")


def _damaged(path: pathlib.Path, reason: str) -> str:
    return (
        f"{str(path)!r} is damaged: {reason}. Load another checkpoint, such as `best.ckpt` "
        "or a copy."
    )


def _check_digest(path: pathlib.Path, file: BinaryIO, header: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    digest.update(_line(header | {"sha256": _NO_DIGEST}))
    if digest.hexdigest() != header["sha256"]:
        raise CheckpointError(_damaged(path, "its checksum is wrong"))


def _check_fits(path: pathlib.Path, stored: list[dict[str, Any]], like: Any) -> None:
    wanted = {leaf.path: leaf for leaf in _leaves(like)}
    kept = lambda path: path in wanted or not path.endswith(_REMOVED)
    found = {leaf["path"]: _Leaf(**leaf) for leaf in stored if kept(leaf["path"])}
    kind = lambda leaf: f"{leaf.dtype}{leaf.shape}"
    lines = []
    for name in [*wanted, *(n for n in found if n not in wanted)]:
        one = kind(found[name]) if name in found else "missing"
        two = kind(wanted[name]) if name in wanted else "missing"
        if one != two:
            lines.append(f"  {name}: {one} in the file, {two} in the agent")
    if not lines and [*found] == [*wanted]:
        return
    shown = lines[:10] + ([f"  and {len(lines) - 10} more"] if len(lines) > 10 else [])
    raise CheckpointError(
        f"{str(path)!r} does not fit the agent in this environment:\n"
        + "\n".join(shown or ["  the order of its arrays"])
        + "\nPass the agent and the environment of the run; `eqsim_zoo.runs.read_about` "
        "describes them."
    )
