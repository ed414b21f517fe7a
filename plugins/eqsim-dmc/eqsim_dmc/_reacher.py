from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.kinematics import forward
from eqsim.randomize import AbstractRandomizer
from eqsim.spatial import safe_sqrt

from ._task import AbstractEndlessTask, index, model, physics, random_joints
from ._tolerance import tolerance


class Reacher(AbstractEndlessTask):
    """A planar arm with two links whose fingertip learns to reach a target.

    Observation: `position`, the angles of shoulder and wrist (rad); `to_target`, from
    fingertip to target along x and y (m); `velocity` (rad/s); 6 entries.

    Reward: 1 while the distance between fingertip and target is at most the sum of
    their radii, else 0.

    Initial state: the wrist uniform in its range, the shoulder in the circle, at rest.

    The target is the shape `target` of the robot, `sys.geoms.pos` and `sys.geoms.size`.
    The tasks draw a position in every episode: see `RandomTarget`.

    **Arguments:**

    - `sys`: the robot; by default the suite's `reacher.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        `dm_control.suite.reacher`.
    """

    sys: System = eqx.field(converter=model("reacher.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {
            "position": state.q,
            "to_target": self._gap(state),
            "velocity": state.qd,
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        names, size = self.sys.geoms.names, self.sys.geoms.size
        reach = size[index(names, "target", "shape"), 0]
        reach = reach + size[index(names, "finger", "shape"), 0]
        return tolerance(safe_sqrt(jnp.sum(self._gap(state) ** 2)), (0.0, reach))

    def _gap(self, state: State) -> Float[Array, "2"]:
        geoms, poses = self.sys.geoms, forward(self.sys, state.q)
        finger = index(geoms.names, "finger", "shape")
        link, target = geoms.links[finger], index(geoms.names, "target", "shape")
        tip = poses.pos[link] + poses.rot[link] @ geoms.pos[finger]
        return (geoms.pos[target] - tip)[:2]


class RandomTarget(AbstractRandomizer):
    """Randomization that places the shape `target`: direction uniform, distance from
    the origin uniform from 0.05 m to 0.2 m."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos = sys.geoms.pos
        target = index(sys.geoms.names, "target", "shape")
        key_angle, key_radius = jr.split(key)
        angle = jr.uniform(key_angle, (), pos.dtype, 0.0, 2 * jnp.pi)
        radius = jr.uniform(key_radius, (), pos.dtype, 0.05, 0.2)
        place = radius * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        return eqx.tree_at(lambda s: s.geoms.pos, sys, pos.at[target, :2].set(place))


def reacher_easy(**options: Any) -> DomainRandomization:
    """Create `Reacher` with a target of radius 0.05 m, which `RandomTarget` places at a
    reset.

    **Arguments:** the options of `Reacher`.
    """
    return _reacher(0.05, options)


def reacher_hard(**options: Any) -> DomainRandomization:
    """Create the same with a radius of 0.015 m. **Arguments:** the options of
    `Reacher`."""
    return _reacher(0.015, options)


def _reacher(radius: float, options: dict[str, Any]) -> DomainRandomization:
    env = Reacher(**options)
    size, target = env.sys.geoms.size, index(env.sys.geoms.names, "target", "shape")
    size = size.at[target, 0].set(radius)
    env = eqx.tree_at(lambda e: e.sys.geoms.size, env, size)
    return DomainRandomization(env, RandomTarget())
