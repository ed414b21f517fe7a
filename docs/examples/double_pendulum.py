"""The double pendulum of the RealAI gym: parameters, a plant in NumPy, its score, and MJCF.

`double_pendulum_swing_up.py` and `double_pendulum_knock_downs.py` control it. The plant is
separate code in NumPy, so that nothing of eqsim is in the judgment.

Equations, parameters and score: github.com/dfki-ric-underactuated-lab/double_pendulum
(BSD-3). `q[0]` is the angle of the upper link from hanging down, `q[1]` that of the lower
link relative to it.
"""

import math
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
_NAMES = ("m1", "r1", "I1", "b1", "cf1", "m2", "r2", "I2", "b2", "cf2", "Ir")
MODELS = {
    "model_1.0": (
        *(0.5234602302310271, 0.2, 0.031887199591513114, 0.001, 0.16),
        *(0.6255677234174437, 0.25569305436052964, 0.05086984812807257, 0.001, 0.12),
        6.287203962819607e-05,
    ),
    "model_2.0": (
        *(0.7586436245588385, 0.2, 0.042111626356002546),
        *(0.003690870343196907, 0.17467189894350432),
        *(0.33693688400430855, 0.4684380078598044, 0.0510352807011669),
        *(0.0006450852127932183, 0.10999997753612206, 6.287203962819607e-05),
    ),
    "model_3.0": (
        *(0.874595478947918, 0.2, 0.03571133360368982),
        *(0.049378979942464735, 0.03314955511059797),
        *(0.22041458616752638, 0.3267491550003389, 0.010000000000000002),
        *(0.020040916031588852, 0.03521137546780113, 5.1336718481407864e-05),
    ),
}
"""Identified masses (kg), centers of mass (m), inertias about the joints (kg m^2), friction
and rotor inertia of design C.1."""
Parameters = dict[str, float]


def parameters(model: str = "model_1.0", *, friction: bool = False) -> Parameters:
    """Return the parameters of a model; the leaderboard uses model_1.0 without friction
    and rotor inertia."""
    found = dict(zip(_NAMES, MODELS[model], strict=True))
    if not friction:
        found |= dict.fromkeys(("b1", "b2", "cf1", "cf2", "Ir"), 0.0)
    return found | {"l1": 0.2, "l2": 0.3, "g": 9.81, "gr": 6.0}


# The plant, and its score.


def acceleration(p: Parameters, q, qd, torque) -> tuple[float, float]:
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


def step(p: Parameters, q, qd, torque, dt: float = DT):
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


def height(p: Parameters, q) -> np.ndarray:
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
    p: Parameters,
    kind: str,
    controller: Any,
    *,
    duration: float = DURATION,
    measure: Callable = lambda q, qd: (q, qd),
    pulses: Sequence[tuple[float, np.ndarray]] = (),
    delay: int = 0,
) -> Run:
    """Simulate a controller from hanging at rest.

    **Arguments:**

    - `p`: parameters of the plant.
    - `kind`: `acrobot` or `pendubot`; the other motor gives no torque.
    - `controller`: `reset()` and `torque(time, q, qd) -> (2,)`.
    - `measure`: function of angles and velocities that returns the measured ones.
    - `pulses`: beginnings (s) and torques of pulses of 0.2 s on both joints, N m.
    - `delay`: time steps until a torque acts.
    """
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
        q, qd = step(p, q, qd, sum(pushed, torque))
    return Run(*map(np.array, zip(*rows, strict=True)))


def score(p: Parameters, run: Run) -> dict[str, float]:
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


def upright(p: Parameters, run: Run) -> np.ndarray:
    """Return true for time steps at which the end is above the threshold."""
    return height(p, run.q) >= HEIGHT * (p["l1"] + p["l2"])


# The robot as MJCF.


def mjcf(
    p: Parameters,
    kind: str,
    dt: float,
    *,
    rate: bool = False,
    dry: bool = True,
) -> str:
    """Write the robot with one motor.

    Dry friction is that of the plant at high speed, `pi / 2 * cf`.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `dt`: time step, s.
    - `rate`: true to make the torque a state, and its rate the control.
    - `dry`: false to leave out dry friction, for feedback gains.
    """
    p = realizable(p)
    links, joints = [], []
    for k in "12":
        m, r = p[f"m{k}"], p[f"r{k}"]
        about_center = p[f"I{k}"] - m * r**2
        links.append(
            f'<inertial pos="0 0 {-r}" mass="{m}" '
            f'diaginertia="{about_center} {about_center} 1e-5"/>'
        )
        loss = 0.5 * math.pi * p[f"cf{k}"] if dry else 0.0
        joints.append(
            f'axis="0 -1 0" damping="{p[f"b{k}"]}" frictionloss="{loss}" '
            f'armature="{p["gr"] ** 2 * p["Ir"]}"'
        )
    joint = ("shoulder", "elbow")[KINDS[kind]]
    motor = f'<motor joint="{joint}" ctrlrange="{-TORQUE_LIMIT} {TORQUE_LIMIT}"/>'
    if rate:
        motor = f'<general joint="{joint}" dyntype="integrator"/>'
    return f"""
<mujoco>
  <option timestep="{dt}" integrator="RK4" gravity="0 0 {-p["g"]}"/>
  <worldbody>
    <body><joint name="shoulder" {joints[0]}/>{links[0]}
      <body pos="0 0 {-p["l1"]}"><joint name="elbow" {joints[1]}/>{links[1]}</body>
    </body>
  </worldbody>
  <actuator>{motor}</actuator>
</mujoco>"""


def realizable(p: Parameters) -> Parameters:
    """Return masses and centers of mass with the same equations of motion, such that no
    link has a negative inertia about its center.

    The motion depends only on `I1 + m2 l1^2`, `I2`, `m2 r2` and `m1 r1 + m2 l1`. The
    lower mass is increased until both links are realizable.

    **Raises:** `ValueError` if no lower mass makes them so.
    """
    inertia, moment = p["I1"] + p["m2"] * p["l1"] ** 2, p["m2"] * p["r2"]
    weight = p["m1"] * p["r1"] + p["m2"] * p["l1"]
    m2 = max(p["m2"], 1.001 * moment**2 / p["I2"])
    I1, moment1 = inertia - m2 * p["l1"] ** 2, weight - m2 * p["l1"]
    m1 = max(p["m1"], 1.001 * moment1**2 / I1) if I1 > 0.0 else 0.0
    if m1 == 0.0:
        raise ValueError(
            f"No masses have the equations of motion of {p}: the inertia of the upper "
            f"link would be {I1:.3g}. Check I1, I2, m2, r2 and l1."
        )
    found = {"m2": m2, "r2": moment / m2, "I1": I1, "m1": m1, "r1": moment1 / m1}
    return p | found
