"""Terrain: heights drawn at random, patches of rising difficulty, and ground heights.

The heights of `System.height_fields` are arrays, so environments may stand on different
terrain in one compiled program. In reading order:

- `_kinds`: kinds of terrain, functions `(key, difficulty, shape, cell) -> heights`;
- `_patches`: `TerrainGrid`, one height field of many patches, and `RandomTerrain`, a terrain of
  its own for each environment;
- `surface`: heights between grid points as in MuJoCo, and `with_terrain`, which puts heights
  into a robot.

It uses the model and kinematics. Sensors use the interpolation, and wrappers the grid.
"""

from ._kinds import (
    AbstractTerrain as AbstractTerrain,
    Blocks as Blocks,
    Flat as Flat,
    Gaps as Gaps,
    Obstacles as Obstacles,
    Places as Places,
    Rough as Rough,
    Slope as Slope,
    Stairs as Stairs,
    SteppingStones as SteppingStones,
    Waves as Waves,
)
from ._patches import RandomTerrain as RandomTerrain, TerrainGrid as TerrainGrid
from .surface import ground_height as ground_height, with_terrain as with_terrain
