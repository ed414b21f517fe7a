import xml.etree.ElementTree as ET
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, DomainRandomization, State, System
from eqsim.kinematics import site_poses
from eqsim.randomize import AbstractRandomizer

from ._arm import arm_parts, joint_places, joint_speeds, planar_pose, random_arm
from ._models import as_array, edited_model, remove
from ._sensing import distance, sensors
from ._starts import draw_without_contact
from ._task import AbstractEndlessTask, index, physics
from ._tolerance import tolerance


_TOUCH = (
    "palm_touch",
    "finger_touch",
    "thumb_touch",
    "fingertip_touch",
    "thumbtip_touch",
)
_PROPS = {"ball": ("ball", "target_ball", "cup"), "peg": ("peg", "target_peg", "slot")}


def manipulator_model(prop: str = "ball", insert: bool = False) -> System:
    """Return the system of `manipulator.xml` with one of its props.

    **Arguments:**

    - `prop`: `"ball"` or `"peg"`.
    - `insert`: true to include the receptacle of the prop, a cup or a slot.
    """
    if prop not in _PROPS:
        raise ValueError(f"`prop` must be 'ball' or 'peg', got {prop!r}.")
    return edited_model(_edit, "manipulator.xml", prop, insert)


def _edit(root: ET.Element, prop: str, insert: bool) -> None:
    kept = _PROPS[prop] if insert else _PROPS[prop][:2]
    for name in {name for names in _PROPS.values() for name in names} - set(kept):
        remove(root, "body", name)


def _model(sys: System | None) -> System:
    return manipulator_model() if sys is None else sys


class Manipulator(AbstractEndlessTask):
    r"""A planar arm with a hand that learns to bring a ball or a peg to a target.

    The prop is a peg if the robot has a link `peg`, else a ball. If the robot has a
    link `slot` or `cup`, the prop must be inserted there.

    Observation: `arm_pos`, sines and cosines of the angles of the arm; `arm_vel`
    (rad/s); `touch`, $\ln(1 + f)$ of the contact forces on five zones of the hand (N);
    `hand_pos`, `object_pos` and `target_pos`, each the position x, z (m) and the
    entries w and y of the quaternion; `object_vel` (m/s, rad/s); 44 entries. Without
    `fully_observable` only the first three; 29 entries.

    Reward: for a ball, $t(d)$ of the distance $d$ between ball and target, at most
    `close` (margin twice that). For a peg, the mean of $t$ of its middle and its tip,
    or a third of the mean of $t$ of two grasp points and the hand, whichever is larger.

    Initial state: joints uniform in their ranges, the root of the arm in the circle,
    finger and thumb equally; the prop in the hand (1 of 10 draws), in the target (1 of
    10), or anywhere, with a horizontal velocity from -5 m/s to 5 m/s; redrawn until
    nothing touches.

    The target and the receptacle are links of the robot, `sys.links.pos` and
    `sys.links.quat`. The tasks place them in every episode: see `RandomProps`.

    **Arguments:**

    - `sys`: the robot; by default that of `manipulator_model("ball")`.
    - `pipeline`: the physics; by default `Generalized()`, which `touch` needs.
    - `frame_skip`: time steps per control step.
    - `fully_observable`: true to observe hand, prop and target.
    - `close`: distance of the full reward, m.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.manipulator`.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    fully_observable: bool = eqx.field(static=True, default=True)
    close: Float[Array, ""] = eqx.field(converter=as_array, default=0.01)

    def initial(self, key: PRNGKeyArray) -> State:
        q, qd = draw_without_contact(_start, key, self.sys)
        return self.pipeline.init(self.sys, q, qd)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        sys, prop = self.sys, _prop(self.sys)
        values = sensors(self.pipeline, sys, state, action)
        touch = jnp.concatenate([values[name] for name in _TOUCH])
        parts = arm_parts(sys, state, touch)
        if not self.fully_observable:
            return parts
        pose = lambda name: jnp.concatenate(planar_pose(sys, state.q, name))
        return {
            **parts,
            "hand_pos": pose("hand"),
            "object_pos": pose(prop),
            "object_vel": joint_speeds(sys, state.qd, _joints(prop)),
            "target_pos": pose(f"target_{prop}"),
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        names, poses = self.sys.sites.names, site_poses(self.sys, state.q)

        def near(*pair):
            one, two = (index(names, name, "site") for name in pair)
            away = distance(poses.pos[one] - poses.pos[two])
            return tolerance(away, (0.0, self.close), 2.0 * self.close)

        if _prop(self.sys) == "ball":
            return near("ball", "target_ball")
        held = near("peg_grasp", "grasp") + near("peg_pinch", "pinch")
        there = near("peg", "target_peg") + near("target_peg_tip", "peg_tip")
        return jnp.maximum(there / 2.0, held / 6.0)


class RandomProps(AbstractRandomizer):
    """Randomization of the target and its receptacle.

    x is uniform from -0.4 m to 0.4 m, z from 0.1 m to 0.4 m, and the angle in the
    circle, or up to 60 degrees from upright with a receptacle. As in the suite, target,
    arm and prop are drawn together until nothing touches; the target is kept, and
    `Manipulator` draws arm and prop again under the same condition.
    """

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        return draw_without_contact(_placed_start, key, sys)


def _prop(sys: System) -> str:
    return "peg" if "peg" in sys.links.names else "ball"


def _joints(prop: str) -> tuple[str, str, str]:
    return f"{prop}_x", f"{prop}_z", f"{prop}_y"


def _placed_start(key: PRNGKeyArray, sys: System):
    """Draw a target, and an initial state for it."""
    key_place, key_start = jr.split(key)
    robot = _placed(key_place, sys)
    return _start(key_start, robot)[0], robot, robot


def _placed(key: PRNGKeyArray, sys: System) -> System:
    prop, names, dtype = _prop(sys), sys.links.names, sys.links.pos.dtype
    receptacles = [name for name in _PROPS[prop][2:] if name in names]
    reach = jnp.pi / 3.0 if receptacles else jnp.pi
    low, high = jnp.asarray([-0.4, 0.1, -reach]), jnp.asarray([0.4, 0.4, reach])
    x, z, angle = jr.uniform(key, (3,), dtype, low, high)
    pos, quat = sys.links.pos, sys.links.quat
    for name in (f"target_{prop}", *receptacles):
        link = index(names, name, "link")
        pos = pos.at[link, 0].set(x).at[link, 2].set(z)
        quat = quat.at[link, 0].set(jnp.cos(0.5 * angle))
        quat = quat.at[link, 2].set(jnp.sin(0.5 * angle))
    where = lambda s: (s.links.pos, s.links.quat)
    return eqx.tree_at(where, sys, (pos, quat))


def _start(key: PRNGKeyArray, sys: System):
    """Draw coordinates and velocities for the target of a robot."""
    key_arm, key_kind, key_place, key_speed = jr.split(key, 4)
    prop, q = _prop(sys), random_arm(sys, key_arm)
    target = index(sys.links.names, f"target_{prop}", "link")
    pos, quat = sys.links.pos[target], sys.links.quat[target]
    angle = 2.0 * jnp.arctan2(quat[2], quat[0])
    in_target = jnp.stack([pos[0], pos[2], angle])
    sites = site_poses(sys, q)
    grasp = index(sys.sites.names, "grasp", "site")
    pos, rot = sites.pos[grasp], sites.rot[grasp]
    angle = jnp.pi - jnp.arctan2(rot[2, 0], rot[0, 0])
    in_hand = jnp.stack([pos[0], pos[2], angle])
    low, high = jnp.asarray([-0.5, 0.0, 0.0]), jnp.asarray([0.5, 0.7, 2.0 * jnp.pi])
    anywhere = jr.uniform(key_place, (3,), q.dtype, low, high)
    kind = jr.uniform(key_kind, (), q.dtype)
    place = jnp.where(kind < 0.2, in_target, anywhere)
    place = jnp.where(kind < 0.1, in_hand, place)
    q = q.at[jnp.asarray(joint_places(sys, _joints(prop)))].set(place)
    speed = jr.uniform(key_speed, (), q.dtype, -5.0, 5.0)
    speed = jnp.where(kind < 0.2, jnp.zeros_like(speed), speed)
    slide = sys.joints.v_starts[index(sys.joints.names, f"{prop}_x", "joint")]
    return q, sys, (q, jnp.zeros(sys.nv, q.dtype).at[slide].set(speed))


def manipulator_bring_ball(**options: Any) -> DomainRandomization:
    """Create `Manipulator` that learns to bring a ball to a target, which `RandomProps`
    places at a reset.

    **Arguments:** the options of `Manipulator`.
    """
    return _manipulator("ball", False, options)


def manipulator_bring_peg(**options: Any) -> DomainRandomization:
    """Create the same with a peg. **Arguments:** the options of `Manipulator`."""
    return _manipulator("peg", False, options)


def manipulator_insert_ball(**options: Any) -> DomainRandomization:
    """Create `Manipulator` that learns to put a ball into a cup, which `RandomProps`
    places at a reset.

    **Arguments:** the options of `Manipulator`.
    """
    return _manipulator("ball", True, options)


def manipulator_insert_peg(**options: Any) -> DomainRandomization:
    """Create the same with a peg and a slot. **Arguments:** the options of
    `Manipulator`."""
    return _manipulator("peg", True, options)


def _manipulator(prop: str, insert: bool, options) -> DomainRandomization:
    if options.get("sys") is None:
        options["sys"] = manipulator_model(prop, insert)
    return DomainRandomization(Manipulator(**options), RandomProps())
