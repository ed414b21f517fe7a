from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward

from ._humanoid import humanoid_parts, humanoid_reward, start_pose
from ._models import as_array
from ._sensing import subtree_velocity
from ._starts import draw_without_contact
from ._task import AbstractEndlessTask, index, model, physics


_LIMBS = "lhand", "lfoot", "rhand", "rfoot"


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

    sys: System = eqx.field(converter=model("humanoid_CMU.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    speed: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)
    height: Float[Array, ""] = eqx.field(converter=as_array, default=1.4)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(start_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        velocity = subtree_velocity(self.sys, state, "thorax")
        return humanoid_parts(self.sys, state, "thorax", _LIMBS, velocity)

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        poses, names = forward(self.sys, state.q), self.sys.links.names
        thorax, head = (index(names, name, "link") for name in ("thorax", "head"))
        velocity = subtree_velocity(self.sys, state, "thorax")
        seen = poses.pos[head, 2], poses.rot[thorax, 2, 1], velocity
        return humanoid_reward(action, *seen, self.height, self.speed)


def humanoid_CMU_stand(**options: Any) -> HumanoidCMU:
    """Create `HumanoidCMU` that learns to stand. **Arguments:** its other options."""
    return HumanoidCMU(speed=None, **options)


def humanoid_CMU_walk(speed: Any = 1.0, **options: Any) -> HumanoidCMU:
    """Create `HumanoidCMU` that learns to walk. **Arguments:** its options; `speed` in
    m/s."""
    return HumanoidCMU(speed=speed, **options)


def humanoid_CMU_run(speed: Any = 10.0, **options: Any) -> HumanoidCMU:
    """Create `HumanoidCMU` that learns to run. **Arguments:** its options; `speed` in
    m/s."""
    return HumanoidCMU(speed=speed, **options)
