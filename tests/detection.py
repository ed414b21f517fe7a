"""Contact points of a robot, from its coordinates."""

from eqsim.collision import contact_plan, detect
from eqsim.collision.detection import geom_frames
from eqsim.kinematics.link_motion import frames, kinematics
from eqsim.model import tree
from eqsim.spatial import Vec3
from eqsim.spatial.vectors import stack


def points_of(sys, q):
    """Return distances, positions, normals, and which points are valid or crowded."""
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    points = detect(sys, contact_plan(sys), geom_frames(sys, fixed), kin)
    normal = stack(Vec3(*points.frame[:3]))
    return points.dist, stack(points.pos), normal, points.valid, points.crowded
