"""The double pendulum of the RealAI gym: parameters, a plant in NumPy, and its score.

Equations and parameters: double_pendulum, dfki-ric-underactuated-lab (BSD-3). `q[0]` is
the angle of the upper link from hanging down, `q[1]` that of the lower link relative to
it.
"""

import json
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


KINDS = {"acrobot": 1, "pendubot": 0}
"""Index of the joint that has a motor."""

DT, DURATION, TORQUE_LIMIT, HEIGHT = 0.002, 10.0, 6.0, 0.9
"""Time step of plant and controller (s), duration (s), torque limit (N m), and the
fraction of the full height that counts as upright."""


SCALES = np.array([20.0, 60.0, 20.0, 0.1, 400.0])
"""Scales of the five costs of the score."""


def recordings() -> pathlib.Path:
    """Return the folder with recordings, by the variable `EQSIM_RECORDINGS`."""
    return pathlib.Path(os.environ.get("EQSIM_RECORDINGS", "../shared/data"))


def parameters(model: str = "model_1.0", *, friction: bool = False) -> dict[str, float]:
    """Read the parameters of design C.1.

    **Arguments:**

    - `model`: name of the identification.
    - `friction`: true to keep friction and rotor inertia; the leaderboard sets them to
        zero.

    **Raises:** `FileNotFoundError` if there is no folder with recordings.
    """
    file = recordings() / "double_pendulum" / "parameters.json"
    if not file.exists():
        raise FileNotFoundError(
            f"{file} does not exist. Set EQSIM_RECORDINGS to the folder that holds "
            "`double_pendulum/parameters.json`."
        )
    found = dict(json.loads(file.read_text())["models"]["C.1"][model])
    if not friction:
        found |= dict.fromkeys(("b1", "b2", "cf1", "cf2", "Ir"), 0.0)
    return found


def acceleration(p: dict[str, float], q, qd, torque) -> tuple[float, float]:
    """Compute joint accelerations from the Lagrangian of two links."""
    m1, m2, l1, r1, r2, g = (p[k] for k in ("m1", "m2", "l1", "r1", "r2", "g"))
    couple = m2 * l1 * r2
    c, s = couple * math.cos(q[1]), couple * math.sin(q[1])
    rotor = p["gr"] ** 2 * p["Ir"]
    upper = p["I1"] + p["I2"] + m2 * l1**2 + 2.0 * c + rotor
    across, elbow = p["I2"] + c, p["I2"] + rotor
    lower = g * m2 * r2 * math.sin(q[0] + q[1])
    gravity = g * (m1 * r1 + m2 * l1) * math.sin(q[0]) + lower, lower
    coriolis = -s * (2.0 * qd[0] * qd[1] + qd[1] ** 2), s * qd[0] ** 2
    friction = [
        p[f"b{k + 1}"] * qd[k] + p[f"cf{k + 1}"] * math.atan(100.0 * qd[k])
        for k in range(2)
    ]
    first, second = (torque[k] - coriolis[k] - gravity[k] - friction[k] for k in (0, 1))
    size = upper * elbow - across**2
    return (
        (elbow * first - across * second) / size,
        (upper * second - across * first) / size,
    )


def step(p: dict[str, float], q, qd, torque, dt: float = DT):
    """Take one step of the classical Runge-Kutta method with the torque held."""

    def slope(x):
        return *x[2:], *acceleration(p, x[:2], x[2:], torque)

    def ahead(slope, size):
        return [value + size * rate for value, rate in zip(x, slope, strict=True)]

    x = [float(value) for value in (*q, *qd)]
    torque = [float(value) for value in torque]
    k1 = slope(x)
    k2 = slope(ahead(k1, 0.5 * dt))
    k3 = slope(ahead(k2, 0.5 * dt))
    k4 = slope(ahead(k3, dt))
    slopes = zip(k1, k2, k3, k4, strict=True)
    mean = [(a + 2.0 * b + 2.0 * c + d) / 6.0 for a, b, c, d in slopes]
    new = np.array(ahead(mean, dt))
    return new[:2], new[2:]


def within_half_turn(angle):
    """Return the same angles between -pi and pi."""
    return (angle + np.pi) % (2.0 * np.pi) - np.pi


def height(p: dict[str, float], q) -> np.ndarray:
    """Compute the height of the end of the lower link above the upper joint, m."""
    q = np.asarray(q)
    angle = q[..., 0] + q[..., 1]
    return -p["l1"] * np.cos(q[..., 0]) - p["l2"] * np.cos(angle)


class Run(NamedTuple):
    """A simulated run: one row per time step."""

    time: np.ndarray
    q: np.ndarray
    qd: np.ndarray
    torque: np.ndarray


def simulate(
    p: dict[str, float],
    kind: str,
    controller: Any,
    *,
    duration: float = DURATION,
    measure: Callable = lambda q, qd: (q, qd),
    pulses: Sequence[tuple[float, np.ndarray]] = (),
    delay: int = 0,
    advance: Callable | None = None,
) -> Run:
    """Simulate a controller from hanging at rest.

    **Arguments:**

    - `p`: parameters of the plant.
    - `kind`: `acrobot` or `pendubot`; the other motor gives no torque.
    - `controller`: `reset()` and `torque(time, q, qd) -> (2,)`.
    - `measure`: function of angles and velocities that returns the measured ones.
    - `pulses`: beginnings (s) and torques of pulses of 0.2 s on both joints, N m.
    - `delay`: time steps until a torque acts.
    - `advance`: one time step `(q, qd, torque) -> (q, qd)`; by default that of the plant
        in NumPy with the parameters `p`.
    """
    advance = advance or (lambda q, qd, torque: step(p, q, qd, torque))
    motor = np.zeros(2)
    motor[KINDS[kind]] = TORQUE_LIMIT
    q, qd = np.zeros(2), np.zeros(2)
    queue, rows = [np.zeros(2)] * delay, []
    controller.reset()
    for k in range(round(duration / DT)):
        time = k * DT
        queue.append(np.clip(controller.torque(time, *measure(q, qd)), -motor, motor))
        torque = queue.pop(0)
        rows.append((time, q, qd, torque))
        pushed = [push for begin, push in pulses if 0.0 <= time - begin < 0.2]
        q, qd = advance(q, qd, sum(pushed, torque))
    return Run(*map(np.array, zip(*rows, strict=True)))


def score(p: dict[str, float], run: Run) -> dict[str, float]:
    """Compute the score of the leaderboard and its five costs."""
    low = np.flatnonzero(height(p, run.q) < HEIGHT * (p["l1"] + p["l2"]))
    last = low[-1] if len(low) else -1
    costs = {
        "swing-up time": run.time[last] if last >= 0 else 0.0,
        "energy": np.sum(np.abs(np.diff(run.q, axis=0) * run.torque[:-1])),
        "torque cost": np.sum(run.torque**2) * DT,
        "smoothness": np.max(np.std(np.diff(run.torque, axis=0), axis=0)),
        "velocity cost": np.sum(run.qd**2) * DT,
    }
    shares = np.tanh(np.pi * np.array(list(costs.values())) / SCALES)
    upright = last < len(run.time) - 1
    total = float(upright) * (1.0 - np.mean(shares))
    return {"score": float(total)} | {k: float(v) for k, v in costs.items()}


def upright(p: dict[str, float], run: Run) -> np.ndarray:
    """Return true for time steps at which the end is above the threshold."""
    return height(p, run.q) >= HEIGHT * (p["l1"] + p["l2"])
