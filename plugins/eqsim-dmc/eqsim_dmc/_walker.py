from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import com_velocity, forward

from ._models import as_array
from ._task import AbstractEndlessTask, index, model, physics, random_joints
from ._tolerance import tolerance
from .sigmoids import linear


class Walker(AbstractEndlessTask):
    r"""A planar robot with two legs that learns to stand, walk or run along x.

    Observation: `orientations`, the x entries of the axes x and z of each of 7 links;
    `height` of the torso (m); `velocity` (m/s, rad/s); 24 entries.

    Reward: standing is $r = \frac{1}{4}(3 t(z) + \frac{1 + c}{2})$ with the height $z$ of
    the torso, at least `height` (margin half of it), and the cosine $c$ of its angle from
    upright. With a `speed` it is $r \cdot (1 + 5 t(v)) / 6$ with the velocity $v$ of the
    center of mass along x, at least `speed` (linear, margin half of it, where it is 1/2).

    Initial state: joints with a range uniform within it, the angle of the torso in the
    circle, at rest; shapes may be in the ground.

    **Arguments:**

    - `sys`: the robot; by default the suite's `walker.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s; None to stand.
    - `height`: height of the torso that counts as standing, m.

    ??? cite "Reference"
        Lillicrap et al., *Continuous control with deep reinforcement learning*, 2015.
        `dm_control.suite.walker`.
    """

    sys: System = eqx.field(converter=model("walker.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    speed: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)
    height: Float[Array, ""] = eqx.field(converter=as_array, default=1.2)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        poses = forward(self.sys, state.q)
        torso = index(self.sys.links.names, "torso", "link")
        axes = jnp.stack([poses.rot[:, 0, 0], poses.rot[:, 0, 2]], axis=1)
        return {
            "orientations": axes.ravel(),
            "height": poses.pos[torso, 2],
            "velocity": state.qd,
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        poses = forward(self.sys, state.q)
        torso = index(self.sys.links.names, "torso", "link")
        bounds = self.height, jnp.inf
        standing = tolerance(poses.pos[torso, 2], bounds, self.height / 2.0)
        upright = (1.0 + poses.rot[torso, 2, 2]) / 2.0
        stand = (3.0 * standing + upright) / 4.0
        if self.speed is None:
            return stand
        velocity = com_velocity(self.sys, state.q, state.qd)[0]
        bounds = self.speed, jnp.inf
        move = tolerance(velocity, bounds, self.speed / 2.0, linear, 0.5)
        return stand * (5.0 * move + 1.0) / 6.0


def walker_stand(**options: Any) -> Walker:
    """Create `Walker` that learns to stand. **Arguments:** its other options."""
    return Walker(speed=None, **options)


def walker_walk(speed: Any = 1.0, **options: Any) -> Walker:
    """Create `Walker` that learns to walk. **Arguments:** its options; `speed` in
    m/s."""
    return Walker(speed=speed, **options)


def walker_run(speed: Any = 8.0, **options: Any) -> Walker:
    """Create `Walker` that learns to run. **Arguments:** its options; `speed` in
    m/s."""
    return Walker(speed=speed, **options)
