"""Random states of a robot that exercise every part of a contact solver."""

from typing import NamedTuple

import mujoco
import numpy as np


KINDS = (
    "slow",
    "fast",
    "far",
    "limits",
    "shallow",
    "deep",
    "sliding",
    "settled",
    "driven",
)
"""Kinds of states that `draw` draws in turn.

Around the reference pose: `slow`, `fast`, `far` (large angles, high speed); `limits`
(joints at the ends of their range and beyond). On the ground: `shallow` (up to 2 mm),
`deep` (up to 50 mm), `sliding`. Simulated by MuJoCo: `settled` (under small controls,
up to 300 steps), `driven` (under large ones).
"""


class States(NamedTuple):
    """A batch of states with their controls, in double precision."""

    q: np.ndarray
    qd: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    kinds: tuple[str, ...]

    def __len__(self):
        return len(self.kinds)


def draw(model: mujoco.MjModel, count: int, seed: int | list[int] = 0) -> States:
    """Draw states of all `KINDS`.

    **Arguments:**

    - `model`: the robot.
    - `count`: number of states.
    - `seed`: the same seed draws the same states.
    """
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(model)
    kinds = tuple(KINDS[i % len(KINDS)] for i in range(count))
    parts = []
    for kind in kinds:
        _draw_one(model, data, rng, kind)
        now = (data.qpos, data.qvel, data.act, data.ctrl)
        parts.append([np.array(x) for x in now])
    return States(*(np.stack(part) for part in zip(*parts)), kinds)


def drawn_states(
    model: mujoco.MjModel, count: int, seed: int | list[int], precision: str
) -> States:
    """Draw the states of a comparison, exact in its precision."""
    *arrays, kinds = draw(model, count, seed)
    if precision == "single":
        arrays = [np.float64(np.float32(x)) for x in arrays]
    return States(*arrays, kinds)


def _draw_one(model, data, rng, kind):
    around, speed = {
        "slow": (0.1, 0.1),
        "fast": (0.5, 3.0),
        "far": (1.0, 10.0),
        "limits": (0.2, 1.0),
        "shallow": (0.2, 0.3),
        "deep": (0.3, 1.0),
        "sliding": (0.1, 0.5),
        "settled": (0.2, 0.1),
        "driven": (0.2, 0.1),
    }[kind]
    place(model, data, around * rng.normal(size=model.nv))
    data.qvel[:] = speed * rng.normal(size=model.nv)
    data.act[:] = 0.5 * rng.normal(size=model.na)
    data.ctrl[:] = controls(model, rng, 1.5)
    if kind == "limits":
        to_limits(model, data, rng)
    if kind in ("slow", "fast", "far", "limits"):
        lift(model, data, rng.uniform(-0.3, 0.5))
        return
    depth = rng.uniform(0.002, 0.05) if kind == "deep" else rng.uniform(0.0, 0.002)
    to_ground(model, data, depth)
    if kind == "sliding":
        data.qvel[:] += 2.0 * rng.normal(size=model.nv)
    if kind in ("settled", "driven"):
        scale, steps = (0.05, 300) if kind == "settled" else (1.0, 100)
        simulate(model, data, rng, scale, int(rng.integers(1, steps)))


def place(model: mujoco.MjModel, data: mujoco.MjData, change: np.ndarray) -> None:
    """Move from the reference pose by a change of coordinates, at rest."""
    mujoco.mj_resetData(model, data)
    mujoco.mj_integratePos(model, data.qpos, change, 1.0)


def controls(model: mujoco.MjModel, rng: np.random.Generator, scale: float):
    """Draw random controls, in units of their range (or of one without a range)."""
    low, high = np.where(
        model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1.0, 1.0]
    ).T
    half = 0.5 * (high - low)
    return 0.5 * (high + low) + scale * half * rng.uniform(-1, 1, model.nu)


def to_limits(model, data, rng):
    """Move about half of the joints with a range to one end of it, or beyond."""
    for joint in _limited(model):
        if rng.random() < 0.6:
            low, high = model.jnt_range[joint]
            beyond = (high - low) * rng.uniform(-0.02, 0.05)
            end = high + beyond if rng.random() < 0.5 else low - beyond
            data.qpos[model.jnt_qposadr[joint]] = end


def into_range(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Move joints that are outside their range to its end."""
    for joint in _limited(model):
        at = model.jnt_qposadr[joint]
        data.qpos[at] = np.clip(data.qpos[at], *model.jnt_range[joint])


def _limited(model):
    """Return the joints with one coordinate and a range."""
    kinds = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
    scalar = np.isin(model.jnt_type, kinds)
    return np.flatnonzero(scalar & (model.jnt_limited != 0))


def lift(model: mujoco.MjModel, data: mujoco.MjData, height: float) -> None:
    """Raise all roots that can move along z."""
    data.qpos[heights(model)] += height


def heights(model: mujoco.MjModel) -> list[int]:
    """Return the positions in `qpos` of the heights of roots that can move along z."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    found = []
    for joint in range(model.njnt):
        if model.body_parentid[model.jnt_bodyid[joint]] != 0:
            continue
        start, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            found.append(int(start) + 2)
        vertical = data.xaxis[joint, 2] > 0.99
        if kind == mujoco.mjtJoint.mjJNT_SLIDE and vertical:
            found.append(int(start))
    return found


def to_ground(model: mujoco.MjModel, data: mujoco.MjData, depth: float) -> None:
    """Raise or lower a robot until its lowest point has the given depth in the ground.

    Robots that cannot move along z, or cannot touch the world, are not changed.
    """
    where = heights(model)
    if not where:
        return
    start, low, high = data.qpos[where].copy(), -4.0, 4.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        data.qpos[where] = start + middle
        inside = _clearance(model, data) < -depth
        low, high = (middle, high) if inside else (low, middle)
    data.qpos[where] = start + (high if low > -4.0 else 0.0)


def _clearance(model, data):
    """Return the distance of the deepest contact with the world."""
    mujoco.mj_fwdPosition(model, data)
    if not data.ncon:
        return np.inf
    worlds = model.body_weldid[model.geom_bodyid[data.contact.geom]] == 0
    touching = data.contact.dist[np.any(worlds, axis=1)]
    return np.min(touching, initial=np.inf)


def simulate(model, data, rng, scale: float, steps: int) -> None:
    """Simulate with controls that change every five steps."""
    for step in range(steps):
        if step % 5 == 0:
            data.ctrl[:] = controls(model, rng, scale)
        mujoco.mj_step(model, data)
