r"""Inverse kinematics with joint limits."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, Int

from .._errors import check_count, check_finite, check_shape, RESULTS
from ..kinematics import difference, forward, integrate, site_poses
from ..model import check_state, System
from ..model.arrays import as_array
from ..spatial import clamp
from ._backward_pass import box_qp, masked_cholesky
from ._dynamics import push
from ._iterations import MAX_STEPS, NONFINITE, PENDING, result_of, SOLVED


class Target(eqx.Module):
    """A target position or orientation of a site or a link.

    **Arguments:**

    - `name`: name of a site, or of a link with `link=True`.
    - `pos`: position of its origin in the world, m; None leaves it free.
    - `rot`: rotation matrix of its axes in the world; None leaves it free.
    - `link`: true if `name` is that of a link.
    - `weight`: factor of the position error; that of an orientation is in rad.
    """

    name: str = eqx.field(static=True)
    pos: Float[Array, "3"] | None = eqx.field(converter=as_array, default=None)
    rot: Float[Array, "3 3"] | None = eqx.field(converter=as_array, default=None)
    link: bool = eqx.field(static=True, default=False)
    weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        if self.pos is None and self.rot is None:
            raise ValueError(f"The target {self.name!r} has neither `pos` nor `rot`.")


class InverseKinematics(NamedTuple):
    """A solution of inverse kinematics.

    - `q`: coordinates within the joint limits.
    - `error`: norm of the weighted errors of all targets, m and rad.
    - `result`: `successful` where no step within the limits reduces the error, which may
        be positive: look at `error` for targets out of reach.
    - `steps`: number of iterations.
    """

    q: Float[Array, " nq"]
    error: Float[Array, ""]
    result: RESULTS
    steps: Int[Array, ""]


def inverse_kinematics(
    sys: System,
    targets: Target | tuple[Target, ...],
    q: Float[Array, " nq"],
    *,
    posture: float = 1e-6,
    max_steps: int = 100,
    tolerance: float = 1e-10,
) -> InverseKinematics:
    r"""Find coordinates that bring sites or links to targets, within joint limits.

    Damped Newton steps (Levenberg-Marquardt) in tangent coordinates, each a quadratic
    program with bounds, minimize
    $\tfrac12 |e(q)|^2 + \tfrac12 \epsilon |q \ominus q_0|^2$. Solutions are
    differentiable by targets and robot, in forward and reverse mode, by the implicit
    function theorem; joints at a limit stay there.

    **Arguments:**

    - `sys`: the robot. Limits of its hinge and slide joints are kept.
    - `targets`: one target or several.
    - `q`: first guess, and the posture $q_0$ that is preferred among solutions.
    - `posture`: weight $\epsilon$, positive; it makes the solution unique.
    - `max_steps`: iterations at most.
    - `tolerance`: solved when no coordinate would move by more, rad or m.

    **Returns:** the solution and how it was found.

    **Raises:** `ValueError` if a name is unknown, a shape is wrong, a number is not
    finite, or lower limits exceed upper ones.
    """
    targets = (targets,) if isinstance(targets, Target) else tuple(targets)
    _check(sys, targets, q, posture, max_steps)
    return _solve(sys, targets, q, posture, max_steps, tolerance)


@eqx.filter_jit
def _solve(sys, targets, q, posture, max_steps, tolerance) -> InverseKinematics:
    stop = lambda x: lax.stop_gradient(x) if eqx.is_array(x) else x
    fixed = jax.tree.map(stop, (sys, targets, q))
    options = posture, max_steps, tolerance
    end, code, steps = _iterated(fixed[0], fixed[1], fixed[2], *options)
    found = _attached((sys, targets, q), end=end, posture=posture)
    error = _errors(sys, targets, found)
    # The norm has no derivative at zero.
    square = jnp.sum(error**2)
    positive = square > 0.0
    norm = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
    return InverseKinematics(found, norm, result_of(code), steps)


def _residual(sys, targets, posture, q0, q, change):
    """Compute errors of targets and of the posture after a step from `q`."""
    moved = integrate(sys, q, change)
    rest = posture**0.5 * difference(sys, q0, moved)
    return jnp.concatenate([_errors(sys, targets, moved), rest])


def _errors(sys: System, targets, q) -> Float[Array, " n"]:
    sites, links, parts = site_poses(sys, q), forward(sys, q), []
    for target in targets:
        poses, names = (sites, sys.sites.names)
        if target.link:
            poses, names = links, sys.links.names
        k, weight = names.index(target.name), target.weight.astype(q.dtype)
        if target.pos is not None:
            parts.append(weight * (poses.pos[k] - target.pos.astype(q.dtype)))
        if target.rot is not None:
            # Of norm 2 sin(angle / 2), and smooth at every angle.
            turned = (poses.rot[k] - target.rot.astype(q.dtype)) / 2.0**0.5
            parts.append(jnp.ravel(turned))
    return jnp.concatenate(parts)


def _limits(sys: System, q):
    """Return the bounds of a step from `q`, infinite for joints without limits."""
    lower, upper, at = [], [], 0
    for k, kind in enumerate(sys.joints.kinds):
        if kind.nv == 1 and sys.joints.limited[k]:
            low, high = sys.joints.range[k].astype(q.dtype) - q[at]
        else:
            high = jnp.asarray(jnp.inf, q.dtype)
            low = -high
        lower += [low] * kind.nv
        upper += [high] * kind.nv
        at += kind.nq
    return jnp.stack(lower), jnp.stack(upper)


def _iterated(sys, targets, q0, posture, max_steps, tolerance):
    """Return the minimizer, the number of the result, and the number of iterations."""
    nv = sys.nv
    zero = jnp.zeros(nv, q0.dtype)
    lower, upper = _limits(sys, q0)
    start = integrate(sys, q0, clamp(zero, lower, upper))
    residual = lambda q, change: _residual(sys, targets, posture, q0, q, change)
    half = lambda q: 0.5 * jnp.sum(residual(q, zero) ** 2)

    def step(now):
        q, value, mu, k, _ = now
        J, r = jax.jacfwd(lambda d: (residual(q, d),) * 2, has_aux=True)(zero)
        # Newton's Hessian converges for targets out of reach too, where it is positive.
        newton = jax.hessian(lambda d: 0.5 * jnp.sum(residual(q, d) ** 2))(zero)
        bounds, slope = _limits(sys, q), J.T @ r
        held = ((bounds[0] >= 0.0) & (slope > 0)) | ((bounds[1] <= 0.0) & (slope < 0))
        free = ~held[:, None] & ~held[None, :]
        one = jnp.eye(nv, dtype=q.dtype)
        newton = jnp.where(free, newton, one)
        positive = jnp.all(jnp.isfinite(jnp.linalg.cholesky(newton)))
        H = jnp.where(positive, newton, J.T @ J) + mu * one
        change = box_qp(H, slope, *bounds, zero).x
        new = integrate(sys, q, change)
        # Rounding may leave a limit by the last bit.
        new = integrate(sys, new, clamp(zero, *_limits(sys, new)))
        lower_value = half(new)
        # Of the order of rounding errors nothing can be asked for.
        slack = 8.0 * jnp.finfo(q.dtype).eps * value
        better = lower_value < value + slack
        small = (jnp.max(jnp.abs(change)) <= tolerance) & (mu < 1e-2)
        # Rounding errors dominate where even a damped step gains nothing.
        stuck = ~better & (mu > 1e8)
        open_ = jnp.where(k + 1 >= max_steps, MAX_STEPS, PENDING)
        code = jnp.where(small | stuck, SOLVED, open_)
        mu = jnp.where(better, jnp.maximum(0.1 * mu, _LEAST), 10.0 * mu)
        q = jnp.where(better, new, q)
        return q, jnp.where(better, lower_value, value), mu, k + 1, code

    first = half(start)
    counter = jnp.zeros((), jnp.int32)
    code = jnp.where(jnp.isfinite(first), PENDING, NONFINITE)
    begin = start, first, jnp.asarray(1e-3, q0.dtype), counter, code
    q, _, _, steps, code = lax.while_loop(lambda now: now[4] == PENDING, step, begin)
    return q, code, steps


_LEAST = 1e-12
"""Damping of a step, at least."""


@eqx.filter_custom_jvp
def _attached(parameters, *, end, posture):
    del parameters, posture
    return end


@_attached.def_jvp
def _attached_jvp(primals, tangents, *, end, posture):
    (parameters,), (change,) = primals, tangents
    q = _attached(parameters, end=end, posture=posture)
    sys = parameters[0]
    zero = jnp.zeros(sys.nv, q.dtype)

    def value(parameters, step):
        sys, targets, q0 = parameters
        return 0.5 * jnp.sum(_residual(sys, targets, posture, q0, q, step) ** 2)

    def conditions(parameters):
        return jax.grad(lambda d: value(parameters, d))(zero), *_limits(
            parameters[0], q
        )

    values, (slope, low, high) = push(conditions, parameters, change)
    at_low, at_high = values[1] >= -_AT_LIMIT, values[2] <= _AT_LIMIT
    held = (at_low & (values[0] > 0.0)) | (at_high & (values[0] < 0.0))
    given = jnp.where(held, jnp.where(at_low, low, high), 0.0)
    H = jax.hessian(lambda d: value(parameters, d))(zero)
    chol = masked_cholesky(H, ~held)
    chol = eqx.error_if(chol, ~jnp.all(jnp.isfinite(chol)), _SINGULAR)
    right = jnp.where(held, 0.0, slope + H @ given)
    step = given - jnp.where(held, 0.0, cho_solve((chol, True), right))
    _, out = jax.jvp(lambda d: integrate(sys, q, d), (zero,), (step,))
    return q, out


_AT_LIMIT = 1e-12

_SINGULAR = (
    "The solution of inverse kinematics has no derivative: it is not a strict minimum. "
    "Increase `posture`, or iterate until it is solved."
)


def _check(sys: System, targets, q, posture, max_steps: int) -> None:
    check_state(sys, q)
    if not targets:
        raise ValueError("Inverse kinematics needs at least one `Target`.")
    if not posture > 0.0:
        raise ValueError(f"`posture` must be positive, got {posture}.")
    check_count("max_steps", max_steps)
    check_finite("q", q)
    for target in targets:
        kind, names = "link" if target.link else "site", sys.sites.names
        names = sys.links.names if target.link else names
        if target.name not in names:
            known = ", ".join(names) or "none"
            raise ValueError(
                f"There is no {kind} {target.name!r}. The robot has: {known}."
            )
        if target.pos is not None:
            check_shape("pos", target.pos, {"3": 3})
            check_finite(f"pos of {target.name}", target.pos)
        if target.rot is not None:
            check_shape("rot", target.rot, {"3": 3, "3 ": 3})
            check_finite(f"rot of {target.name}", target.rot)
    limits = sys.joints.range
    if isinstance(limits, Tracer):
        return
    for k, (low, high) in enumerate(np.asarray(limits)):
        if sys.joints.limited[k] and low > high:
            raise ValueError(
                f"The limits of joint {sys.joints.names[k]!r} are infeasible: {low} "
                f"exceeds {high}."
            )
