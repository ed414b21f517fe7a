"""A robot with four legs that walks, fetches a ball, and climbs out of a bowl."""

import dataclasses
import functools as ft
import math
import xml.etree.ElementTree as ET

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward, forward_velocity, site_poses
from eqsim.model import JointKind, SensorKind
from eqsim.randomize import AbstractRandomizer

from ._models import edited_model, find, number, of_model, remove
from ._sensing import distance, lift_without_contact, random_quaternion, sensors
from ._task import AbstractEndlessTask, index, physics, preset, tolerance
from .sigmoids import linear


def quadruped_model(
    floor: float | None = None, ball: bool = False, terrain: bool = False
) -> System:
    """Return the system of `quadruped.xml`, by default on flat ground.

    **Arguments:**

    - `floor`: half width of the ground as it is drawn, m; None for that of the file.
    - `ball`: true for walls and a ball.
    - `terrain`: true for a height field and rangefinders. The terrain is flat; see
        `RandomBowl`. Each shape has at most 8 contacts with it
        (`sys.height_fields.capacity`).
    """
    sys = edited_model(_edit, "quadruped.xml", floor, ball, terrain)
    if not terrain:
        return sys
    # A ball on a grid point touches 6 triangles.
    fields = dataclasses.replace(sys.height_fields, capacity=(8,))
    return eqx.tree_at(lambda s: s.height_fields, sys, fields)


def _edit(root: ET.Element, floor: float | None, ball: bool, terrain: bool) -> None:
    if floor is not None:
        find(root, "geom", "floor").set("size", f"{floor} {floor} 0.5")
    if not terrain:
        remove(root, "geom", "terrain")
        remove(root, "hfield", "terrain")
        for part in root.findall("sensor"):
            for ray in part.findall("rangefinder"):
                part.remove(ray)
    if not ball:
        for wall in ("wall_px", "wall_py", "wall_nx", "wall_ny"):
            remove(root, "geom", wall)
        remove(root, "body", "ball")
        remove(root, "site", "target")


def torso_of(sys: System) -> int:
    """Return the link `torso`."""
    return index(sys.links.names, "torso", "link")


def standing(sys: System, place, quat) -> Float[Array, " nq"]:
    """Return coordinates of the robot at a position and orientation, above the
    ground."""
    joints = sys.joints
    root = joints.q_starts[index(joints.names, "root", "joint")]
    q = joints.ref.at[root : root + 2].set(place).at[root + 3 : root + 7].set(quat)
    return lift_without_contact(sys, q, root + 2)


def upright(sys: System, state: State, least: float = 1.0) -> Float[Array, ""]:
    """Return the degree to which the torso is upright, from 0 (upside down) to 1.

    **Arguments:**

    - `least`: smallest cosine of the angle from upright for the value 1.
    """
    cosine = forward(sys, state.q).rot[torso_of(sys), 2, 2]
    return tolerance(cosine, (least, jnp.inf), 1.0 + least, linear, 0.0)


def of_kinds(
    sys: System, values: dict[str, Float[Array, " size"]], *kinds: SensorKind
) -> Float[Array, " total"]:
    """Return the values of all sensors of some kinds, in the order of the file."""
    sensors = zip(sys.sensors.names, sys.sensors.kinds)
    return jnp.concatenate([values[name] for name, kind in sensors if kind in kinds])


def common_parts(
    sys: System, state: State, values: dict[str, Float[Array, " size"]]
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of the observation of all tasks.

    **Arguments:**

    - `values`: values of the sensors.
    """
    joints = sys.joints
    hinges = [k for k, kind in enumerate(joints.kinds) if kind is JointKind.REVOLUTE]
    q, qd = (
        x[jnp.asarray([starts[k] for k in hinges])]
        for x, starts in ((state.q, joints.q_starts), (state.qd, joints.v_starts))
    )
    forces = of_kinds(sys, values, SensorKind.FORCE, SensorKind.TORQUE)
    return {
        "egocentric_state": jnp.concatenate([q, qd, state.act]),
        "torso_velocity": values["velocimeter"],
        "torso_upright": forward(sys, state.q).rot[torso_of(sys), 2, 2],
        "imu": of_kinds(sys, values, SensorKind.ACCELEROMETER, SensorKind.GYRO),
        "force_torque": jnp.arcsinh(forces),
    }


class Quadruped(AbstractEndlessTask):
    r"""A robot with four legs that learns to move forward.

    Observation: `egocentric_state`, angles and velocities of the hinges (rad, rad/s)
    and activations of the actuators; `torso_velocity` in the frame of the torso (m/s);
    `torso_upright`, the cosine $c$ of its angle from upright; `imu`, accelerometer and
    gyroscope (m/s$^2$, rad/s); `force_torque`, $\operatorname{arsinh}$ of the forces
    and torques at the toes (N, N m); 78 entries.

    Reward: $\frac{1 + c}{2} \cdot t(v)$ of the velocity $v$ of the torso along its x
    axis, at least `speed` (linear, margin `speed`, where it is 1/2).

    Initial state: the orientation uniform, joints at their references, at the lowest
    height without contact, in steps of 1 cm; at rest.

    **Arguments:**

    - `sys`: the robot; by default that of `quadruped_model()`.
    - `pipeline`: the physics; by default `Generalized()`, which the sensors need.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s.

    ??? cite "Reference"
        `dm_control.suite.quadruped`.
    """

    sys: System = eqx.field(converter=of_model(quadruped_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    speed: Float[Array, ""] = number(0.5)

    def initial(self, key: PRNGKeyArray) -> State:
        quat = random_quaternion(key, self.sys)
        q = standing(self.sys, jnp.zeros(2, quat.dtype), quat)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        values = sensors(self.pipeline, self.sys, state, action)
        return common_parts(self.sys, state, values)

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        torso = torso_of(self.sys)
        axis = forward(self.sys, state.q).rot[torso, :, 0]
        speed = forward_velocity(self.sys, state.q, state.qd).lin[torso] @ axis
        bounds = self.speed, jnp.inf
        move = tolerance(speed, bounds, self.speed, linear, 0.5)
        return upright(self.sys, state) * move


class QuadrupedFetch(AbstractEndlessTask):
    r"""A robot with four legs between walls that learns to push a ball to the origin.

    Observation: that of `Quadruped`; `ball_state`, position relative to the torso,
    velocity relative to that of the torso, and angular velocity of the ball, in the
    frame of the torso (m, m/s, rad/s); `target_position` relative to the torso in its
    frame (m); 90 entries.

    Reward: $\frac{1 + c}{2} \cdot t(a) \cdot \frac{1 + t(b)}{2}$ of the cosine $c$ of
    the torso's angle from upright, the horizontal distance $a$ between ball and site
    `workspace`, at most the sum of their radii, and the distance $b$ between ball and
    target, at most its radius (both linear, 0 at the half diagonal of the ground
    beyond).

    Initial state: the torso upright at a random position with random azimuth, at the
    lowest height without contact, in steps of 1 cm, at rest; the ball at a random
    position at a height of 2 m, with a horizontal velocity of standard deviation 5 m/s.

    **Arguments:**

    - `sys`: the robot; by default that of `quadruped_model(ball=True)`.
    - `pipeline`: the physics; by default `Generalized()`, which the sensors need.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        `dm_control.suite.quadruped`.
    """

    sys: System = eqx.field(
        converter=of_model(lambda: quadruped_model(ball=True)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)

    def initial(self, key: PRNGKeyArray) -> State:
        joints, keys = self.sys.joints, jr.split(key, 4)
        dtype, reach = joints.ref.dtype, 0.9 * self._arena
        half = jr.uniform(keys[0], (), dtype, 0.0, jnp.pi)
        zero = jnp.zeros_like(half)
        quat = jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)])
        place, ball = (jr.uniform(k, (2,), dtype, -reach, reach) for k in keys[1:3])
        q, root = standing(self.sys, place, quat), self._ball_root
        start = joints.q_starts[root]
        q = q.at[start : start + 2].set(ball).at[start + 2].set(2.0)
        push, start = 5.0 * jr.normal(keys[3], (2,), dtype), joints.v_starts[root]
        qd = jnp.zeros(self.sys.nv, dtype).at[start : start + 2].set(push)
        return self.pipeline.init(self.sys, q, qd)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        poses, torso = forward(self.sys, state.q), torso_of(self.sys)
        pos, rot = poses.pos[torso], poses.rot[torso]
        joints, target = self.sys.joints, self._site("target")
        root = joints.v_starts[index(joints.names, "root", "joint")]
        ball = joints.v_starts[self._ball_root]
        linear, angular = (state.qd[ball + k : ball + k + 3] for k in (0, 3))
        relative = linear - state.qd[root : root + 3]
        moving = jnp.stack([poses.pos[self._ball] - pos, relative, angular])
        places = site_poses(self.sys, state.q).pos
        values = sensors(self.pipeline, self.sys, state, action)
        return {
            **common_parts(self.sys, state, values),
            "ball_state": (moving @ rot).ravel(),
            "target_position": (places[target] - pos) @ rot,
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys, places = self.sys, site_poses(self.sys, state.q).pos
        ball = forward(sys, state.q).pos[self._ball]
        target, hold = self._site("target"), self._site("workspace")
        radius = sys.geoms.size[index(sys.geoms.names, "ball", "shape"), 0]
        diagonal, size = self._arena * 2.0**0.5, sys.sites.size
        near = lambda site, reach: tolerance(
            distance((places[site] - ball)[:2]), (0.0, reach), diagonal, linear, 0.0
        )
        reached = near(hold, size[hold, 0] + radius)
        fetched = near(target, size[target, 0])
        return upright(sys, state) * reached * (0.5 + 0.5 * fetched)

    @property
    def _arena(self) -> Float[Array, ""]:
        """Return half the width of the ground."""
        geoms = self.sys.geoms
        return geoms.size[index(geoms.names, "floor", "shape"), 0]

    @property
    def _ball(self) -> int:
        return index(self.sys.links.names, "ball", "link")

    @property
    def _ball_root(self) -> int:
        return index(self.sys.joints.names, "ball_root", "joint")

    def _site(self, name: str) -> int:
        return index(self.sys.sites.names, name, "site")


quadruped_walk = preset(
    Quadruped,
    "Create `Quadruped` that learns to walk.",
    lambda: quadruped_model(10.0),
    speed=0.5,
)
quadruped_run = preset(
    Quadruped,
    "Create `Quadruped` that learns to run.",
    lambda: quadruped_model(100.0),
    speed=5.0,
)
quadruped_fetch = QuadrupedFetch


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

    sys: System = eqx.field(
        converter=of_model(lambda: quadruped_model(40.0, terrain=True)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)

    def initial(self, key: PRNGKeyArray) -> State:
        quat = random_quaternion(key, self.sys)
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

    height: Float[Array, ""] = number(5.0)
    smoothness: Float[Array, ""] = number(0.15)
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


quadruped_escape = preset(
    QuadrupedEscape,
    "Create `QuadrupedEscape` with terrain drawn at each reset.",
    draw=RandomBowl,
)
