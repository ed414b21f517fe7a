"""Datasets in files of NumPy (`.npz`) and HDF5."""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax.tree_util as jtu
import numpy as np

from eqsim.io import open_arrays

from ._about import About
from ._checks import check_finite, inside, limits_of, numbers, observations
from ._dataset import Dataset, from_packed
from ._foreign import foreign_steps
from ._hdf5 import is_hdf5, open_hdf5
from ._host import is_host
from ._names import flat, nested
from ._pack import check_packed, Packed


FORMAT = "eqsim-data-1"
_FRAMES = "frames/observation"
_PLAIN = "at", "reward", "terminated", "last", "bounds"


def save_data(data: Dataset, path: str | os.PathLike) -> None:
    """Writes a dataset to a file; one that is there is kept until the new one is whole.

    It holds arrays by the names of the fields of `Dataset`, `format`, and `about` in JSON.
    Observations are `frames/observation`; those of a dictionary `frames/observation/KEY`.

    **Arguments:**

    - `path`: of the file, such as `data.npz`.

    **Raises:** `ValueError` if observations are neither an array nor dictionaries of
    arrays; `OSError` if it cannot be written. What was there before is still there.
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

    The layout is known by the names of the arrays; others than these are not read:

    - ours, see `save_data`.
    - D4RL and jaxrl_m: `observations`, `actions`, `rewards`, `next_observations`: a row is
        a step, and all are kept. Nothing follows where `masks` is 0, or, without `masks`,
        where `terminals` is 1. A trajectory is over there, and where `terminals`,
        `timeouts` or `dones_float` is 1; if none of these tells it, where a step does not
        lead to the observation in the next row.
    - D4RL without `next_observations`: `observations`, `actions`, `rewards`, `terminals`
        and `timeouts`. A row is a step that leads to the observation in the next row, as in
        `d4rl.qlearning_dataset`: the last row, and each row with `timeouts` 1, has no next
        observation and is dropped. At a terminal, the observation before the step stands in
        the place of the one after it; `mask` is 0 there.
    - OGBench: `observations`, `actions` and `terminals`, which is 1 at the last frame of a
        trajectory. A row is a frame: of a trajectory of T + 1 frames T steps are kept, as
        no step begins at the last one, whose action and reward are dropped. `rewards`
        are 0, and `masks` 1, if they are not there.
    - what `eqsim rollout` writes, without steps that were resets (`valid` is False).

    In the place of `observations` there can be several arrays `observations/KEY`: then
    each observation is a dictionary. Pictures stay in bytes, other numbers become those
    that JAX computes with. A trajectory goes no further than a step that nothing follows.

    **Arguments:**

    - `path`: of the file.
    - `clip`: true if actions outside the bounds are moved to them.
    - `bounds`: of actions; by default those in the file, or -1 and 1.
    - `about`: where it comes from; by default what the file says.

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
            f"There is no dataset {str(path)!r} (looked in {pathlib.Path.cwd()})."
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
        raise ValueError(f"its format is {found!r}, and {FORMAT!r} is read.")
    missing = {*_PLAIN, "action", "about"} - {*arrays}
    frames = nested(_FRAMES, arrays)
    if missing or not jtu.tree_leaves(frames):
        names = ", ".join(sorted(missing or {_FRAMES}))
        raise ValueError(f"`{names}` is missing; there are {', '.join(arrays)}.")
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
            f"`about` is {text!r}: the fields of `About` are expected, in JSON."
        ) from error
