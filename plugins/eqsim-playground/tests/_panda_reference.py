"""The task of the Panda on MuJoCo C: its definitions in NumPy, evaluated on `mjData`."""

import mujoco
import numpy as np
from _go1_reference import converge
from eqsim_playground._models import document, menagerie_file


SCENE = "manipulation/franka_emika_panda/xmls/mjx_single_cube.xml"
WEIGHTS = {
    "gripper_box": 4.0,
    "box_target": 8.0,
    "no_floor_collision": 0.25,
    "robot_target_qpos": 0.3,
}
SUBSTEPS, SCALE = 4, 0.04


class PandaReference:
    """The task with a converged solver, evaluated at the state after each step."""

    def __init__(self):
        find = lambda name: menagerie_file(f"franka_emika_panda/{name}")
        self.model = mujoco.MjModel.from_xml_string(document(SCENE, find=find))
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
        ctrl = np.clip(self.data.ctrl + SCALE * np.asarray(action), low, high)
        self.data.ctrl[:] = ctrl
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        mujoco.mj_forward(self.model, self.data)
        box = self.data.body("box").xpos
        near = np.linalg.norm(box - self.data.site("gripper").xpos) < 0.012
        self.reached = self.reached or bool(near)
        lost = bool(np.any(np.abs(box) > 1.0) or box[2] < 0.0)
        terms = {name: WEIGHTS[name] * x for name, x in self.values().items()}
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
