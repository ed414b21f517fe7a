"""Control of the double pendulum through knock-downs, with a library of plans."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _double_pendulum import (
    DT,
    KINDS,
    parameters,
    step,
    TORQUE_LIMIT,
    within_half_turn,
)
from _plan_library import (
    added,
    CAPACITY,
    choose,
    empty,
    LENGTH,
    Library,
    model,
    Place,
    plans_from,
    STEP,
)


TICK = round(STEP / DT)
"""Number of time steps of the plant per step of a plan."""


def knocks(seed: int, duration: float = 60.0):
    """Draw the pulses of a run: beginning (s) and torques of both joints (N m)."""
    rng, now, pulses = np.random.default_rng(seed), 0.0, []
    while (now := now + rng.uniform(8.0, 12.0)) < duration:
        pulses.append((now, rng.choice((-1.0, 1.0), 2) * rng.uniform(3.0, 6.0, 2)))
    return pulses


class Brake:
    """Take energy out while there is more than in the upright pose.

    **Arguments:**

    - `p`: parameters of the model.
    - `kind`: `acrobot` or `pendubot`.
    """

    def __init__(self, p: dict[str, float], kind: str):
        self.p, self.joint = p, KINDS[kind]

    def torque(self, x: np.ndarray) -> float:
        """Compute the torque of the motor, N m."""
        excess = self._energy(x) / self._scale() - 0.8
        strength = 1.5 * np.clip(excess / 0.3, 0.0, 1.0)
        return float(
            np.clip(-strength * x[2 + self.joint], -TORQUE_LIMIT, TORQUE_LIMIT)
        )

    def _scale(self) -> float:
        p = self.p
        return p["g"] * (p["m1"] * p["r1"] + p["m2"] * (p["l1"] + p["r2"]))

    def _energy(self, x) -> float:
        p, q, qd = self.p, x[:2], x[2:]
        couple = p["m2"] * p["l1"] * p["r2"] * np.cos(q[1])
        upper = p["I1"] + p["I2"] + p["m2"] * p["l1"] ** 2 + 2.0 * couple
        kinetic = 0.5 * (upper * qd[0] ** 2 + p["I2"] * qd[1] ** 2)
        kinetic += (p["I2"] + couple) * qd[0] * qd[1]
        upper = (p["m1"] * p["r1"] + p["m2"] * p["l1"]) * np.cos(q[0])
        return kinetic - p["g"] * (upper + p["m2"] * p["r2"] * np.cos(q[0] + q[1]))


def _near(x: np.ndarray, to: np.ndarray) -> np.ndarray:
    d = x - to
    return np.concatenate([within_half_turn(d[:2]), d[2:]])


class LibraryController:
    """Swing up, balance, and swing up again after a fall, from any state.

    Away from its plan, it chooses a new plan every 20 ms, for the state that the model
    predicts 20 ms later; it brakes while no plan reaches the goal.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `p`: parameters of the model.
    - `library`: plans.
    """

    def __init__(self, kind: str, p: dict[str, float], library: Library):
        self.joint, self._brake = KINDS[kind], Brake(p, kind)
        self._model, self._library = model(p, kind), library
        self._rows = {k: np.asarray(x) for k, x in library._asdict().items()}
        self._hold = np.asarray(self._model.hold.gain[0])
        self.reset()

    def reset(self) -> None:
        """Start a run."""
        self._plan, self._step, self._next = None, 0, None
        self.choices = 0

    def torque(self, time: float, q, qd) -> np.ndarray:
        """Compute both torques, N m; that of the joint without motor is zero."""
        x, k = np.concatenate([q, qd]), round(time / DT)
        if k % TICK == 0:
            self._tick(x)
        out = np.zeros(2)
        torque = self._law(x, (k % TICK) / TICK)
        out[self.joint] = np.clip(torque, -TORQUE_LIMIT, TORQUE_LIMIT)
        return out

    def _tick(self, x) -> None:
        self._step += 1
        if self._next is not None:
            self._plan, self._step = self._next
            self._next = None
        if self._plan is None or self._astray(x):
            self._next = self._chosen(x)

    def _astray(self, x) -> bool:
        d = np.abs(_near(x, self._target(0.0)[0]))
        return bool(np.max(d[:2]) > 0.15 or np.max(d[2:]) > 2.0)

    def _chosen(self, x):
        self.choices += 1
        following = self._plan is not None
        current = (self._plan, self._step + 1) if following else (0, LENGTH)
        torque = np.clip(self._law(x, 0.0), -TORQUE_LIMIT, TORQUE_LIMIT)
        place = Place(*(jnp.asarray(a) for a in current))
        state, held = jnp.asarray(x), jnp.array([torque])
        found = choose(self._model, self._library, state, held, place)
        if not np.isfinite(found.time):
            return None, 0
        return int(found.at.plan), int(found.at.step)

    def _target(self, part: float):
        """Return the planned state, torque and gain, a fraction of a step later."""
        if self._step >= LENGTH:
            return np.array([np.pi, 0.0, 0.0, 0.0]), 0.0, self._hold
        rows, k = self._rows, self._step
        states, plan = rows["states"], self._plan
        now, then = states[plan, k], states[plan, k + 1]
        state = now + part * (then - now)
        return state, rows["torques"][plan, k], rows["gains"][plan, k]

    def _law(self, x, part: float) -> float:
        if self._plan is None:
            return self._brake.torque(x)
        state, torque, gain = self._target(part)
        return float(torque + gain @ _near(x, state))


def falls(p, kind: str, hold: np.ndarray, rng, number: int) -> np.ndarray:
    """Draw states: knocked down from the upright pose, then braked for up to 2 s."""
    brake, joint, dt = Brake(p, kind), KINDS[kind], 0.01
    upright, states = np.array([np.pi, 0.0, 0.0, 0.0]), []
    for _ in range(number):
        x = upright.copy()
        pulse = rng.choice((-1.0, 1.0), 2) * rng.uniform(3.0, 6.0, 2)
        wait = rng.uniform(0.0, 2.0)
        for k in range(round((0.2 + wait) / dt)):
            pushed, torque = k < 20, np.zeros(2)
            own = hold @ _near(x, upright) if pushed else brake.torque(x)
            torque[joint] = np.clip(own, -TORQUE_LIMIT, TORQUE_LIMIT)
            q, qd = step(p, x[:2], x[2:], torque + pushed * pulse, dt)
            x = np.concatenate([q, qd])
        states.append(x)
    return np.stack(states)


def build(kind: str, rounds: int, size: int = 32, say=print) -> Library:
    """Build a library: rounds of falls, with new plans for those that no plan catches.

    **Arguments:**

    - `kind`: `acrobot` or `pendubot`.
    - `rounds`, `size`: number of rounds and of falls in each.
    - `say`: called with a line about each round.
    """
    p = parameters()
    robot, library = model(p, kind), empty()
    rng, hold = np.random.default_rng(10_000), np.asarray(robot.hold.gain[0])
    for turn, key in enumerate(jr.split(jr.key(0), rounds)):
        starts = falls(p, kind, hold, rng, size)
        if turn == 0:
            starts[0] = 0.0
        found = plans_from(robot, library, jnp.asarray(starts), key)
        library, new = added(library, found)
        caught = np.isfinite(found.before)
        planned = np.isfinite(found.time)
        say(
            f"{kind} round {turn}: {caught.mean():.2f} caught, {planned.mean():.2f} "
            f"planned, {len(new)} new, {int(library.number)} plans"
        )
        if int(library.number) >= CAPACITY - size:
            break
    return library
