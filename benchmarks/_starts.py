"""Initial states of timed simulations: in the air, and lying on the ground."""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import mujoco.rollout
import numpy as np
from _driven import controls_of, RandomControls
from _states import controls, into_range, lift, place, to_ground

import eqsim


STARTS = ("airborne", "settled")
SCALE = {"airborne": 1.0, "settled": 0.05}
"""Size of the random controls, in units of their range."""
SUBSTEPS = 5
"""Number of physics steps for which a control is constant."""
DISTINCT = 256
"""Number of different states in a batch; a larger batch repeats them, with other
controls."""
REST = 3.0
"""Time that a robot has to come to rest, s."""


class Start(NamedTuple):
    """States of a batch, a policy and its keys; `ctrl` contains the controls of the
    policy."""

    q: np.ndarray
    qd: np.ndarray
    policy: RandomControls
    keys: jax.Array
    ctrl: np.ndarray

    def first(self, count: int) -> "Start":
        """Return the first states."""
        q, qd, policy, keys, ctrl = self
        return Start(q[:count], qd[:count], policy, keys[:count], ctrl[:count])

    def mujoco(self, model: mujoco.MjModel) -> np.ndarray:
        """Return the states in the form of `mujoco.rollout`."""
        time, act = np.zeros((len(self.q), 1)), np.zeros((len(self.q), model.na))
        return np.concatenate([time, self.q, self.qd, act], axis=1)


def start(
    kind: str, sys: eqsim.System, model: mujoco.MjModel, batch: int, length: int
) -> Start:
    """Draw states of a kind, exact in the precision of `sys`.

    **Arguments:**

    - `length`: number of control steps.
    """
    draw = {"airborne": _airborne, "settled": _settled}[kind]
    few = draw(model, min(batch, DISTINCT), length)
    q, qd = (np.resize(x, (batch, x.shape[1])) for x in few)
    dtype = sys.links.mass.dtype
    q, qd = (np.asarray(x, dtype).astype(np.float64) for x in (q, qd))
    ends = [controls(model, _End(end), SCALE[kind]) for end in (-1.0, 1.0)]
    policy = RandomControls(*(jnp.asarray(end, dtype) for end in ends))
    keys = jr.split(jr.key(0), batch)
    ctrl = np.asarray(controls_of(policy, sys, keys, length), np.float64)
    return Start(q, qd, policy, keys, ctrl)


class _End(NamedTuple):
    """Replacement of a random generator that always returns one end of the interval."""

    value: float

    def uniform(self, low, high, size):
        return np.full(size, self.value)


def _airborne(model, count, length):
    """Return states so high that no robot touches the ground before the simulation
    ends."""
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    duration = length * SUBSTEPS * model.opt.timestep
    height = 1.0 + 0.5 * np.max(np.abs(model.opt.gravity)) * duration**2
    states = []
    for _ in range(count):
        place(model, data, 0.1 * rng.normal(size=model.nv))
        into_range(model, data)
        to_ground(model, data, 0.0)
        lift(model, data, height)
        states.append((data.qpos.copy(), 0.1 * rng.normal(size=model.nv)))
    return tuple(map(np.stack, zip(*states)))


def _settled(model, count, length):
    """Return states at rest, up to the motion caused by small random controls."""
    data, rng = mujoco.MjData(model), np.random.default_rng(2)
    states = []
    for _ in range(count):
        place(model, data, 0.1 * rng.normal(size=model.nv))
        into_range(model, data)
        to_ground(model, data, 0.0)
        states.append(data.qpos.copy())
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    begin = np.zeros((count, size))
    begin[:, 1 : 1 + model.nq] = states
    steps = int(np.ceil(REST / (model.opt.timestep * SUBSTEPS)))
    scale = SCALE["settled"]
    drive = np.array([controls(model, rng, scale) for _ in range(count * steps)])
    drive = np.repeat(drive.reshape(count, steps, model.nu), SUBSTEPS, axis=1)
    workers = [mujoco.MjData(model) for _ in range(os.cpu_count() or 1)]
    path, _ = mujoco.rollout.rollout(model, workers, begin, drive)
    last = path[:, -1, 1:]
    return last[:, : model.nq], last[:, model.nq : model.nq + model.nv]


def load(
    model: mujoco.MjModel, path: np.ndarray, ctrl: np.ndarray
) -> tuple[float, float]:
    """Return mean numbers of contacts and of constraint rows in a sample of a
    simulation.

    **Arguments:**

    - `path`: states as returned by `mujoco.rollout`, `(batch, steps, 1 + nq + nv +
        na)`.
    - `ctrl`: controls, `(batch, steps, nu)`.
    """
    data, found = mujoco.MjData(model), []
    spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
    for i in np.unique(np.linspace(0, path.shape[0] - 1, 32, dtype=int)):
        for t in np.unique(np.linspace(0, path.shape[1] - 1, 6, dtype=int)):
            mujoco.mj_setState(model, data, path[i, t], spec)
            data.ctrl[:] = ctrl[i, t]
            mujoco.mj_forward(model, data)
            found.append((data.ncon, data.nefc))
    contacts, rows = np.mean(found, axis=0)
    return float(contacts), float(rows)
