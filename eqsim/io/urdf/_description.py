"""The XML tree of a URDF: what MuJoCo would drop or misread is handled here."""

import fnmatch
import os
import pathlib
import re
import xml.etree.ElementTree as ET
import xml.parsers.expat as expat
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._errors import listed
from ._mesh_files import FORMATS, MeshFiles, missing_files


class Joint(NamedTuple):
    """A joint of the URDF.

    **Arguments:**

    - `kind`: its type, such as `revolute`.
    - `parent`, `child`: names of links.
    - `effort`: limit of its torque (N m) or force (N); 0 without one.
    - `mimics`: true if it follows another joint.
    """

    name: str
    kind: str
    parent: str
    child: str
    effort: float
    mimics: bool

    @property
    def has_one_dof(self) -> bool:
        """True if the joint has one coordinate."""
        return self.kind in ("revolute", "continuous", "prismatic")


class Description:
    """The XML tree of a URDF, which is edited.

    **Arguments:**

    - `label`: name of the file in messages.
    - `text`: the XML text, whose root element is `<robot>`.

    `root` is the element `<robot>`, `notes` are sentences for `System.notes`, and `bare` links
    without `<inertial>`.
    """

    def __init__(self, label: str, text: str):
        self.label, self.text, self.notes = label, text, list[str]()
        self.root = root = _parse(label, text)
        self.links = {x.get("name", ""): x for x in root.findall("link")}
        self.joints = [_joint(x) for x in root.findall("joint")]
        self.bare: list[str] = []
        fast = [
            x.get("name", "")
            for x in root.findall("joint")
            if _number(x.find("limit"), "velocity") > 0.0
        ]
        if fast:
            self._note("velocity limit of joint", fast, "not simulated.")
        transmissions = [x.get("name", "") for x in root.findall("transmission")]
        if transmissions:
            self._note("transmission", transmissions, "not read; pass `actuators`.")

    def compiler(self, name: str) -> str:
        """Return a setting of the file's own `<mujoco><compiler/></mujoco>`."""
        element = self.root.find("mujoco/compiler")
        return "" if element is None else element.get(name, "")

    def set_compiler(self, **settings: bool) -> None:
        """Set compiler settings of MuJoCo's extension of URDF."""
        element: ET.Element | None = self.root
        for name in ("mujoco", "compiler"):
            found = element.find(name)
            element = ET.SubElement(element, name) if found is None else found
        element.attrib.pop("meshdir", None)
        element.attrib |= {k: str(v).lower() for k, v in settings.items()}

    def must_fuse(self) -> bool:
        """Return whether MuJoCo needs fixed links merged, and add a note: free joints must
        begin at the world itself."""
        free = [x for x in self.joints if x.kind == "floating" and x.parent != "world"]
        if free:
            names = [x.name for x in free]
            self._note("floating joint", names, "fixed links are merged.")
        return bool(free)

    def check_inertia(
        self, floating: bool, density: float, least: tuple[float, float] | None
    ) -> None:
        """Note moving links whose inertia MuJoCo computes from their shapes, and refuse
        moving links without mass.

        **Arguments:**

        - `least`: smallest mass and inertia, with which inertias are repaired.
        """
        fixed = {x.child: x.parent for x in self.joints if x.kind == "fixed"}
        inner = {x.child for x in self.joints}
        # Links that move as one, by the link that a joint moves.
        groups: dict[str, list[str]] = {}
        for name in self.links:
            base, steps = name, 0
            while base in fixed and steps < len(self.links):
                base, steps = fixed[base], steps + 1
            if base in inner or (floating and base != "world"):
                groups.setdefault(base, []).append(name)
        computed, massless = [], []
        for base, names in groups.items():
            shaped = [x for x in names if density > 0.0 and self._is_bare(x)]
            computed += shaped
            if not shaped and not any(_mass(self.links[x]) > 0.0 for x in names):
                massless.append(base)
        self.bare = [x for x in self.links if self.links[x].find("inertial") is None]
        if massless and least is None:
            raise ValueError(
                f"{self.label} has moving links without mass: {listed(massless)}. Add "
                "<inertial> with a positive mass, or pass `repair_inertia=True`."
            )
        if computed:
            advice = (
                f"without <inertial>; shapes of density {density:g} kg/m³ are used."
            )
            self._note("link", computed, advice)
        if least is not None:
            changed = [x for x in self.links if self._repair(x, x in massless, *least)]
            if changed:
                self._note("inertia of link", changed, "repaired.")

    def _repair(self, name: str, massless: bool, mass: float, inertia: float) -> bool:
        """Replace an inertia that no body has, and return whether it was replaced."""
        link = self.links[name]
        element = link.find("inertial")
        if element is None:
            if not massless:
                return False
            element = ET.SubElement(link, "inertial")
        if massless:
            for old in element.findall("mass"):
                element.remove(old)
            ET.SubElement(element, "mass", value=repr(float(mass)))
        numbers, before = element.find("inertia"), _inertia(link)
        if numbers is None:
            numbers = ET.SubElement(element, "inertia")
        valid = _is_physical(before)
        if not massless and valid and all(key in numbers.attrib for key in _ENTRIES):
            return False
        nearest = before if valid else _nearest_inertia(before, inertia)
        for key, place in _ENTRIES.items():
            numbers.set(key, repr(float(nearest[place])))
        return True

    def _is_bare(self, name: str) -> bool:
        """Return whether a link has collision shapes, but no inertia."""
        link = self.links[name]
        return link.find("inertial") is None and link.find("collision") is not None

    def select_shapes(self, visuals: bool, skipped: tuple[str, ...]) -> None:
        """Name shapes after their links, and remove those that are not loaded.

        **Arguments:**

        - `visuals`: true if visual shapes are loaded.
        - `skipped`: patterns of names of collision meshes to leave out.
        """
        taken, names, left_out = dict[str, int](), list[str](), list[str]()
        for link, element in self.links.items():
            for shape in element.findall("collision"):
                mesh = shape.find("geometry/mesh")
                name = "" if mesh is None else mesh.get("filename", "")
                names += [name] if name else []
                if name and any(fnmatch.fnmatch(name, x) for x in skipped):
                    element.remove(shape)
                    left_out.append(name)
                else:
                    _name_shape(shape, link, taken)
            for shape in element.findall("visual"):
                if visuals:
                    _name_shape(shape, f"{link}_visual", taken)
                else:
                    element.remove(shape)
        self._check_patterns("skip_meshes", skipped, names, "collision mesh")
        if left_out:
            self._note("collision mesh", list(dict.fromkeys(left_out)), "left out.")

    def collect_meshes(self, files: MeshFiles) -> None:
        """Read all mesh files, and replace their names by keys of `files.contents`. Visual
        shapes whose mesh cannot be read are removed."""
        missing, unread, undrawn = list[str](), list[str](), list[str]()
        for element in self.links.values():
            for shape in [*element.findall("collision"), *element.findall("visual")]:
                mesh = shape.find("geometry/mesh")
                if mesh is None:
                    continue
                name, why = mesh.get("filename", ""), None
                try:
                    key = files.add(name)
                except ValueError as error:
                    key, why = None, error
                if key is not None:
                    mesh.set("filename", key)
                elif shape.tag == "visual":
                    element.remove(shape)
                    undrawn.append(name)
                elif why is None:
                    missing.append(name)
                else:
                    unread.append(f"{name}: {why}")
        if missing:
            names = list(dict.fromkeys(missing))
            raise FileNotFoundError(missing_files(self.label, names, files.folder))
        if unread:
            raise ValueError(
                f"{self.label} has collision meshes that cannot be read:\n  - "
                + "\n  - ".join(dict.fromkeys(unread))
                + f"\nConvert them to one of {', '.join(FORMATS)}, pass their contents as "
                "`assets`, or leave them out by `skip_meshes`."
            )
        if undrawn:
            self._note("visual mesh", list(dict.fromkeys(undrawn)), "cannot be read.")

    def _check_patterns(
        self, argument: str, patterns: Iterable[str], names: Sequence[str], what: str
    ) -> None:
        for pattern in patterns:
            if pattern != "*" and not fnmatch.filter(names, pattern):
                raise ValueError(
                    f"`{argument}` has {pattern!r}, which matches no {what}. Names: "
                    f"{listed(names) or 'none'}. Correct or remove it."
                )

    def driven(self, patterns: Iterable[str]) -> list[Joint]:
        """Return the joints that actuators can drive, and check that all patterns match
        some of them."""
        joints = [x for x in self.joints if x.has_one_dof and not x.mimics]
        names = [x.name for x in joints]
        self._check_patterns("actuators", patterns, names, "joint that can be driven")
        return joints

    def advice(self, text: str) -> str:
        """Return what to do about an error of MuJoCo, with the links that it concerns."""
        if "inertia" in text and "mesh" not in text:
            links = {k: x for k, x in self.links.items() if k not in self.bare}
            bad = [k for k, x in links.items() if not _is_physical(_inertia(x))]
            where = f"Links with such inertias: {listed(bad)}. " if bad else ""
            return f"\n{where}Correct them, or pass `repair_inertia=True`."
        if "mesh" in text:
            return "\n`skip_meshes` leaves out collision shapes."
        values = [x for element in self.root.iter() for x in element.attrib.values()]
        if any("${" in x or "$(" in x for x in values):
            return "\nExpand macros of xacro: `xacro FILE.urdf.xacro > FILE.urdf`."
        return ""

    def _note(self, what: str, names: Sequence[str], advice: str) -> None:
        self.notes.append(f"{what} {listed(names)}: {advice}")


def _joint(element: ET.Element) -> Joint:
    parent, child = element.find("parent"), element.find("child")
    return Joint(
        element.get("name", ""),
        element.get("type", ""),
        "" if parent is None else parent.get("link", ""),
        "" if child is None else child.get("link", ""),
        _number(element.find("limit"), "effort"),
        element.find("mimic") is not None,
    )


def _number(element: ET.Element | None, name: str) -> float:
    """Return a number of an element; 0 without one. MuJoCo refuses other words."""
    try:
        return 0.0 if element is None else float(element.get(name, "0"))
    except ValueError:
        return 0.0


def _mass(link: ET.Element) -> float:
    return _number(link.find("inertial/mass"), "value")


def _name_shape(shape: ET.Element, link: str, taken: dict[str, int]) -> None:
    """Give a shape a name of its own: by default that of its link, as `foot`, `foot_1`.

    **Arguments:**

    - `taken`: number of shapes with a name, or with a number after it.
    """
    first = name = shape.get("name") or link
    while name in taken:
        name, taken[first] = f"{first}_{taken[first]}", taken[first] + 1
    taken[name] = 1
    shape.set("name", name)


# Inertias.


_ENTRIES = {
    "ixx": (0, 0),
    "iyy": (1, 1),
    "izz": (2, 2),
    "ixy": (0, 1),
    "ixz": (0, 2),
    "iyz": (1, 2),
}


def _inertia(link: ET.Element) -> np.ndarray:
    """Return the inertia of a link about its center of mass, (3, 3); 0 without one."""
    element, matrix = link.find("inertial/inertia"), np.zeros((3, 3))
    for key, (row, column) in _ENTRIES.items():
        matrix[row, column] = matrix[column, row] = _number(element, key)
    return matrix


def _is_physical(inertia: np.ndarray) -> bool:
    """Return whether a rigid body has such an inertia, with moments that MuJoCo accepts."""
    moments = np.linalg.eigvalsh(inertia)
    return bool(moments[0] > 1e-14 and moments[0] + moments[1] >= moments[2])


def _nearest_inertia(inertia: np.ndarray, least: float) -> np.ndarray:
    r"""Return the inertia of the body with the nearest second moments.

    Of the second moments $\Sigma = \tfrac12 \mathrm{tr}(I) 1 - I$, negative eigenvalues
    are replaced by zero, so that $I = \mathrm{tr}(\Sigma) 1 - \Sigma$ is that of a body.

    **Arguments:**

    - `least`: smallest principal moment of the result.
    """
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    moments, axes = np.linalg.eigh(second)
    # A margin for rounding, so that the triangle inequality holds.
    moments = np.maximum(moments, 1e-6 * np.max(np.abs(moments)))
    smallest = np.sum(moments) - np.max(moments)
    moments += 0.5 * max(least - smallest, 0.0)
    return np.sum(moments) * np.eye(3) - (axes * moments) @ axes.T


# Reading of the XML text.

_MOST_NESTED = 100


def read_description(source: str | os.PathLike) -> tuple[Description, pathlib.Path]:
    """Read a path or XML text, and return the folder of its relative paths, too."""
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        return Description("The URDF text", source), pathlib.Path.cwd()
    path = pathlib.Path(source).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no URDF file {str(source)!r} (looked in {pathlib.Path.cwd()}). Pass "
            "the path of an existing file, or the XML text itself, which starts with '<'."
        )
    if path.suffix == ".xacro":
        raise ValueError(
            f"{path.name} has macros of xacro. Expand them: "
            f"`xacro {path.name} > {path.stem.removesuffix('.urdf')}.urdf`."
        )
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return Description(path.name, text), path.absolute().parent


def _parse(label: str, text: str) -> ET.Element:
    """Parse XML without namespaces, whose prefixes need not be declared."""
    # MuJoCo accepts what XML forbids: "--" in comments, and zeros at the end of a file.
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip("\ufeff\0 \t\r\n")
    builder, parser, open_tags = ET.TreeBuilder(), expat.ParserCreate(), list[str]()

    def start(tag: str, attributes: dict[str, str]) -> None:
        open_tags.append(tag)
        if len(open_tags) > _MOST_NESTED:
            raise ValueError(
                f"{label} has elements nested more than {_MOST_NESTED} times, such as "
                f"<{tag[:40]}>. Remove them."
            )
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        open_tags.pop()
        builder.end(tag)

    parser.StartElementHandler, parser.EndElementHandler = start, end

    def refuse(*declaration: Any) -> None:
        raise ValueError(
            f"{label} declares XML entities. Replace them by their values."
        )

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(
            f"{label} is not well-formed XML: {error}. Correct the file at this place."
        ) from error
    root = builder.close()
    if root.tag != "robot":
        raise ValueError(
            f"{label} must have the root element <robot>, got <{root.tag}>. Read MJCF by "
            "`load_mjcf`."
        )
    return root
