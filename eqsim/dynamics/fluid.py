r"""Forces of a fluid on ellipsoids.

The forces on an ellipsoid with semiaxes $r$ that moves at $(\omega, v)$ through a fluid of
density $\rho$ and viscosity $\eta$ are, in its axes, added mass, Magnus and Kutta lift,
and drag:

$f = (m_A \circ v) \times \omega + \rho\,(C_M V\, \omega \times v
+ C_K \cos\alpha\, A\, (n \times v) \times v) - c_v v, \qquad
\tau = (m_A \circ v) \times v + (I_A \circ \omega) \times \omega - c_\omega \omega$

with the volume $V$, the area $A$ that the ellipsoid projects along $v$, and its normal
$n$. Source: MuJoCo documentation, *Computation*, "Ellipsoid model"; added mass:
Tuckerman, *Inertia factors of ellipsoids for use in airship design*, 1925.
"""

import functools as ft
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..kinematics.link_motion import Frames, Pose, quaternions
from ..model import GeomKind, System
from ..model.arrays import per_row, take
from ..model.kinds import AnyKind
from ..spatial import Force, Mat3, Motion, quaternion_matrix, safe_sqrt, Vec3
from ..spatial.clamps import at_least, at_most
from ..spatial.rotations import normalize4
from ..spatial.vectors import Matrix6, matrix_from_columns, vec3


# MuJoCo: links of less mass feel no fluid, kg.
_SMALL = 1e-15


class Ellipsoids(NamedTuple):
    """Ellipsoids in a fluid.

    - `pose`: pose in the frame of the node.
    - `semiaxes`: m.
    - `blunt`, `slender`, `angular`, `kutta`, `magnus`: coefficients of drag and lift.
    - `mass`, `inertia`: added mass and moment of inertia per density, m^3 and m^5.
    - `solid`: 1 if the link has mass, else 0: fluid forces on massless links are zero.
    """

    pose: Pose
    semiaxes: Vec3
    blunt: Any
    slender: Any
    angular: Any
    kutta: Any
    magnus: Any
    mass: Vec3
    inertia: Vec3
    solid: Any


def ellipsoids(sys: System, fixed: Frames, geoms: tuple[int, ...]) -> Ellipsoids:
    """Compute the ellipsoids of shapes on moving links."""
    shapes, links = sys.geoms, [sys.geoms.links[geom] for geom in geoms]
    pos, size = take((vec3(shapes.pos), vec3(shapes.size)), geoms)
    rot = quaternion_matrix(normalize4(quaternions(take(shapes.quat, geoms))))
    pose = take(fixed.link, links) @ Pose(rot, pos)
    semiaxes = _semiaxes(tuple(shapes.kinds[geom] for geom in geoms), size)
    coefficients = take(shapes.fluid_coefficients, geoms)
    mass, inertia = added_mass(semiaxes)
    blunt, slender, angular, kutta, magnus = (coefficients[:, k] for k in range(5))
    solid = (take(sys.links.mass, links) > _SMALL).astype(pos.x.dtype)
    drags, lifts = (blunt, slender, angular), (kutta, magnus)
    return Ellipsoids(pose, semiaxes, *drags, *lifts, mass, inertia, solid)


def _semiaxes(kinds: tuple[AnyKind, ...], size: Vec3) -> Vec3:
    """Return the semiaxes of the ellipsoids of shapes."""
    of = lambda *chosen: per_row([kind in chosen for kind in kinds], size.x)
    sphere, capsule = of(GeomKind.SPHERE), of(GeomKind.CAPSULE)
    round_ = of(GeomKind.SPHERE, GeomKind.CAPSULE, GeomKind.CYLINDER)
    half_length = of(GeomKind.CAPSULE, GeomKind.CYLINDER)
    y = round_ * size.x + (1.0 - round_) * size.y
    z = (sphere + capsule) * size.x + half_length * size.y
    return Vec3(size.x, y, z + (1.0 - sphere - half_length) * size.z)


def added_mass(r: Vec3) -> tuple[Vec3, Vec3]:
    """Compute the added masses and moments of inertia of ellipsoids in a fluid of unit
    density."""
    volume = (4 / 3 * math.pi) * (r.x * r.y * r.z)
    kappa = [_kappa(r[i], r[j], r[k]) for i, j, k in _CYCLES]
    mass = [volume * k / jnp.maximum(2.0 - k, _EPSILON) for k in kappa]
    inertia = []
    for _, j, k in _CYCLES:
        y, z, change = r[j] ** 2, r[k] ** 2, kappa[k] - kappa[j]
        # Both have the sign of the change of kappa.
        below = jnp.abs(2.0 * (y - z) - (y + z) * change)
        factor = (y - z) ** 2 * jnp.abs(change) / jnp.maximum(below, _EPSILON)
        inertia.append(volume * factor * (1 / 5))
    return Vec3(*mass), Vec3(*inertia)


_CYCLES = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
_EPSILON = float(np.finfo(np.float64).eps)


def _kappa(x, y, z):
    r"""Compute $\kappa_x = \int_0^\infty \frac{x y z}
    {\sqrt{(x^2 + \lambda)^3 (y^2 + \lambda) (z^2 + \lambda)}} \,d\lambda$."""
    scale = jnp.exp(0.4 * jnp.log(x**3 * y * z))
    total = 0.0
    for weight, node, rate in _quadrature():
        at = scale * node
        a, b, c = (1.0 + at / side**2 for side in (x, y, z))
        total = total + (weight * rate) / (a * jnp.sqrt(a * b * c))
    return total * scale / x**2


@ft.lru_cache
def _quadrature() -> tuple[tuple[float, float, float], ...]:
    r"""Return weights, nodes and $d\lambda/du$ of the Gauss-Kronrod rule with 15 points,
    for $\lambda = u^3 / (1 - u)^2$ over $0 < u < 1$."""
    half = [0.991455371120812639206, 0.949107912342758524526, 0.864864423359769072790]
    half += [0.741531185599394439864, 0.586087235467691130294, 0.405845151377397166907]
    half += [0.207784955007898467601, 0.0]
    weight = [0.022935322010529224964, 0.063092092629978553291, 0.104790010322250183840]
    weight += [0.140653259715525918745, 0.169004726639267902827]
    weight += [0.190350578064785409913, 0.204432940075298892414]
    weight += [0.209482141084727828013]
    mirrored = np.array([-x for x in half] + half[-2::-1])
    # MuJoCo rounds points and weights to eight digits.
    u = np.round(0.5 + 0.5 * mirrored, 8)
    w = np.round(0.5 * np.array(weight + weight[-2::-1]), 8)
    node = u**3 / (1 - u) ** 2
    rate = u**2 * (3 - u) / (1 - u) ** 3
    return tuple(zip(w.tolist(), node.tolist(), rate.tolist(), strict=True))


def drag(density, viscosity, shapes: Ellipsoids, local: Motion) -> Force:
    """Compute the forces of the fluid in the axes of the ellipsoids.

    **Arguments:**

    - `density`, `viscosity`: properties of the fluid, `(1, *batch)`.
    - `local`: motion relative to the fluid, in the axes of the ellipsoids.
    """
    spin, flow = local
    linear = _product(shapes.mass, flow) * density
    angular = _product(shapes.inertia, spin) * density
    added = Force(linear.cross(flow) + angular.cross(spin), linear.cross(spin))
    at = _projection(shapes.semiaxes, flow)
    lift = _lift(shapes, local, at) * density
    torque = spin * _angular_drag(density, viscosity, shapes, spin)
    force = flow * _linear_drag(density, viscosity, shapes, at)
    total = Force(added.ang - torque, added.lin + lift - force)
    return total * shapes.solid


def _product(a: Vec3, b: Vec3) -> Vec3:
    return Vec3(*(x * y for x, y in zip(a, b, strict=True)))


class _Projection(NamedTuple):
    """Ellipsoids projected along the flow.

    - `speed`, `direction`: velocity of the flow; the direction is zero at rest.
    - `normal`: normal of the area that they project along the flow, of any length.
    - `ratio`: product of direction and normal over the square of the normal.
    - `area`: projected area, m^2.
    """

    speed: Any
    direction: Vec3
    normal: Vec3
    ratio: Any
    area: Any


def _projection(r: Vec3, flow: Vec3) -> _Projection:
    speed = safe_sqrt(flow.dot(flow))
    moving = speed > 0.0
    u = flow * jnp.where(moving, 1.0 / jnp.where(moving, speed, 1.0), 0.0)
    # Of numbers around one, so that small ellipsoids do not underflow.
    largest, _ = _ordered(r)
    x, y, z = ((side / largest) ** 2 for side in r)
    normal = Vec3(y * z * u.x, z * x * u.y, x * y * u.z)
    along, square = normal.dot(u), normal.dot(normal)
    along, square = (jnp.where(moving, value, 1.0) for value in (along, square))
    area = math.pi * largest**2 * jnp.sqrt(square / along)
    return _Projection(speed, u, normal, along / square, area)


def _lift(shapes: Ellipsoids, local: Motion, at: _Projection) -> Vec3:
    """Compute Magnus and Kutta lift at unit density."""
    (spin, flow), r = local, shapes.semiaxes
    volume = (4 / 3 * math.pi) * (r.x * r.y * r.z)
    size = shapes.kutta * at.speed**2 * at.area * at.ratio
    kutta = at.normal.cross(at.direction).cross(at.direction) * size
    return (spin.cross(flow) * (shapes.magnus * volume)) + kutta


def _mean_diameter(r: Vec3):
    return (2 / 3) * (r.x + r.y + r.z)


def _ordered(r: Vec3):
    """Return the largest and the middle semiaxis."""
    largest = at_least(at_least(r.x, r.y), r.z)
    smallest = at_most(at_most(r.x, r.y), r.z)
    return largest, r.x + r.y + r.z - largest - smallest


def _linear_drag(density, viscosity, shapes: Ellipsoids, at: _Projection):
    """Compute the drag force per velocity."""
    r = shapes.semiaxes
    largest, middle = _ordered(r)
    wetted = math.pi * largest * middle - at.area
    quadratic = at.area * shapes.blunt + shapes.slender * wetted
    stokes = 3.0 * math.pi * viscosity * _mean_diameter(r)
    return stokes + density * at.speed * quadratic


def _angular_drag(density, viscosity, shapes: Ellipsoids, spin: Vec3):
    """Compute the drag torque per angular velocity."""
    r = shapes.semiaxes
    largest, middle = _ordered(r)
    moment = lambda i, j, k: r[i] * at_least(r[j], r[k]) ** 4
    most, parts = middle * largest**4, []
    for i, j, k in _CYCLES:
        own = moment(i, j, k)
        coefficient = shapes.angular * own + shapes.slender * (most - own)
        parts.append(spin[i] * ((8 / 15 * math.pi) * coefficient))
    total = Vec3(*parts)
    stokes = math.pi * viscosity * _mean_diameter(r) ** 3
    return stokes + density * safe_sqrt(total.dot(total))


def drag_matrix(density, viscosity, shapes: Ellipsoids, local: Motion) -> Matrix6:
    r"""Compute the derivative of `drag` by the motion."""
    force = lambda motion: drag(density, viscosity, shapes, motion)
    total, push = jax.linearize(force, _broadcast(local, force(local)))
    zero, one = jnp.zeros_like(total.lin.x), jnp.ones_like(total.lin.x)
    none = Vec3(zero, zero, zero)
    units = Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one)
    by_ang = [push(Motion(unit, none)) for unit in units]
    by_lin = [push(Motion(none, unit)) for unit in units]

    def block(columns, part) -> Mat3:
        return matrix_from_columns(*(part(column) for column in columns))

    ang, lin = (lambda force: force.ang), (lambda force: force.lin)
    return Matrix6(
        *(block(by_ang, ang), block(by_lin, ang)),
        *(block(by_ang, lin), block(by_lin, lin)),
    )


def _broadcast(local: Motion, force: Force) -> Motion:
    """Give the motion the batch axes of the force."""
    parts = zip(local, (force.ang, force.lin), strict=True)
    same = lambda x, like: jnp.broadcast_to(x, like.shape)
    return Motion(*(Vec3(*map(same, a, b)) for a, b in parts))
