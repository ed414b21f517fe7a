"""Arrows for contact forces."""

import numpy as np
from jaxtyping import Float

from ..collision import contact_plan
from ..model import System


def arrows(
    pos: Float[np.ndarray, "robot ncon 3"],
    force: Float[np.ndarray, "robot ncon 3"],
    scale: float,
    longest: float,
    offsets: Float[np.ndarray, "robot 3"],
) -> Float[np.ndarray, "n 2 3"]:
    """Return start and end of an arrow for each contact that pushes.

    **Arguments:**

    - `scale`: length of an arrow per force, m/N.
    - `longest`: length at which arrows are cut, as impacts last one step, m.
    - `offsets`: shift of each robot, m.
    """
    length = scale * np.linalg.norm(force, axis=-1)
    start = pos + offsets[:, None]
    shown = length > 1e-2 * longest
    cut = scale * np.minimum(1.0, longest / np.maximum(length, 1e-12))
    return np.stack([start, start + cut[..., None] * force], axis=-2)[shown]


def force_scale(sys: System, radius: float) -> float:
    """Return the scale, m/N, at which the weight of the robot is as long as its radius."""
    gravity = float(np.linalg.norm(np.asarray(sys.gravity)))
    weight = float(np.sum(np.asarray(sys.links.mass))) * (gravity or 9.81)
    return radius / max(weight, 1e-9)


def has_contacts(sys: System) -> bool:
    """Return true if shapes of the robot may touch."""
    return bool(contact_plan(sys).point_pairs)
