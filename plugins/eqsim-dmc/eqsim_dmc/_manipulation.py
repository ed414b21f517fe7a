"""A planar arm with a hand that brings props to a target, and stacks boxes."""

import functools as ft
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.bridges import check_count
from eqsim.kinematics import forward, site_poses
from eqsim.model import JointKind
from eqsim.randomize import AbstractRandomizer
from eqsim.spatial import multiply

from ._models import edited_model, number, of_model, remove
from ._sensing import distance, draw_without_contact, sensors
from ._task import AbstractEndlessTask, index, physics, preset, tolerance


ARM = (
    "arm_root",
    "arm_shoulder",
    "arm_elbow",
    "arm_wrist",
    "finger",
    "fingertip",
    "thumb",
    "thumbtip",
)


def joint_places(sys: System, names: Sequence[str]) -> list[int]:
    """Return the coordinates of hinges and slides."""
    joints = sys.joints
    return [joints.q_starts[index(joints.names, name, "joint")] for name in names]


def joint_speeds(
    sys: System, qd: Float[Array, " nv"], names: Sequence[str]
) -> Float[Array, " n"]:
    """Return the velocities of hinges and slides."""
    joints = sys.joints
    starts = [joints.v_starts[index(joints.names, name, "joint")] for name in names]
    return qd[jnp.asarray(starts)]


def random_arm(sys: System, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """Draw coordinates with the joints of the arm uniform in their ranges, or in the
    circle without a range; the finger is as far open as the thumb."""
    joints, q = sys.joints, sys.joints.ref
    for k, name in zip(jr.split(key, len(ARM)), ARM):
        joint = index(joints.names, name, "joint")
        low, high = joints.range[joint] if joints.limited[joint] else (-jnp.pi, jnp.pi)
        angle = jr.uniform(k, (), q.dtype, low, high)
        q = q.at[joints.q_starts[joint]].set(angle)
    finger, thumb = joint_places(sys, ("finger", "thumb"))
    return q.at[finger].set(q[thumb])


def arm_parts(
    sys: System, state: State, touch: Float[Array, " ntouch"]
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of the observation that describe the arm.

    **Arguments:**

    - `touch`: forces of the touch sensors, N.
    """
    angles = state.q[jnp.asarray(joint_places(sys, ARM))]
    return {
        "arm_pos": jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1),
        "arm_vel": joint_speeds(sys, state.qd, ARM),
        "touch": jnp.log1p(touch),
    }


def planar_pose(
    sys: System, q: Float[Array, " nq"], name: str
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Return position x, z of a link (m), and the entries w, y of its quaternion."""
    link = index(sys.links.names, name, "link")
    quat = _link_quaternion(sys, q, link)
    return forward(sys, q).pos[link, ::2], jnp.stack([quat[0], quat[2]])


def _link_quaternion(sys: System, q: Float[Array, " nq"], link: int):
    """Return the orientation of a link as a product of quaternions, with MuJoCo's sign.

    The sign changes when a hinge makes a full turn, so it is not a function of the
    rotation matrix.
    """
    joints, quat = sys.joints, tuple(sys.links.quat[link])
    for joint, (kind, start) in enumerate(zip(joints.kinds, joints.q_starts)):
        if joints.links[joint] == link and kind is JointKind.REVOLUTE:
            half = 0.5 * (q[start] - joints.ref[start])
            axis = jnp.sin(half) * joints.axis[joint]
            quat = multiply(quat, (jnp.cos(half), *axis))
    parent = sys.links.parents[link]
    return quat if parent < 0 else multiply(_link_quaternion(sys, q, parent), quat)


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
    return edited_model(_edit_props, "manipulator.xml", prop, insert)


def _edit_props(root: ET.Element, prop: str, insert: bool) -> None:
    kept = _PROPS[prop] if insert else _PROPS[prop][:2]
    for name in {name for names in _PROPS.values() for name in names} - set(kept):
        remove(root, "body", name)


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

    sys: System = eqx.field(converter=of_model(manipulator_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    fully_observable: bool = eqx.field(static=True, default=True)
    close: Float[Array, ""] = number(0.01)

    def initial(self, key: PRNGKeyArray) -> State:
        q, qd = draw_without_contact(_prop_start, key, self.sys)
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
    return _prop_start(key_start, robot)[0], robot, robot


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


def _prop_start(key: PRNGKeyArray, sys: System):
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


def _with_prop(about: str, prop: str, insert: bool = False) -> Callable[..., Any]:
    model = lambda: manipulator_model(prop, insert)
    text = f"Create `Manipulator` that learns to {about} placed at each reset."
    return preset(Manipulator, text, model, draw=RandomProps)


manipulator_bring_ball = _with_prop("bring a ball to a target", "ball")
manipulator_bring_peg = _with_prop("bring a peg to a target", "peg")
manipulator_insert_ball = _with_prop("put a ball into a cup", "ball", True)
manipulator_insert_peg = _with_prop("put a peg into a slot", "peg", True)


def stacker_model(num_boxes: int = 2) -> System:
    """Return the system of `stacker.xml`. **Arguments:** `num_boxes`, from 1 to 4."""
    check_count("num_boxes", num_boxes)
    if num_boxes > 4:
        raise ValueError(f"`num_boxes` must be from 1 to 4, got {num_boxes}.")
    return edited_model(_edit_boxes, "stacker.xml", num_boxes)


def _edit_boxes(root: ET.Element, num_boxes: int) -> None:
    for k in range(num_boxes, 4):
        remove(root, "body", f"box{k}")


class Stacker(AbstractEndlessTask):
    r"""A planar arm with a hand that learns to stack boxes up to a target.

    Observation: `arm_pos`, sines and cosines of the angles of the arm; `arm_vel`
    (rad/s); `touch`, $\ln(1 + f)$ of the contact forces on five zones of the hand (N);
    `hand_pos` and `box_pos`, each the position x, z (m) and the entries w and y of the
    quaternion; `box_vel` (m/s, rad/s, m/s each); `target_pos`, x and z (m); for $n$
    boxes $35 + 7 n$ entries. Without `fully_observable` only the first three; 29
    entries.

    Reward: $t(a)\,t(b)$ of the distance $a$ between the target and the nearest box
    (margin the width of a box), and the distance $b$ between target and hand, at least
    0.1 m (margin 0.01 m).

    Initial state: joints uniform in their ranges, the root of the arm in the circle,
    finger and thumb equally; the boxes uniform on one side; redrawn until nothing
    touches; at rest.

    The target is a link of the robot, `sys.links.pos`. The tasks place it in every
    episode: see `RandomTower`.

    **Arguments:**

    - `sys`: the robot; by default that of `stacker_model(2)`.
    - `pipeline`: the physics; by default `Generalized()`, which `touch` needs.
    - `frame_skip`: time steps per control step.
    - `fully_observable`: true to observe hand, boxes and target.
    - `clearance`: distance of the hand from the target for the full reward, m.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.stacker`.
    """

    sys: System = eqx.field(converter=of_model(stacker_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)
    fully_observable: bool = eqx.field(static=True, default=True)
    clearance: Float[Array, ""] = number(0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(_boxes_start, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        sys, boxes = self.sys, _boxes(self.sys)
        values = sensors(self.pipeline, sys, state, action)
        touch = jnp.concatenate([values[name] for name in sys.sensors.names])
        parts = arm_parts(sys, state, touch)
        if not self.fully_observable:
            return parts
        pose = lambda name: jnp.concatenate(planar_pose(sys, state.q, name))
        joints = [f"{box}_{axis}" for box in boxes for axis in "xyz"]
        return {
            **parts,
            "hand_pos": pose("hand"),
            "box_pos": jnp.stack([pose(box) for box in boxes]),
            "box_vel": joint_speeds(sys, state.qd, joints),
            "target_pos": forward(sys, state.q).pos[_box_target(sys), ::2],
        }

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys, poses = self.sys, site_poses(self.sys, state.q)
        at = lambda name: poses.pos[index(sys.sites.names, name, "site")]
        away = lambda name: distance(at(name) - at("target"))
        nearest = jnp.min(jnp.stack([away(box) for box in _boxes(sys)]))
        close = tolerance(nearest, margin=2.0 * _half_width(sys))
        return close * tolerance(away("grasp"), (self.clearance, jnp.inf), 0.01)


class RandomTower(AbstractRandomizer):
    """Randomization that places the target: x uniform from -0.37 m to 0.37 m, at the
    height of one of the boxes of a tower on the ground."""

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        pos, target = sys.links.pos, _box_target(sys)
        key_place, key_level = jr.split(key)
        x = jr.uniform(key_place, (), pos.dtype, -0.37, 0.37)
        level = jr.randint(key_level, (), 0, len(_boxes(sys))).astype(pos.dtype)
        z = _half_width(sys) * (2.0 * level + 1.0)
        pos = pos.at[target, 0].set(x).at[target, 2].set(z)
        return eqx.tree_at(lambda s: s.links.pos, sys, pos)


def _boxes(sys: System) -> list[str]:
    return [name for name in sys.links.names if name.startswith("box")]


def _box_target(sys: System) -> int:
    return index(sys.links.names, "target", "link")


def _half_width(sys: System) -> Float[Array, ""]:
    return sys.geoms.size[index(sys.geoms.names, "target", "shape"), 0]


def _boxes_start(key: PRNGKeyArray, sys: System):
    """Draw coordinates of arm and boxes."""
    key_arm, key_boxes = jr.split(key)
    q, boxes = random_arm(sys, key_arm), _boxes(sys)
    low, high = jnp.asarray([0.1, 0.0, 0.0]), jnp.asarray([0.3, 0.7, 2.0 * jnp.pi])
    places = jr.uniform(key_boxes, (len(boxes), 3), q.dtype, low[None], high[None])
    names = [f"{box}_{axis}" for box in boxes for axis in "xzy"]
    q = q.at[jnp.asarray(joint_places(sys, names))].set(places.ravel())
    return q, sys, q


stacker_stack_2, stacker_stack_4 = (
    preset(
        Stacker,
        f"Create `Stacker` with {count} boxes and a target placed at each reset.",
        ft.partial(stacker_model, count),
        draw=RandomTower,
    )
    for count in (2, 4)
)
