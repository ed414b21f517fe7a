from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ._fields import as_array
from ._kinds import WrapKind


class PathPoint(NamedTuple):
    """An element of the path of a tendon.

    - `kind`: kind of the element: joint, site, geom or pulley.
    - `target`: index of the joint, site or geom; -1 for a pulley.
    - `side_site`: site that selects the side on which the tendon wraps around a geom;
        -1 if none. If it lies inside the geom, the tendon passes through its inside.
    """

    kind: WrapKind
    target: int = -1
    side_site: int = -1


Path = tuple[PathPoint, ...]


class Tendons(eqx.Module):
    r"""Strings that couple joints, each with a length $\ell(q)$.

    A *fixed* tendon is a linear combination of hinge and slide coordinates, $\ell =
    \sum_j c_j q_j$. A *spatial* tendon is the shortest path through its sites, around
    spheres and cylinders. After a pulley with divisor $d$, path lengths are divided by
    $d$.

    Springs act outside of the dead band $[\ell_0, \ell_1]$, with the excess $x$ and the
    rate $\dot\ell$: $f = -(k + k_1 x + k_2 x^2)\,x
    - (d + d_1 |\dot\ell| + d_2 \dot\ell^2)\,\dot\ell$.

    **Arguments:**

    - `names`, `paths`: one entry per tendon.
    - `limited`: true if `range` is enforced.
    - `has_spring`, `has_damping`, `has_friction`, `has_armature`: true if stiffness,
        damping, `frictionloss` and `armature` are simulated.
    - `rests_at_reference`: true if the rest length of the spring is the length at
        `Joints.spring_ref`; `spring_length` is then not used.
    - `actuator_force_limited`: true if `actuator_force_range` is enforced.
    - `coef`: coefficients $c$ of all joints in all fixed tendons, in order.
    - `divisor`: divisors of all pulleys in all spatial tendons, in order.
    - `range`: lower and upper limit of the length (rad or m).
    - `limit_margin`: distance to the limit at which the constraint starts.
    - `limit_solref`, `limit_solimp`: softness of the limit, as in MuJoCo.
    - `stiffness`, `stiffness_poly`: stiffness $k$; coefficients $k_1$ and $k_2$.
    - `damping`, `damping_poly`: damping $d$; coefficients $d_1$ and $d_2$.
    - `spring_length`: dead band of the spring, $\ell_0 \le \ell_1$.
    - `armature`: inertia of the rate of length, kg or kg m$^2$.
    - `frictionloss`: dry friction, N or N m.
    - `friction_solref`, `friction_solimp`: softness of dry friction, as in MuJoCo.
    - `actuator_force_range`: lower and upper limit of the sum of all actuator forces on
        the tendon, N or N m.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[Path, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    has_spring: tuple[bool, ...] = eqx.field(static=True)
    has_damping: tuple[bool, ...] = eqx.field(static=True)
    has_friction: tuple[bool, ...] = eqx.field(static=True)
    has_armature: tuple[bool, ...] = eqx.field(static=True)
    rests_at_reference: tuple[bool, ...] = eqx.field(static=True)
    actuator_force_limited: tuple[bool, ...] = eqx.field(static=True)
    coef: Float[Array, " ncoef"] = eqx.field(converter=as_array)
    divisor: Float[Array, " npulley"] = eqx.field(converter=as_array)
    range: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    limit_margin: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    limit_solref: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    limit_solimp: Float[Array, "ntendon 5"] = eqx.field(converter=as_array)
    stiffness: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    stiffness_poly: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    damping: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    damping_poly: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    spring_length: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    armature: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    frictionloss: Float[Array, " ntendon"] = eqx.field(converter=as_array)
    friction_solref: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)
    friction_solimp: Float[Array, "ntendon 5"] = eqx.field(converter=as_array)
    actuator_force_range: Float[Array, "ntendon 2"] = eqx.field(converter=as_array)

    def __check_init__(self):
        for name, path in zip(self.names, self.paths):
            problem = _problem(path)
            if problem:
                raise ValueError(f"The path of tendon {name!r} {problem}")

    @staticmethod
    def none() -> "Tendons":
        """Return no tendons."""
        one, two, five = np.zeros(0), np.zeros((0, 2)), np.zeros((0, 5))
        return Tendons(
            names=(),
            paths=(),
            limited=(),
            has_spring=(),
            has_damping=(),
            has_friction=(),
            has_armature=(),
            rests_at_reference=(),
            actuator_force_limited=(),
            coef=one,
            divisor=one,
            range=two,
            limit_margin=one,
            limit_solref=two,
            limit_solimp=five,
            stiffness=one,
            stiffness_poly=two,
            damping=one,
            damping_poly=two,
            spring_length=two,
            armature=one,
            frictionloss=one,
            friction_solref=two,
            friction_solimp=five,
            actuator_force_range=two,
        )

    @property
    def ncoef(self) -> int:
        """Number of joints in all fixed tendons."""
        return self._count(WrapKind.JOINT)

    @property
    def npulley(self) -> int:
        """Number of pulleys in all spatial tendons."""
        return self._count(WrapKind.PULLEY)

    def _count(self, kind: WrapKind) -> int:
        return sum(point.kind is kind for path in self.paths for point in path)

    @property
    def wrap_geoms(self) -> tuple[int, ...]:
        """Shapes that tendons wrap around."""
        points = [point for path in self.paths for point in path]
        return tuple(
            sorted({point.target for point in points if point.kind is WrapKind.GEOM})
        )


def _problem(path: Path) -> str | None:
    """Return the reason why a path is invalid, if any."""
    kinds = [point.kind for point in path]
    if not kinds:
        return "is empty. Give it joints, or at least two sites."
    if WrapKind.JOINT in kinds:
        if any(kind is not WrapKind.JOINT for kind in kinds):
            return "mixes joints with sites, geoms or pulleys. Use one or the other."
        return None
    for k, kind in enumerate(kinds):
        before = kinds[k - 1] if k else None
        after = kinds[k + 1] if k + 1 < len(kinds) else None
        if kind is WrapKind.GEOM and (before, after) != (WrapKind.SITE, WrapKind.SITE):
            return f"has a geom at position {k} without a site before and after it."
        if kind is WrapKind.PULLEY and after is not WrapKind.SITE:
            return f"has a pulley at position {k} that is not followed by a site."
        if kind is WrapKind.SITE and WrapKind.SITE not in (before, after):
            if WrapKind.GEOM not in (before, after):
                return f"has a site at position {k} without a neighbor to connect to."
    return None
