"""Humanoids that stand, walk or run in any direction."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import com_velocity, forward

from ._models import number, of_file
from ._sensing import distance, draw_without_contact, random_pose, subtree_velocity
from ._task import (
    AbstractEndlessTask,
    index,
    physics,
    preset,
    small,
    tolerance,
)
from .sigmoids import linear


_LIMBS = "left_hand", "left_foot", "right_hand", "right_foot"


class Humanoid(AbstractEndlessTask):
    r"""A humanoid with 21 joints that learns to stand, walk or run in any direction.

    Observation: `joint_angles` (rad); `head_height` (m); `extremities`, the positions
    of hands and feet in the frame of the torso (m); `torso_vertical`, the z axis of the
    world in that frame; `com_velocity` of the center of mass (m/s); `velocity` (m/s,
    rad/s); 67 entries. With `pure_state`: `position` and `velocity`; 55 entries.

    Reward: $t(z)\,t(c)\,(4 + \overline{\max(0, 1 - u^2)}) / 5$ of the action $u$, the
    height $z$ of the head, at least `height` (margin a quarter of it), and the cosine
    $c$ of the angle of the torso from upright, at least 0.9 (linear, 0 at -1); times the
    mean of $t(v_x)$ and $t(v_y)$ of the velocity $v$ of the center of mass (bounds 0,
    margin 2 m/s), or with a `speed`, times $(1 + 5 t(|v_{xy}|)) / 6$, at least `speed`
    (linear, 0 at rest).

    Initial state: joints uniform in their ranges, the quaternion of the torso four
    uniform numbers from 0 to 1, scaled to norm 1; redrawn until nothing touches; at
    rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `humanoid.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s; None to stand.
    - `height`: height of the head that counts as standing, m.
    - `pure_state`: true to observe only coordinates and velocities.

    ??? cite "Reference"
        Tassa, Erez, Todorov, *Synthesis and stabilization of complex behaviors through
        online trajectory optimization*, 2012. `dm_control.suite.humanoid`.
    """

    sys: System = eqx.field(converter=of_file("humanoid.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    speed: Float[Array, ""] | None = number(None)
    height: Float[Array, ""] = number(1.4)
    pure_state: bool = eqx.field(static=True, default=False)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(random_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        if self.pure_state:
            return {"position": state.q, "velocity": state.qd}
        velocity = com_velocity(self.sys, state.q, state.qd)
        return humanoid_parts(self.sys, state, "torso", _LIMBS, velocity)

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        poses, names = forward(self.sys, state.q), self.sys.links.names
        torso, head = (index(names, name, "link") for name in ("torso", "head"))
        velocity = com_velocity(self.sys, state.q, state.qd)
        seen = poses.pos[head, 2], poses.rot[torso, 2, 2], velocity
        return humanoid_reward(action, *seen, self.height, self.speed)


def humanoid_parts(
    sys: System,
    state: State,
    torso: str,
    limbs: tuple[str, ...],
    velocity: Float[Array, "3"],
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of the observation of all humanoids; see `Humanoid`.

    **Arguments:**

    - `torso`, `limbs`: names of links.
    - `velocity`: velocity of the center of mass, m/s.
    """
    poses, names = forward(sys, state.q), sys.links.names
    trunk, head, *ends = (index(names, n, "link") for n in (torso, "head", *limbs))
    away = poses.pos[jnp.asarray(ends)] - poses.pos[trunk][None]
    return {
        "joint_angles": state.q[7:],
        "head_height": poses.pos[head, 2],
        "extremities": (away @ poses.rot[trunk]).ravel(),
        "torso_vertical": poses.rot[trunk, 2],
        "com_velocity": velocity,
        "velocity": state.qd,
    }


def humanoid_reward(
    action: Float[Array, " nu"],
    head: Float[Array, ""],
    cosine: Float[Array, ""],
    velocity: Float[Array, "3"],
    height: Float[Array, ""],
    speed: Float[Array, ""] | None,
) -> Float[Array, ""]:
    """Compute the reward of all humanoids; see `Humanoid`.

    **Arguments:**

    - `head`: height of the head, m.
    - `cosine`: cosine of the angle of the torso from upright.
    - `velocity`: velocity of the center of mass, m/s.
    - `height`, `speed`: height and speed of the full reward, m and m/s; None to stand.
    """
    standing = tolerance(head, (height, jnp.inf), height / 4.0)
    upright = tolerance(cosine, (0.9, jnp.inf), 1.9, linear, 0.0)
    stand = small(action) * standing * upright
    if speed is None:
        return stand * jnp.mean(tolerance(velocity[:2], margin=2.0))
    move = tolerance(distance(velocity[:2]), (speed, jnp.inf), speed, linear, 0.0)
    return stand * (5.0 * move + 1.0) / 6.0


humanoid_stand = Humanoid
humanoid_walk = preset(Humanoid, "Create `Humanoid` that learns to walk.", speed=1.0)
humanoid_run = preset(Humanoid, "Create `Humanoid` that learns to run.", speed=10.0)
humanoid_run_pure_state = preset(
    Humanoid,
    "Create `Humanoid` that learns to run and observes its coordinates and velocities.",
    speed=10.0,
    pure_state=True,
)


_CMU_LIMBS = "lhand", "lfoot", "rhand", "rfoot"


class HumanoidCMU(AbstractEndlessTask):
    r"""A humanoid with 56 joints, with the skeleton of the CMU motion capture database,
    that learns to stand, walk or run in any direction.

    Observation: `joint_angles` (rad); `head_height` (m); `extremities`, the positions
    of hands and feet in the frame of the thorax (m); `torso_vertical`, the z axis of
    the world in that frame; `com_velocity` of the center of mass of the thorax with
    neck, head and arms (m/s); `velocity` (m/s, rad/s); 137 entries.

    Reward: that of `Humanoid`, with the cosine of the angle between the y axis of the
    thorax and the z axis of the world, and `com_velocity`.

    Initial state: joints uniform in their ranges, the quaternion of the root four
    uniform numbers from 0 to 1, scaled to norm 1; redrawn until nothing touches; at
    rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `humanoid_CMU.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s; None to stand.
    - `height`: height of the head that counts as standing, m.

    ??? cite "Reference"
        `dm_control.suite.humanoid_CMU`.
    """

    sys: System = eqx.field(converter=of_file("humanoid_CMU.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    speed: Float[Array, ""] | None = number(None)
    height: Float[Array, ""] = number(1.4)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(random_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        velocity = subtree_velocity(self.sys, state, "thorax")
        return humanoid_parts(self.sys, state, "thorax", _CMU_LIMBS, velocity)

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        poses, names = forward(self.sys, state.q), self.sys.links.names
        thorax, head = (index(names, name, "link") for name in ("thorax", "head"))
        velocity = subtree_velocity(self.sys, state, "thorax")
        seen = poses.pos[head, 2], poses.rot[thorax, 2, 1], velocity
        return humanoid_reward(action, *seen, self.height, self.speed)


humanoid_CMU_stand = HumanoidCMU
_CMU = "Create `HumanoidCMU` that learns to"
humanoid_CMU_walk = preset(HumanoidCMU, f"{_CMU} walk.", speed=1.0)
humanoid_CMU_run = preset(HumanoidCMU, f"{_CMU} run.", speed=10.0)
