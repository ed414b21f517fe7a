"""Arrays of HDF5 files, the format of D4RL."""

import importlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


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
