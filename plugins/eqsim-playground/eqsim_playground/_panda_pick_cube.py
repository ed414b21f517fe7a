"""A Panda that brings a box to a target."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward, site_poses
from eqsim.spatial import clamp, quaternion_matrix, safe_sqrt

from ._models import edited_model, menagerie_file
from ._task import (
    AbstractPlaygroundTask,
    between,
    hold,
    index,
    number,
    Observation,
    of_model,
    physics,
    weight_names,
    weighted,
    with_sensors,
)


_ARM = tuple(f"joint{k}" for k in range(1, 8))
_SERVOS = *_ARM, "finger_joint1"
_FLOOR_SENSORS = tuple(
    f"{shape}_floor_found"
    for shape in ("left_finger_pad", "right_finger_pad", "hand_capsule")
)


def panda_model() -> System:
    """Return the Panda, the box and the target of Playground's `mjx_single_cube.xml`.

    The file of the arm, `franka_emika_panda/mjx_panda.xml`, is that of MuJoCo Menagerie.

    **Raises:** `FileNotFoundError`, with advice on how to get Menagerie, if it is not
    available.
    """
    scene = "manipulation/franka_emika_panda/xmls/mjx_single_cube.xml"
    return edited_model(scene, find=_panda_file)


def _panda_file(name: str):
    return menagerie_file(f"franka_emika_panda/{name}")


class PickWeights(eqx.Module):
    r"""Weights of the terms of the reward of `PandaPickCube`.

    With the positions $b$ of the box, $g$ of the gripper and $t$ of the target, m, the
    first two rows $B$, $T$ of the orientations of box and target, angles $q$ of the arm
    and those of `home`, $q_0$:

    - `gripper_box`: $1 - \tanh(5 |b - g|)$
    - `box_target`: $1 - \tanh(5 (0.9 |t - b| + 0.1 |T - B|))$ once the gripper has reached
        the box, else 0
    - `no_floor_collision`: 1 unless a finger or the hand touches the floor
    - `robot_target_qpos`: $1 - \tanh|q - q_0|$
    """

    gripper_box: Float[Array, ""] = number(4.0)
    box_target: Float[Array, ""] = number(8.0)
    no_floor_collision: Float[Array, ""] = number(0.25)
    robot_target_qpos: Float[Array, ""] = number(0.3)


class PickState(eqx.Module):
    """The state of `PandaPickCube`.

    **Arguments:**

    - `robot`: the state of arm and box.
    - `ctrl`: servo targets, rad, and m for the fingers.
    - `target`: position of the target, m.
    - `target_quat`: orientation of the target.
    - `reached`: true if the gripper has reached the box in this episode.
    """

    robot: State
    ctrl: Float[Array, " nu"]
    target: Float[Array, "3"]
    target_quat: Float[Array, "4"]
    reached: Bool[Array, ""]


class PandaPickCube(AbstractPlaygroundTask):
    r"""A Panda that brings a box to a target (Playground: `PandaPickCube`).

    Observation, 66 entries: coordinates and velocities of arm, fingers and box;
    position of the gripper and the last two rows of its orientation; the last two rows
    of the orientation of the box; the vectors from gripper to box and from box to
    target; the first two rows of the orientation of the target minus those of the box;
    and servo targets minus the coordinates of their joints.

    Reward: the weighted sum of the terms of `PickWeights`.

    Action: a change of the servo targets, $s\,a$; targets stay in their range.

    Initial state: `home`; the box up to 0.2 m from its position there in x and y, the
    target in the same square, 0.2 m to 0.4 m above it. The episode terminates if the
    box is farther than 1 m from the base in one direction, or its center is below the
    floor.

    **Arguments:**

    - `sys`: the robot; by default that of `panda_model()`.
    - `pipeline`: the physics; must be `Generalized`, the default.
    - `frame_skip`: time steps per control step.
    - `sample_orientation`: true to rotate the target about a random axis.
    - `action_scale`: scale $s$ of actions, rad, and m for the fingers.
    - `weights`: weights of the reward.
    - `box_spread`: largest distance of box and target from the position of the box in
        `home`, in x and y, m.
    - `target_height`: range of the height of the target above that position, m.
    - `target_angle`: range of the angle of the target with `sample_orientation`, rad.
    - `reach`: distance of gripper and box at which the box is reached, m.

    ??? cite "Reference"
        Zakka et al., *MuJoCo Playground*, 2025. `PandaPickCube`.
    """

    sys: System = eqx.field(converter=of_model(panda_model), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    sample_orientation: bool = eqx.field(static=True, default=False)
    action_scale: Float[Array, ""] = number(0.04)
    weights: PickWeights = eqx.field(default_factory=PickWeights)
    box_spread: Float[Array, ""] = number(0.2)
    target_height: Float[Array, "2"] = number((0.2, 0.4))
    target_angle: Float[Array, "2"] = number((0.0, 0.7853981633974483))
    reach: Float[Array, ""] = number(0.012)

    @property
    def term_names(self) -> tuple[str, ...]:
        """The names of the weights that are not None."""
        return weight_names(self.weights)

    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""
        q, box = self.sys.keyframe("home").q, self._box_start
        move = self.box_spread * jr.uniform(key, (2,), q.dtype, -1.0, 1.0)
        return q.at[box : box + 2].add(move), jnp.zeros(self.sys.nv, q.dtype)

    def begin(self, key: PRNGKeyArray, robot: State) -> tuple[PickState, Observation]:
        """Start an episode in a state of the robot."""
        key_move, key_height, key_turn = jr.split(key, 3)
        home, box = self.sys.keyframe("home"), self._box_start
        move = self.box_spread * jr.uniform(key_move, (2,), home.q.dtype, -1.0, 1.0)
        height = between(key_height, self.target_height)
        target = home.q[box : box + 3] + jnp.concatenate([move, height[None]])
        quat = jnp.asarray([1.0, 0.0, 0.0, 0.0], home.q.dtype)
        if self.sample_orientation:
            quat = self._turned(key_turn)
        state = PickState(robot, home.ctrl, target, quat, jnp.zeros((), bool))
        return state, self._observe(state)

    def advance(
        self, state: PickState, action: Float[Array, " nu"]
    ) -> tuple[PickState, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]]:
        """Take one control step."""
        low, high = self.sys.actuators.ctrl_range.T
        ctrl = clamp(state.ctrl + self.action_scale * action, low, high)
        robot = hold(self, state.robot, ctrl)
        box, gripper = self._box(robot)[0], self._gripper(robot)[0]
        away = safe_sqrt(jnp.sum((box - gripper) ** 2))
        reached = state.reached | (away < self.reach)
        new = PickState(robot, ctrl, state.target, state.target_quat, reached)
        lost = jnp.any(jnp.abs(box) > 1.0) | (box[2] < 0.0)
        return new, self._observe(new), self._rewards(new, away), lost

    @property
    def _box_start(self) -> int:
        """Return the start index of the coordinates of the box in `q`."""
        joints, link = self.sys.joints, index(self.sys.links.names, "box", "link")
        if link not in joints.links:
            raise ValueError(
                "The link 'box' must have a free joint, but it has no joint."
            )
        return joints.q_starts[joints.links.index(link)]

    def _box(self, robot: State) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
        """Return position and orientation of the box."""
        link = index(self.sys.links.names, "box", "link")
        poses = forward(self.sys, robot.q)
        return poses.pos[link], poses.rot[link]

    def _gripper(self, robot: State) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
        """Return position and orientation of the gripper."""
        site = index(self.sys.sites.names, "gripper", "site")
        poses = site_poses(self.sys, robot.q)
        return poses.pos[site], poses.rot[site]

    def _coordinates(
        self, robot: State, names: tuple[str, ...]
    ) -> Float[Array, " number"]:
        joints = self.sys.joints
        places = [joints.q_starts[index(joints.names, n, "joint")] for n in names]
        return robot.q[jnp.asarray(places)]

    def _turned(self, key: PRNGKeyArray) -> Float[Array, "4"]:
        """Draw a rotation about a random axis."""
        key_axis, key_angle = jr.split(key)
        half = 0.5 * between(key_angle, self.target_angle)
        axis = jr.uniform(key_axis, (3,), half.dtype, -1.0, 1.0)
        axis = axis / safe_sqrt(jnp.sum(axis**2))
        return jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * axis])

    def _observe(self, state: PickState) -> Observation:
        robot, target = state.robot, _matrix(state.target_quat)
        (box, box_rot), (gripper, gripper_rot) = self._box(robot), self._gripper(robot)
        parts = [
            *(robot.q, robot.qd, gripper, gripper_rot[1:], box_rot[1:]),
            *(box - gripper, state.target - box, target[:2] - box_rot[:2]),
            state.ctrl - self._coordinates(robot, _SERVOS),
        ]
        return jnp.concatenate([jnp.ravel(x) for x in parts])

    def _rewards(
        self, state: PickState, away: Float[Array, ""]
    ) -> dict[str, Float[Array, ""]]:
        robot, names = state.robot, self.sys.sensors.names
        box, rot = self._box(robot)
        size = lambda x: safe_sqrt(jnp.sum(x**2))
        turn = _matrix(state.target_quat)[:2] - rot[:2]
        off = 0.9 * size(state.target - box) + 0.1 * size(turn)
        near = 1.0 - jnp.tanh(5.0 * off)
        home = State(self.sys.keyframe("home").q, robot.qd, robot.act)
        bend = self._coordinates(robot, _ARM) - self._coordinates(home, _ARM)
        pipeline = with_sensors(self.pipeline)
        values = pipeline.sensors(self.sys, robot, state.ctrl)
        found = [values[names[index(names, n, "sensor")]] for n in _FLOOR_SENSORS]
        touches = jnp.any(jnp.concatenate(found) > 0.0)
        terms = {
            "gripper_box": 1.0 - jnp.tanh(5.0 * away),
            "box_target": jnp.where(state.reached, near, 0.0),
            "no_floor_collision": jnp.where(touches, 0.0, 1.0).astype(near.dtype),
            "robot_target_qpos": 1.0 - jnp.tanh(size(bend)),
        }
        return weighted(self.weights, terms, 1.0)


def _matrix(quat: Float[Array, "4"]) -> Float[Array, "3 3"]:
    return jnp.stack(quaternion_matrix(quat)).reshape(3, 3)


panda_pick_cube = PandaPickCube


def panda_pick_cube_orientation(**options: Any) -> PandaPickCube:
    """Create `PandaPickCube` with a rotated target. **Arguments:** its options."""
    return PandaPickCube(sample_orientation=True, **options)
