"""Drawing with MuJoCo: from shapes to pixels, without JAX."""

import atexit
import functools as ft
import threading
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float, UInt8

from ..io.mjcf.mujoco_names import engine
from ..model import GeomKind
from ..model.kinds import require_known
from ._assets import add_assets, Assets, raised, update_assets
from ._camera import Camera, FIELD_OF_VIEW
from ._opengl import context
from ._shapes import Looks


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
