"""Outcome of one MJCF file: loading, and comparison of its motion with MuJoCo C."""

import dataclasses
import pathlib
import textwrap
import time
import warnings
from typing import Any

import mujoco
from _motion import compare_motion, Motion

from eqsim.io import load_mjcf, UnsupportedMJCF


LOADS, REFUSED, NOT_COMPILED = "loads", "refused", "MuJoCo cannot compile"
INTERNAL = "internal error"


@dataclasses.dataclass(frozen=True)
class File:
    """Outcome of a file.

    **Arguments:**

    - `source`, `path`: name of the source, and the path below its folder.
    - `outcome`: `LOADS`, `REFUSED`, `NOT_COMPILED` or `INTERNAL`.
    - `reasons`: refused features, or the message of the error.
    - `details`: elements that use each feature.
    - `ignore`: features to ignore so that a refused file loads, see `load_mjcf`.
    - `mujoco_seconds`: time of MuJoCo's compiler.
    - `seconds`: time that eqsim takes to read the compiled model.
    - `nv`: number of degrees of freedom.
    - `motion`: comparison of trajectories, or the reason why there is none.
    """

    source: str
    path: str
    outcome: str
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    mujoco_seconds: float = 0.0
    seconds: float = 0.0
    nv: int = 0
    motion: Motion | str | None = None

    @property
    def key(self) -> str:
        return f"{self.source}/{self.path}"

    @staticmethod
    def read(data: dict[str, Any]) -> "File":
        """Create a file from JSON data."""
        motion = data.get("motion")
        if isinstance(motion, dict):
            motion = Motion(**motion)
        fields: dict[str, Any] = data | {"motion": motion}
        fields |= {name: tuple(data.get(name, ())) for name in _LISTS}
        return File(**fields)


def check_file(source: str, folder: pathlib.Path, name: str, steps: int) -> File:
    """Load one file with MuJoCo and eqsim, and compare a motion of `steps` steps."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mujoco.set_mju_user_warning(lambda text: None)
            model = mujoco.MjModel.from_xml_path(str(folder / name))
    except Exception as error:
        return File(source, name, NOT_COMPILED, (_first_line(error),))
    compiled = time.perf_counter()
    spent = {"mujoco_seconds": compiled - started, "nv": int(model.nv)}
    try:
        sys = load_mjcf(model)
    except UnsupportedMJCF as error:
        reasons = tuple(feature.name for feature, _ in error.problems)
        details = tuple("; ".join(elements) for _, elements in error.problems)
        ignore = _ignorable(model, error)
        return File(source, name, REFUSED, reasons, details, ignore, **spent)
    except ValueError as error:
        reason = _first_line(error).removeprefix("The MjModel was read, but ")
        return File(source, name, REFUSED, (reason,), **spent)
    except Exception as error:
        return File(source, name, INTERNAL, (_named(error),), **spent)
    spent["seconds"] = time.perf_counter() - compiled
    if not steps:
        return File(source, name, LOADS, **spent)
    if not model.nv:
        return File(source, name, LOADS, **spent, motion="nothing moves")
    try:
        motion = compare_motion(sys, model, steps)
    except Exception as error:
        motion = f"{INTERNAL}: {_named(error)}"
    return File(source, name, LOADS, **spent, motion=motion)


_LISTS = ("reasons", "details", "ignore")


def _ignorable(model: mujoco.MjModel, error: UnsupportedMJCF) -> tuple[str, ...]:
    """Return the features to ignore so that a file loads; nothing if that is not
    possible."""
    keys = [feature.key for feature, _ in error.problems]
    found = tuple(sorted({key for key in keys if key is not None}))
    if None in keys:
        return ()
    try:
        load_mjcf(model, ignore=found)
    except ValueError:
        return ()
    return found


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return textwrap.shorten((str(error).splitlines() or [""])[0], 100)
