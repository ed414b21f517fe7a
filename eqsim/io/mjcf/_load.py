"""Loading of an MJCF file or text into a `System`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..._errors import check_count
from ..._primitive import patterned
from ...model import Cone, Integrator, System, validate
from ._read_actuators import read_actuators, read_keyframes, with_delays
from ._read_bodies import (
    find_contacts,
    has_medium,
    read_excludes,
    read_geoms,
    read_height_fields,
    read_joints,
    read_links,
    read_meshes,
    read_pairs,
    with_override,
)
from ._read_elements import read_equalities, read_sensors, read_sites, read_tendons
from ._support import check_ignored, check_supported
from ._table import read_fields
from .mujoco_names import read_flags
from .sources import compile_source


def load_mjcf(
    source: str | os.PathLike | Any,
    assets: Mapping[str, bytes | str] | None = None,
    *,
    ignore: Sequence[str] = (),
    height_field_contacts: int = 16,
) -> System:
    """Load a robot from an MJCF file, to be simulated as in MuJoCo.

    MuJoCo's own compiler reads the file. Loading the same file twice gives systems of
    the same structure, so nothing is recompiled.

    **Arguments:**

    - `source`: path of a file, XML text, a `mujoco.MjSpec`, or a `mujoco.MjModel`
        (which is copied).
    - `assets`: contents of files that the path or the text refers to, by name:
        `{"mesh.stl": bytes, "included.xml": text}`.
    - `ignore`: features to leave out instead of refusing the file, such as
        `("delay",)`. The page *MJCF support* lists the names.
    - `height_field_contacts`: `HeightFields.capacity` of all height fields.

    **Returns:** the robot. `System.notes` lists features without effect, and ignored
    features.

    **Raises:**

    - `FileNotFoundError`: the file does not exist.
    - `UnsupportedMJCF`: the file uses unsupported features; the message lists all of
        them.
    - `ValueError`: MuJoCo rejects the file, it is a URDF, a parameter is invalid, or
        `ignore` contains an unknown name.
    """
    check_count("height_field_contacts", height_field_contacts)
    ignored = check_ignored(ignore)
    label, model, warnings = compile_source(source, assets)
    model = with_override(model)
    flags = read_flags(model)
    contacts = find_contacts(model, flags)
    notes = check_supported(label, model, flags, contacts, ignored)
    notes += tuple(f"MuJoCo warns: {warning}" for warning in warnings)
    actuators = read_actuators(model, flags)
    system = System(
        links=read_links(model, flags),
        joints=read_joints(model, flags),
        geoms=read_geoms(model, flags, contacts),
        pairs=read_pairs(model, flags, contacts),
        actuators=actuators,
        equalities=read_equalities(model, flags),
        keyframes=read_keyframes(model, flags, actuators),
        excludes=read_excludes(model),
        filter_parent=flags.filterparent,
        integrator=tuple(Integrator)[model.opt.integrator],
        cone=tuple(Cone)[model.opt.cone],
        implicit_damping=flags.eulerdamp,
        safe_solref=flags.refsafe,
        has_fluid=has_medium(model, flags),
        notes=notes,
        noslip_iterations=int(model.opt.noslip_iterations),
        sites=read_sites(model, flags),
        tendons=read_tendons(model, flags, contacts),
        sensors=read_sensors(model, contacts),
        meshes=read_meshes(model, contacts),
        height_fields=read_height_fields(model, contacts, height_field_contacts),
        **read_fields("option", model.opt, flags),
    )
    try:
        system = patterned(validate(system))
        return with_delays(system, model, flags)
    except ValueError as error:
        raise ValueError(f"{label} was read, but {error}") from error
