"""The joystick task on MuJoCo C: its definitions in NumPy, evaluated on `mjData`."""

from typing import Any

import mujoco
import numpy as np
from eqsim_playground._models import add_force_sensors, document


SCENE = "locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"
FEET = "FR", "FL", "RR", "RL"
WEIGHTS = {
    "tracking_lin_vel": 1.0,
    "tracking_ang_vel": 0.5,
    "lin_vel_z": -0.5,
    "ang_vel_xy": -0.05,
    "orientation": -5.0,
    "dof_pos_limits": -1.0,
    "pose": 0.5,
    "termination": -1.0,
    "stand_still": -1.0,
    "torques": -0.0002,
    "action_rate": -0.01,
    "energy": -0.001,
    "feet_clearance": -2.0,
    "feet_height": -0.2,
    "feet_slip": -0.1,
    "feet_air_time": 0.1,
}
DT, SUBSTEPS, SCALE, SIGMA, HEIGHT = 0.02, 5, 0.5, 0.25, 0.1


def converge(model: mujoco.MjModel) -> None:
    """Make MuJoCo solve each step as exactly as it can."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12


class Go1Reference:
    """The task with a converged solver, evaluated at the state after each step, without
    noise.

    **Arguments:**

    - `command`: command of the whole episode.
    """

    def __init__(self, command):
        text = document(SCENE, add_force_sensors)
        self.model = mujoco.MjModel.from_xml_string(text)
        converge(self.model)
        self.data = mujoco.MjData(self.model)
        self.home = self.model.keyframe("home").qpos.copy()
        self.command = np.asarray(command, float)

    def place(self, q, qd) -> dict[str, np.ndarray]:
        """Begin an episode; returns its observation."""
        self.data.qpos[:], self.data.qvel[:] = q, qd
        self.data.ctrl[:] = self.home[7:]
        self.data.qacc_warmstart[:] = 0.0
        mujoco.mj_forward(self.model, self.data)
        self.last, self.air = np.zeros(12), np.zeros(4)
        self.peak, self.touched = np.zeros(4), np.zeros(4, bool)
        return self.observe()

    def sensor(self, name: str) -> np.ndarray:
        """Return the values of a sensor."""
        return self.data.sensor(name).data.copy()

    def contacts(self) -> np.ndarray:
        """Test if each foot touches the floor, from the list of contacts."""
        pairs = {frozenset(contact.geom) for contact in self.data.contact}
        number = lambda name: self.model.geom(name).id
        return np.array(
            [frozenset((number(foot), number("floor"))) in pairs for foot in FEET]
        )

    def observe(self) -> dict[str, np.ndarray]:
        """Return both parts of the observation."""
        d, turn = self.data, self.data.site("imu").xmat.reshape(3, 3)
        gravity, angles = turn.T @ [0.0, 0.0, -1.0], d.qpos[7:] - self.home[7:]
        gyro, velocity = self.sensor("gyro"), self.sensor("local_linvel")
        base = [velocity, gyro, gravity, angles, d.qvel[6:], self.last, self.command]
        feet = [self.sensor(f"{foot}_global_linvel") for foot in FEET]
        more = [
            *(gyro, self.sensor("accelerometer"), gravity, velocity),
            *(self.sensor("global_angvel"), angles, d.qvel[6:], d.actuator_force),
            *(self.touched, *feet, self.air, np.zeros(3), np.zeros(1)),
        ]
        return {
            "state": np.concatenate(base),
            "privileged_state": np.concatenate([*base, *more]),
        }

    def step(self, action) -> tuple[dict[str, np.ndarray], dict[str, float], bool]:
        """Take one control step; return the observation, the weighted terms, and true
        if the robot fell."""
        self.data.ctrl[:] = self.home[7:] + SCALE * np.asarray(action)
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        mujoco.mj_forward(self.model, self.data)
        contact = self.contacts()
        landed = (self.air > 0.0) & (contact | self.touched)
        self.air = self.air + DT
        heights = np.array([self.data.site(foot).xpos[2] for foot in FEET])
        self.peak = np.maximum(self.peak, heights)
        obs, fallen = self.observe(), bool(self.sensor("upvector")[2] < 0.0)
        values = self.values(action, contact, landed, heights, fallen)
        terms = {name: WEIGHTS[name] * DT * x for name, x in values.items()}
        self.last, self.touched = np.array(action), contact
        self.air, self.peak = self.air * ~contact, self.peak * ~contact
        return obs, terms, fallen

    def values(self, action, contact, landed, heights, fallen) -> dict[str, Any]:
        """Return the terms before weights."""
        d, command, home = self.data, self.command, self.home[7:]
        q, force = d.qpos[7:], d.actuator_force
        feet = [self.sensor(f"{foot}_global_linvel")[:2] for foot in FEET]
        speed = np.linalg.norm(feet, axis=1)
        low, high = 0.95 * self.model.jnt_range[1:].T
        off, moving = q - home, np.linalg.norm(command) > 0.01
        errors = command - [*self.sensor("local_linvel")[:2], self.sensor("gyro")[2]]
        world = self.sensor("global_linvel"), self.sensor("global_angvel")
        return {
            "tracking_lin_vel": np.exp(-(errors[:2] @ errors[:2]) / SIGMA),
            "tracking_ang_vel": np.exp(-(errors[2] ** 2) / SIGMA),
            "lin_vel_z": world[0][2] ** 2,
            "ang_vel_xy": world[1][0] ** 2 + world[1][1] ** 2,
            "orientation": np.sum(self.sensor("upvector")[:2] ** 2),
            "dof_pos_limits": np.sum(np.clip(low - q, 0, None))
            + np.sum(np.clip(q - high, 0, None)),
            "pose": np.exp(-np.sum(off**2 * np.array([1.0, 1.0, 0.1] * 4))),
            "termination": float(fallen),
            "stand_still": np.sum(np.abs(off)) * (not moving),
            "torques": np.linalg.norm(force) + np.sum(np.abs(force)),
            "action_rate": np.sum((np.asarray(action) - self.last) ** 2),
            "energy": np.sum(np.abs(d.qvel[6:] * force)),
            "feet_clearance": np.sum(np.abs(heights - HEIGHT) * np.sqrt(speed)),
            "feet_height": moving * np.sum((self.peak / HEIGHT - 1) ** 2 * landed),
            "feet_slip": moving * np.sum(speed**2 * contact),
            "feet_air_time": moving * np.sum((self.air - 0.1) * landed),
        }
