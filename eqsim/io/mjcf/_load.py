"""MJCF file or text to `System`."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._patterns import patterned
from ...model import Cone, Integrator, System, validate
from ._actuators import read_actuators
from ._bodies import read_joints, read_links
from ._detect import Source
from ._equalities import read_equalities
from ._flags import read_flags
from ._geoms import (
    find_contacts,
    has_medium,
    read_excludes,
    read_geoms,
    read_pairs,
)
from ._mujoco import engine
from ._tendons import read_sites, read_tendons
from ._unsupported import check_supported


_INTEGRATORS = (
    Integrator.EULER,
    Integrator.RK4,
    Integrator.IMPLICIT,
    Integrator.IMPLICIT_FAST,
)


def load_mjcf(source: str | os.PathLike) -> System:
    """Reads a robot from an MJCF file, as MuJoCo would simulate it.

    MuJoCo's own compiler reads the file. Reading the same file twice gives systems of
    the same structure, so nothing is compiled again.

    **Arguments:**

    - `source`: path of a file, or the XML itself.

    **Returns:** the robot. `System.notes` says what was accepted without effect.

    **Raises:**

    - `FileNotFoundError`: there is no such file.
    - `UnsupportedMJCF`: the file uses what is not simulated. It lists all of it.
    - `ValueError`: MuJoCo rejects the file, or a number in it makes no sense.
    """
    label, model, warnings = _compile(source)
    flags = read_flags(model)
    contacts = find_contacts(model, flags)
    notes = check_supported(label, Source(model, flags, contacts))
    notes += tuple(f"MuJoCo warns: {warning}" for warning in warnings)
    option = model.opt
    medium = has_medium(model, flags)
    system = System(
        links=read_links(model, flags),
        joints=read_joints(model, flags),
        geoms=read_geoms(model, flags, contacts),
        pairs=read_pairs(model, flags, contacts),
        actuators=read_actuators(model, flags),
        equalities=read_equalities(model, flags),
        excludes=read_excludes(model),
        filter_parent=flags.filterparent,
        integrator=_INTEGRATORS[option.integrator],
        cone=(Cone.PYRAMIDAL, Cone.ELLIPTIC)[int(option.cone)],
        implicit_damping=flags.eulerdamp,
        safe_solref=flags.refsafe,
        has_fluid=medium,
        notes=notes,
        gravity=np.array(option.gravity) * flags.gravity,
        wind=np.array(option.wind),
        density=float(option.density) if medium else 0.0,
        viscosity=float(option.viscosity) if medium else 0.0,
        impratio=float(option.impratio),
        dt=float(option.timestep),
        sites=read_sites(model),
        tendons=read_tendons(model, flags, contacts),
    )
    try:
        return patterned(validate(system))
    except ValueError as error:
        raise ValueError(f"{label} was read, but {error}") from error


def _compile(source: str | os.PathLike) -> tuple[str, Any, list[str]]:
    """Runs MuJoCo's compiler.

    **Returns:** how messages call the source, the model, and MuJoCo's warnings.
    """
    mujoco = engine()
    label, read, argument = _reader(source)
    warnings: list[str] = []
    # Without a handler MuJoCo prints, and writes a log file to the working directory.
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warnings.append)
    try:
        return label, read(argument), warnings
    except (ValueError, mujoco.FatalError) as error:
        raise ValueError(
            f"MuJoCo cannot read {label} ({str(source)[:200]!r}). It says:\n{error}\n"
            "Correct the file at the place named."
        ) from error
    finally:
        mujoco.set_mju_user_warning(handler)


def _reader(source: str | os.PathLike) -> tuple[str, Callable[[str], Any], str]:
    """How messages call the source, the function that reads it, and its argument."""
    mujoco = engine()
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            "load_mjcf takes the path of a file or XML text, but got "
            f"{type(source).__name__}."
        )
    text = str(source).lstrip("\ufeff \t\r\n")
    if isinstance(source, str) and text.startswith("<"):
        return "The MJCF text", mujoco.MjModel.from_xml_string, text
    path = pathlib.Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no MJCF file {str(source)!r} (looked in {pathlib.Path.cwd()}). "
            "Pass the path of an existing file, or the XML text itself, which starts "
            "with '<'."
        )
    return path.name, mujoco.MjModel.from_xml_path, str(path)
