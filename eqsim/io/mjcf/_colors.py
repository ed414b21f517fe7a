"""Colors of MuJoCo's geoms, from materials and textures."""

from typing import Any

import numpy as np

from ._mujoco import engine


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
    # Many geoms share few materials, whose textures may be large.
    for each in np.unique(material[has_material]).tolist():
        color = model.mat_rgba[each].astype(float)
        color[:3] *= _mean(model, each)
        colors[has_material & (material == each)] = color
    found = tuple(
        (round(red, 6), round(green, 6), round(blue, 6), round(opacity, 6))
        for red, green, blue, opacity in colors.tolist()
    )
    return () if all(color[:3] == _DEFAULT[:3] for color in found) else found


def _mean(model: Any, material: int) -> np.ndarray:
    """Return the mean color of the texture of a material; 1 without one."""
    mujoco = engine()
    role = mujoco.mjtTextureRole.mjTEXROLE_RGB.value
    texture = int(model.mat_texid[material, role])
    if texture < 0:
        return np.ones(3)
    channels = int(model.tex_nchannel[texture])
    size = int(model.tex_height[texture]) * int(model.tex_width[texture]) * channels
    start = int(model.tex_adr[texture])
    pixels = model.tex_data[start : start + size].reshape(-1, channels)
    if channels < 3:
        return np.full(3, pixels[:, 0].mean() / 255.0)
    return pixels[:, :3].mean(axis=0) / 255.0
