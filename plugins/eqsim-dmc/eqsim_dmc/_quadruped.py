from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward, forward_velocity, site_poses

from ._models import as_array
from ._quadruped_robot import (
    common_parts,
    quadruped_model,
    standing,
    torso_of,
    upright,
)
from ._sensing import distance, sensors
from ._task import AbstractEndlessTask, index, physics
from ._tolerance import tolerance
from .sigmoids import linear


def _flat(sys: System | None) -> System:
    return quadruped_model() if sys is None else sys


def _walled(sys: System | None) -> System:
    return quadruped_model(ball=True) if sys is None else sys


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

    sys: System = eqx.field(converter=_flat, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    speed: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)

    def initial(self, key: PRNGKeyArray) -> State:
        quat = jr.normal(key, (4,), self.sys.joints.ref.dtype)
        quat = quat / jnp.linalg.norm(quat)
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

    sys: System = eqx.field(converter=_walled, default=None)
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


def quadruped_walk(speed: Any = 0.5, **options: Any) -> Quadruped:
    """Create `Quadruped` that learns to walk. **Arguments:** its options; `speed` in
    m/s."""
    return _moving(10.0, speed, options)


def quadruped_run(speed: Any = 5.0, **options: Any) -> Quadruped:
    """Create `Quadruped` that learns to run. **Arguments:** its options; `speed` in
    m/s."""
    return _moving(100.0, speed, options)


def _moving(floor: float, speed: Any, options: dict[str, Any]) -> Quadruped:
    if options.get("sys") is None:
        options["sys"] = quadruped_model(floor)
    return Quadruped(speed=speed, **options)


def quadruped_fetch(**options: Any) -> QuadrupedFetch:
    """Create `QuadrupedFetch`. **Arguments:** its options."""
    return QuadrupedFetch(**options)
