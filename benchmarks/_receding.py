"""Swing-up of the double pendulum by planning anew along a plan, with latency."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from _double_pendulum import DT, KINDS, TORQUE_LIMIT, within_half_turn
from _double_pendulum_mjcf import mjcf
from _swing_up import PIPELINE
from _tracking import Nominal
from jaxtyping import Array, Float

import eqsim
from eqsim import control


EVERY, HORIZON = 5, 40
"""Time steps of the plant per control step, and control steps of a plan."""

STATE = np.array([20.0, 20.0, 1.0, 1.0, 0.02])
RATE, LAST = 2e-4, 100.0
"""Weights of states and of the rate of the torque, and the factor of the last state."""


class Tracking(control.AbstractTrajectoryCost):
    """Distance to a state of a plan at the end, and the rate of the torque.

    - `target`: angles, velocities and torque at the end of the horizon.
    """

    target: Float[Array, "5"]

    def stage(self, sys, state, action):
        excess = jnp.abs(state.act) - 0.95 * TORQUE_LIMIT
        return jnp.concatenate(
            [jnp.sqrt(RATE) * action, 3.0 * jnp.maximum(excess, 0.0)]
        )

    def terminal(self, sys, state):
        x = jnp.concatenate([state.q, state.qd, state.act])
        return jnp.sqrt(LAST * jnp.asarray(STATE)) * (x - self.target)


@eqx.filter_jit
def _plan(sys: eqsim.System, target, x, guess) -> tuple[Array, Array]:
    problem = control.ControlProblem((PIPELINE, sys), Tracking(target), HORIZON)
    state = eqsim.State(x[:2], x[2:4], x[4:])
    plan = control.ILQR(max_steps=1).solve(problem, state, guess)
    return plan.actions, jnp.isfinite(plan.value)


@eqx.filter_jit
def _predict(sys: eqsim.System, q, qd, pending):
    state = eqsim.State(q, qd, jnp.zeros(0))
    state = control.predict((PIPELINE, sys), state, pending)
    return state.q, state.qd


class RecedingController:
    """Swing-up and balance: one iteration of iterative LQR every 10 ms.

    Each plan begins at the state at which its first torque acts, by the model with its dry
    friction, and ends near the swing-up 0.4 s ahead.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `p`: parameters of the model.
    - `nominal`: the swing-up.
    - `latency`: time steps of the plant until a torque acts.
    """

    def __init__(self, kind: str, p: dict[str, float], nominal: Nominal, latency: int):
        self.joint, self.nominal, self.latency = KINDS[kind], nominal, latency
        self._model = eqsim.load_mjcf(mjcf(p, kind, EVERY * DT, rate=True))
        self._fine = eqsim.load_mjcf(mjcf(p, kind, DT))
        self.reset()

    def reset(self) -> None:
        """Begin a run."""
        self._step, self._torque, self._rate = 0, 0.0, 0.0
        self._pending = [0.0] * self.latency
        steps = np.arange(HORIZON) * EVERY + self.latency
        rates = self.nominal.rates[:, 0]
        self._guess = rates[np.minimum(steps, len(rates) - 1)][:, None]

    def torque(self, time: float, q, qd) -> np.ndarray:
        """Compute both torques, N m; that of the joint without motor is zero."""
        del time
        if self._step % EVERY == 0:
            self._rate = self._planned(q, qd)
        middle = self._torque + 0.5 * DT * self._rate
        torque = self._torque + DT * self._rate
        self._torque = float(np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT))
        self._step += 1
        out = np.zeros(2)
        out[self.joint] = np.clip(middle, -TORQUE_LIMIT, TORQUE_LIMIT)
        self._pending = [*self._pending, out[self.joint]][1:]
        return out

    def _planned(self, q, qd) -> float:
        pending = np.array(self._pending).reshape(-1, 1)
        q, qd = map(np.asarray, _predict(self._fine, q, qd, pending))
        begin = self._step + self.latency
        near = self._reference(begin)[:2]
        q = near + within_half_turn(q - near)
        x = np.concatenate([q, qd, [self._torque]])
        target = self._reference(begin + HORIZON * EVERY)
        actions, finite = _plan(self._model, target, x, self._guess)
        actions = np.asarray(actions) if finite else self._guess
        self._guess = np.concatenate([actions[1:], actions[-1:]])
        return float(actions[0, 0])

    def _reference(self, step: int) -> np.ndarray:
        now = self.nominal
        return now.states[step] if step < len(now.rates) else now.goal
