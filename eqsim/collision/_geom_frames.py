"""Frames of the shapes in the nodes that carry them."""

from typing import NamedTuple

from ..kinematics._forward import Frames, Pose, quaternions, take_poses
from ..model import System
from ..spatial import normalize4, quaternion_matrix, Vec3, vec3


class GeomFrames(NamedTuple):
    """Frames of the shapes in the nodes that carry them, and their sizes."""

    pose: Pose
    size: Vec3


def geom_frames(sys: System, fixed: Frames) -> GeomFrames:
    """Compute the frames of the shapes in the nodes that carry them."""
    geoms = sys.geoms
    rot = quaternion_matrix(normalize4(quaternions(geoms.quat)))
    pose = take_poses(fixed.link, geoms.links) @ Pose(rot, vec3(geoms.pos))
    return GeomFrames(pose, vec3(geoms.size))
