"""Planar robots that stand, hop, walk or run along x."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import com_velocity, forward

from ._models import number, of_file, site
from ._sensing import touch
from ._task import (
    AbstractEndlessTask,
    index,
    physics,
    preset,
    random_joints,
    small,
    tolerance,
)
from .sigmoids import linear


class Cheetah(AbstractEndlessTask):
    r"""A planar robot with two legs that learns to run along x.

    Observation: `position`, coordinates without x (m, rad); `velocity` (m/s, rad/s); 17
    entries.

    Reward: $\min(1, \max(0, v / s))$ with the velocity $v$ of the center of mass along x
    and `speed` $s$ (m/s).

    Initial state: joints with a range uniform within it, then `settle` time steps
    without control.

    **Arguments:**

    - `sys`: the robot; by default the suite's `cheetah.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s.
    - `settle`: number of time steps before an episode.

    ??? cite "Reference"
        Wawrzyński, *A cat-like robot real-time learning to run*, 2009.
        `dm_control.suite.cheetah`.
    """

    sys: System = eqx.field(converter=of_file("cheetah.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    speed: Float[Array, ""] = number(10.0)
    settle: int = eqx.field(static=True, default=200)

    def initial(self, key: PRNGKeyArray) -> State:
        joints = self.sys.joints
        limited = [k for k, flag in enumerate(joints.limited) if flag]
        at = jnp.asarray([joints.q_starts[k] for k in limited], int)
        low, high = joints.range[jnp.asarray(limited, int)].T
        share = jr.uniform(key, low.shape, low.dtype)
        q = joints.ref.at[at].set(low + share * (high - low))
        rest = jnp.zeros(self.sys.nu, q.dtype)
        fall = lambda state, _: (self.pipeline.step(self.sys, state, rest), None)
        start = self.pipeline.init(self.sys, q)
        return eqsim.scan(fall, start, length=self.settle)[0]

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q[1:], "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        return tolerance(
            com_velocity(self.sys, state.q, state.qd)[0],
            (self.speed, jnp.inf),
            self.speed,
            linear,
            0.0,
        )


cheetah_run = Cheetah


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

    sys: System = eqx.field(converter=of_file("hopper.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    speed: Float[Array, ""] | None = number(None)
    height_range: Float[Array, "2"] = number((0.6, 2.0))
    toe: Float[Array, "3"] = site("hopper.xml", "touch_toe")
    heel: Float[Array, "3"] = site("hopper.xml", "touch_heel")
    toe_radius: Float[Array, ""] = site("hopper.xml", "touch_toe", size=True)
    heel_radius: Float[Array, ""] = site("hopper.xml", "touch_heel", size=True)

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


hopper_stand = Hopper
hopper_hop = preset(Hopper, "Create `Hopper` that learns to hop.", speed=2.0)


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

    sys: System = eqx.field(converter=of_file("walker.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    speed: Float[Array, ""] | None = number(None)
    height: Float[Array, ""] = number(1.2)

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


walker_stand = Walker
walker_walk = preset(Walker, "Create `Walker` that learns to walk.", speed=1.0)
walker_run = preset(Walker, "Create `Walker` that learns to run.", speed=8.0)
