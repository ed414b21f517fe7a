"""Model files of MuJoCo Playground, without parts that are only drawn."""

import functools as ft
import importlib.util
import os
import pathlib
import xml.etree.ElementTree as ET
from collections.abc import Callable

import jax.numpy as jnp

import eqsim
from eqsim import System


MENAGERIE = "EQSIM_MENAGERIE"
"""Environment variable with the path of a copy of MuJoCo Menagerie."""


def playground_folder() -> pathlib.Path:
    """Return the folder of the package `mujoco_playground`, which is not imported.

    **Raises:** `ImportError` if it is not installed.
    """
    # Importing it may download; only its files are needed.
    spec = importlib.util.find_spec("mujoco_playground")
    if spec is None or spec.origin is None:
        raise ImportError(
            "The model files come with the package `playground`, which is not installed. "
            'Run `pip install "eqsim-playground[models]"`, or pass a robot as `sys`.'
        )
    return pathlib.Path(spec.origin).parent


def playground_file(name: str) -> pathlib.Path:
    """Return the path of a file of MuJoCo Playground.

    **Arguments:**

    - `name`: path below `mujoco_playground/_src`.

    **Raises:** `ImportError` if the package is not installed, `FileNotFoundError` if it
    has no such file.
    """
    file = playground_folder() / "_src" / name
    if not file.is_file():
        raise FileNotFoundError(
            f"`playground` is installed, but has no file {file}. Its version may be too old "
            'or too new: run `pip install "eqsim-playground[models]"`.'
        )
    return file


def menagerie_file(name: str) -> pathlib.Path:
    """Return the path of a file of MuJoCo Menagerie.

    The file is searched for in the folder `EQSIM_MENAGERIE`. Without that variable,
    MuJoCo Playground's copy of Menagerie is used.

    **Arguments:**

    - `name`: path below the root of the repository.

    **Raises:** `FileNotFoundError`, with advice on how to get Menagerie, if the file
    does not exist.
    """
    folder = os.environ.get(MENAGERIE)
    where = f"`{MENAGERIE}` is {folder!r}" if folder else f"`{MENAGERIE}` is not set"
    root = pathlib.Path(folder) if folder else _own_menagerie()
    file = root / name
    if not file.is_file():
        raise FileNotFoundError(
            f"MuJoCo Menagerie is needed, but there is no file {file} ({where}). Run `git "
            "clone https://github.com/google-deepmind/mujoco_menagerie` and set "
            f"`{MENAGERIE}` to the folder, or pass a robot as `sys`."
        )
    return file


def _own_menagerie() -> pathlib.Path:
    return playground_folder() / "external_deps" / "mujoco_menagerie"


def no_edit(root: ET.Element) -> None:
    """Change nothing."""


def add_force_sensors(root: ET.Element) -> None:
    """Add a sensor `<actuator>_force` for each actuator of a document."""
    sensors = ET.SubElement(root, "sensor")
    for actuators in root.findall("actuator"):
        for actuator in actuators:
            name = actuator.get("name", "")
            ET.SubElement(sensors, "actuatorfrc", name=f"{name}_force", actuator=name)


def edited_model(
    name: str,
    edit: Callable[[ET.Element], None] = no_edit,
    find: Callable[[str], pathlib.Path] = menagerie_file,
) -> System:
    """Load a scene of MuJoCo Playground without meshes and textures from files.

    Meshes of these scenes touch nothing and have no mass, so the physics does not
    change.

    **Arguments:**

    - `name`: path of the scene below `mujoco_playground/_src`.
    - `edit`: function that changes the root element of the document.
    - `find`: function that returns the path of an included file by name, for files
        outside the folder of the scene.

    **Raises:** as `playground_file`.
    """
    return _load(name, edit, find, jnp.result_type(float).name)


@ft.cache
def _load(name: str, edit, find, dtype: str) -> System:
    del dtype  # For the cache: numbers of a file are read in the default one.
    return eqsim.load_mjcf(document(name, edit, find))


def document(
    name: str,
    edit: Callable[[ET.Element], None] = no_edit,
    find: Callable[[str], pathlib.Path] = menagerie_file,
) -> str:
    """Return the XML text that `edited_model` loads, with all files included.

    **Arguments:** as for `edited_model`.
    """
    file = playground_file(name)
    root = ET.parse(file).getroot()
    _include(root, file.parent, find)
    _strip(root)
    edit(root)
    return ET.tostring(root, encoding="unicode")


def _include(root: ET.Element, folder: pathlib.Path, find) -> None:
    """Replace each `include` by the contents of the file."""
    for part in root.findall("include"):
        place = list(root).index(part)
        root.remove(part)
        file = folder / part.get("file", "")
        inner = ET.parse(file if file.is_file() else find(file.name)).getroot()
        _include(inner, folder, find)
        root[place:place] = list(inner)


def _strip(root: ET.Element) -> None:
    """Remove meshes, textures from files, and materials that need them."""
    meshes = {kind.get("class") for kind in root.iter("default") if _is_mesh(kind)}
    for body in (*root.iter("worldbody"), *root.iter("body")):
        for geom in body.findall("geom"):
            by_class = "mesh" if geom.get("class") in meshes else None
            if geom.get("mesh") or geom.get("type", by_class) == "mesh":
                body.remove(geom)
    for assets in root.findall("asset"):
        lost = {x.get("name") for x in assets.findall("texture") if _has_file(x)}
        for element in list(assets):
            if element.tag == "mesh" or _has_file(element):
                assets.remove(element)
            elif element.tag == "material" and element.get("texture") in lost:
                assets.remove(element)
    known = {x.get("name") for x in root.iter("material")}
    for element in root.iter():
        if element.get("material") not in known:
            element.attrib.pop("material", None)


def _is_mesh(kind: ET.Element) -> bool:
    """Test if shapes of a default class are meshes, unless they specify another
    type."""
    geom = kind.find("geom")
    return geom is not None and geom.get("type") == "mesh"


def _has_file(element: ET.Element) -> bool:
    return any(name.startswith("file") for name in element.attrib)
