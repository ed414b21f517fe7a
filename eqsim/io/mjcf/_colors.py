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
