"""Control of the double pendulum along a planned swing-up."""

from typing import NamedTuple

import numpy as np
from _double_pendulum import DT, KINDS, TORQUE_LIMIT, within_half_turn


class Nominal(NamedTuple):
    """A swing-up at the time step of the plant, with feedback gains.

    - `states`: rows of angles, velocities and torque.
    - `rates`: changes of torque, N m/s.
    - `gains`: feedback of the difference from the states.
    - `goal`, `hold`: the upright state at the end, and the gain there.
    """

    states: np.ndarray
    rates: np.ndarray
    gains: np.ndarray
    goal: np.ndarray
    hold: np.ndarray


class DoublePendulumController:
    """Swing-up and balance: a plan of iterative LQR with time-varying LQR along it.

    Its torque is a state of the plan, so that feedback changes the rate of it.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `nominal`: the swing-up.
    """

    def __init__(self, kind: str, nominal: Nominal):
        self.kind, self.joint, self.nominal = kind, KINDS[kind], nominal
        self.reset()

    def reset(self) -> None:
        """Begin a run."""
        self._torque, self._begin, self._braking = 0.0, 0.0, False

    def torque(self, time: float, q, qd) -> np.ndarray:
        """Compute both torques, N m; that of the joint without motor is zero.

        Far from the plan, it brakes until the links hang at rest, and starts again.
        """
        k, now = round((time - self._begin) / DT), self.nominal
        last = len(now.rates)
        state = now.states[k] if k < last else now.goal
        if not self._braking and np.max(np.abs(_near(q, state[:2]) - state[:2])) > 1.0:
            self._braking = True
        if self._braking:
            if self._hangs(q, qd):
                self._braking, self._begin, k = False, time, 0
                self._torque, state = 0.0, now.states[0]
            else:
                return self._motor(self._brake(q, qd))
        x = np.concatenate([_near(q, state[:2]), qd, [self._torque]])
        gain = now.gains[k] if k < last else now.hold
        rate = gain @ (x - state) + (now.rates[k] if k < last else 0.0)
        middle = self._torque + 0.5 * DT * rate[0]
        torque = self._torque + DT * rate[0]
        self._torque = float(np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT))
        return self._motor(middle)

    def _motor(self, torque: float) -> np.ndarray:
        out = np.zeros(2)
        out[self.joint] = np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)
        return out

    def _hangs(self, q, qd) -> bool:
        away = np.abs(_near(q, np.zeros(2)))
        return bool(np.max(away) < 0.12 and np.max(np.abs(qd)) < 0.8)

    def _brake(self, q, qd) -> float:
        """Take energy out, by a linear feedback to the hanging pose."""
        x = np.concatenate([_near(q, np.zeros(2)), qd])
        return float(np.dot(BRAKE[self.kind], x))


BRAKE = {"acrobot": (0.0, -2.0, 0.0, -0.25), "pendubot": (0.74, 0.88, -0.37, 0.17)}
"""Gains of the brake by angles and velocities: a spring and a damper at the elbow; the
LQR of the hanging pose with weights 1, 1, 0.3, 0.3 and 3 (torque)."""


def _near(q, to) -> np.ndarray:
    """Return the same angles, turned to within half a turn of others."""
    return to + within_half_turn(np.asarray(q) - to)
