"""Tasks of the LEAP hand and the Panda on MuJoCo C: their definitions in NumPy."""

import mujoco
import numpy as np
from _published import converge
from eqsim_playground._leap import hide_goal, place_goal
from eqsim_playground._models import document, menagerie_file


SCENE = "manipulation/leap_hand/xmls/scene_mjx_cube.xml"
TIPS = "th_tip", "if_tip", "mf_tip", "rf_tip"
ROTATE = {"angvel": 1.0, "termination": -100.0}
ROTATE |= dict.fromkeys(("linvel", "pose", "torques", "energy", "action_rate"), 0.0)
REORIENT = {
    "orientation": 5.0,
    "position": 0.5,
    "termination": -100.0,
    "hand_pose": -0.5,
    "action_rate": -0.001,
    "joint_vel": 0.0,
    "energy": -0.001,
}
DT, SUBSTEPS = 0.05, 5


class LeapReference:
    """Either task with a converged solver, evaluated at the state after each step,
    without noise.

    **Arguments:**

    - `reorient`: true if the cube must be rotated to a goal.
    """

    def __init__(self, reorient: bool):
        text = document(SCENE, place_goal if reorient else hide_goal)
        self.model = mujoco.MjModel.from_xml_string(text)
        converge(self.model)
        self.data, self.reorient = mujoco.MjData(self.model), reorient
        self.weights = dict(REORIENT if reorient else ROTATE)
        self.home = self.model.keyframe("home").qpos[:16].copy()

    def place(self, q, qd, goal) -> np.ndarray:
        """Begin an episode; returns `privileged_state`."""
        d = self.data
        d.qpos[:], d.qvel[:], d.ctrl[:] = q, qd, q[:16]
        d.qacc_warmstart[:], d.mocap_quat[0] = 0.0, goal
        mujoco.mj_forward(self.model, d)
        self.last, self.before = np.zeros(16), np.zeros(16)
        return self.observe()

    def sensor(self, name: str) -> np.ndarray:
        """Return the values of a sensor."""
        return self.data.sensor(name).data.copy()

    def turn(self) -> np.ndarray:
        """Return the rotation from the goal to the cube, as a matrix."""
        cube = self.data.body("cube").xmat.reshape(3, 3)
        return cube @ self.data.body("goal").xmat.reshape(3, 3).T

    def observe(self) -> np.ndarray:
        """Return `privileged_state`, which starts with `state`."""
        d, offset = (
            self.data,
            self.sensor("palm_position") - self.sensor("cube_position"),
        )
        q, qd, rows = d.qpos[:16], d.qvel[:16], self.turn()[1:].ravel()
        tips = [self.sensor(f"{tip}_position") for tip in TIPS]
        rates = self.sensor("cube_angvel"), self.sensor("cube_linvel")
        if not self.reorient:
            more = [d.actuator_force, *tips, offset, self.sensor("cube_orientation")]
            return np.concatenate([q, self.last, q, qd, *more, *rates])
        state = [q, q - d.ctrl, offset, rows, self.last]
        more = [q, qd, *tips, offset, rows, *rates[::-1], np.zeros(12)]
        return np.concatenate([*state, *more])

    def step(self, action) -> tuple[np.ndarray, dict[str, float], bool]:
        """Take one control step with a constant goal; return observation, weighted
        terms, and termination."""
        d, action = self.data, np.asarray(action)
        if self.reorient:
            low, high = self.model.actuator_ctrlrange.T
            d.ctrl[:] = np.clip(d.ctrl + 0.5 * action, low, high)
        else:
            d.ctrl[:] = self.home + 0.6 * action
        mujoco.mj_step(self.model, d, SUBSTEPS)
        mujoco.mj_forward(self.model, d)
        obs, fallen = self.observe(), bool(self.sensor("cube_position")[2] < -0.05)
        values = self.reorient_values if self.reorient else self.rotate_values
        found = values(action, fallen)
        terms = {name: self.weights[name] * DT * x for name, x in found.items()}
        if self.reorient:
            terms["success"] = 100.0 * (self.angle() < 0.1)
        self.last, self.before = action, self.last
        return obs, terms, fallen

    def angle(self) -> float:
        """Return the angle between cube and goal, from the trace of the rotation."""
        return float(np.arccos(np.clip((np.trace(self.turn()) - 1) / 2, -1, 1)))

    def rotate_values(self, action, fallen) -> dict[str, float]:
        """Return the terms before weights."""
        d = self.data
        return {
            "angvel": self.sensor("cube_angvel")[2],
            "linvel": np.sum(np.abs(self.sensor("cube_linvel"))),
            "pose": np.sum((d.qpos[:16] - self.home) ** 2),
            "torques": np.sum(d.actuator_force**2),
            "energy": np.sum(np.abs(d.qvel[:16] * d.actuator_force)),
            "termination": float(fallen),
            "action_rate": np.sum((action - self.last) ** 2),
        }

    def reorient_values(self, action, fallen) -> dict[str, float]:
        """Return the terms before weights."""
        d, near = self.data, lambda x, b, m: float(np.clip(1 - 0.9 * (x - b) / m, 0, 1))
        away = self.sensor("palm_position") - self.sensor("cube_position")
        jerk = action - 2 * self.last + self.before
        return {
            "orientation": near(self.angle(), 0.2, np.pi),
            "position": near(np.linalg.norm(away), 0.02, 0.05),
            "termination": float(fallen),
            "hand_pose": np.sum((d.qpos[:16] - self.home) ** 2),
            "action_rate": np.sum((action - self.last) ** 2) + np.sum(jerk**2),
            "joint_vel": np.sum((d.qvel[:16] / 4.0) ** 2),
            "energy": np.sum(np.abs(d.qvel[:16] * d.actuator_force)),
        }


PANDA_SCENE = "manipulation/franka_emika_panda/xmls/mjx_single_cube.xml"
PANDA_WEIGHTS = {
    "gripper_box": 4.0,
    "box_target": 8.0,
    "no_floor_collision": 0.25,
    "robot_target_qpos": 0.3,
}
PANDA_SUBSTEPS, PANDA_SCALE = 4, 0.04


class PandaReference:
    """The task with a converged solver, evaluated at the state after each step."""

    def __init__(self):
        find = lambda name: menagerie_file(f"franka_emika_panda/{name}")
        self.model = mujoco.MjModel.from_xml_string(document(PANDA_SCENE, find=find))
        converge(self.model)
        self.data = mujoco.MjData(self.model)
        self.home = self.model.keyframe("home")

    def place(self, q, target, quat, ctrl=None, reached: bool = False) -> np.ndarray:
        """Begin an episode; returns its observation."""
        self.data.qpos[:], self.data.qvel[:] = q, 0.0
        self.data.qacc_warmstart[:] = 0.0
        self.data.ctrl[:] = self.home.ctrl if ctrl is None else ctrl
        self.data.mocap_pos[0], self.data.mocap_quat[0] = target, quat
        self.reached = reached
        mujoco.mj_forward(self.model, self.data)
        return self.observe()

    def step(self, action) -> tuple[np.ndarray, dict[str, float], bool]:
        """Take one control step; return observation, weighted terms, and true if the
        box is lost."""
        low, high = self.model.actuator_ctrlrange.T
        ctrl = np.clip(self.data.ctrl + PANDA_SCALE * np.asarray(action), low, high)
        self.data.ctrl[:] = ctrl
        mujoco.mj_step(self.model, self.data, PANDA_SUBSTEPS)
        mujoco.mj_forward(self.model, self.data)
        box = self.data.body("box").xpos
        near = np.linalg.norm(box - self.data.site("gripper").xpos) < 0.012
        self.reached = self.reached or bool(near)
        lost = bool(np.any(np.abs(box) > 1.0) or box[2] < 0.0)
        terms = {name: PANDA_WEIGHTS[name] * x for name, x in self.values().items()}
        return self.observe(), terms, lost

    def observe(self) -> np.ndarray:
        """Return the observation."""
        d = self.data
        box, goal, hand = d.body("box"), d.body("mocap_target"), d.site("gripper")
        return np.concatenate(
            [
                *(d.qpos, d.qvel, hand.xpos, hand.xmat[3:], box.xmat[3:]),
                *(box.xpos - hand.xpos, goal.xpos - box.xpos),
                *(goal.xmat[:6] - box.xmat[:6], d.ctrl - d.qpos[:8]),
            ]
        )

    def values(self) -> dict[str, float]:
        """Return the terms before weights."""
        d, norm = self.data, np.linalg.norm
        box, goal, hand = d.body("box"), d.body("mocap_target"), d.site("gripper")
        turn = norm(goal.xmat[:6] - box.xmat[:6])
        near = 1.0 - np.tanh(5.0 * (0.9 * norm(goal.xpos - box.xpos) + 0.1 * turn))
        bend = norm(d.qpos[:7] - self.home.qpos[:7])
        return {
            "gripper_box": 1.0 - np.tanh(5.0 * norm(box.xpos - hand.xpos)),
            "box_target": near * self.reached,
            "no_floor_collision": float(not self.touches_floor()),
            "robot_target_qpos": 1.0 - np.tanh(bend),
        }

    def touches_floor(self) -> bool:
        """Test if a finger or the hand touches the floor, from the list of contacts."""
        number = lambda name: self.model.geom(name).id
        parts = {number(f"{side}_finger_pad") for side in ("left", "right")}
        parts, floor = parts | {number("hand_capsule")}, number("floor")
        pairs = [set(contact.geom) for contact in self.data.contact]
        return any(floor in pair and pair & parts for pair in pairs)
