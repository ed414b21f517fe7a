"""Keyframes of a random robot."""

import numpy as np

from ._actuators import Actuators
from ._joints import Joints
from ._keyframes import Keyframes


def random_keyframes(
    rng: np.random.Generator, joints: Joints, actuators: Actuators
) -> Keyframes:
    """Draw up to two keyframes."""
    count, num_act = int(rng.integers(3)), sum(map(len, actuators.states))
    q = rng.normal(size=(count, len(joints.ref)))
    for kind, start in zip(joints.kinds, joints.q_starts):
        if kind.nq > 1:
            quat = slice(start + kind.nq - 4, start + kind.nq)
            quats = rng.normal(size=(count, 4))
            q[:, quat] = quats / np.linalg.norm(quats, axis=-1, keepdims=True)
    return Keyframes(
        names=tuple(f"keyframe{index}" for index in range(count)),
        q=q,
        qd=rng.normal(size=(count, len(joints.damping))),
        act=rng.normal(size=(count, num_act)),
        ctrl=rng.normal(size=(count, sum(map(len, actuators.inputs)))),
    )
