"""Parts of the shapes of a robot that do not depend on the state."""

from typing import Any, NamedTuple

from ..kinematics._forward import Frames, Pose, quaternions, take_poses
from ..model import collider_of, System
from ..model._gather import concatenate, take
from ..spatial import quaternion_matrix, Vec3, vec3
from ..spatial._rotation import normalize4
from ._bounds import shape_extents
from ._pair_lists import list_frames, ListFrames
from ._plan import contact_plan, ContactPlan, split_plan


class GeomFrames(NamedTuple):
    """Shapes in the nodes that carry them.

    - `pose`, `size`: frame and sizes of each shape.
    - `extents`: half sizes of the box about each shape, in its frame; None if the points
        of no pair are computed only within a margin.
    - `margin`: distance at which the contact of each pair begins, m; None as well.
    - `listed`: frames of the shapes of listed pairs; None if no pairs are listed.
    """

    pose: Pose
    size: Vec3
    extents: Vec3 | None
    margin: Any
    listed: ListFrames | None = None


def geom_frames(
    sys: System, fixed: Frames, plan: ContactPlan | None = None
) -> GeomFrames:
    """Compute the frames of the shapes in the nodes that carry them.

    **Arguments:**

    - `plan`: plan of the pairs that `margin` describes; None: of all pairs.
    """
    geoms, plan = sys.geoms, contact_plan(sys) if plan is None else plan
    rot = quaternion_matrix(normalize4(quaternions(geoms.quat)))
    pose = take_poses(fixed.link, geoms.links) @ Pose(rot, vec3(geoms.pos))
    size = vec3(geoms.size)
    if not any(collider_of(*kinds).has_reach for kinds in plan.kinds):
        return GeomFrames(pose, size, None, None)
    return GeomFrames(pose, size, shape_extents(sys), pair_margins(sys, plan))


def split_frames(sys: System, fixed: Frames) -> GeomFrames:
    """Compute the frames of the shapes for the pairs that `split_plan` divides."""
    plan, listed = split_plan(sys)
    found = geom_frames(sys, fixed, plan)
    if listed is None:
        return found
    return found._replace(listed=list_frames(sys, listed, found.pose))


def pair_margins(sys: System, plan: ContactPlan):
    """Compute the distance at which the contact of each pair begins, `(npair, *batch)`.

    Margins of the two shapes add up, except for pairs that have one of their own."""
    mixed = [k for k, pair in enumerate(plan.pairs) if pair[2] < 0]
    own = [k for k, pair in enumerate(plan.pairs) if pair[2] >= 0]
    one, two = ([plan.pairs[k][side] for k in mixed] for side in (0, 1))
    geoms, explicit = sys.geoms.margin, [plan.pairs[k][2] for k in own]
    found = [take(geoms, one) + take(geoms, two), take(sys.pairs.margin, explicit)]
    order = sorted(range(len(plan.pairs)), key=[*mixed, *own].__getitem__)
    return take(concatenate(found), order)
