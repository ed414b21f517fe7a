r"""The problem of a fit: cost, gradient and Gauss-Newton matrix of all windows.

The state at the start of a window only acts on its own residuals. So the Jacobian has the
shape of an arrow, and each window needs `p + nx` tangents, however many windows there are.

Robust losses $\rho(s)$ of a squared residual $s$ in units of the noise have the value and slope
of a square at zero: $\rho(0) = 0$, $\rho'(0) = 1$. The cost is $\tfrac12 \sum \rho(s)$, and
Gauss-Newton weighs residuals by $\rho'(s)$.
"""

import abc
from typing import ClassVar, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..estimate import AbstractMeasurement
from ..estimate.stochastic_model import with_pipeline
from ..kinematics import difference, integrate
from ..model import System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ._channels import bias_of
from ._objectives import AbstractObjective, Physics
from ._unknowns import AbstractUnknown, applied, Model, parts_of
from ._windows import Batch


class AbstractLoss(eqx.Module):
    """A loss of squared residuals."""

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        per_window: ClassVar[bool]
    else:
        per_window: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Compute $\rho$."""

    @abc.abstractmethod
    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Compute $\rho'$."""


def consistency(loss: AbstractLoss) -> float:
    r"""Compute $E[\rho'(z^2) z^2]$ of a standard normal $z$: with it, the noise of normal
    residuals is estimated without bias (Huber's proposal 2)."""
    if loss.per_window:
        return float(loss.weight(jnp.ones(())))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    square = jnp.asarray(nodes**2)
    values = np.asarray(loss.weight(square) * square)
    return float((weights * values).sum() / weights.sum())


def _check_width(loss: "HuberLoss | CauchyLoss | GemanMcClureLoss") -> None:
    name = f"{type(loss).__name__}.width"
    check_numbers(name, loss.width, lambda x: x > 0.0, "positive")


class SquareLoss(AbstractLoss):
    """Least squares."""

    per_window: bool = eqx.field(static=True, default=False)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return square

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(square)


class HuberLoss(AbstractLoss):
    """Quadratic, then linear.

    **Arguments:**

    - `width`: residual at which it becomes linear, in units of the noise.
    - `per_window`: true if $s$ is the mean over a window, so that whole windows are
        discounted, instead of single samples.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=1.345)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        inside = square < self.width**2
        root = jnp.sqrt(jnp.where(inside, 1.0, square))
        return jnp.where(inside, square, self.width * (2 * root - self.width))

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        inside = square < self.width**2
        root = jnp.sqrt(jnp.where(inside, 1.0, square))
        return jnp.where(inside, 1.0, self.width / root)


class CauchyLoss(AbstractLoss):
    r"""$w^2 \log(1 + s/w^2)$: outliers count less and less.

    **Arguments:** see `HuberLoss`.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=2.385)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.width**2 * jnp.log1p(square / self.width**2)

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + square / self.width**2)


class GemanMcClureLoss(AbstractLoss):
    r"""$s / (1 + s/w^2)$: outliers have a bounded cost.

    **Arguments:** see `HuberLoss`.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array, default=3.0)
    per_window: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check_width(self)

    def value(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return square / (1.0 + square / self.width**2)

    def weight(self, square: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + square / self.width**2) ** 2


class FitProblem(eqx.Module):
    """Everything that a fit needs.

    **Arguments:**

    - `unknowns`: in order. `sizes`: free numbers of each.
    - `runs`: names of the runs if they have biases of their own.
    - `start_channel`: channel from which starts of windows are estimated; None if a function
        of the user returns them.
    - `origin`: free numbers of the system as given.
    - `steps`, `rows`: see `Physics`.
    - `sigma`: noise of each channel and column.
    - `gap_weight`: inverse of the standard deviation of jumps between linked windows, in
        units of the prior of the start; zero without continuity.
    """

    sys: System
    unknowns: tuple[AbstractUnknown, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    runs: tuple[str, ...] = eqx.field(static=True)
    start_channel: str | None = eqx.field(static=True)
    origin: Float[Array, " p"]
    batch: Batch
    steps: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    measure: AbstractMeasurement
    pipeline: AbstractPipeline
    objective: AbstractObjective
    loss: AbstractLoss
    sigma: dict[str, Array]
    gap_weight: Array

    def model(self, theta: Float[Array, " p"]) -> Model:
        """Return the robot and its signals with these parameters."""
        return applied(self.sys, self.unknowns, self.sizes, theta, len(self.runs))

    def parts(self, theta: Float[Array, " p"]) -> list[Array]:
        """Split the free numbers by unknown."""
        return parts_of(theta, self.sizes)

    def values(self, theta: Float[Array, " p"]) -> Float[Array, " values"]:
        """Compute all values in their own units."""
        pairs = zip(self.unknowns, self.parts(theta))
        return jnp.concatenate([unknown.values(part) for unknown, part in pairs])

    def scales(self, theta: Float[Array, " p"]) -> np.ndarray:
        """Return a large change of each value, in its own unit."""
        pairs = zip(self.unknowns, self.parts(theta))
        values = [(u.transform, np.asarray(u.values(x))) for u, x in pairs]
        return np.concatenate([t.scales(value) for t, value in values])

    def prior(self, theta: Float[Array, " p"]) -> Array:
        """Compute the cost of the priors of the parameters."""
        total = jnp.zeros((), theta.dtype)
        trio = zip(self.unknowns, self.parts(theta), self.parts(self.origin))
        for unknown, part, first in trio:
            if unknown.prior is not None:
                cost = unknown.prior.cost(unknown.values(part), unknown.values(first))
                total += cost.astype(theta.dtype)
        return total


class Losses(NamedTuple):
    """Cost by window, without derivatives; see `Blocks`."""

    cost: Float[Array, " k"]
    squares: dict[str, Array]
    counts: dict[str, Array]
    misfit: Float[Array, " k"]


class Blocks(NamedTuple):
    """Cost and derivatives by window.

    - `cost`: robust cost of the data.
    - `gradient`, `hessian`: derivatives by parameters and start of the window.
    - `gap`, `gap_slope`: jump to the start of the next window, and its derivative by
        parameters and start; `next_slope`: its derivative by the start of the next window.
    - `squares`, `counts`: weighted sums of squares of each column in its own unit, and
        numbers of samples, by channel and window.
    - `misfit`: mean square of the residuals of the window in units of the noise.
    """

    cost: Float[Array, " k"]
    gradient: Float[Array, "k n"]
    hessian: Float[Array, "k n n"]
    gap: Float[Array, "k nx"]
    gap_slope: Float[Array, "k nx n"]
    next_slope: Float[Array, "k nx nx"]
    squares: dict[str, Array]
    counts: dict[str, Array]
    misfit: Float[Array, " k"]


@eqx.filter_jit
def evaluate(
    problem: FitProblem, theta: Float[Array, " p"], starts: Float[Array, "k nx"]
) -> Blocks:
    """Compute cost, gradient and Gauss-Newton matrix of each window.

    **Arguments:**

    - `theta`: free numbers of the parameters.
    - `starts`: start of each window less its estimate, in units of its prior.
    """
    batch, p, nx = problem.batch, theta.shape[0], starts.shape[1]
    basis = jnp.eye(p + nx, dtype=theta.dtype)

    def window(start, row, q, qd, sd):
        f = lambda theta, start: _window(problem, theta, start, row)
        push = lambda e: jax.jvp(f, (theta, start), (e[:p], e[p:]))
        (channels, end), slopes = jax.vmap(push, out_axes=(None, -1))(basis)
        return _reduced(problem, channels, slopes, end, row, (q, qd, sd))

    roll = lambda x: jnp.roll(x, -1, axis=0)
    following = _moved(problem, starts, batch)
    return jax.vmap(window)(starts, batch, *map(roll, (*following, batch.sd)))


def losses(
    problem: FitProblem, theta: Float[Array, " p"], starts: Float[Array, "k nx"]
) -> Losses:
    """Compute the cost of each window without derivatives; for reverse mode."""

    def window(start, row):
        return _weighed(problem, _window(problem, theta, start, row)[0], row).losses

    return jax.vmap(window)(starts, problem.batch)


@eqx.filter_jit
def residuals(
    problem: FitProblem, theta: Float[Array, " p"], starts: Float[Array, "k nx"]
) -> dict[str, Float[Array, "k m _"]]:
    """Compute the residuals of all windows, in the units of each channel."""
    f = lambda start, row: _window(problem, theta, start, row)[0]
    return jax.vmap(f)(starts, problem.batch)


@eqx.filter_jit
def prior_terms(problem: FitProblem, theta: Float[Array, " p"]):
    """Compute cost, gradient and Hessian of the priors of the parameters."""
    gradient = jax.grad(problem.prior)
    return problem.prior(theta), gradient(theta), jax.jacfwd(gradient)(theta)


def _moved(problem: FitProblem, starts: Array, batch: Batch) -> tuple[Array, Array]:
    move = lambda s, row: start_of(problem.sys, s, row)
    return jax.vmap(move)(starts, batch)


def start_of(sys: System, start: Float[Array, " nx"], row: Batch):
    """Return coordinates and velocities at the start of a window."""
    step, nv = start * row.sd, sys.nv
    return integrate(sys, row.q, step[:nv]), row.qd + step[nv:]


def _window(problem: FitProblem, theta: Array, start: Array, row: Batch):
    """Compute residuals by channel, and the state where the next window starts."""
    measure = with_pipeline(problem.measure, problem.pipeline)
    physics = Physics(problem.pipeline, measure, problem.steps, problem.rows)
    model = problem.model(theta)
    first = start_of(problem.sys, start, row)
    name, offset = problem.start_channel, None
    if name is not None:
        offset = bias_of(model.signals, name, row.run, problem.sys.nv)
    if offset is None:
        out = problem.objective.residuals(physics, model, first, row)
        return out.channels, out.end
    # Starts are estimated from measurements, which have the offset.
    first = integrate(problem.sys, first[0], -offset), first[1]
    out = problem.objective.residuals(physics, model, first, row)
    q, qd = out.end
    return out.channels, (integrate(problem.sys, q, offset), qd)


def _reduced(
    problem: FitProblem, channels, slopes, end, row: Batch, following
) -> Blocks:
    by_channel, by_end = slopes
    own = _weighed(problem, channels, row)
    j = jnp.concatenate([by_channel[name] for name in channels], axis=1)
    j = j / own.scale[None, :, None]
    gap, gap_slope, next_slope = _jump(problem, end, by_end, row, following)
    return Blocks(
        own.losses.cost,
        jnp.einsum("mdn,md->n", j, own.weight * own.residual),
        jnp.einsum("mda,md,mdb->ab", j, own.weight, j),
        gap,
        gap_slope,
        next_slope,
        own.losses.squares,
        own.losses.counts,
        own.losses.misfit,
    )


class _Weighed(NamedTuple):
    """Residuals of a window in units of the noise, `(samples, columns)`, which are `scale`,
    and their weights by the robust loss; zero for padding."""

    residual: Array
    scale: Array
    weight: Array
    losses: Losses


def _weighed(problem: FitProblem, channels: dict[str, Array], row: Batch) -> _Weighed:
    sizes = {name: value.shape[1] for name, value in channels.items()}
    wide = lambda name: jnp.broadcast_to(problem.sigma[name], (sizes[name],))
    scale = jnp.concatenate([wide(name) for name in sizes])
    r = jnp.concatenate([*channels.values()], axis=1) / scale[None]
    known = jnp.broadcast_to(row.mask[:, None], r.shape).astype(r.dtype)
    square, total = r**2, jnp.maximum(jnp.sum(known), 1.0)
    mean = jnp.sum(square) / total
    if problem.loss.per_window:
        cost = 0.5 * total * problem.loss.value(mean)
        weight = problem.loss.weight(mean) * known
    else:
        cost = 0.5 * jnp.sum(known * problem.loss.value(square))
        weight = problem.loss.weight(square) * known
    ends, at = {}, 0
    for name, size in sizes.items():
        ends[name], at = slice(at, at + size), at + size
    squares = jnp.sum(weight * (r * scale[None]) ** 2, axis=0)
    counts = jnp.sum(known, axis=0)
    found = Losses(
        jnp.where(jnp.isfinite(cost), cost, jnp.inf),
        {name: squares[at] for name, at in ends.items()},
        {name: counts[at] for name, at in ends.items()},
        mean,
    )
    return _Weighed(r, scale, weight, found)


def _jump(problem: FitProblem, end, by_end, row: Batch, following):
    """Compute the jump from the end of this window to the start of the next, in units
    of its allowed size, with derivatives."""
    sys, (next_q, next_qd, sd) = problem.sys, following
    weight = problem.gap_weight * row.linked.astype(sd.dtype) / sd

    def jump(q, qd, step):
        q_next = integrate(sys, next_q, (step * sd)[: sys.nv])
        qd_next = next_qd + (step * sd)[sys.nv :]
        return weight * jnp.concatenate([difference(sys, q_next, q), qd - qd_next])

    zero, (q, qd) = jnp.zeros_like(sd), end
    push = lambda dq, dqd: jax.jvp(lambda a, b: jump(a, b, zero), end, (dq, dqd))[1]
    gap_slope = jax.vmap(push, -1, -1)(*by_end)
    next_slope = jax.jacfwd(lambda step: jump(q, qd, step))(zero)
    return jump(q, qd, zero), gap_slope, next_slope
