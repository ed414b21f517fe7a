"""Images of robots.

The file reads from the public functions down: images inside and outside compiled programs,
and animations; the OpenGL context without a window; meshes and height fields, whose values
may change between images; and the canvas, which draws shapes with MuJoCo and without JAX.
"""

import atexit
import functools as ft
import importlib
import math
import os
import sys
import threading
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, UInt8

from .._errors import check_count
from ..io.mjcf.mujoco_names import engine
from ..kinematics import forward
from ..model import GeomKind, System
from ..model.kinds import require_known
from .cameras import Camera, camera_for, FIELD_OF_VIEW, Looks, looks, place


def draw(
    sys: System,
    q: Float[Array, " nq"],
    camera: Camera,
    width: int = 64,
    height: int = 64,
) -> UInt8[Array, "height width 3"]:
    """Draw an image of the robot, within a compiled program.

    MuJoCo draws it on the host; a batch is transferred in one call. All shapes of `sys`
    are drawn with their current parameters, planes as a checkered ground, and links in
    colors by their depth in the tree. Derivatives are zero.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `camera`: the camera, see `camera_for`.
    - `width`, `height`: size in pixels.

    **Raises:** `ValueError` if a size is not positive, or the link to follow is
    unknown; `NoOpenGL` if OpenGL is not available.
    """
    check_image(sys, camera, width, height)
    lookat = jnp.asarray(camera.lookat, q.dtype)
    if camera.follow is not None:
        link = sys.link(camera.follow).index
        level = jnp.asarray([1.0, 1.0, 0.0], q.dtype)
        lookat = lookat + level * forward(sys, q).pos[link].astype(q.dtype)
    callback = ft.partial(paint, looks(sys), camera, width, height)
    out = jax.ShapeDtypeStruct((height, width, 3), jnp.uint8)
    meshes, fields = sys.meshes, sys.height_fields
    assets = meshes.vertices, meshes.other_vertices, fields.heights, fields.size
    numbers = jax.lax.stop_gradient((*place(sys, q), lookat, *assets))
    return jax.pure_callback(callback, out, *numbers, vmap_method="expand_dims")


def images(
    sys: System,
    q: Float[Array, "*batch nq"],
    camera: Camera | None = None,
    *,
    width: int = 320,
    height: int = 240,
) -> UInt8[np.ndarray, "*batch height width 3"]:
    """Draw images of a robot, for instance of all states of a rollout.

    **Arguments:**

    - `sys`: the robot, or one robot for each `q`, with the same leading axes.
    - `q`: coordinates.
    - `camera`: the camera; by default `camera_for(sys)` of the first robot.
    - `width`, `height`: size in pixels.

    **Raises:** as `draw`.

    !!! example

        ```python
        q = env.physics(trajectory.state).q
        frames = eqsim.render.images(env.sys, q)
        ```
    """
    batch = sys.dt.shape
    if batch not in ((), q.shape[:-1]):
        raise ValueError(
            f"`sys` has batch shape {batch}, but `q` has shape {q.shape}: pass one robot, or "
            "one robot for each `q`."
        )
    first = jax.tree_util.tree_map(lambda x: x[(0,) * len(batch)], sys)
    camera = camera_for(first) if camera is None else camera
    return np.asarray(_drawn(sys, jnp.asarray(q), camera, width, height))


@eqx.filter_jit
def _drawn(sys: System, q, camera: Camera, width: int, height: int):
    one = lambda sys, q: draw(sys, q, camera, width, height)
    own = eqx.if_array(0) if sys.dt.ndim else None
    for _ in q.shape[:-1]:
        one = eqx.filter_vmap(one, in_axes=(own, 0))
    return one(sys, q)


def check_image(sys: System, camera: Camera, width: int, height: int) -> None:
    """Raise the errors of `draw` before anything is compiled."""
    check_count("width", width)
    check_count("height", height)
    if camera.follow is not None and camera.follow not in sys.links.names:
        raise ValueError(
            f"`camera.follow` is {camera.follow!r}, but no link has this name. Links: "
            f"{', '.join(sys.links.names)}."
        )
    context()


def write_gif(
    path: str | os.PathLike,
    images: UInt8[np.ndarray, "time height width 3"],
    dt: float,
) -> None:
    """Write images as a looping GIF animation.

    **Arguments:**

    - `images`: images from `eqsim.render.images`.
    - `dt`: time between two images, s. GIF times are multiples of 0.01 s, and viewers
        show at most 50 images per second, so some images of faster sequences are
        dropped.

    **Raises:** `ImportError` if Pillow is not installed, which is part of the extra
    `cli`.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Writing a GIF needs Pillow. Run `pip install 'eqsim[cli]'`."
        ) from error
    every = max(1, math.ceil(0.02 / dt - 1e-6))
    frames = [Image.fromarray(x).quantize(64) for x in images[::every]]
    frames[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=10 * round(100 * dt * every),
        loop=0,
    )


class NoOpenGL(RuntimeError):
    """OpenGL is not available for rendering."""


_MODULES = {
    "egl": "egl",
    "osmesa": "osmesa",
    "glfw": "glfw",
    "glx": "glfw",
    "cgl": "cgl",
    "wgl": "glfw",
}


def _libraries() -> list[str]:
    """Return the libraries to try: that of MUJOCO_GL, or the common ones."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("disable", "disabled", "off", "false", "0"):
        raise NoOpenGL(
            f"MUJOCO_GL={wanted} disables rendering. Unset it, or set MUJOCO_GL=egl."
        )
    if wanted in _MODULES:
        return [wanted]
    if sys.platform == "darwin":
        return ["cgl", "glfw"]
    if sys.platform == "win32":
        return ["glfw"]
    screen = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return ["egl", "osmesa", *(["glfw"] if screen else [])]


@ft.cache
def context() -> Any:
    """Return the OpenGL context for all images, created on the first call.

    **Raises:** `NoOpenGL` if no library works.
    """
    found = []
    for library in _libraries():
        try:
            out = _try(_MODULES[library])
        except Exception as error:  # Each library fails in its own way.
            text = str(error).strip().splitlines() or [type(error).__name__]
            found.append(f"{library}: {text[0]}")
            continue
        # Functions registered last are called first, so this runs before MuJoCo
        # closes the display.
        atexit.register(out.free)
        return out
    raise NoOpenGL(
        f"MuJoCo found no usable OpenGL library ({'; '.join(found)}). Install one, for "
        "instance with `apt-get install libegl1` or `libosmesa6`, which need no GPU, and "
        "select it with the environment variable MUJOCO_GL=egl or MUJOCO_GL=osmesa."
    )


def _try(module: str) -> Any:
    mujoco = engine()

    out = importlib.import_module(f"mujoco.{module}").GLContext(64, 64)
    # A context may be unusable, which shows only when MuJoCo uses it.
    with out.as_current():
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), 100).free()
    return out


class Assets(NamedTuple):
    """Vertices of meshes, `Meshes.vertices` and `Meshes.other_vertices`, and height fields,
    `HeightFields.heights` and `HeightFields.size`."""

    vertices: Any
    other_vertices: Any
    heights: Any
    field_size: Any


def add_assets(spec: Any, looks: Looks) -> None:
    """Add meshes and height fields of the right size to a scene.

    Each triangle has its own vertices. `update_assets` sets their positions, because
    the compiler would change them."""
    rng = np.random.default_rng(0)
    for mesh in range(looks.num_meshes):
        count = 3 * len(looks.surfaces.triangles(mesh))
        points = rng.normal(size=(count, 3))
        part = spec.add_mesh(
            name=f"mesh{mesh}",
            uservert=points.ravel(),
            usernormal=points.ravel(),
            userface=np.arange(count),
        )
        part.inertia = engine().mjtMeshInertia.mjMESH_INERTIA_SHELL
    for field, (rows, columns) in enumerate(looks.grids):
        spec.add_hfield(
            name=f"field{field}",
            nrow=rows,
            ncol=columns,
            size=[1, 1, 1, 1],
            userdata=np.arange(rows * columns, dtype=float),
        )


def update_assets(model: Any, target: Any, looks: Looks, old: Any, new: Assets) -> None:
    """Upload meshes and height fields that differ from those of the previous image.

    - `old`: `Assets` of the previous image, or None."""
    mujoco = engine()
    for mesh in range(looks.num_meshes):
        points = _points(looks, new, mesh)
        if old is not None and np.array_equal(points, _points(looks, old, mesh)):
            continue
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        first = model.mesh_normaladr[mesh]
        faces = looks.surfaces.triangles(mesh)
        model.mesh_vert[start : start + count] = points[faces].reshape(-1, 3)
        model.mesh_normal[first : first + count] = _normals(points, faces)
        mujoco.mjr_uploadMesh(model, target, mesh)
    starts = np.cumsum([0, *(rows * columns for rows, columns in looks.grids)])
    for field, (first, last) in enumerate(zip(starts, starts[1:])):
        size, heights = new.field_size[field], new.heights[first:last]
        if old is not None and np.array_equal(size, old.field_size[field]):
            if np.array_equal(heights, old.heights[first:last]):
                continue
        low, span = np.min(heights), np.ptp(heights)
        model.hfield_data[first:last] = (heights - low) / (span if span > 0 else 1.0)
        model.hfield_size[field] = size[0], size[1], max(span, 1e-9), size[2] + low
        mujoco.mjr_uploadHField(model, target, field)


def raised(
    looks: Looks, assets: Assets, pos: np.ndarray, rot: np.ndarray
) -> np.ndarray:
    """Return positions of shapes; the origin of MuJoCo's height fields is at their
    lowest point."""
    pos = np.array(pos)
    starts = np.cumsum([0, *(rows * columns for rows, columns in looks.grids)])
    for geom, field in looks.fields:
        low = np.min(assets.heights[starts[field] : starts[field + 1]])
        pos[geom] += low * rot[geom, :, 2]
    return pos


def _points(looks: Looks, assets: Assets, mesh: int) -> np.ndarray:
    hull, rest = looks.hulls.span(mesh), looks.surfaces.span(mesh)
    parts = assets.vertices[slice(*hull)], assets.other_vertices[slice(*rest)]
    return np.concatenate(parts)


# Edges of less than about 40 degrees are drawn smooth.
_SMOOTH = 0.77


def _normals(points: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return a normal at each corner of each triangle, `(3 nface, 3)`."""
    a, b, c = points[faces].transpose(1, 0, 2)
    flat = np.cross(b - a, c - a)
    summed = np.zeros_like(points)
    for corner in range(3):
        np.add.at(summed, faces[:, corner], flat)
    flat, smooth = _unit(flat)[:, None], _unit(summed)[faces]
    alike = np.sum(flat * smooth, axis=-1, keepdims=True) > _SMOOTH
    return np.where(alike, smooth, flat).reshape(-1, 3)


def _unit(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 0.0, length, 1.0)


# The world, then links, in colors that alternate with their depth in the tree.
_WORLD = "0.62 0.62 0.62 1"
_COLORS = (
    "0.89 0.55 0.26 1",
    "0.33 0.54 0.75 1",
    "0.91 0.75 0.38 1",
    "0.40 0.66 0.60 1",
)
_SCENE = """
<mujoco>
  <visual>
    <global offwidth="{width}" offheight="{height}" fovy="{fovy}"/>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.45 0.45 0.45" specular="0 0 0"/>
    <map znear="0.02" zfar="60"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.80 0.87 0.94"
      rgb2="0.97 0.98 0.99" width="64" height="384"/>
    <texture name="ground" type="2d" builtin="checker" rgb1="0.80 0.82 0.84"
      rgb2="0.69 0.72 0.75" width="256" height="256"/>
    <material name="ground" texture="ground" texrepeat="1 1" texuniform="true"
      specular="0" shininess="0"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="-0.3 0.4 -1" diffuse="0.45 0.45 0.45"
      specular="0.1 0.1 0.1" castshadow="false"/>
    {shapes}
  </worldbody>
</mujoco>"""

_LOCK = threading.Lock()


class _Canvas(NamedTuple):
    """MuJoCo's objects for drawing robots of the same structure.

    - `shown`: list of the `Assets` of the previous image, empty before the first one.
    """

    looks: Looks
    model: Any
    data: Any
    scene: Any
    target: Any
    shown: list


def paint(
    looks: Looks,
    camera: Camera,
    width: int,
    height: int,
    pos: Float[Array | np.ndarray, "... ngeom 3"],
    rot: Float[Array | np.ndarray, "... ngeom 3 3"],
    size: Float[Array | np.ndarray, "... ngeom 3"],
    lookat: Float[Array | np.ndarray, "... 3"],
    vertices: Float[Array | np.ndarray, "... nvertex 3"],
    other_vertices: Float[Array | np.ndarray, "... nother 3"],
    heights: Float[Array | np.ndarray, "... nheight"],
    field_size: Float[Array | np.ndarray, "... nfield 3"],
) -> UInt8[np.ndarray, "*batch height width 3"]:
    """Draw images, `(*batch, height, width, 3)`; batch axes are broadcast."""
    given = pos, rot, size, lookat, vertices, other_vertices, heights, field_size
    arrays = [np.asarray(x, np.float64) for x in given]
    ranks = 2, 3, 2, 1, 2, 2, 1, 2
    batch = np.broadcast_shapes(
        *(x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True))
    )
    # Views, so that meshes shared by all images are not copied.
    rows = [
        np.broadcast_to(x, batch + x.shape[x.ndim - rank :])
        for x, rank in zip(arrays, ranks, strict=True)
    ]
    out = np.empty((*batch, height, width, 3), np.uint8)
    # JAX calls this from any of its threads, and a context can be used by only one at
    # a time.
    with _LOCK, context().as_current():
        canvas = _canvas(looks, width, height)
        # MuJoCo draws into the current buffer, which may be that of another canvas.
        offscreen = engine().mjtFramebuffer.mjFB_OFFSCREEN.value
        engine().mjr_setBuffer(offscreen, canvas.target)
        for k in np.ndindex(*batch):
            _paint_one(canvas, camera, [row[k] for row in rows], out[k])
    return out


def _paint_one(canvas: _Canvas, camera: Camera, numbers: list, out) -> None:
    mujoco = engine()

    looks, model, data, scene, target, shown = canvas
    pos, rot, size, lookat = numbers[:4]
    assets = Assets(*numbers[4:])
    update_assets(model, target, looks, shown[0] if shown else None, assets)
    # Copy, because JAX reuses the memory of arguments.
    shown[:] = [Assets(*map(np.array, assets))]
    pos = raised(looks, assets, pos, rot)
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    model.geom_size[~planes], data.geom_xpos[:] = size[~planes], pos
    data.geom_xmat[:] = rot.reshape(-1, 9)
    # Scale of the near and far clipping planes.
    model.stat.extent = camera.distance
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FREE
    view.lookat[:], view.distance = lookat, camera.distance
    view.azimuth, view.elevation = camera.azimuth, camera.elevation
    everything = mujoco.mjtCatBit.mjCAT_ALL.value
    mujoco.mjv_updateScene(
        model, data, mujoco.MjvOption(), None, view, everything, scene
    )
    area = mujoco.MjrRect(0, 0, out.shape[1], out.shape[0])
    mujoco.mjr_render(area, scene, target)
    pixels = np.empty_like(out)
    mujoco.mjr_readPixels(pixels, None, area, target)
    out[:] = pixels[::-1]


@ft.lru_cache(maxsize=8)
def _canvas(looks: Looks, width: int, height: int) -> _Canvas:
    mujoco = engine()

    shapes = "\n    ".join(_shape(looks, geom) for geom in range(len(looks.kinds)))
    text = _SCENE.format(width=width, height=height, fovy=FIELD_OF_VIEW, shapes=shapes)
    spec = mujoco.MjSpec.from_string(text)
    add_assets(spec, looks)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    scene = mujoco.MjvScene(model, maxgeom=len(looks.kinds) + 100)
    target = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    for flag in (mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SHADOW):
        scene.flags[flag] = False
    # Functions registered last are called first, so this runs before the context is
    # freed.
    atexit.unregister(_forget)
    atexit.register(_forget)
    return _Canvas(looks, model, data, scene, target, [])


def _shape(looks: Looks, geom: int) -> str:
    kind, depth = looks.kinds[geom], looks.depths[geom]
    require_known(kind, "cannot be drawn")
    color = _WORLD if depth < 0 else _COLORS[depth % len(_COLORS)]
    look = 'material="ground"' if kind is GeomKind.PLANE else f'rgba="{color}"'
    # Planes are infinite for contacts, so they are drawn infinite: MuJoCo's size 0.
    size = "0 0 1" if kind is GeomKind.PLANE else "1 1 1"
    if kind is GeomKind.MESH:
        size = f'1 1 1" contype="0" conaffinity="0" mesh="mesh{looks.data[geom]}'
    if kind is GeomKind.HFIELD:
        size = f'1 1 1" hfield="field{looks.data[geom]}'
    return f'<geom type="{kind.name.lower()}" size="{size}" {look}/>'


def _forget() -> None:
    """Free the OpenGL resources at the end of the program."""
    with _LOCK, context().as_current():
        _canvas.cache_clear()
