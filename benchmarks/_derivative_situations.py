"""States of the robots of the derivative matrix: coordinates and velocities by name,
and the scale of controls and activations if it is not one."""

import mujoco
import numpy as np


def _random(model, seed, scale, speed, inputs=1.0):
    """Draw a moving state around the reference."""
    rng, q = np.random.default_rng(seed), model.qpos0.copy()
    mujoco.mj_integratePos(model, q, scale * rng.normal(size=model.nv), 1.0)
    return q, speed * rng.normal(size=model.nv), inputs


def _settled(model, q, count=3000):
    """Return a state at rest."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    for _ in range(count):
        mujoco.mj_step(model, data)
        data.qvel[:] *= 0.98
    return data.qpos.copy()


def moving(model):
    """Return states of robots without contacts and limits."""
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0),
        "reference, moving": _random(model, 1, 0.0, 1.0),
        "elsewhere, at rest": _random(model, 2, 0.5, 0.0),
        "moving": _random(model, 3, 0.5, 1.0),
    }


def driven(model):
    """Return states of actuators, also with inputs beyond their ranges."""
    return moving(model) | {"beyond ranges": _random(model, 4, 0.3, 0.5, 8.0)}


def touching(model):
    """Return states of spheres above a floor: a contact begins at 0.1 m above it, and
    the contact of the explicit pair 2 mm above that."""
    hair, still = 2e-5, np.zeros(6)

    def at(height, qd=still):
        return np.array([0, 0, height, 1.0, 0, 0, 0]), np.array(qd, float)

    rest = _settled(model, at(0.1)[0])
    lower = rest - 0.001 * np.eye(7)[2]
    spin, falling = [0, 0, 0, 0, 0, 4.0], [0.3, 0.1, -0.5, 0.2, 0.1, -0.3]
    return {
        "free flight": at(0.5, falling),
        "at rest": (rest, still),
        "sticking": (lower, 1e-3 * np.array(falling)),
        "sliding": (lower, np.array([3.0, 2.0, 0, 0.2, 0.1, 0.3])),
        "spinning": (lower, np.array(spin)),
        "rolling": (rest, np.array([0, 0, 0, 0.3, -0.2, 0.0])),
        "just before contact": at(0.1 + hair, falling),
        "just after": at(0.1 - hair, falling),
        "near the apex": at(0.1 - 2e-4, [1e-3, 0, 0.13, 0, 0, 0]),
    }


def meeting(model):
    """Return states of a free shape near a fixed one."""
    speeds = np.random.default_rng(8).normal(size=6)
    return {
        "apart": (_placed(model, 0, 0.01), 0.3 * speeds),
        "touching": (_placed(model, 1, -0.001), 0.1 * speeds),
        "deep": (_placed(model, 2, -0.02), 0.3 * speeds),
    }


def _placed(model, seed, dist):
    """Place a randomly rotated free body on a random ray from above, at a given
    distance from the fixed shape."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    turn, ray = rng.normal(size=4), 0.4 * rng.normal(size=3) + np.eye(3)[2]
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        data.qpos[:3], data.qpos[3:] = middle * ray, turn / np.linalg.norm(turn)
        mujoco.mj_forward(model, data)
        near = data.ncon > 0 and np.min(data.contact.dist) < dist
        low, high = (middle, high) if near else (low, middle)
    return data.qpos.copy()


def limits(model):
    """Return states of a ball joint, a hinge and a slide."""
    ball = lambda angle: [
        np.cos(angle / 2),
        0.6 * np.sin(angle / 2),
        0.8 * np.sin(angle / 2),
        0,
    ]
    at = lambda angle, hinge, slide: np.array([*ball(angle), hinge, slide])
    qd = np.array([0.3, 0.2, -0.4, 0.5, 0.3])
    beyond = at(1.2, 0.7, 0.14)
    return {
        "neutral": (model.qpos0.copy(), np.zeros(5), 0.1),
        "held by friction": (_settled(model, at(0.5, 0.2, 0.05)), 1e-4 * qd, 0.0),
        "moving": (at(0.5, 0.3, 0.05), qd),
        "limits": (beyond, qd),
        "lower limits, at rest": (at(1.3, -0.5, -0.1), np.zeros(5)),
        "within the margin": (at(1.02, 0.2, 0.115), -0.1 * qd),
        "beyond force ranges": (at(0.5, 0.3, 0.05), qd, 20.0),
    }


def coupled(model):
    """Return states for equality constraints."""
    small = _random(model, 5, 1e-3, 1e-3)
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0),
        "settled": (_settled(model, model.qpos0), np.zeros(model.nv)),
        "nearly satisfied": small,
        "violated": _random(model, 2, 0.2, 0.0),
        "violated, moving": _random(model, 3, 0.2, 1.0),
    }


def strung(model):
    """Return states for tendons."""
    return {
        "reference, at rest": _random(model, 0, 0.0, 0.0, 0.1),
        "held by friction": (_settled(model, model.qpos0), 1e-4 * np.ones(3), 0.0),
        "moving": _random(model, 3, 0.4, 1.0),
        "limits": (np.array([-0.9, 0.9, 0.2]), np.array([-0.1, 0.3, 0.2])),
        "other side": (np.array([0.9, -0.9, -0.3]), np.array([0.2, -0.3, 0.2])),
        "beyond force ranges": _random(model, 4, 0.3, 0.5, 20.0),
    }


def sensed(model):
    """Return states of a robot with sensors: in the air, on the floor, beyond
    limits."""
    q, qd, _ = _random(model, 7, 0.1, 0.5)
    hinge = lambda angle, height: (
        q * (1 - np.eye(12)[11] - np.eye(12)[2])
        + (angle * np.eye(12)[11] + height * np.eye(12)[2])
    )
    return {
        "in the air": (hinge(0.1, 0.8), qd),
        "on the floor": (hinge(0.6, 0.43), qd),
        "at rest": (hinge(-0.5, 0.43), 0.0 * qd),
    }
