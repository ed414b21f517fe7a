import functools as ft
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.kinematics import forward, site_poses
from eqsim.model import SensorKind
from eqsim.randomize import AbstractRandomizer

from ._models import as_array
from ._quadruped_robot import (
    common_parts,
    of_kinds,
    quadruped_model,
    standing,
    torso_of,
    upright,
)
from ._sensing import distance, sensors
from ._task import AbstractEndlessTask, index, physics
from ._tolerance import tolerance
from .sigmoids import linear


def _terrain_model(sys: System | None) -> System:
    return quadruped_model(40.0, terrain=True) if sys is None else sys


class QuadrupedEscape(AbstractEndlessTask):
    r"""A robot with four legs that learns to climb out of a bowl of rough terrain.

    Observation: that of `Quadruped`; `origin` of the world in the frame of the torso
    (m); `rangefinder`, $\tanh$ of the distances in m of 20 rays, 1 if a ray hits
    nothing; 101 entries.

    Reward: $t(c) \cdot t(d)$ of the cosine $c$ of the torso's angle from upright, at least
    that of 20 degrees (linear, 0 upside down), and the distance $d$ of the site `workspace`
    from the origin, at least half the width of the terrain (linear, 0 at the origin).

    Initial state: above the origin, the orientation uniform, joints at their
    references, at the lowest height without contact, in steps of 1 cm; at rest.

    The terrain is the height field `terrain` of the robot, `sys.height_fields.heights`.
    `quadruped_escape` draws it in every episode: see `RandomBowl`.

    **Arguments:**

    - `sys`: the robot; by default that of `quadruped_model(40.0, terrain=True)`, whose
        terrain is flat.
    - `pipeline`: the physics; by default `Generalized()`, which the sensors need.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        `dm_control.suite.quadruped`.
    """

    sys: System = eqx.field(converter=_terrain_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)

    def initial(self, key: PRNGKeyArray) -> State:
        quat = jr.normal(key, (4,), self.sys.joints.ref.dtype)
        quat = quat / jnp.linalg.norm(quat)
        q = standing(self.sys, jnp.zeros(2, quat.dtype), quat)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        poses, torso = forward(self.sys, state.q), torso_of(self.sys)
        values = sensors(self.pipeline, self.sys, state, action)
        rays = of_kinds(self.sys, values, SensorKind.RANGEFINDER)
        return {
            **common_parts(self.sys, state, values),
            "origin": -poses.pos[torso] @ poses.rot[torso],
            "rangefinder": jnp.where(rays < 0.0, 1.0, jnp.tanh(rays)),
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys = self.sys
        site = index(sys.sites.names, "workspace", "site")
        half = sys.height_fields.size[_terrain(sys), 0]
        away = distance(site_poses(sys, state.q).pos[site])
        escaped = tolerance(away, (half, jnp.inf), half, linear, 0.0)
        return upright(sys, state, math.cos(math.radians(20.0))) * escaped


class RandomBowl(AbstractRandomizer):
    r"""Randomization of the height field `terrain`: a bowl with bumps.

    At the distance $r$ from the center, in half widths of the terrain, the height is $h
    \, b \, (1 - \cos 2 \pi r) / 2$, with $r$ clipped to [0.04, 1]. The bowl has its
    ridge at $r = 1/2$ and falls off outside. The bumps $b$ are the bicubic spline
    (mirrored at the edges) through a grid of random numbers, uniform from `smoothness`
    to 1. Derivatives with respect to `height` and `smoothness` are those of the drawn
    heights.

    If the spline is negative, heights may be negative. They are at least -0.9 times the
    base of the height field, because they must be above the bottom.

    **Arguments:**

    - `height`: height $h$, m.
    - `smoothness`: a number from 0 (rough) to 1 (no bumps).
    - `bumps`: number of bumps along each side, at least 2.

    ??? cite "Reference"
        `dm_control.suite.quadruped`. De Boor, *A Practical Guide to Splines*, 1978.
    """

    height: Float[Array, ""] = eqx.field(converter=as_array, default=5.0)
    smoothness: Float[Array, ""] = eqx.field(converter=as_array, default=0.15)
    bumps: int = eqx.field(static=True, default=30)

    def __check_init__(self):
        if self.bumps < 2:
            raise ValueError(f"`bumps` must be at least 2, got {self.bumps}.")

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        fields, field = sys.height_fields, _terrain(sys)
        heights, dtype = fields.heights, fields.heights.dtype
        shape = fields.rows[field], fields.columns[field]
        y, x = (jnp.linspace(-1.0, 1.0, count, dtype=dtype) for count in shape)
        radius = jnp.clip(jnp.sqrt(x[None] ** 2 + y[:, None] ** 2), 0.04, 1.0)
        bowl = 0.5 - jnp.cos(2.0 * jnp.pi * radius) / 2.0
        grid = jr.uniform(key, (self.bumps, self.bumps), dtype)
        low = self.smoothness.astype(dtype)
        along_y, along_x = (
            jnp.asarray(_spline_matrix(self.bumps, count), dtype) for count in shape
        )
        bumps = along_y @ (low + (1.0 - low) * grid) @ along_x.T
        terrain = self.height.astype(dtype) * bowl * bumps
        terrain = jnp.maximum(terrain, -0.9 * fields.size[field, 2].astype(dtype))
        first, last = fields.span(field)
        heights = heights.at[first:last].set(terrain.ravel())
        return eqx.tree_at(lambda s: s.height_fields.heights, sys, heights)


def _terrain(sys: System) -> int:
    return index(sys.height_fields.names, "terrain", "height field")


@ft.lru_cache(maxsize=16)
def _spline_matrix(knots: int, points: int) -> Float[np.ndarray, "points knots"]:
    """Return the matrix that maps values at knots 0, 1, ... to the cubic spline through
    them, at evenly spaced points from the first to the last knot. Values are mirrored
    at both ends."""
    at = np.linspace(0.0, knots - 1.0, points)
    return _b_splines(at, knots) @ np.linalg.inv(_b_splines(np.arange(knots), knots))


def _b_splines(at: np.ndarray, knots: int) -> np.ndarray:
    """Return cubic B-splines about all knots at some points, including those about
    mirror images of the knots."""
    result = np.zeros((len(at), knots))
    for center in range(-1, knots + 1):
        away = np.abs(at - center)
        inner, outer = 2 / 3 - away**2 + away**3 / 2, np.maximum(2 - away, 0.0) ** 3 / 6
        knot = knots - 1 - abs(knots - 1 - abs(center))
        result[:, knot] += np.where(away < 1.0, inner, outer)
    return result


def quadruped_escape(**options: Any) -> DomainRandomization:
    """Create `QuadrupedEscape` with terrain, which `RandomBowl` draws at a reset.

    **Arguments:** its options.
    """
    return DomainRandomization(QuadrupedEscape(**options), RandomBowl())
