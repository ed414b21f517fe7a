"""Mesh files of a URDF: where they are, and formats that MuJoCo does not read.

A URDF names meshes by `package://NAME/PATH`, by paths relative to its folder, or by
absolute ones. MuJoCo drops the folders and takes the last part of the path, so files are
found here, and passed to it as contents. It reads binary STL, OBJ and MSH; ASCII STL and
COLLADA are converted to their triangles.
"""

import itertools
import math
import os
import pathlib
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np


FORMATS = (".stl", ".obj", ".msh", ".dae")
"""Formats of mesh files that can be read."""
_MOST_NODES = 10_000


class MeshFiles:
    """Finds the mesh files that a URDF names.

    **Arguments:**

    - `folder`: the folder of the URDF.
    - `packages`: folders of ROS packages by name.
    - `assets`: contents of files by name, which precede files.
    - `mesh_folder`: `meshdir` of the file's own `<compiler>`.

    `contents` are those of the files that were added, in formats that MuJoCo reads.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        packages: Mapping[str, str | os.PathLike],
        assets: Mapping[str, bytes | str],
        mesh_folder: str = "",
    ):
        self.folder, self.assets, self.mesh_folder = folder, assets, mesh_folder
        self.contents: dict[str, bytes] = {}
        self._keys: dict[str, str] = {}
        self.packages = {k: pathlib.Path(v).expanduser() for k, v in packages.items()}
        for name, place in self.packages.items():
            if not place.is_dir():
                raise FileNotFoundError(
                    f"`packages[{name!r}]` must be an existing folder, got "
                    f"{str(place)!r}."
                )

    def add(self, name: str) -> str | None:
        """Read a file to `contents`, once, and return its key; None if there is none.

        **Raises:** `ValueError` if the file cannot be read.
        """
        found = self._find(name)
        if found is None:
            return None
        place, read = found
        if place not in self._keys:
            try:
                suffix, data = readable(name, read())
            except OSError as error:
                raise ValueError(f"it cannot be opened: {error}") from error
            stem = pathlib.PurePath(_last(name)).stem
            key = f"{len(self._keys)}/{stem}{suffix}"
            self._keys[place], self.contents[key] = key, data
        return self._keys[place]

    def _find(self, name: str) -> tuple[str, Callable[[], bytes]] | None:
        """Return where a file is, and a function that reads it."""
        for key in (name, _last(name)):
            if key in self.assets:
                content = self.assets[key]
                data = content.encode() if isinstance(content, str) else content
                return f"asset {key}", lambda: data
        for path in self._candidates(name):
            # Unlike `Path.is_file`, false for names that no file can have.
            if os.path.isfile(path):
                return str(path.resolve()), path.read_bytes
        return None

    def _candidates(self, name: str) -> Iterator[pathlib.Path]:
        scheme, separator, rest = name.partition("://")
        if separator and scheme in ("package", "model"):
            package, _, path = rest.partition("/")
            for place in self._folders(package):
                yield place / path
            if package in self.packages:
                return
        else:
            path = rest if separator else name
        # Also a copy of a package under another name, and a file in a folder of its own.
        for parent in [self.folder, *self.folder.parents][:4]:
            yield parent / path
        # Where MuJoCo looks.
        yield self.folder / self.mesh_folder / _last(name)

    def _folders(self, package: str) -> Iterator[pathlib.Path]:
        """Yield the folders that may be those of a package."""
        if package in self.packages:
            yield self.packages[package]
            return
        for parent in (self.folder, *self.folder.parents):
            if parent.name == package or _declares(parent / "package.xml", package):
                yield parent
            yield parent / package
        for path in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep):
            if path:
                yield pathlib.Path(path) / package
        for path in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep):
            if path:
                yield pathlib.Path(path) / "share" / package


def missing_files(label: str, missing: Sequence[str], folder: pathlib.Path) -> str:
    """Return the message that lists mesh files that do not exist."""
    lines = [
        f"{label} names {len(missing)} mesh files of collisions that do not exist:"
    ]
    lines += [f"  - {name}" for name in missing[:20]]
    lines += [f"  - and {len(missing) - 20} more"] if len(missing) > 20 else []
    named = {x.split("://")[1].split("/")[0] for x in missing if "://" in x}
    if named:
        pairs = ", ".join(f'"{name}": "FOLDER"' for name in sorted(named))
        lines.append(f"Pass the folders of the packages: `packages={{{pairs}}}`.")
    lines.append(
        f"Other names are relative to {str(folder)!r}. `skip_meshes` leaves out "
        'collision shapes, for example `skip_meshes=("*.dae",)`.'
    )
    return "\n".join(lines)


def _last(name: str) -> str:
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _declares(file: pathlib.Path, package: str) -> bool:
    """Whether a `package.xml` is that of a package."""
    if not file.is_file():
        return False
    found = re.search(
        r"<name>\s*([^<\s]+)\s*</name>", file.read_text("utf-8", "replace")
    )
    return found is not None and found[1] == package


# Formats.


def readable(name: str, data: bytes) -> tuple[str, bytes]:
    """Return the contents of a mesh file in a format that MuJoCo reads, with its suffix.

    **Raises:** `ValueError` if the file is not a mesh, or of an unknown format.
    """
    suffix = pathlib.PurePath(name).suffix.lower()
    if suffix == ".dae":
        try:
            return ".stl", _binary_stl(_collada(data))
        except (IndexError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no valid COLLADA: {error}") from error
    if suffix == ".stl" and _is_text_stl(data):
        numbers = re.findall(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)", data)
        return ".stl", _binary_stl(np.array(numbers, float).reshape(-1, 3, 3))
    if suffix not in FORMATS:
        raise ValueError(f"the format {suffix or 'without suffix'!r} is unknown")
    return suffix, data


def _is_text_stl(data: bytes) -> bool:
    # Headers of binary files may begin with "solid" too.
    count = struct.unpack_from("<I", data, 80)[0] if len(data) >= 84 else -1
    return data.lstrip().startswith(b"solid") and len(data) != 84 + 50 * count


def _binary_stl(triangles: np.ndarray) -> bytes:
    """Return triangles of shape (n, 3, 3) as a binary STL file."""
    if not (len(triangles) and np.all(np.isfinite(triangles))):
        raise ValueError("it has no triangles, or numbers that are not finite")
    rows = np.zeros(
        len(triangles), [("normal", "<3f4"), ("at", "<9f4"), ("end", "<u2")]
    )
    rows["at"] = triangles.reshape(-1, 9)
    return bytes(80) + struct.pack("<I", len(rows)) + rows.tobytes()


def _collada(data: bytes) -> np.ndarray:
    """Read the triangles of a COLLADA file, in meters and with its transforms.

    Polygons are cut into fans. The up axis is not applied, as in ROS.

    ??? cite "Reference"
        *COLLADA: Digital Asset Schema Release 1.4.1*, Khronos Group, 2008.
    """
    try:
        root = ET.fromstring(re.sub(rb'\sxmlns="[^"]*"', b"", data, count=1))
    except ET.ParseError as error:
        raise ValueError(f"it is not XML: {error}") from error
    unit = root.find("asset/unit")
    meter = float(unit.get("meter", "1")) if unit is not None else 1.0
    shapes = {x.get("id"): _triangles(x) for x in root.iter("geometry")}
    library = {x.get("id"): x for x in root.iter("node")}
    placed: list[np.ndarray] = []
    visited = itertools.count()

    def place(node: ET.Element, pose: np.ndarray) -> None:
        if next(visited) > _MOST_NODES:
            raise ValueError(f"it has more than {_MOST_NODES} nodes")
        pose = pose @ _transform(node)
        for child in node:
            target = child.get("url", "").lstrip("#")
            if child.tag == "instance_geometry" and target in shapes:
                at = shapes[target]
                placed.append(at @ pose[:3, :3].T + pose[:3, 3])
            elif child.tag == "node":
                place(child, pose)
            elif child.tag == "instance_node" and target in library:
                place(library[target], pose)

    for node in root.iterfind("library_visual_scenes/visual_scene/node"):
        place(node, np.eye(4))
    placed = placed or list(shapes.values())
    return meter * np.concatenate([np.zeros((0, 3, 3)), *placed])


def _transform(node: ET.Element) -> np.ndarray:
    """Return the transform of a COLLADA node: the product of its elements."""
    pose = np.eye(4)
    for part in node:
        one, numbers = np.eye(4), np.array((part.text or "").split()[:16])
        if part.tag == "matrix":
            one = numbers.astype(float).reshape(4, 4)
        elif part.tag == "translate":
            one[:3, 3] = numbers.astype(float)
        elif part.tag == "scale":
            one[:3, :3] = np.diag(numbers.astype(float))
        elif part.tag == "rotate":
            *axis, degrees = numbers.astype(float)
            x, y, z = np.array(axis) / np.linalg.norm(axis)
            cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            angle = math.radians(degrees)
            turn = math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross
            one[:3, :3] += turn
        elif part.tag in ("skew", "lookat"):
            raise ValueError(f"<{part.tag}> is not supported: export matrices")
        pose = pose @ one
    return pose


def _triangles(geometry: ET.Element) -> np.ndarray:
    """Return the triangles of one COLLADA geometry, (n, 3, 3)."""
    arrays = {
        source.get("id"): np.array(
            (source.findtext("float_array") or "").split(), float
        )
        for source in geometry.iter("source")
    }
    sources = {
        group.get("id"): item.get("source", "").lstrip("#")
        for group in geometry.iter("vertices")
        for item in group.iterfind("input")
        if item.get("semantic") == "POSITION"
    }
    for kind in ("tristrips", "trifans", "ph"):
        if next(geometry.iter(kind), None) is not None:
            raise ValueError(f"<{kind}> is not supported: export triangles")
    found = [np.zeros((0, 3, 3))]
    for kind in ("triangles", "polylist", "polygons"):
        for part in geometry.iter(kind):
            inputs = part.findall("input")
            stride = 1 + max((int(x.get("offset", "0")) for x in inputs), default=0)
            vertex = [x for x in inputs if x.get("semantic") == "VERTEX"]
            if not vertex:
                continue
            key = sources.get(vertex[0].get("source", "").lstrip("#"))
            points = arrays.get(key, np.zeros(0)).reshape(-1, 3)
            offset = int(vertex[0].get("offset", "0"))
            lists = [np.array((x.text or "").split(), int) for x in part.iterfind("p")]
            corners = [x.reshape(-1, stride)[:, offset] for x in lists]
            found.append(points[_fans(part, kind, corners)])
    return np.concatenate(found)


def _fans(part: ET.Element, kind: str, corners: list[np.ndarray]) -> np.ndarray:
    """Return indices of corners of triangles, (n, 3), of which polygons are made."""
    if kind == "triangles":
        return np.concatenate([np.zeros(0, int), *corners]).reshape(-1, 3)
    if kind == "polylist" and corners:
        counts = np.array((part.findtext("vcount") or "").split(), int)
        corners = np.split(corners[0], np.cumsum(counts)[:-1])
    fans = [
        np.stack([np.full(len(x) - 2, x[0]), x[1:-1], x[2:]], axis=-1)
        for x in corners
        if len(x) > 2
    ]
    return np.concatenate([np.zeros((0, 3), int), *fans])
