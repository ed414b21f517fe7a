"""Lookup of elements by name: their indices in the arrays of a robot, available while
tracing."""

import dataclasses
import difflib

from ._kinds import JointKind


@dataclasses.dataclass(frozen=True)
class LinkRef:
    """Indices of a link.

    **Arguments:**

    - `name`: name of the link.
    - `index`: index in arrays with one entry per link, such as `sys.links.mass`.
    - `parent`: index of the parent link, -1 for the world.
    - `joints`: indices of the joints between the link and its parent.
    - `q`, `qd`: slices of the coordinates and velocities of these joints; empty for a
        fixed link.
    """

    name: str
    index: int
    parent: int
    joints: tuple[int, ...]
    _q: tuple[int, int]
    _qd: tuple[int, int]

    @property
    def q(self) -> slice:
        """The coordinates of the link's joints in `State.q`."""
        return slice(*self._q)

    @property
    def qd(self) -> slice:
        """The velocities of the link's joints in `State.qd`."""
        return slice(*self._qd)


@dataclasses.dataclass(frozen=True)
class JointRef:
    """Indices of a joint.

    **Arguments:**

    - `name`: name of the joint.
    - `index`: index in arrays with one entry per joint, such as `sys.joints.range`.
    - `kind`: kind of the joint: free, spherical, prismatic or revolute.
    - `link`: index of its link.
    - `q`: slice of its coordinates in `State.q` and in `sys.joints.ref`.
    - `qd`: slice of its velocities in `State.qd` and in arrays with one entry per
        degree of freedom, such as `sys.joints.damping`.
    """

    name: str
    index: int
    kind: JointKind
    link: int
    _q: tuple[int, int]
    _qd: tuple[int, int]

    @property
    def q(self) -> slice:
        """Its coordinates in `State.q`."""
        return slice(*self._q)

    @property
    def qd(self) -> slice:
        """Its velocities in `State.qd`."""
        return slice(*self._qd)


@dataclasses.dataclass(frozen=True)
class ActuatorRef:
    """Indices of an actuator.

    **Arguments:**

    - `name`: name of the actuator.
    - `index`: index in arrays with one entry per actuator, such as
        `sys.actuators.gain`.
    - `ctrl`: slice of its controls.
    - `act`: slice of its activations in `State.act`; empty without dynamics.
    """

    name: str
    index: int
    _ctrl: tuple[int, int]
    _act: tuple[int, int]

    @property
    def ctrl(self) -> slice:
        """Its controls in `ctrl`."""
        return slice(*self._ctrl)

    @property
    def act(self) -> slice:
        """Its activations in `State.act`."""
        return slice(*self._act)


@dataclasses.dataclass(frozen=True)
class GeomRef:
    """Indices of a shape.

    **Arguments:**

    - `name`: name of the shape.
    - `index`: index in arrays with one entry per shape, such as `sys.geoms.friction`.
    - `link`: index of its link, -1 for the world.
    """

    name: str
    index: int
    link: int


@dataclasses.dataclass(frozen=True)
class SiteRef:
    """Indices of a site.

    **Arguments:**

    - `name`: name of the site.
    - `index`: index in arrays with one entry per site, such as `sys.sites.pos`.
    - `link`: index of its link, -1 for the world.
    """

    name: str
    index: int
    link: int


@dataclasses.dataclass(frozen=True)
class MeshRef:
    """Indices of a mesh.

    **Arguments:**

    - `name`: name of the mesh.
    - `index`: index in `sys.meshes`, and in `sys.geoms.data`.
    - `vertices`: slice of the vertices of its convex hull in `sys.meshes.vertices`; empty
        if it has no hull.
    - `other_vertices`: slice of its other vertices in `sys.meshes.other_vertices`.
    """

    name: str
    index: int
    _vertices: tuple[int, int]
    _others: tuple[int, int]

    @property
    def vertices(self) -> slice:
        """The vertices of its convex hull in `sys.meshes.vertices`."""
        return slice(*self._vertices)

    @property
    def other_vertices(self) -> slice:
        """Its other vertices in `sys.meshes.other_vertices`."""
        return slice(*self._others)


@dataclasses.dataclass(frozen=True)
class HeightFieldRef:
    """Indices of a height field.

    **Arguments:**

    - `name`: name of the height field.
    - `index`: index in `sys.height_fields.size`, and in `sys.geoms.data`.
    - `shape`: numbers of rows and columns.
    - `heights`: slice of its heights in `sys.height_fields.heights`.
    """

    name: str
    index: int
    shape: tuple[int, int]
    _heights: tuple[int, int]

    @property
    def heights(self) -> slice:
        """Its heights in `sys.height_fields.heights`, in row-major order."""
        return slice(*self._heights)


@dataclasses.dataclass(frozen=True)
class ElementRef:
    """Index of a tendon, an equality constraint or another element.

    **Arguments:**

    - `name`: name of the element.
    - `index`: index in arrays with one entry per element of its kind.
    """

    name: str
    index: int


def find_name(names: tuple[str, ...], name: str, kind: str) -> int:
    """Return the index of a name among the elements of one kind.

    **Arguments:**

    - `names`: names of all elements of this kind.
    - `name`: name to find.
    - `kind`: word for such an element in messages, for instance `"joint"`.

    **Raises:** `ValueError` with the closest name and all existing names.
    """
    if name in names:
        return names.index(name)
    if not names:
        raise ValueError(
            f"There is no {kind} {name!r}: this robot has no {_plural(kind)}."
        )
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"There is no {kind} {name!r}.{hint} This robot has: {', '.join(names)}."
    )


def _plural(kind: str) -> str:
    return f"{kind}es" if kind.endswith("sh") else f"{kind}s"


def span(starts: tuple[int, ...], sizes: list[int]) -> tuple[int, int]:
    """Return the start index and the end of consecutive elements."""
    return (starts[0], starts[-1] + sizes[-1]) if starts else (0, 0)
