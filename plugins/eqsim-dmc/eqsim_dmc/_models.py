"""Model files of `dm_control`, and fields of tasks with a default value."""

import functools as ft
import importlib
import importlib.util
import pathlib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import eqsim
from eqsim import System
from eqsim.model.arrays import as_array


def suite_file(name: str) -> pathlib.Path:
    """Return the path of a model file of the control suite, for instance of
    `"cartpole.xml"`.

    **Raises:** `ImportError` if `dm_control` is not installed, `FileNotFoundError` if
    it has no such file.
    """
    # The package is located without importing it: only its files are needed.
    spec = importlib.util.find_spec("dm_control")
    if spec is None or spec.origin is None:
        raise ImportError(
            f"The model file {name!r} comes with `dm_control`, which is not installed. "
            'Run `pip install "eqsim-dmc[suite]"`, or pass a robot as `sys`.'
        )
    file = pathlib.Path(spec.origin).parent / "suite" / name
    if not file.is_file():
        raise FileNotFoundError(
            f"`dm_control` is installed, but has no file {file}. Its version may be too "
            'old or too new: run `pip install "eqsim-dmc[suite]"`.'
        )
    return file


def suite_model(name: str) -> System:
    """Return the system of a model file of the control suite."""
    return _load(name, jnp.result_type(float).name)


def point_mass_model(limited: bool) -> System:
    """Return the system of `point_mass.xml`, with motors on its joints.

    In the file, each motor acts on a fixed tendon of one joint with coefficient 1,
    which gives the same force.

    **Arguments:**

    - `limited`: true if motors clip their inputs to their range.
    """
    return _load_point_mass(limited, jnp.result_type(float).name)


def edited_model(edit: Callable[..., None], name: str, *arguments: Any) -> System:
    """Load a model file of the control suite after a change.

    **Arguments:**

    - `edit`: function `(root, *arguments)` that changes the root element of the
        document.
    - `name`: name of the file.
    - `arguments`: hashable values.
    """
    return _load_edited(edit, name, arguments, jnp.result_type(float).name)


def find(root: ET.Element, tag: str, name: str) -> ET.Element:
    """Return the element of a document with a tag and a name.

    **Raises:** `ValueError` if it does not exist.
    """
    for element in root.iter(tag):
        if element.get("name") == name:
            return element
    raise ValueError(
        f"The model file has no {tag} {name!r}. The version of `dm_control` may be too "
        'old or too new: run `pip install "eqsim-dmc[suite]"`.'
    )


def remove(root: ET.Element, tag: str, name: str) -> None:
    """Remove an element of a document, with its content.

    **Raises:** `ValueError` if it does not exist.
    """
    element = find(root, tag, name)
    for parent in root.iter():
        if element in list(parent):
            parent.remove(element)


def number(default: Any) -> Any:
    """Return a field for an array with a default value, or None."""
    return eqx.field(converter=as_array, default=default)


def of_model(make: Callable[[], System]) -> Callable[[System | None], System]:
    """Return a converter of None to the result of a function."""
    return lambda sys: make() if sys is None else sys


def of_file(name: str) -> Callable[[System | None], System]:
    """Return a converter of None to the robot of a model file of the suite."""
    return of_model(lambda: suite_model(name))


def site(file: str, name: str, size: bool = False) -> Any:
    """Return a field for the position (m) or the radius (m) of a site, by default that of
    a model file."""

    def convert(value: Any) -> Any:
        return as_array(_site(file, name)[size] if value is None else value)

    return eqx.field(converter=convert, default=None)


@ft.cache
def _site(file: str, name: str) -> tuple[np.ndarray, float]:
    """Return position and radius of a site of a model file."""
    # Imported lazily, as in eqsim.
    mujoco: Any = importlib.import_module("mujoco")
    found = mujoco.MjModel.from_xml_path(str(suite_file(file))).site(name)
    return np.array(found.pos), float(found.size[0])


@ft.cache
def _load(name: str, dtype: str) -> System:
    del dtype  # For the cache: that of the numbers in a file is the default one.
    return eqsim.load_mjcf(suite_file(name))


@ft.cache
def _load_point_mass(limited: bool, dtype: str) -> System:
    del dtype
    root = ET.parse(suite_file("point_mass.xml")).getroot()
    joints = {}
    for tendon in root.findall("./tendon/fixed"):
        ends = [j.get("joint") for j in tendon if float(j.get("coef", "0")) == 1.0]
        joints[tendon.get("name")] = ends[0]
    for motor in root.findall("./actuator/motor"):
        motor.set("joint", joints[motor.attrib.pop("tendon")] or "")
        motor.set("ctrllimited", "true" if limited else "false")
    for part in [*root.findall("include"), *root.findall("tendon")]:
        root.remove(part)
    # Materials were in the included files.
    for element in root.iter():
        element.attrib.pop("material", None)
    return eqsim.load_mjcf(ET.tostring(root, encoding="unicode"))


@ft.cache
def _load_edited(edit: Callable[..., None], name: str, arguments, dtype: str) -> System:
    del dtype
    root = ET.parse(suite_file(name)).getroot()
    for part in root.findall("include"):
        place = list(root).index(part)
        root.remove(part)
        root[place:place] = ET.parse(suite_file(part.get("file", ""))).getroot()
    edit(root, *arguments)
    return eqsim.load_mjcf(ET.tostring(root, encoding="unicode"))
