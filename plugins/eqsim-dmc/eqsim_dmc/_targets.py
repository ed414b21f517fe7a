"""Tasks in a plane: something is brought to a target."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import (
    AbstractPipeline,
    ResetOptions,
    State,
    System,
    Timestep,
)
from eqsim.bridges import check_key
from eqsim.envs import check_action
from eqsim.kinematics import forward, site_poses
from eqsim.randomize import AbstractRandomizer
from eqsim.spatial import clamp
from eqsim.wrappers import AbstractWrapper, Lifetime

from ._models import edited_model, find, number, of_file, of_model, point_mass_model
from ._sensing import (
    distance,
    draw_without_contact,
    geom_position,
    random_pose,
    sensors,
)
from ._task import (
    AbstractEndlessTask,
    index,
    physics,
    preset,
    random_joints,
    small,
    tolerance,
)


class PointMass(AbstractEndlessTask):
    r"""A ball in a plane that learns to move to the center.

    Observation: `position` (m), `velocity` (m/s); 4 entries.

    Reward: `tolerance` of the distance between ball and target, with bounds 0 and the
    radius $r$ of the target, and margin $r$; times $(4 + \overline{\max(0, 1 - u^2)}) /
    5$ of the action $u$.

    Initial state: uniform in the square, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `point_mass.xml`, with motors on the
        joints instead of on fixed tendons.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        `dm_control.suite.point_mass`.
    """

    sys: System = eqx.field(
        converter=of_model(lambda: point_mass_model(limited=True)), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys, random_joints(self.sys, key))

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        poses = forward(self.sys, state.q)
        _, ball = geom_position(self.sys, poses, "pointmass")
        geom, target = geom_position(self.sys, poses, "target")
        away, radius = distance(target - ball), self.sys.geoms.size[geom, 0]
        return tolerance(away, (0.0, radius), radius) * small(action)


class GainsState(eqx.Module):
    """State of `RandomGains`. `gains`: gains of this episode; row $k$ is the direction
    in which control $k$ acts."""

    inner: State
    gains: Float[Array, "2 2"]


class RandomGains(AbstractWrapper):
    r"""`PointMass` whose controls act in random directions.

    The motors get $\mathrm{clip}(u)^\top G$. The rows of the gains $G$, unit vectors
    drawn at a reset, are at least $\arccos 0.9$ from parallel. They are not observed;
    `state.gains` contains those of the current episode.

    **Arguments:**

    - `env`: the environment; by default one whose motors do not clip, because two
        controls may add up to more than a single motor may get.

    **Raises:** `ValueError` if a motor clips its input.
    """

    env: PointMass = eqx.field(
        converter=lambda env: (
            PointMass(sys=point_mass_model(False)) if env is None else env
        ),
        default=None,
    )

    def __check_init__(self):
        actuators = self.sys.actuators
        for name, limited in zip(actuators.ctrl_names, actuators.ctrl_limited):
            if limited:
                raise ValueError(
                    f"`ctrllimited` of the motor {name!r} must be false, because "
                    "`RandomGains` clips controls itself before it mixes them. Set it "
                    "in the model file."
                )

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime.EPISODE

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        # The inner motors do not clip, so they have a range but no limits.
        return self.sys.actuators.ctrl_range

    def physics(self, state: GainsState) -> State:
        return state.inner

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[GainsState, Timestep]:
        check_key(key)
        key_gains, key_reset = jr.split(key)
        inner, timestep = self.env.reset(key_reset, options)
        return GainsState(inner, _gains(key_gains, inner.q.dtype)), timestep

    def step(
        self, state: GainsState, action: Float[Array, " nu"]
    ) -> tuple[GainsState, Timestep]:
        check_action(self, action)
        low, high = self.action_range.astype(action.dtype).T
        push = clamp(action, low, high) @ state.gains.astype(action.dtype)
        new = self.env.transition(state.inner, push)
        terms = self.env.rewards(state.inner, action, new)
        timestep = Timestep(
            self.env.observe(new, action),
            jnp.sum(jnp.stack(list(terms.values()))),
            self.env.terminated(new),
            jnp.zeros((), bool),
            terms,
            jnp.zeros((), bool),
        )
        return GainsState(new, state.gains), timestep


def _gains(key: PRNGKeyArray, dtype: Any) -> Float[Array, "2 2"]:
    """Draw two directions: the first uniform, the second uniform among those far enough
    from parallel."""
    keys = jr.split(key, 3)
    least = math.acos(0.9)
    first = jr.uniform(keys[0], (), dtype, -jnp.pi, jnp.pi)
    turn = jr.uniform(keys[1], (), dtype, least, math.pi - least)
    second = first + turn + jnp.where(jr.bernoulli(keys[2]), jnp.pi, 0.0).astype(dtype)
    angles = jnp.stack([first, second])
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


point_mass_easy = PointMass


def point_mass_hard(**options: Any) -> RandomGains:
    """Create `PointMass` with `RandomGains`. **Arguments:** its options; the motors of
    `sys` must not clip."""
    if options.get("sys") is None:
        options["sys"] = point_mass_model(limited=False)
    return RandomGains(PointMass(**options))


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

    sys: System = eqx.field(converter=of_file("reacher.xml"), default=None)
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
        return tolerance(distance(self._gap(state)), (0.0, reach))

    def _gap(self, state: State) -> Float[Array, "2"]:
        poses = forward(self.sys, state.q)
        _, tip = geom_position(self.sys, poses, "finger")
        _, target = geom_position(self.sys, poses, "target")
        return (target - tip)[:2]


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


def _reach(radius: float) -> Callable[..., Any]:
    def edit(sys: System) -> System:
        target = index(sys.geoms.names, "target", "shape")
        size = sys.geoms.size.at[target, 0].set(radius)
        return eqx.tree_at(lambda s: s.geoms.size, sys, size)

    about = f"Create `Reacher` with a target of radius {radius} m placed at each reset."
    return preset(Reacher, about, edit=edit, draw=RandomTarget)


reacher_easy, reacher_hard = _reach(0.05), _reach(0.015)


class BallInCup(AbstractEndlessTask):
    """A cup that learns to catch a ball on a string, in the plane of x and z.

    Observation: `position` of cup and ball (m), `velocity` (m/s); 8 entries.

    Reward: 1 while the ball is inside the box `target` in the cup, else 0.

    Initial state: the cup at its reference; the ball uniform in a rectangle below and
    around it, redrawn until nothing touches; at rest. The string may be taut.

    **Arguments:**

    - `sys`: the robot; by default the suite's `ball_in_cup.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.ball_in_cup`.
    """

    sys: System = eqx.field(converter=of_file("ball_in_cup.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(_ball_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys, poses = self.sys, forward(self.sys, state.q)
        target = index(sys.sites.names, "target", "site")
        link, geom = (
            index(sys.links.names, "ball", "link"),
            index(sys.geoms.names, "ball", "shape"),
        )
        away = site_poses(sys, state.q).pos[target] - poses.pos[link]
        room = sys.sites.size[target] - sys.geoms.size[geom, 0]
        inside = (jnp.abs(away) < room)[jnp.array([0, 2])]
        return jnp.all(inside).astype(state.q.dtype)


def _ball_pose(key: PRNGKeyArray, sys: System):
    """Return coordinates with the ball at a random position in its rectangle."""
    low, high = jnp.asarray([-0.2, 0.2]), jnp.asarray([0.2, 0.5])
    place, q = jr.uniform(key, (2,), sys.joints.ref.dtype, low, high), sys.joints.ref
    for name, value in zip(("ball_x", "ball_z"), place):
        joint = index(sys.joints.names, name, "joint")
        q = q.at[sys.joints.q_starts[joint]].set(value)
    return q, sys, q


ball_in_cup_catch = BallInCup


def _edit_finger(root: ET.Element) -> None:
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

    sys: System = eqx.field(
        converter=of_model(lambda: edited_model(_edit_finger, "finger.xml")),
        default=None,
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    speed: Float[Array, ""] | None = number(None)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(random_pose, key, self.sys)
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


def _damped(sys: System) -> System:
    joints = sys.joints
    hinge = joints.v_starts[index(joints.names, "hinge", "joint")]
    damping = joints.damping.at[hinge].set(0.03)
    return eqx.tree_at(lambda s: s.joints.damping, sys, damping)


def _turn(radius: float) -> Callable[..., Any]:
    def edit(sys: System) -> System:
        target = index(sys.sites.names, "target", "site")
        size = sys.sites.size.at[target, 0].set(radius)
        return eqx.tree_at(lambda s: s.sites.size, sys, size)

    about = f"Create `Finger` with a target of radius {radius} m placed at each reset."
    return preset(Finger, about, edit=edit, draw=RandomTip)


finger_spin = preset(
    Finger,
    "Create `Finger` that learns to spin the body, whose hinge has damping 0.03 N m s/rad.",
    edit=_damped,
    speed=15.0,
)
finger_turn_easy, finger_turn_hard = _turn(0.07), _turn(0.03)
