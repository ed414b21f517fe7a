"""Image of a grid of terrain with a robot on a patch, as a WebP file.

python docs/examples/terrain.py --out docs/images
"""

import argparse
import pathlib

import jax.numpy as jnp
import jax.random as jr
from PIL import Image, ImageOps

import eqsim
from eqsim.io import with_height_field
from eqsim.render import Camera, images
from eqsim.terrain import (
    Blocks,
    Gaps,
    Obstacles,
    Rough,
    Slope,
    Stairs,
    SteppingStones,
    TerrainGrid,
    Waves,
    with_terrain,
)


ROBOT = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="ball"><freejoint/><geom size=".4"/></body>
  </worldbody>
</mujoco>"""


def grid() -> TerrainGrid:
    """Return five levels of nine kinds of terrain."""
    kinds = (
        *(Slope(), Stairs(), Stairs(up=False), Obstacles(), Blocks()),
        *(Waves(), SteppingStones(), Gaps(), Rough()),
    )
    return TerrainGrid(kinds, levels=5, points=60, border=15)


def main() -> None:
    """Write the image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    out = parser.parse_args().out
    terrain = grid()
    heights = terrain.heights(jr.key(0))
    spec = with_height_field(ROBOT, *terrain.shape, terrain.size)
    sys = with_terrain(eqsim.load_mjcf(spec), heights)
    place = terrain.spawn(jr.key(1), 1, 1, heights)
    q = jnp.zeros(7).at[3].set(1.0).at[:3].set(place + jnp.array([0.0, 0.0, 0.4]))
    camera = Camera((0.0, -1.5, 0.0), 45.0, azimuth=90.0, elevation=-50.0)
    (image,) = images(sys, q[None], camera=camera, width=1000, height=520)
    out.mkdir(parents=True, exist_ok=True)
    picture = ImageOps.autocontrast(Image.fromarray(image), cutoff=(0.1, 40.0))
    picture.save(out / "terrain.webp", quality=80, method=6)


if __name__ == "__main__":
    main()
