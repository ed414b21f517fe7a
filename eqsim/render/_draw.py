import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from .._errors import check_count
from ..kinematics import forward
from ..model import System
from ._camera import Camera, camera_for
from ._canvas import paint
from ._opengl import context
from ._shapes import looks, place


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
