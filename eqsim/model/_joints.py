import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import JointKind


class Joints(eqx.Module):
    r"""Joints, in the order of their links; a link may have several joints.

    **Arguments:**

    - `names`, `kinds`, `links`: one entry per joint.
    - `limited`: true for joints whose `range` is enforced.
    - `has_friction`: true for degrees of freedom whose `frictionloss` is simulated.
    - `force_limited`: true for joints whose `force_range` is enforced.
    - `actuator_gravity`: true for joints whose gravity compensation counts as an
        actuator force, which is limited by `force_range`.
    - `anchor`, `axis`: anchor and axis in the link frame, m and unit vector.
    - `range`: lower and upper limit, rad or m; for a spherical joint, the second entry
        is the largest angle.
    - `limit_margin`: distance to the limit at which the constraint starts, rad or m.
    - `limit_solref`, `limit_solimp`: softness of the limit, as in MuJoCo.
    - `stiffness`: spring stiffness, N m/rad or N/m.
    - `stiffness_poly`: higher coefficients of the stiffness. With the deflection $x$ of
        a hinge or slide, the spring force is $-x (k + k_1 x + k_2 x^2 + \dots)$. For a
        ball joint, and each half of a free joint, $x$ is a vector, and the polynomial
        uses its length. None: no joint has such a spring.
    - `ref`: coordinates at which links have the poses `Links.pos` and `Links.quat`.
    - `spring_ref`: coordinates at which springs are at rest.
    - `damping`, `armature`, `frictionloss`: damping, armature and dry friction of each
        degree of freedom.
    - `damping_poly`: higher coefficients of the damping, for each degree of freedom.
        The force is $-\dot q\,(d + d_1 |\dot q| + d_2 \dot q^2 + \dots)$. None: linear
        damping.
    - `friction_solref`, `friction_solimp`: softness of dry friction, as in MuJoCo.
    - `force_range`: lower and upper limit of the sum of all actuator forces on each
        joint, N m or N. None: no joint has a limit.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[JointKind, ...] = eqx.field(static=True)
    links: tuple[int, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    has_friction: tuple[bool, ...] = eqx.field(static=True)
    force_limited: tuple[bool, ...] = eqx.field(static=True)
    actuator_gravity: tuple[bool, ...] = eqx.field(static=True)
    anchor: Float[Array, "njoint 3"] = eqx.field(converter=as_array)
    axis: Float[Array, "njoint 3"] = eqx.field(converter=as_array)
    range: Float[Array, "njoint 2"] = eqx.field(converter=as_array)
    limit_margin: Float[Array, " njoint"] = eqx.field(converter=as_array)
    limit_solref: Float[Array, "njoint 2"] = eqx.field(converter=as_array)
    limit_solimp: Float[Array, "njoint 5"] = eqx.field(converter=as_array)
    stiffness: Float[Array, " njoint"] = eqx.field(converter=as_array)
    ref: Float[Array, " nq"] = eqx.field(converter=as_array)
    spring_ref: Float[Array, " nq"] = eqx.field(converter=as_array)
    damping: Float[Array, " nv"] = eqx.field(converter=as_array)
    armature: Float[Array, " nv"] = eqx.field(converter=as_array)
    frictionloss: Float[Array, " nv"] = eqx.field(converter=as_array)
    friction_solref: Float[Array, "nv 2"] = eqx.field(converter=as_array)
    friction_solimp: Float[Array, "nv 5"] = eqx.field(converter=as_array)
    stiffness_poly: Float[Array, "njoint order"] | None = eqx.field(
        converter=as_array, default=None
    )
    damping_poly: Float[Array, "nv order"] | None = eqx.field(
        converter=as_array, default=None
    )
    force_range: Float[Array, "njoint 2"] | None = eqx.field(
        converter=as_array, default=None
    )

    def __check_init__(self):
        if list(self.links) != sorted(self.links):
            raise ValueError(
                f"Joints must be sorted by their links, got links {self.links}."
            )
        for joint, (kind, link) in enumerate(zip(self.kinds, self.links)):
            if kind is JointKind.FREE and self.links.count(link) > 1:
                raise ValueError(
                    f"Joint {self.names[joint]!r} is free but shares its link with "
                    "other joints. Give the free joint a link of its own."
                )

    @property
    def q_starts(self) -> tuple[int, ...]:
        """Start index of the coordinates of each joint in `q`."""
        return _starts([kind.nq for kind in self.kinds])

    @property
    def v_starts(self) -> tuple[int, ...]:
        """Start index of the degrees of freedom of each joint in `qd`."""
        return _starts([kind.nv for kind in self.kinds])


def _starts(sizes: list[int]) -> tuple[int, ...]:
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return tuple(starts[:-1])
