"""Checks of actuators, and of joints without inertia of their own."""

import numpy as np

from ._checks import known, reject
from ._kinds import JointKind
from ._system import System


def check_actuators(sys: System) -> None:
    actuators = sys.actuators
    names = actuators.names
    for field, value, limited, owners in (
        (
            "ctrl_range",
            actuators.ctrl_range,
            actuators.ctrl_limited,
            actuators.ctrl_names,
        ),
        ("force_range", actuators.force_range, actuators.force_limited, names),
        ("act_range", actuators.act_range, actuators.act_limited, names),
    ):
        marks = np.asarray(limited, bool)
        reject(
            value,
            lambda x: (x[..., 0] > x[..., 1]) & marks,
            owners,
            f"Actuator {{name!r}} has {field} {{value}}. The first number must be the "
            "smaller one.",
        )
    without = ~np.asarray(actuators.has_velocity_gain, bool)
    for field, value in (("gain", actuators.gain), ("bias", actuators.bias)):
        reject(
            value,
            lambda x: (x[..., 2] != 0) & without,
            names,
            f"Actuator {{name!r}} has {field} {{value}}, but Actuators.has_velocity_gain "
            "is False there. Set it to True.",
        )
    for field, value in (
        ("damping", actuators.damping),
        ("armature", actuators.armature),
    ):
        if value is not None:
            reject(
                value,
                lambda x: x < 0,
                names,
                f"Actuator {{name!r}} has {field} {{value}}. It must not be negative.",
            )


def check_independent_slides(sys: System) -> None:
    """Check that slides of one link move it in independent directions, or have
    armature. Otherwise, the joint-space inertia is singular."""
    joints = sys.joints
    axes, armature = known(joints.axis), known(joints.armature)
    if axes is None or armature is None or sys.actuators.armature is not None:
        return
    for link, name in enumerate(sys.links.names):
        own = [
            j
            for j, (kind, owner) in enumerate(zip(joints.kinds, joints.links))
            if owner == link
            and kind is JointKind.PRISMATIC
            and not np.all(armature[..., joints.v_starts[j]] > 0)
        ]
        if len(own) < 2:
            continue
        ranks = np.linalg.matrix_rank(axes[..., own, :], tol=1e-6)
        if np.any(ranks < len(own)):
            slides = ", ".join(repr(joints.names[j]) for j in own)
            raise ValueError(
                f"Joints {slides} of link {name!r} slide along axes that are linearly "
                "dependent, so their inertia matrix is singular. Give one of them an "
                "armature, or remove one."
            )
