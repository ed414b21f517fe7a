from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.kinematics import forward
from eqsim.randomize import AbstractRandomizer

from ._sensing import distance, geom_position, rotation
from ._task import AbstractEndlessTask, index, model, physics
from ._tolerance import tolerance


_JOINTS = (
    "tail1",
    "tail_twist",
    "tail2",
    "finright_roll",
    "finright_pitch",
    "finleft_roll",
    "finleft_pitch",
)


class Fish(AbstractEndlessTask):
    r"""A fish in a fluid that learns to keep upright, or to swim to a target.

    Observation: `joint_angles` of tail and fins (rad); `upright`, the cosine $c$ of the
    angle between the z axes of torso and world; with `swim` also `target`, from mouth
    to target in the frame of the mouth (m); `velocity` (m/s, rad/s); 21 or 24 entries.

    Reward: $t(c)$, which is 1 for $c = 1$ (margin 1). With `swim` it is
    $(7 t(d) + \frac{1 + c}{2}) / 8$ with the distance $d$ from mouth to target, at most
    the sum $r$ of their radii (margin $2 r$).

    Initial state: the orientation uniform, tail and fins uniform from -0.2 to 0.2 rad,
    at rest.

    The target is the shape `target` of the robot, `sys.geoms.pos` and `sys.geoms.size`.
    The task `fish_swim` draws a position in every episode: see `RandomWaterTarget`.

    **Arguments:**

    - `sys`: the robot; by default the suite's `fish.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `swim`: true if the fish learns to swim to the target.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.fish`.
    """

    sys: System = eqx.field(converter=model("fish.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    swim: bool = eqx.field(static=True, default=False)

    def initial(self, key: PRNGKeyArray) -> State:
        key_quat, key_joints = jr.split(key)
        q = self.sys.joints.ref
        root = self.sys.joints.q_starts[index(self.sys.joints.names, "root", "joint")]
        quat = jr.normal(key_quat, (4,), q.dtype)
        q = q.at[root + 3 : root + 7].set(quat / jnp.linalg.norm(quat))
        angles = jr.uniform(key_joints, (len(_JOINTS),), q.dtype, -0.2, 0.2)
        return self.pipeline.init(self.sys, q.at[self._angles].set(angles))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        parts = {
            "joint_angles": state.q[self._angles],
            "upright": self._upright(state),
        }
        if self.swim:
            parts["target"] = self._to_target(state)
        return {**parts, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        upright = self._upright(state)
        if not self.swim:
            return tolerance(upright, (1.0, 1.0), 1.0)
        names, size = self.sys.geoms.names, self.sys.geoms.size
        mouth, target = (index(names, name, "shape") for name in ("mouth", "target"))
        reach = size[mouth, 0] + size[target, 0]
        far = distance(self._to_target(state))
        there = tolerance(far, (0.0, reach), 2.0 * reach)
        return (7.0 * there + 0.5 * (1.0 + upright)) / 8.0

    @property
    def _angles(self) -> Array:
        joints = self.sys.joints
        places = [index(joints.names, name, "joint") for name in _JOINTS]
        return jnp.asarray([joints.q_starts[joint] for joint in places])

    def _upright(self, state: State) -> Float[Array, ""]:
        torso = index(self.sys.links.names, "torso", "link")
        return forward(self.sys, state.q).rot[torso, 2, 2]

    def _to_target(self, state: State) -> Float[Array, "3"]:
        geoms, poses = self.sys.geoms, forward(self.sys, state.q)
        mouth, start = geom_position(self.sys, poses, "mouth")
        _, end = geom_position(self.sys, poses, "target")
        frame = poses.rot[geoms.links[mouth]] @ rotation(geoms.quat[mouth])
        return (end - start) @ frame


class RandomWaterTarget(AbstractRandomizer):
    """Randomization that places the shape `target`: x and y uniform from -0.4 m to 0.4
    m, z from 0.1 m to 0.3 m."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos = sys.geoms.pos
        target = index(sys.geoms.names, "target", "shape")
        low, high = jnp.asarray([-0.4, -0.4, 0.1]), jnp.asarray([0.4, 0.4, 0.3])
        place = jr.uniform(key, (3,), pos.dtype, low, high)
        return eqx.tree_at(lambda s: s.geoms.pos, sys, pos.at[target].set(place))


def fish_upright(**options: Any) -> Fish:
    """Create `Fish` that learns to keep upright. **Arguments:** its other options."""
    return Fish(swim=False, **options)


def fish_swim(**options: Any) -> DomainRandomization:
    """Create `Fish` that learns to swim to a target, which `RandomWaterTarget` places
    at a reset.

    **Arguments:** its other options.
    """
    return DomainRandomization(Fish(swim=True, **options), RandomWaterTarget())
