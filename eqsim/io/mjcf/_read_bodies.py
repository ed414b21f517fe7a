"""Reading of bodies, joints, geoms with colors, distance fields, contact pairs, meshes and
height fields."""

import copy
import dataclasses
from typing import Any, NamedTuple

import numpy as np

from ...model import (
    AbstractDistanceField,
    Bolt,
    Bowl,
    Gear,
    GeomKind,
    Geoms,
    HeightFields,
    HullGraph,
    JointKind,
    Joints,
    Links,
    Meshes,
    MeshSurfaces,
    Nut,
    Pairs,
    Torus,
)
from ...model.kinds import AnyKind
from ...model.meshes import reference_vertices
from ...model.pairs import CollisionRules, kinds_of_pairs, KindsOfPairs, select_pairs
from ...spatial import Vec3
from ._table import as_tuple, read_fields
from .mujoco_names import (
    element_names,
    engine,
    Flags,
    kind_names,
    link_names,
    plugin_number,
    plugin_settings,
)


_DEFAULT = (0.5, 0.5, 0.5, 1.0)

Color = tuple[float, float, float, float]


def read_colors(model: Any, geoms: np.ndarray) -> tuple[Color, ...]:
    """Return red, green, blue and opacity of geoms of a `mujoco.MjModel`.

    A geom without a color of its own has that of its material, times the mean color of the
    texture, as nothing draws textures. Empty if no geom has a color or a material: gray
    shapes of which some are transparent, because rays pass through them, count as such.
    """
    colors = model.geom_rgba[geoms].astype(float)
    material = model.geom_matid[geoms]
    has_material = (material >= 0) & np.all(colors == _DEFAULT, axis=1)
    # Many geoms share few materials, and those share textures, which may be large.
    role = engine().mjtTextureRole.mjTEXROLE_RGB.value
    means: dict[int, np.ndarray] = {}
    for each in np.unique(material[has_material]).tolist():
        color = model.mat_rgba[each].astype(float)
        texture = int(model.mat_texid[each, role])
        if texture >= 0:
            if texture not in means:
                means[texture] = _mean(model, texture)
            color[:3] *= means[texture]
        colors[has_material & (material == each)] = color
    found = tuple(
        (round(red, 6), round(green, 6), round(blue, 6), round(opacity, 6))
        for red, green, blue, opacity in colors.tolist()
    )
    return () if all(color[:3] == _DEFAULT[:3] for color in found) else found


def _mean(model: Any, texture: int) -> np.ndarray:
    """Return the mean color of a texture."""
    channels = int(model.tex_nchannel[texture])
    rows, columns = int(model.tex_height[texture]), int(model.tex_width[texture])
    start = int(model.tex_adr[texture])
    pixels = model.tex_data[start : start + rows * columns * channels]
    # Rows are added first, because sums of contiguous numbers are fast.
    by_row = pixels.reshape(rows, columns * channels).sum(axis=0, dtype=np.int64)
    mean = by_row.reshape(columns, channels).sum(axis=0) / (rows * columns)
    return (mean[:3] if channels >= 3 else np.full(3, mean[0])) / 255.0


_KEPT = {kind.value: kind for kind in GeomKind}
_WITH_DATA = (GeomKind.MESH, GeomKind.HFIELD)


class Contacts(NamedTuple):
    """The pairs that can touch in a `mujoco.MjModel`, and the geoms that become shapes.

    **Arguments:**

    - `pairs`: geom, geom, index of the explicit pair or -1; `(npair, 3)`.
    - `kinds`: kinds of shapes of the pairs.
    - `touching`: true for geoms that can touch something, `(ngeom,)`.
    - `fluid`: true for geoms on whose ellipsoids fluid forces act, `(ngeom,)`.
    - `kept`: geoms that become shapes, in order. Geoms of unsupported shape that touch
        nothing and have no fluid forces are left out.
    - `places`: index of each geom among the shapes, -1 if it is left out, `(ngeom,)`.
    - `hulls`: meshes whose convex hull is kept: those of shapes that may collide.
    - `has_gaps`: true if a geom that can touch something, or an explicit pair, has a gap.
    - `adheres`: true if contacts can have adhesion.
    - `uses_gaps`: true if gaps matter: there are adhesion or actuators on contacts.
    """

    pairs: np.ndarray
    kinds: list[KindsOfPairs]
    touching: np.ndarray
    fluid: np.ndarray
    kept: np.ndarray
    places: np.ndarray
    hulls: frozenset[int]
    has_gaps: bool
    adheres: bool
    uses_gaps: bool


def with_override(model: Any) -> Any:
    """Return a `mujoco.MjModel` in which geoms and pairs have the contact parameters that
    the flag `override` gives to all contacts: a copy, or the same without the flag."""
    if not overrides(model):
        return model
    model, option = copy.copy(model), model.opt
    model.geom_margin[:] = 0.5 * option.o_margin
    model.geom_solref[:], model.geom_solimp[:] = option.o_solref, option.o_solimp
    model.geom_friction[:] = option.o_friction[[0, 2, 3]]
    model.pair_margin[:], model.pair_friction[:] = option.o_margin, option.o_friction
    model.pair_solref[:], model.pair_solimp[:] = option.o_solref, option.o_solimp
    model.pair_solreffriction[:] = option.o_solref
    return model


def overrides(model: Any) -> bool:
    """Test if the flag `override` is set."""
    return bool(model.opt.enableflags & int(engine().mjtEnableBit.mjENBL_OVERRIDE))


def find_contacts(model: Any, flags: Flags) -> Contacts:
    """Find the geoms of a `mujoco.MjModel` that can touch, independently of their
    shapes."""
    none = np.zeros((0, 3), np.int32)
    pairs = select_pairs(_rules(model, flags)) if flags.contact else none
    touching = np.zeros(model.ngeom, bool)
    touching[pairs[:, :2].ravel()] = True
    fluid = (model.geom_fluid[:, 0] > 0) & has_medium(model, flags)
    known = np.isin(model.geom_type, list(_KEPT))
    kept = np.flatnonzero(known | touching | fluid)
    places = np.full(model.ngeom, -1)
    places[kept] = np.arange(len(kept))
    adheres = bool(np.any(model.geom_adhesion[touching]))
    adheres |= bool(flags.contact and np.any(model.pair_adhesion))
    return Contacts(
        pairs=pairs,
        kinds=kinds_of_pairs(pairs, model.geom_type),
        touching=touching,
        fluid=fluid,
        kept=kept,
        places=places,
        hulls=_solid_meshes(model) if flags.contact else frozenset(),
        has_gaps=bool(np.any(model.geom_gap[touching]) or np.any(model.pair_gap)),
        adheres=adheres,
        uses_gaps=adheres
        or bool(np.any(kind_names("mjtTrn", model.actuator_trntype) == "body")),
    )


def _solid_meshes(model: Any) -> frozenset[int]:
    """Return the meshes of shapes that may collide and whose hull has a volume."""
    marks = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    marks[model.pair_geom1] = marks[model.pair_geom2] = True
    marks &= model.geom_type == GeomKind.MESH.value
    meshes = set(model.geom_dataid[marks].tolist())
    return frozenset(mesh for mesh in meshes if model.mesh_graphadr[mesh] >= 0)


def has_medium(model: Any, flags: Flags) -> bool:
    """Test if there is a fluid."""
    return bool(flags.passive and (model.opt.density > 0 or model.opt.viscosity > 0))


def read_geoms(model: Any, flags: Flags, contacts: Contacts) -> Geoms:
    """Convert the geoms of a `mujoco.MjModel`, except dropped ones."""
    keep = contacts.kept
    names = element_names(model, "geom")
    kinds, groups = model.geom_type[keep], as_tuple(model.geom_group[keep])
    fields = read_fields("geom", model, flags, keep)
    if not contacts.uses_gaps:
        fields["gap"] = None
    # MuJoCo computes the size of height fields.
    fields["size"][kinds == GeomKind.HFIELD.value] = 0.0
    # Other kept shapes are used as ellipsoids for fluid forces.
    own: list[AnyKind] = [
        _KEPT.get(kind, GeomKind.ELLIPSOID) for kind in kinds.tolist()
    ]
    for geom in np.flatnonzero(is_field(model, contacts)).tolist():
        place = int(contacts.places[geom])
        own[place], fields["size"][place] = read_field(model, geom)
    return Geoms(
        names=tuple(names[geom] for geom in keep.tolist()),
        kinds=tuple(own),
        links=as_tuple(model.geom_bodyid[keep] - 1),
        fluid=as_tuple(contacts.fluid[keep]),
        fluid_coefficients=model.geom_fluid[keep, 1:6],
        data=_data(model, contacts),
        colors=read_colors(model, keep),
        groups=groups if any(groups) else (),
        **fields,
    )


_PLUGINS: dict[str, dict[str, float]] = {
    "mujoco.sdf.bolt": {"radius": 0.26},
    "mujoco.sdf.bowl": {"height": 0.4, "radius": 1.0, "thickness": 0.02},
    "mujoco.sdf.gear": {
        "alpha": 0.0,
        "diameter": 2.8,
        "teeth": 25.0,
        "thickness": 0.2,
        "innerdiameter": -1.0,
    },
    "mujoco.sdf.nut": {"radius": 0.26},
    "mujoco.sdf.torus": {"radius1": 0.35, "radius2": 0.15},
}
"""MuJoCo's plugins of distance fields, and defaults of their attributes, in order."""
_FIELDS: dict[str, type[AbstractDistanceField]] = {
    "mujoco.sdf.bolt": Bolt,
    "mujoco.sdf.bowl": Bowl,
    "mujoco.sdf.nut": Nut,
    "mujoco.sdf.torus": Torus,
}


def _plugin_names() -> dict[int, str]:
    """Return the names of the plugins by their numbers in a `mujoco.MjModel`."""
    return {plugin_number(name): name for name in _PLUGINS}


def is_field(model: Any, contacts: Contacts) -> np.ndarray:
    """Return true for geoms that become distance fields, `(ngeom,)`: others touch nothing, or
    are unknown."""
    marks = contacts.touching & (model.geom_type == AbstractDistanceField.value)
    marks &= model.geom_plugin >= 0
    for geom in np.flatnonzero(marks).tolist():
        plugin = model.plugin[model.geom_plugin[geom]]
        marks[geom] = int(plugin) in _plugin_names()
    return marks


def _numbers(name: str, settings: dict[str, str]) -> dict[str, float]:
    found = {}
    for key, word in settings.items():
        try:
            found[key] = float(word)
        except ValueError:
            raise ValueError(
                f"Setting {key!r} of the plugin {name!r} must be a number, got {word!r}."
            ) from None
    return found


def read_field(
    model: Any, geom: int
) -> tuple[AbstractDistanceField, tuple[float, float, float]]:
    """Convert a geom of a `mujoco.MjModel` with a known plugin: its kind and its sizes."""
    plugin = int(model.geom_plugin[geom])
    name = _plugin_names()[int(model.plugin[plugin])]
    given = plugin_settings(model, plugin, _PLUGINS[name])
    numbers = [*(_PLUGINS[name] | _numbers(name, given)).values()]
    counts = int(model.opt.sdf_initpoints), int(model.opt.sdf_iterations)
    if name == "mujoco.sdf.gear":
        phase, diameter, teeth, thickness, hole = numbers
        field = Gear(*counts, teeth=teeth, phase=phase)
        hole = hole if hole >= 0.0 else (0.72 - 2.4 / teeth) * diameter
        numbers = [diameter, thickness, hole]
    else:
        field = _FIELDS[name](*counts)
    x, y, z, *_ = *numbers, 0.0, 0.0
    # The descent starts in the box about MuJoCo's mesh of the shape.
    half = np.array([*field.extents(Vec3(x, y, z))] * 2)
    box = as_tuple(model.geom_aabb[geom] / half)
    return dataclasses.replace(field, box=box), (x, y, z)


def plugin_of(
    field: AbstractDistanceField, size: Any
) -> tuple[str, dict[str, float]] | None:
    """Return the plugin of a distance field and its settings; None if there is none."""
    if type(field) is Gear:
        name, (diameter, thickness, hole) = "mujoco.sdf.gear", size.tolist()
        numbers = [field.phase, diameter, field.teeth, thickness, hole]
    else:
        name = next((x for x, kind in _FIELDS.items() if type(field) is kind), "")
        numbers = size.tolist()
    if not name:
        return None
    return name, dict(zip(_PLUGINS[name], numbers))


def used_data(model: Any, contacts: Contacts, kind: GeomKind) -> list[int]:
    """Return the meshes or height fields that shapes refer to, in order."""
    keep = contacts.kept
    marks = model.geom_type[keep] == kind.value
    return np.unique(model.geom_dataid[keep][marks]).tolist()


def _data(model: Any, contacts: Contacts) -> tuple[int, ...]:
    """Return, for each shape, its index among the kept meshes or height fields."""
    kinds = model.geom_type[contacts.kept]
    data = model.geom_dataid[contacts.kept]
    places = np.full(len(kinds), -1)
    for kind in _WITH_DATA:
        marks = kinds == kind.value
        places[marks] = np.searchsorted(used_data(model, contacts, kind), data[marks])
    return as_tuple(places) if np.any(places >= 0) else ()


def read_pairs(model: Any, flags: Flags, contacts: Contacts) -> Pairs:
    """Convert the explicit contact pairs of a `mujoco.MjModel`."""
    one, two = contacts.places[model.pair_geom1], contacts.places[model.pair_geom2]
    keep = np.flatnonzero((one >= 0) & (two >= 0) & flags.contact)
    fields = read_fields("pair", model, flags, keep)
    if not contacts.uses_gaps:
        fields["gap"] = None
    geoms = tuple(zip(one[keep].tolist(), two[keep].tolist()))
    return Pairs(geoms=geoms, **fields)


def read_excludes(model: Any) -> tuple[tuple[int, int], ...]:
    """Convert the excluded pairs of bodies of a `mujoco.MjModel`."""
    signatures = model.exclude_signature.tolist()
    return tuple(((each >> 16) - 1, (each & 0xFFFF) - 1) for each in signatures)


def _rules(model: Any, flags: Flags) -> CollisionRules:
    return CollisionRules(
        parents=as_tuple(model.body_parentid[1:] - 1),
        jointed=as_tuple(model.body_jntnum[1:] > 0),
        mocap=as_tuple(model.body_mocapid[1:] >= 0),
        kinds=as_tuple(model.geom_type),
        links=as_tuple(model.geom_bodyid - 1),
        contype=as_tuple(model.geom_contype),
        conaffinity=as_tuple(model.geom_conaffinity),
        explicit=tuple(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist())),
        excludes=read_excludes(model),
        filter_parent=flags.filterparent,
    )


def read_links(model: Any, flags: Flags) -> Links:
    """Convert the bodies of a `mujoco.MjModel`; the world is not a link."""
    body = slice(1, None)
    # MuJoCo's flag 2: a diagonal mass matrix, only slides.
    translating = (model.body_simple[body] == 2) & (model.body_dofnum[body] > 0)
    return Links(
        names=link_names(model),
        parents=as_tuple(model.body_parentid[body] - 1),
        translating=as_tuple(translating),
        mocap=as_tuple(model.body_mocapid[body] >= 0),
        **read_fields("body", model, flags, body),
        **read_fields("inertial", model, flags, body),
    )


def read_joints(model: Any, flags: Flags) -> Joints:
    """Convert the joints of a `mujoco.MjModel`."""
    kinds = tuple(map(JointKind, kind_names("mjtJoint", model.jnt_type)))
    fields = read_fields("joint", model, flags)
    # MuJoCo does not limit free joints, and actuator forces only on hinges and slides.
    fields["limited"] = tuple(
        own and kind is not JointKind.FREE
        for own, kind in zip(fields["limited"], kinds)
    )
    fields["force_limited"] = tuple(
        own and kind.nv == 1 for own, kind in zip(fields["force_limited"], kinds)
    )
    if not any(fields["force_limited"]):
        fields["force_range"] = None
    if not np.any(model.body_gravcomp):
        fields["actuator_gravity"] = (False,) * len(kinds)
    return Joints(
        names=element_names(model, "joint"),
        kinds=kinds,
        links=as_tuple(model.jnt_bodyid - 1),
        has_friction=as_tuple(fields["frictionloss"] > 0),
        ref=model.qpos0,
        spring_ref=model.qpos_spring,
        **fields,
    )


def read_meshes(model: Any, contacts: Contacts) -> Meshes:
    """Convert the meshes of a `mujoco.MjModel` that shapes refer to.

    Only meshes of shapes that may collide keep the convex hull."""
    used = used_data(model, contacts, GeomKind.MESH)
    if not used:
        return Meshes.none()
    names = element_names(model, "mesh")
    parts = [_read_mesh(model, mesh, mesh in contacts.hulls) for mesh in used]
    return Meshes(
        names=tuple(names[mesh] for mesh in used),
        hulls=HullGraph(
            vertex_starts=_starts([len(part.vertices) for part in parts]),
            neighbor_starts=_starts(_joined([part.neighbors.sizes for part in parts])),
            neighbors=_joined([part.neighbors.entries for part in parts]),
            polygon_starts=_starts([len(part.polygons.sizes) for part in parts]),
            corner_starts=_starts(_joined([part.polygons.sizes for part in parts])),
            corners=_joined([part.polygons.entries for part in parts]),
            reference=np.concatenate(
                [reference_vertices(part.vertices) for part in parts]
            ),
        ),
        surfaces=MeshSurfaces(
            other_starts=_starts([len(part.others) for part in parts]),
            face_starts=_starts([len(part.faces) for part in parts]),
            faces=np.concatenate([part.faces for part in parts]),
            order=_joined([part.order for part in parts]),
        ),
        vertices=np.concatenate([part.vertices for part in parts]),
        other_vertices=np.concatenate([part.others for part in parts]),
    )


def read_height_fields(model: Any, contacts: Contacts, capacity: int) -> HeightFields:
    """Convert the height fields of a `mujoco.MjModel` that shapes refer to."""
    used = used_data(model, contacts, GeomKind.HFIELD)
    names = element_names(model, "hfield")
    rows, columns = model.hfield_nrow, model.hfield_ncol
    heights = [np.zeros(0)]
    for field in used:
        start = int(model.hfield_adr[field])
        stop = start + int(rows[field] * columns[field])
        # MuJoCo stores heights as single-precision fractions of the third size.
        scale = model.hfield_size[field, 2]
        heights.append(model.hfield_data[start:stop].astype(float) * scale)
    return HeightFields(
        names=tuple(names[field] for field in used),
        rows=as_tuple(rows[used]),
        columns=as_tuple(columns[used]),
        heights=np.concatenate(heights),
        size=model.hfield_size[used][:, [0, 1, 3]],
        capacity=(capacity,) * len(used),
    )


class _Lists(NamedTuple):
    """Lists of integers: their lengths, and all entries, one list after the other."""

    sizes: np.ndarray
    entries: np.ndarray


_NO_LISTS = _Lists(np.empty(0, int), np.empty(0, int))


class _Mesh(NamedTuple):
    """A mesh as `Meshes` stores it; `neighbors` and `polygons` are those of its hull."""

    vertices: np.ndarray
    others: np.ndarray
    neighbors: _Lists
    polygons: _Lists
    faces: np.ndarray
    order: np.ndarray


def _read_mesh(model: Any, mesh: int, is_solid: bool) -> _Mesh:
    start, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    points = model.mesh_vert[start : start + count].astype(float)
    members, neighbors, polygons = np.empty(0, int), _NO_LISTS, _NO_LISTS
    if is_solid:
        members, neighbors = _neighbors(model, mesh)
        polygons = _polygons(model, mesh)
    rest = np.setdiff1d(np.arange(count), members)
    order = np.argsort(np.concatenate([members, rest]))
    neighbors, polygons = (
        _Lists(each.sizes, order[each.entries]) for each in (neighbors, polygons)
    )
    first, size = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    return _Mesh(
        vertices=points[members],
        others=points[rest],
        neighbors=neighbors,
        polygons=_outward(points[members], polygons),
        faces=order[model.mesh_face[first : first + size]],
        order=order,
    )


def _neighbors(model: Any, mesh: int) -> tuple[np.ndarray, _Lists]:
    """Return the vertices of the hull, and the neighbors of each.

    MuJoCo orders the vertices as Qhull does. In the order of the file, as here, they are
    the same after `write_mjcf`. MuJoCo's layout: numbers of vertices and faces, starts of
    the lists of neighbors, vertices, lists of neighbors that end with -1, faces."""
    start = int(model.mesh_graphadr[mesh])
    count, faces = model.mesh_graph[start : start + 2].tolist()
    stop = start + 2 + 3 * count + 3 * faces
    graph = model.mesh_graph[start + 2 : stop].astype(int)
    starts, members, lists = np.split(graph, [count, 2 * count])
    sizes = np.append(starts[1:], len(lists)) - 1 - starts
    rank = np.argsort(members)
    places = lists[_spans(starts[rank], sizes[rank])]
    return members[rank], _Lists(sizes[rank], members[places])


def _polygons(model: Any, mesh: int) -> _Lists:
    first, count = int(model.mesh_polyadr[mesh]), int(model.mesh_polynum[mesh])
    # Sizes and addresses are cumulative over all meshes.
    starts = model.mesh_polyvertadr[first : first + count].astype(int)
    sizes = model.mesh_polyvertnum[first : first + count].astype(int)
    return _Lists(sizes, model.mesh_polyvert[_spans(starts, sizes)].astype(int))


def _outward(vertices: np.ndarray, polygons: _Lists) -> _Lists:
    """Orient polygons counterclockwise as seen from outside. They are not if the scale
    of a mesh mirrors it."""
    sizes, entries = polygons
    if not len(sizes):
        return polygons
    starts = _starts(sizes)[:-1]
    points = vertices[entries]
    following = np.arange(1, len(points) + 1)
    following[starts + sizes - 1] = starts
    normals = np.add.reduceat(np.cross(points, points[following]), starts)
    middles = np.add.reduceat(points, starts) / sizes[:, None]
    inward = np.sum(normals * (middles - vertices.mean(axis=0)), axis=1) < 0.0
    place = np.arange(len(entries))
    mirrored = np.repeat(2 * starts + sizes - 1, sizes) - place
    return _Lists(sizes, entries[np.where(np.repeat(inward, sizes), mirrored, place)])


def _spans(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the integers of spans of these starts and sizes, one after the other."""
    shift = starts - _starts(sizes)[:-1]
    return np.repeat(shift, sizes) + np.arange(np.sum(sizes))


def _starts(counts: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=int)])


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, int), *parts])
