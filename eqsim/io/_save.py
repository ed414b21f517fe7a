"""Saving and loading of values and, for eqsim's own types, of structure.

Arrays are stored in `.npz` files and read without trust in the file.
"""

import base64
import contextlib
import dataclasses
import enum
import json
import math
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .. import actuators, model
from .._errors import is_key
from .._primitive import Pattern


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


_FORMAT = "eqsim-1"
_HEADER = "header"
_CLASSES = {
    cls.__name__: cls
    for cls in (
        model.System,
        model.Links,
        model.Joints,
        model.Geoms,
        model.Pairs,
        model.Actuators,
        model.Equalities,
        model.Muscles,
        model.MuscleActivations,
        model.DCMotors,
        model.PIDs,
        model.DiscretePIDs,
        model.Sites,
        model.Meshes,
        model.HeightFields,
        model.Tendons,
        model.Keyframes,
        model.Equalities,
        model.Sensors,
        model.State,
        model.AttachedModel,
        *(
            value
            for value in vars(actuators).values()
            if isinstance(value, type)
            and issubclass(value, model.AbstractActuatorModel)
        ),
    )
}
_ENUMS = {
    name: value
    for name, value in vars(model).items()
    if isinstance(value, type) and issubclass(value, enum.Enum)
}
_CONNECTIVITY = {cls.__name__: cls for cls in (model.HullGraph, model.MeshSurfaces)}
_TUPLES = {cls.__name__: cls for cls in (model.PathPoint,)}
_FIELDS = {
    cls.__name__: cls
    for cls in (model.Bolt, model.Bowl, model.Gear, model.Nut, model.Torus)
}


def save(path: str | os.PathLike, tree: PyTree) -> None:
    """Save a pytree to a file: a zip archive of plain arrays, without code.

    **Arguments:**

    - `path`: path of the file, which is replaced if it exists.
    - `tree`: a `System`, a `State`, or tuples, lists and dictionaries of these and of
        arrays, which are stored with their structure. For any other pytree, and robots
        with shapes of your own kinds, only the arrays are stored, and `load` needs `like`.
    """
    arrays: dict[str, np.ndarray] = {}
    leaves = []
    for key, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if _is_number(leaf):
            name = f"leaf{len(leaves)}"
            arrays[name], kind = _to_numpy(leaf)
            leaves.append({"path": jax.tree_util.keystr(key), "kind": kind})
    counter = iter(range(len(leaves)))
    try:
        structure = _encode(tree, counter)
    except _Unknown:
        structure = None
    header = json.dumps({"format": _FORMAT, "leaves": leaves, "structure": structure})
    arrays[_HEADER] = np.frombuffer(header.encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load(path: str | os.PathLike, like: PyTree = None) -> PyTree:
    """Load a file written by `save`.

    **Arguments:**

    - `path`: path of the file.
    - `like`: a pytree of the same structure, whose arrays are replaced. Not needed for
        a `System` or a `State`.

    **Returns:** the pytree. Arrays have the types of `like`, by default the saved types
    (double precision only if JAX has it enabled).

    **Raises:**

    - `FileNotFoundError`: the file does not exist.
    - `ValueError`: the file was not written by `save`, or does not fit `like`.
    """
    header, arrays = _read(pathlib.Path(path))
    try:
        stored = [(str(x["path"]), str(x["kind"])) for x in header["leaves"]]
        leaves = [_from_numpy(x, kind) for x, (_, kind) in zip(arrays, stored)]
    except Exception as error:  # Of a header that someone changed.
        raise _damaged(path, error) from error
    if like is not None:
        return _fill(path, like, [name for name, _ in stored], leaves)
    if header["structure"] is None:
        raise ValueError(
            f"{str(path)!r} contains the arrays of a pytree, but not its structure. Build "
            "the same pytree again and pass it: load(path, like=tree)."
        )
    try:
        return _decode(header["structure"], leaves)
    except Exception as error:  # Of a header that someone changed.
        raise _damaged(path, error) from error


def _read(path: pathlib.Path) -> tuple[dict, list[np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no file {str(path)!r} (looked in {pathlib.Path.cwd()})."
        )
    try:
        with open_arrays(path) as archive:
            header = json.loads(archive[_HEADER].tobytes())
            if header["format"] != _FORMAT:
                raise ValueError(f"unknown format {str(header['format'])[:80]!r}")
            _ = header["structure"]
            arrays = [archive[f"leaf{k}"] for k, _ in enumerate(header["leaves"])]
        return header, arrays
    except Exception as error:  # JSON that someone made on purpose raises many kinds.
        if isinstance(error, OSError):
            raise
        raise _damaged(path, error) from error


def _damaged(path: Any, error: Exception) -> ValueError:
    reason = f"{type(error).__name__}: {str(error)[:300]}"
    return ValueError(
        f"{str(path)!r} was not written by this version of eqsim.save, or is damaged "
        f"({reason})."
    )


def _fill(path: Any, like: PyTree, found: list[str], leaves: list) -> PyTree:
    places, treedef = jax.tree_util.tree_flatten_with_path(like)
    wanted = [jax.tree_util.keystr(key) for key, leaf in places if _is_number(leaf)]
    if wanted != found:
        missing = [name for name in wanted if name not in found]
        extra = [name for name in found if name not in wanted]
        raise ValueError(
            f"{str(path)!r} does not fit `like`: missing in the file {missing[:5]}, missing "
            f"in `like` {extra[:5]} ({len(found)} arrays in the file, {len(wanted)} in "
            "`like`)."
        )
    new, numbers = [], iter(zip(found, leaves))
    for _, leaf in places:
        if _is_number(leaf):
            name, value = next(numbers)
            if np.shape(value) != np.shape(leaf):
                raise ValueError(
                    f"{str(path)!r} does not fit `like`: {name} has shape "
                    f"{np.shape(value)} in the file and {np.shape(leaf)} in `like`."
                )
            leaf = _as_type(value, leaf)
        new.append(leaf)
    return jax.tree_util.tree_unflatten(treedef, new)


def _as_type(value: Any, like: Any) -> Any:
    if isinstance(like, (bool, int, float, complex)):
        return type(like)(value)
    if isinstance(like, np.ndarray):
        return np.asarray(value, like.dtype)
    if is_key(like):
        return value
    return jnp.asarray(value, like.dtype)


def _is_number(leaf: Any) -> bool:
    return eqx.is_array_like(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _to_numpy(leaf: Any) -> tuple[np.ndarray, str]:
    """Convert values to a type that NumPy can store, and return the name of their
    type."""
    if is_key(leaf):
        return np.asarray(jax.random.key_data(leaf)), f"key:{jax.random.key_impl(leaf)}"
    array = np.asarray(leaf)
    name = array.dtype.name
    # Types that NumPy does not have, such as bfloat16, are stored as bytes.
    if array.dtype.kind == "V":
        array = np.ascontiguousarray(array)[..., None].view(np.uint8)
    return array, name


def _from_numpy(array: np.ndarray, kind: str) -> Any:
    if kind.startswith("key:"):
        return jax.random.wrap_key_data(
            jnp.asarray(array), impl=kind.removeprefix("key:")
        )
    dtype = jnp.dtype(kind)
    if array.dtype != dtype:
        array = np.ascontiguousarray(array).view(dtype)[..., 0]
    return array


class _Unknown(Exception):
    """A type whose structure cannot be stored."""


def _encode(tree: Any, counter: Any) -> Any:
    """Encode structure as JSON; arrays are replaced by their index among the leaves."""
    if type(tree) in _CLASSES.values():
        fields = {
            field: _encode_field(tree, field, counter)
            for field in type(tree).__dataclass_fields__
        }
        return {"class": type(tree).__name__, "fields": fields}
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        return {"dict": {key: _encode(tree[key], counter) for key in sorted(tree)}}
    if type(tree) in (tuple, list):
        items = [_encode(item, counter) for item in tree]
        return {type(tree).__name__: items}
    if tree is None:
        return None
    if _is_number(tree):
        return {"leaf": next(counter), "python": type(tree).__name__}
    raise _Unknown


def _encode_field(tree: Any, field: str, counter: Any) -> Any:
    value = vars(tree)[field]
    if type(tree).__dataclass_fields__[field].metadata.get("static", False):
        return {"static": _encode_static(value)}
    return _encode(value, counter)


def _encode_static(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__name__, "name": value.name}
    if type(value) in _TUPLES.values():
        items = [_encode_static(item) for item in value]
        return {"named": type(value).__name__, "items": items}
    if type(value) in _CONNECTIVITY.values():
        arrays = {name: _packed(array) for name, array in value.arrays.items()}
        return {"connectivity": type(value).__name__, "arrays": arrays}
    if isinstance(value, tuple):
        return [_encode_static(item) for item in value]
    if isinstance(value, Pattern):
        return {"pattern": [entry and entry.decode() for entry in value.entries]}
    if type(value) in _FIELDS.values():
        items = [_encode_static(vars(value)[x.name]) for x in dataclasses.fields(value)]
        return {"field": type(value).__name__, "values": items}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise _Unknown


def _packed(array: np.ndarray) -> dict:
    """Encode an integer array compactly for JSON: that of a large mesh would be long as
    numbers."""
    content = zlib.compress(array.astype("<i4").tobytes())
    return {"shape": array.shape, "content": base64.b64encode(content).decode()}


def _unpacked(code: dict) -> np.ndarray:
    packed, most = base64.b64decode(code["content"]), 4 * math.prod(code["shape"])
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, most + 1)
    if len(content) != most or most > max(_FREE, _RATIO * len(packed)):
        raise ValueError(f"an array of {most} bytes is packed into {len(packed)}")
    return np.frombuffer(content, "<i4").reshape(code["shape"])


def _decode(code: Any, leaves: list) -> Any:
    if code is None:
        return None
    if "class" in code:
        cls = _CLASSES[code["class"]]
        # `__init__` is bypassed: it would reject the shapes of a batch of robots.
        self = object.__new__(cls)
        for field, value in code["fields"].items():
            object.__setattr__(self, field, _decode(value, leaves))
        # Parts that did not exist when the file was written.
        for field, info in cls.__dataclass_fields__.items():
            absent = field not in code["fields"]
            if absent and info.default_factory is not dataclasses.MISSING:
                object.__setattr__(self, field, info.default_factory())
            elif absent and info.default is not dataclasses.MISSING:
                object.__setattr__(self, field, info.default)
        return self
    if "dict" in code:
        return {key: _decode(value, leaves) for key, value in code["dict"].items()}
    if "list" in code:
        return [_decode(item, leaves) for item in code["list"]]
    if "tuple" in code:
        return tuple(_decode(item, leaves) for item in code["tuple"])
    if "static" in code:
        return _decode_static(code["static"])
    return _restore(leaves[code["leaf"]], code["python"])


def _decode_static(value: Any) -> Any:
    if isinstance(value, dict) and "pattern" in value:
        return Pattern(tuple(entry and entry.encode() for entry in value["pattern"]))
    if isinstance(value, dict) and "connectivity" in value:
        # Older files hold start vertices of searches in place of `HullGraph.reference`;
        # without either, searches begin anywhere.
        given = {k: code for k, code in value["arrays"].items() if k != "seeds"}
        arrays = {name: _unpacked(code) for name, code in given.items()}
        return _CONNECTIVITY[value["connectivity"]](**arrays)
    if isinstance(value, dict) and "named" in value:
        return _TUPLES[value["named"]](*map(_decode_static, value["items"]))
    if isinstance(value, dict) and "field" in value:
        return _FIELDS[value["field"]](*map(_decode_static, value["values"]))
    if isinstance(value, dict):
        return _ENUMS[value["enum"]][value["name"]]
    if isinstance(value, list):
        return tuple(_decode_static(item) for item in value)
    return value


def _restore(value: Any, python: str) -> Any:
    if python in ("bool", "int", "float", "complex"):
        return value.item()
    if python == "ndarray":
        return value
    return jnp.asarray(value)
