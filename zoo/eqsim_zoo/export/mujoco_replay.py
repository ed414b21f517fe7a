"""Replay a policy in MuJoCo C, and measure how it does."""

import os
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsim.envs import ObservationPart
from eqsim.io.mjcf.mujoco_names import engine
from eqsim.render import write_gif
from eqsim.render.drawing import context

from ._onnx_runner import OnnxPolicy
from .mujoco_robot import MujocoRobot, NOISE, PUSH_PERIOD, PUSH_SECONDS, Servo


SETTLING = 1.0
"""Time after a start in which tracking errors are not measured, s."""

_FRAMES_PER_SECOND, _SIZE = 25.0, (480, 360)


class Replay(NamedTuple):
    """How a policy did in MuJoCo.

    Tracking errors compare the velocity of the IMU, in its axes, with the command in each
    control step, except in the first second after a start; NaN if there is no such step, or
    the policy observes no command.

    **Arguments:**

    - `seconds`: simulated time, s.
    - `velocity_error`, `largest_velocity_error`: mean and maximum of the difference of
        horizontal velocities, m/s.
    - `yaw_error`, `largest_yaw_error`: mean and maximum of the difference of yaw rates,
        rad/s.
    - `falls`: number of falls, after each of which the robot starts again.
    - `saturation`: share of joints and physics steps with the largest torque.
    - `power`: mean of the sum of absolute mechanical powers of the joints, W.
    """

    seconds: float
    velocity_error: float
    largest_velocity_error: float
    yaw_error: float
    largest_yaw_error: float
    falls: int
    saturation: float
    power: float


def replay(
    policy: str | os.PathLike | OnnxPolicy,
    model: str | os.PathLike,
    *,
    command: Sequence[float | int] = (0.5, 0.0, 0.0),
    seconds: float | int = 20.0,
    latency: float | int = 0.0,
    noise: float | int = 0.0,
    push: float | int = 0.0,
    gait: float | int = 0.0,
    servo: Servo = "policy",
    seed: int = 0,
    video: str | os.PathLike | None = None,
) -> Replay:
    """Run a policy in MuJoCo C on the scene of a robot.

    The observation is built from MuJoCo's data as the deployment in the file says. Extra:
    `export`.

    **Arguments:**

    - `policy`: ONNX file that `export_policy` wrote.
    - `model`: MJCF file of the scene.
    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `seconds`: duration, s.
    - `latency`: time from an observation to the new targets of the servos, s.
    - `noise`: level of uniform noise on observations; 1: half widths of 0.1 m/s, 0.2 rad/s
        (angular velocity), 0.05 (gravity), 0.01 rad and 1.5 rad/s (joints).
    - `push`: horizontal force on the root in random directions, 0.2 s every 5 s, N.
    - `gait`: frequency of gait phases, Hz, if the policy observes them.
    - `servo`: gains of the servos: those of the `policy`, or of the `model`, see
        `MujocoRobot`.
    - `seed`: random seed of noise and pushes.
    - `video`: name of a GIF file to write.

    **Raises:** `ValueError` if the policy has no deployment, or does not fit the model;
    `FileNotFoundError`, `ImportError`, `eqsim.render.NoOpenGL`.
    """
    options = {"latency": latency, "noise": noise, "push": push, "gait": gait}
    for name, value in options.items():
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"`{name}` must be finite and at least 0, got {value}.")
    if not (np.isfinite(seconds) and seconds > 0.0):
        raise ValueError(f"`seconds` must be positive, got {seconds}.")
    if len(command) != 3 or not np.all(np.isfinite(command)):
        raise ValueError(f"`command` must be three finite numbers, got {command}.")
    runner = policy if isinstance(policy, OnnxPolicy) else OnnxPolicy(policy)
    about = runner.metadata
    if about.deployment is None:
        raise ValueError(
            f"The policy ({about.agent} on {about.env}) cannot be replayed: {about.reason}"
        )
    robot = MujocoRobot(model, about.deployment, servo, gait)
    disturbances = _Disturbances(np.random.default_rng(seed), noise, push)
    frames = _Frames(robot) if video is not None else None
    found = _run(robot, runner, command, seconds, latency, disturbances, frames)
    if frames is not None and video is not None:
        write_gif(video, np.stack(frames.images), 1.0 / _FRAMES_PER_SECOND)
    return found


class _Disturbances:
    """Noise on observations, and pushes."""

    def __init__(self, rng: np.random.Generator, noise: float | int, push: float):
        self._rng, self._noise, self._push = rng, noise, push
        self._force = np.zeros(3)

    def noise(self, part: ObservationPart) -> Any:
        """Return the noise of a part of an observation."""
        width = self._noise * NOISE.get(part.name, 0.0)
        return self._rng.uniform(-width, width, part.size)

    def force(self, time: float, step: float) -> np.ndarray:
        """Return the force on the root at a time, N."""
        since = time % PUSH_PERIOD
        if not self._push or time < PUSH_PERIOD or since >= PUSH_SECONDS:
            return np.zeros(3)
        if since < step:
            angle = self._rng.uniform(0.0, 2.0 * np.pi)
            self._force = self._push * np.array([np.cos(angle), np.sin(angle), 0.0])
        return self._force


def _run(
    robot: MujocoRobot,
    runner: OnnxPolicy,
    command: Sequence[float | int],
    seconds: float | int,
    latency: float | int,
    disturbances: _Disturbances,
    frames: "_Frames | None",
) -> Replay:
    deployment, step = robot.deployment, robot.model.opt.timestep
    pose, scale = (
        np.asarray(deployment.default_pose),
        np.asarray(deployment.action_scale),
    )
    number = max(1, round(seconds / deployment.period))
    delay = round(latency / step)
    observes = any(part.name == "command" for part in deployment.observation)
    errors, saturated, power = [], [], []
    falls, tick, begun = 0, 0, 0
    runner.reset()
    action, pending = np.zeros(len(pose)), deque[tuple[int, np.ndarray]]()
    for _ in range(number):
        obs = robot.observe(command, action, disturbances.noise)
        action = np.asarray(runner.act(obs), float)
        pending.append((tick + delay, pose + scale * action))
        for _ in range(robot.substeps):
            while pending and pending[0][0] <= tick:
                robot.drive(pending.popleft()[1])
            robot.step(disturbances.force(tick * step, step))
            torques = robot.torques()
            saturated.append(np.mean(np.abs(torques) >= 0.999 * robot.torque_limit))
            power.append(np.sum(np.abs(torques * robot.joint_velocities())))
            tick += 1
        robot.update()
        if frames is not None:
            frames.add(tick * step)
        if robot.fallen():
            falls, begun = falls + 1, tick
            robot.reset()
            runner.reset()
            action = np.zeros(len(pose))
            pending.clear()
        elif observes and (tick - begun) * step > SETTLING:
            angular, linear = np.split(robot.velocity(), 2)
            gap = np.hypot(linear[0] - command[0], linear[1] - command[1])
            errors.append((gap, abs(angular[2] - command[2])))
    table = np.asarray(errors) if errors else np.full((1, 2), np.nan)
    mean, largest = table.mean(axis=0), table.max(axis=0)
    tracking = float(mean[0]), float(largest[0]), float(mean[1]), float(largest[1])
    shares = float(np.mean(saturated)), float(np.mean(power))
    return Replay(number * deployment.period, *tracking, falls, *shares)


class _Frames:
    """Images of a robot, by a camera that follows its root."""

    def __init__(self, robot: MujocoRobot):
        self.images: list[np.ndarray] = []
        self._robot, self._context = robot, context()
        mujoco = engine()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        self._camera.trackbodyid = int(robot.root)
        self._camera.distance = 3.0 * robot.model.stat.extent
        self._camera.azimuth, self._camera.elevation = 120.0, -20.0
        with self._context.as_current():
            self._scene = mujoco.MjvScene(robot.model, 2000)
            self._target = mujoco.MjrContext(robot.model, 100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._target)

    def add(self, time: float) -> None:
        """Draw an image if it is time for one."""
        if len(self.images) >= time * _FRAMES_PER_SECOND - 1e-6:
            return
        robot, mujoco = self._robot, engine()
        options = mujoco.MjvOption()
        image = np.empty((_SIZE[1], _SIZE[0], 3), np.uint8)
        area = mujoco.MjrRect(0, 0, *_SIZE)
        every = mujoco.mjtCatBit.mjCAT_ALL
        with self._context.as_current():
            mujoco.mjv_updateScene(
                robot.model, robot.data, options, None, self._camera, every, self._scene
            )
            mujoco.mjr_render(area, self._scene, self._target)
            mujoco.mjr_readPixels(image, None, area, self._target)
        self.images.append(image[::-1])
