"""Checkpoint files of agent states, in the safetensors format, without code.

The metadata of a file are strings: `format`, `versions` and `about` (metadata of the
caller) as JSON, `leaves` (JSON: path, shape and type of each array, in the order of the
state) and `sha256` (checksum of the whole file, with zeros in place of the checksum). The
tensors are named by their paths; random keys are stored as their data.
"""

import importlib.metadata
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from eqsim.bridges import is_key

from ._earlier_checkpoint import earlier_about, is_earlier, load_earlier
from ._leaves import (
    CheckpointError as CheckpointError,
    damaged,
    foreign,
    Leaf,
    leaves_of,
    unknown,
    UNREADABLE,
)
from ._tensors import digest_fits, open_tensors, write_tensors


FORMAT = "eqsim-checkpoint-2"
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")
# Unused standard deviation of the deterministic policy in earlier versions of TD3+BC.
_REMOVED = (".network.raw",)
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
    if is_earlier(path):
        return earlier_about(path)
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
    load = load_earlier if is_earlier(path) else _load
    arrays, about = load(path, lambda leaves: _check_fits(path, leaves, like))
    place = lambda where, x: _placed(path, arrays, jtu.keystr(where), x)
    return jtu.tree_map_with_path(place, like), about


def _load(
    path: pathlib.Path, fitting: Callable[[list[Leaf]], set[str]]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with open_tensors(path) as (tensors, file):
        leaves, about = _described(path, tensors)
        if not digest_fits(file, tensors.metadata()["sha256"]):
            raise CheckpointError(damaged(path, "its checksum is wrong"))
        names = fitting(leaves)
        try:
            return {name: tensors.get_tensor(name) for name in names}, about
        except Exception as error:  # A forged file with a valid checksum.
            text = f"its arrays differ from its metadata ({error})"
            raise CheckpointError(damaged(path, text)) from error


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
    if array.dtype.kind == "V" and array.itemsize == raw.dtype.itemsize:
        array = array.view(raw.dtype)  # Types unknown to NumPy, in the earlier format.
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


def _check_fits(path: pathlib.Path, stored: list[Leaf], like: Any) -> set[str]:
    """Return the paths of the arrays of `like`, if those of a file fit."""
    wanted = {leaf.path: leaf for leaf in _leaves(like)}
    kept = lambda path: path in wanted or not path.endswith(_REMOVED)
    found = {leaf.path: leaf for leaf in stored if kept(leaf.path)}
    kind = lambda leaf: f"{leaf.dtype}{leaf.shape}"
    lines = []
    for name in [*wanted, *(n for n in found if n not in wanted)]:
        one = kind(found[name]) if name in found else "missing"
        two = kind(wanted[name]) if name in wanted else "missing"
        if one != two:
            lines.append(f"  {name}: {one} in the file, {two} in the agent")
    if not lines:
        return {*wanted}
    _check_precision(path, found, wanted)
    shown = lines[:10] + ([f"  and {len(lines) - 10} more"] if len(lines) > 10 else [])
    raise CheckpointError(
        f"{str(path)!r} does not fit the agent in this environment:\n"
        + "\n".join(shown)
        + "\nPass the agent and the environment of the run; `eqsim_zoo.runs.read_about` "
        "describes them."
    )
