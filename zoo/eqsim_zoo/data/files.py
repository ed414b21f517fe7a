"""Nested dictionaries of arrays as arrays with path names."""

import importlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax.tree_util as jtu
import numpy as np

from eqsim.io import open_arrays

from .dataset import About, Dataset, from_packed
from .foreign import foreign_steps
from .packing import (
    check_finite,
    check_packed,
    flat,
    inside,
    is_host,
    limits_of,
    nested,
    numbers,
    observations,
    Packed,
)


_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: pathlib.Path) -> bool:
    """Return true if a file begins as HDF5 files do."""
    with open(path, "rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


@contextmanager
def open_hdf5(path: str | os.PathLike) -> Iterator[Mapping[str, np.ndarray]]:
    """Open a file; the context is its arrays by name, such as `infos/qpos`, each of which
    is read when it is asked for.

    **Raises:** `ImportError` without h5py; `ValueError` if the file is damaged, or its
    steps do not tell where episodes are truncated.
    """
    try:
        module: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            "HDF5 files need h5py. Run `pip install 'eqsim-zoo[d4rl]'`."
        ) from error
    try:
        with module.File(path, "r") as file:
            arrays = _Arrays(file, module.Dataset)
            _check(arrays)
            yield arrays
    except OSError as error:
        raise ValueError(f"this HDF5 file is damaged or incomplete: {error}") from error


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays of an open file. Flags and rewards of shape (N, 1) get shape (N,), as in
    `get_dataset` of D4RL."""

    def __init__(self, file: Any, kind: type):
        self._file, self._names = file, []
        add = lambda name, x: self._names.append(name) if isinstance(x, kind) else None
        file.visititems(add)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        x = np.asarray(self._file[name][()])
        flat = name in ("rewards", "terminals", "timeouts")
        return x[:, 0] if flat and x.ndim == 2 and x.shape[1] == 1 else x

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _check(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise `ValueError` for files of D4RL's version 0 without `timeouts`, whose rows would
    be taken for those of OGBench."""
    if not {"timeouts", "next_observations", "masks"} & set(arrays):
        raise ValueError(
            f"there are arrays {', '.join(sorted(arrays)) or '(none)'}, but neither "
            "`timeouts` nor `next_observations`: the ends of truncated episodes are not "
            "known. Use a later version of the dataset, such as `hopper-medium-v2`."
        )


FORMAT = "eqsim-data-1"
_FRAMES = "frames/observation"
_PLAIN = "at", "reward", "terminated", "last", "bounds"


def save_data(data: Dataset, path: str | os.PathLike) -> None:
    """Write a dataset to a file. An existing file is replaced only when the new one is
    complete.

    Arrays have the names of the fields of `Dataset`; `format` and `about` (JSON) are
    text. Observations are `frames/observation`, those of a dictionary
    `frames/observation/KEY`.

    **Arguments:**

    - `data`: dataset to write.
    - `path`: path of the file, such as `data.npz`.

    **Raises:** `ValueError` if observations are neither an array nor dictionaries of
    arrays; `OSError` if the file cannot be written; an existing file is then unchanged.
    """
    path, host = pathlib.Path(path), data.on_host()
    frames = jtu.tree_map(lambda x: x.array, host.frames, is_leaf=is_host)
    arrays = {"format": np.asarray(FORMAT), **flat(_FRAMES, frames)}
    arrays |= {"about": np.asarray(json.dumps(data.about._asdict(), default=float))}
    arrays |= {name: np.asarray(vars(data)[name]) for name in _PLAIN}
    arrays |= {"action": host.action.array}
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def load_data(
    path: str | os.PathLike,
    *,
    clip: bool = False,
    bounds: Any = None,
    about: About | None = None,
) -> Dataset:
    """Read a `.npz` or HDF5 file (extra `d4rl`) onto the device; see `Dataset.on_host`.

    The layout is recognized by the names of the arrays; other arrays are ignored:

    - eqsim: the layout of `save_data`.
    - D4RL and jaxrl_m: `observations`, `actions`, `rewards`, `next_observations`. Each row
        is a step, and all rows are kept. A step is terminated where `masks` is 0 or,
        without `masks`, where `terminals` is 1. A trajectory ends at terminated steps and
        where `terminals`, `timeouts` or `dones_float` is 1. Without such flags it ends
        where `next_observations` differs from `observations` in the next row.
    - D4RL without `next_observations`: `observations`, `actions`, `rewards`, `terminals`
        and `timeouts`. A row is a step that leads to the observation in the next row, as in
        `d4rl.qlearning_dataset`: the last row, and each row with `timeouts` 1, has no next
        observation and is dropped. A terminal repeats the observation before the step.
    - OGBench: `observations`, `actions` and `terminals`, which is 1 at the last frame of a
        trajectory. Each row is a frame: a trajectory of T + 1 frames has T steps, and the
        action and reward of its last frame are dropped. Without `rewards` they are 0;
        without `masks` no step is terminated.
    - `eqsim rollout`: its output, without resets (`valid` is false).

    Instead of `observations` there can be several arrays `observations/KEY`, for
    dictionary observations. Images stay `uint8`; other arrays are converted to JAX's
    default float type. A terminated step always ends its trajectory.

    **Arguments:**

    - `path`: path of the file.
    - `clip`: true to clip actions to the bounds.
    - `bounds`: lower and upper bounds of actions; by default those in the file, or -1
        and 1.
    - `about`: metadata; by default that of the file.

    **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if it has none
    of these layouts, is damaged, or cannot be learned from, see `Dataset.create`;
    `ImportError` without h5py, for HDF5.

    ??? cite "Reference"
        Fu et al., *D4RL: Datasets for Deep Data-Driven Reinforcement Learning*, 2020,
        arXiv 2004.07219.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"No dataset {str(path)!r} (relative to {pathlib.Path.cwd()})."
        )
    try:
        with _opened(path) as arrays:
            if "format" in arrays:
                return _own(arrays, clip, bounds, about)
            steps = foreign_steps(arrays)
        return Dataset.of(steps, bounds=bounds, clip=clip, about=about or About())
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error


@contextmanager
def _opened(path: pathlib.Path) -> Iterator[Mapping[str, np.ndarray]]:
    """Open a file as a mapping of its arrays."""
    if is_hdf5(path):
        with open_hdf5(path) as arrays:
            yield arrays
    else:
        with open_arrays(path) as arrays:
            yield arrays


def _own(
    arrays: Mapping[str, np.ndarray], clip: bool, bounds: Any, about: About | None
) -> Dataset:
    found = str(arrays["format"])
    if found != FORMAT:
        raise ValueError(f"the format is {found!r}; expected {FORMAT!r}.")
    missing = {*_PLAIN, "action", "about"} - {*arrays}
    frames = nested(_FRAMES, arrays)
    if missing or not jtu.tree_leaves(frames):
        names = ", ".join(sorted(missing or {_FRAMES}))
        raise ValueError(f"`{names}` is missing; the file has {', '.join(arrays)}.")
    packed = Packed(
        observations("frames", frames),
        arrays["at"],
        numbers("action", arrays["action"]),
        numbers("reward", arrays["reward"]),
        arrays["terminated"],
        arrays["last"],
    )
    check_packed(packed)
    for name in ("frames", "action", "reward"):
        check_finite(name, packed._asdict()[name])
    limits = limits_of(arrays["bounds"] if bounds is None else bounds, packed.action)
    packed = packed._replace(action=inside(packed.action, limits, clip))
    return from_packed(packed, limits, about or _about(str(arrays["about"])))


def _about(text: str) -> About:
    try:
        fields = json.loads(text)
        return About(**fields | {"sources": tuple(fields["sources"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"`about` is {text!r}; expected the fields of `About` in JSON."
        ) from error
