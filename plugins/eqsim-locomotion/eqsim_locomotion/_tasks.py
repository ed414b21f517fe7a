"""The tasks that entry points name: each robot on its floor, and on rough terrain, and
humanoids that track a motion."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from eqsim.spatial import safe_sqrt
from eqsim.terrain import Blocks, Rough, Slope, Stairs, TerrainGrid
from eqsim.wrappers import TerrainCurriculum, WalkedDistance

from ._adaptive_starts import AdaptiveStarts
from ._legged import Commands
from ._robots import find_robot, Robot
from ._tracking import MotionTracking
from ._velocity import PARTS, VelocityState, VelocityTracking, WEIGHTS


# On stairs, robots tilt and rise, and fall before they climb.
_ROUGH = {"fallen": -100.0, "tilt": -1.0, "vertical_velocity": -0.5}


def rough_terrain(levels: int = 6) -> TerrainGrid:
    """Return the terrain of `rough_velocity`: stairs up to 16 cm, down and up, slopes up to
    0.5, noise up to 7 cm and blocks up to 10 cm, on patches of 8 m.

    **Arguments:**

    - `levels`: number of levels of difficulty.
    """
    stairs = (0.02, 0.16)
    kinds = (
        Stairs(step_height=stairs, step_width=0.35),
        Stairs(step_height=stairs, step_width=0.35, up=False),
        Slope(slope=(0.05, 0.5)),
        Rough(height=(0.01, 0.07)),
        Blocks(height=(0.01, 0.1)),
    )
    return TerrainGrid(kinds, levels=levels, points=160, cell=0.05, border=200)


def commanded_speed(state: VelocityState) -> Float[Array, ""]:
    """Return the horizontal speed that the command asks for, m/s."""
    return safe_sqrt(jnp.sum(state.command[:2] ** 2))


def rough_velocity(
    robot: Robot | str = "go1", *, terrain: TerrainGrid | None = None, **options: Any
) -> TerrainCurriculum:
    """Return `VelocityTracking` with `TerrainCurriculum`: a robot that observes the heights
    of the ground about it, on terrain whose level follows what it reached.

    Commands are mostly straight ahead, -0.5 to 1 m/s times the speed of the robot, and last
    10 s on average. The weights of `fallen`, `tilt` and `vertical_velocity` are -100, -1 and
    -0.5, also if the description has others. The level rises where a robot walks 0.45 of a
    patch from its start in an episode, and falls below 0.3 of the commanded distance.

    **Arguments:**

    - `robot`: description of the robot, or its name.
    - `terrain`: the terrain; by default `rough_terrain()`.
    - `options`: options of `VelocityTracking`.
    """
    terrain = rough_terrain() if terrain is None else terrain
    robot = find_robot(robot)
    ahead = Commands(  # A robot that turns around does not leave its patch.
        low=(-0.5, -0.3, -0.5),
        high=(1.0, 0.3, 0.5),
        zero=(0.0, 0.5, 0.7),
        standing=0.05,
        mean_time=10.0,
    )
    weights = {**WEIGHTS, **robot.weights, **_ROUGH}
    given = {
        "observation": PARTS,
        "commands": ahead.scaled(robot.speed),
        "weights": weights,
    } | options
    task = VelocityTracking(robot, terrain=terrain, **given)
    reached = WalkedDistance(part=0.45, share=0.3)
    return TerrainCurriculum(task, terrain, reached, commanded_speed)


def motion_tracking(
    robot: Robot | str = "g1", motion: Any = None, **options: Any
) -> AdaptiveStarts:
    """Return `MotionTracking` with `AdaptiveStarts`, whose episodes start more often where
    the robot fails, and end with the motion.

    **Arguments:**

    - `robot`: description of the robot, or its name.
    - `motion`: a `ReferenceMotion`, or the path of a file for `load_motion`; by default
        `squats`.
    - `options`: other options of `MotionTracking`.
    """
    return AdaptiveStarts(MotionTracking(robot, motion, **options))


def _named(name: str, make: Callable, suffix: str, what: str) -> Callable:
    """Return the function that an entry point of a robot names."""

    def create(**options: Any):
        return make(name, **options)

    create.__name__ = create.__qualname__ = f"{name}_{suffix}"
    create.__doc__ = (
        f"Create `{what}` of the robot `{name}`. **Arguments:** its options."
    )
    return create


def _flat(name: str) -> Callable[..., VelocityTracking]:
    return _named(name, VelocityTracking, "velocity", "VelocityTracking")


def _rough(name: str) -> Callable[..., TerrainCurriculum]:
    return _named(name, rough_velocity, "velocity_rough", "rough_velocity")


def _motion(name: str) -> Callable[..., AdaptiveStarts]:
    return _named(name, motion_tracking, "motion", "motion_tracking")


a1_velocity, a1_velocity_rough = _flat("a1"), _rough("a1")
anymal_c_velocity, anymal_c_velocity_rough = _flat("anymal_c"), _rough("anymal_c")
apollo_velocity, apollo_velocity_rough = _flat("apollo"), _rough("apollo")
barkour_velocity, barkour_velocity_rough = _flat("barkour"), _rough("barkour")
berkeley_humanoid_velocity = _flat("berkeley_humanoid")
berkeley_humanoid_velocity_rough = _rough("berkeley_humanoid")
g1_motion = _motion("g1")
g1_velocity, g1_velocity_rough = _flat("g1"), _rough("g1")
go1_velocity, go1_velocity_rough = _flat("go1"), _rough("go1")
go2_velocity, go2_velocity_rough = _flat("go2"), _rough("go2")
h1_motion = _motion("h1")
h1_velocity, h1_velocity_rough = _flat("h1"), _rough("h1")
op3_velocity, op3_velocity_rough = _flat("op3"), _rough("op3")
spot_velocity, spot_velocity_rough = _flat("spot"), _rough("spot")
t1_motion = _motion("t1")
t1_velocity, t1_velocity_rough = _flat("t1"), _rough("t1")
