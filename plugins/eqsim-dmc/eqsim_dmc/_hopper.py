from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import com_velocity, forward

from ._models import as_array, site
from ._task import AbstractEndlessTask, index, model, physics, random_joints, small
from ._tolerance import tolerance
from ._touch import touch
from .sigmoids import linear


def _zone(name: str, size: bool = False):
    return site("hopper.xml", name, size)


class Hopper(AbstractEndlessTask):
    r"""A planar robot with one leg that learns to stand, or to hop along x.

    Observation: `position`, coordinates without x (m, rad); `velocity` (m/s, rad/s);
    `touch`, $\ln(1 + f)$ of the contact forces on toe and heel (N); 15 entries.

    Reward: 1 while the center of mass of the torso is 0.6 m to 2 m above that of the foot
    (`height_range`), else 0; times $(4 + \overline{\max(0, 1 - u^2)}) / 5$ of the action
    $u$, or with a `speed`, times $t(v)$ of the velocity $v$ of the center of mass along x,
    at least `speed` (linear, margin half of it, where it is 1/2).

    Initial state: joints with a range uniform within it, the angle of the torso in the
    circle, at rest; shapes may be in the ground.

    **Arguments:**

    - `sys`: the robot; by default the suite's `hopper.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s; None to stand.
    - `height_range`: range of heights of the torso above the foot, m.
    - `toe`, `heel`: centers of the touch sensors on the foot, in its frame, m; by
        default those of the file.
    - `toe_radius`, `heel_radius`: radii of the touch sensors, m; by default those of
        the file.

    ??? cite "Reference"
        Lillicrap et al., *Continuous control with deep reinforcement learning*, 2015.
        `dm_control.suite.hopper`.
    """

    sys: System = eqx.field(converter=model("hopper.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    speed: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)
    height_range: Float[Array, "2"] = eqx.field(converter=as_array, default=(0.6, 2.0))
    toe: Float[Array, "3"] = eqx.field(converter=_zone("touch_toe"), default=None)
    heel: Float[Array, "3"] = eqx.field(converter=_zone("touch_heel"), default=None)
    toe_radius: Float[Array, ""] = eqx.field(
        converter=_zone("touch_toe", size=True), default=None
    )
    heel_radius: Float[Array, ""] = eqx.field(
        converter=_zone("touch_heel", size=True), default=None
    )

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        foot = index(self.sys.links.names, "foot", "link")
        found = self.pipeline.contacts(self.sys, state, action)
        feel = lambda at, size: touch(self.sys, state.q, found, foot, at, size)
        forces = feel(self.toe, self.toe_radius), feel(self.heel, self.heel_radius)
        return {
            "position": state.q[1:],
            "velocity": state.qd,
            "touch": jnp.log1p(jnp.stack(forces)),
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        links, poses = self.sys.links, forward(self.sys, state.q)
        heights = poses.pos[:, 2] + jnp.sum(poses.rot[:, 2] * links.com, axis=1)
        torso, foot = (index(links.names, name, "link") for name in ("torso", "foot"))
        low, high = self.height_range
        standing = tolerance(heights[torso] - heights[foot], (low, high))
        if self.speed is None:
            return standing * small(action)
        velocity = com_velocity(self.sys, state.q, state.qd)[0]
        bounds = self.speed, jnp.inf
        return standing * tolerance(velocity, bounds, self.speed / 2.0, linear, 0.5)


def hopper_stand(**options: Any) -> Hopper:
    """Create `Hopper` that learns to stand. **Arguments:** its other options."""
    return Hopper(speed=None, **options)


def hopper_hop(speed: Any = 2.0, **options: Any) -> Hopper:
    """Create `Hopper` that learns to hop. **Arguments:** its options; `speed` in
    m/s."""
    return Hopper(speed=speed, **options)
