"""Distances of joints from their limits."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ..constraint import ball_rotations
from ..model import System
from ..model._gather import take
from ..spatial import Vec3


def limit_gaps(sys: System, joints: Sequence[int], q):
    """Return the distances of hinges and slides from their lower limits, negative
    within the range, and from their upper limits, positive within the range."""
    range_, margin = take((sys.joints.range, sys.joints.limit_margin), joints)
    at = take(q, [sys.joints.q_starts[j] for j in joints])
    return range_[:, 0] + margin - at, range_[:, 1] - margin - at


def ball_limit_gap(sys: System, joints: Sequence[int], q) -> tuple[Vec3, Any]:
    """Return the rotation axes of spherical joints, in the links, and the distances of
    their angles from the limits, positive within the range."""
    axis, angle = ball_rotations(sys, joints, q)
    range_, margin = take((sys.joints.range, sys.joints.limit_margin), joints)
    return axis, jnp.maximum(range_[:, 0], range_[:, 1]) - margin - angle
