import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.kinematics import forward, site_poses
from eqsim.randomize import AbstractRandomizer

from ._models import as_array, edited_model, find
from ._sensing import distance, sensors
from ._starts import draw_without_contact
from ._task import AbstractEndlessTask, index, physics, random_joints
from ._tolerance import tolerance


def _model(sys: System | None) -> System:
    return edited_model(_edit, "finger.xml") if sys is None else sys


def _edit(root: ET.Element) -> None:
    # In every pose it is at least 0.1 m away from all shapes that could touch it.
    decoration = find(root, "geom", "proximal_decoration")
    decoration.attrib.update(contype="0", conaffinity="0")


class Finger(AbstractEndlessTask):
    r"""A planar finger with two links that learns to spin a body on a hinge, or to turn
    the body's tip to a target.

    Observation: `position`, the angles of both joints (rad) and x and z of the tip from
    the hinge (m); `velocity` of both joints and the hinge (rad/s); `touch`, $\ln(1 +
    f)$ of the contact forces on two zones of the fingertip (N); without a `speed` also
    `target_position`, x and z of the target from the hinge (m), and `dist_to_target`,
    from the tip to the surface of the target, negative inside (m); 9 or 12 entries.

    Reward: with a `speed`, 1 while the hinge turns at least that fast in negative
    direction, else 0. Without, 1 while the tip is in the target, else 0.

    Initial state: joints with a range uniform within it, the hinge in the circle,
    redrawn until nothing touches; at rest.

    The target is the site `target` of the robot, `sys.sites.pos` and `sys.sites.size`.
    The tasks draw a position in every episode: see `RandomTip`.

    **Arguments:**

    - `sys`: the robot; by default the suite's `finger.xml`, in which the shape
        `proximal_decoration`, which is never near another shape, does not collide.
    - `pipeline`: the physics; by default `Generalized()`, which `touch` needs.
    - `frame_skip`: time steps per control step.
    - `speed`: rewarded speed of the hinge, rad/s; None to turn to the target.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.finger`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    speed: Float[Array, ""] | None = eqx.field(converter=as_array, default=None)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        values = sensors(self.pipeline, self.sys, state, action)
        join = lambda *names: jnp.concatenate([values[name] for name in names])
        away = lambda name: (values[name] - values["spinner"])[jnp.array([0, 2])]
        parts = {
            "position": jnp.concatenate([join("proximal", "distal"), away("tip")]),
            "velocity": join("proximal_velocity", "distal_velocity", "hinge_velocity"),
            "touch": jnp.log1p(join("touchtop", "touchbottom")),
        }
        if self.speed is None:
            parts["target_position"] = away("target")
            parts["dist_to_target"] = self._gap(state)
        return parts

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        if self.speed is None:
            return tolerance(self._gap(state), (-jnp.inf, 0.0))
        joints = self.sys.joints
        hinge = joints.v_starts[index(joints.names, "hinge", "joint")]
        return tolerance(-state.qd[hinge], (self.speed, jnp.inf))

    def _gap(self, state: State) -> Float[Array, ""]:
        """Return the distance from the tip to the surface of the target, in the plane
        of x and z."""
        names, poses = self.sys.sites.names, site_poses(self.sys, state.q)
        tip, target = (index(names, name, "site") for name in ("tip", "target"))
        away = (poses.pos[target] - poses.pos[tip])[jnp.array([0, 2])]
        return distance(away) - self.sys.sites.size[target, 0]


def _pose(key: PRNGKeyArray, sys: System):
    q = random_joints(sys, key)
    return q, sys, q


class RandomTip(AbstractRandomizer):
    """Randomization that places the site `target` at the end of the spinner's capsule
    `cap1`, at an angle uniform in the circle."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos, links = sys.sites.pos, sys.links
        target = index(sys.sites.names, "target", "site")
        size = sys.geoms.size[index(sys.geoms.names, "cap1", "shape")]
        center = forward(sys, sys.joints.ref).pos[index(links.names, "spinner", "link")]
        angle = jr.uniform(key, (), pos.dtype, -jnp.pi, jnp.pi)
        x = center[0] + jnp.sum(size) * jnp.sin(angle)
        z = center[2] + jnp.sum(size) * jnp.cos(angle)
        pos = pos.at[target, 0].set(x).at[target, 2].set(z)
        return eqx.tree_at(lambda s: s.sites.pos, sys, pos)


def finger_spin(speed: Any = 15.0, **options: Any) -> Finger:
    """Create `Finger` that learns to spin the body, whose hinge has damping 0.03 N m
    s/rad.

    **Arguments:** its options; `speed` in rad/s.
    """
    env = Finger(speed=speed, **options)
    damping, joints = env.sys.joints.damping, env.sys.joints
    hinge = joints.v_starts[index(joints.names, "hinge", "joint")]
    return eqx.tree_at(lambda e: e.sys.joints.damping, env, damping.at[hinge].set(0.03))


def finger_turn_easy(**options: Any) -> DomainRandomization:
    """Create `Finger` with a target of radius 0.07 m, which `RandomTip` places at a
    reset.

    **Arguments:** the options of `Finger`.
    """
    return _turn(0.07, options)


def finger_turn_hard(**options: Any) -> DomainRandomization:
    """Create the same with a radius of 0.03 m. **Arguments:** the options of
    `Finger`."""
    return _turn(0.03, options)


def _turn(radius: float, options: dict[str, Any]) -> DomainRandomization:
    env = Finger(**options)
    size, target = env.sys.sites.size, index(env.sys.sites.names, "target", "site")
    size = size.at[target, 0].set(radius)
    env = eqx.tree_at(lambda e: e.sys.sites.size, env, size)
    return DomainRandomization(env, RandomTip())
