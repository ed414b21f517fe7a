r"""Levenberg-Marquardt with bounds, the estimate of the noise, and restarts of windows.

Unknown are the parameters $\theta$ and one start $s_k$ per window. The Gauss-Newton matrix is
an arrow: blocks of $s_k$ on a block-tridiagonal diagonal (coupled only by continuity), and a
border of $\theta$. The starts are eliminated first, at a cost linear in the number of windows.

The cost of a long window of a fast motion has many minima in the state where the window
starts. Over a short horizon it has one. So the starts of windows that fit badly, or whose
start is held at a kink, are found again for a quarter of the window, then for half of it, then
for all, each from the last one.

With thousands of parameters, such as the weights of networks, the Gauss-Newton matrix is too
large, and Adam takes steps along gradients by reverse mode. It is the last part of this file.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array

from ._fit_problem import (
    AbstractLoss,
    Blocks,
    consistency,
    evaluate,
    FitProblem,
    Losses,
    losses,
    prior_terms,
)
from ._recordings import Recording
from ._unknowns import Log
from ._windows import quantum


class Arrow(NamedTuple):
    """Gauss-Newton matrix and gradient.

    - `theta`, `theta_gradient`: `(p, p)` and `(p,)`, with priors.
    - `border`: `(k, nx, p)`. `diagonal`: `(k, nx, nx)`. `below`: `(k, nx, nx)`, the block
        of start `k + 1` and start `k`; None if all are zero.
    - `gradient`: `(k, nx)`. `scores`: `(k, p)`, gradient of each window by parameters.
    - `own`: `(k, p, p)`, matrix of each window, without priors.
    """

    theta: np.ndarray
    theta_gradient: np.ndarray
    border: np.ndarray
    diagonal: np.ndarray
    below: np.ndarray | None
    gradient: np.ndarray
    scores: np.ndarray
    own: np.ndarray


def assemble(blocks, starts, prior_gradient, prior_hessian, continuity: bool) -> Arrow:
    """Add up data, priors and jumps.

    **Arguments:**

    - `blocks`: result of `evaluate`.
    - `starts`: coordinates of the initial states, in units of their prior.
    - `prior_gradient`, `prior_hessian`: derivatives of the priors by the parameters.
    """
    hessian = np.array(blocks.hessian)
    gradient = np.array(blocks.gradient)
    nx = starts.shape[1]
    p = hessian.shape[1] - nx
    below = None
    if continuity:
        jump, slope = np.asarray(blocks.gap), np.asarray(blocks.gap_slope)
        onward = np.asarray(blocks.next_slope)
        hessian += np.einsum("kia,kib->kab", slope, slope)
        gradient += np.einsum("kia,ki->ka", slope, jump)
        below = np.einsum("kia,kib->kab", onward, slope[:, :, p:])
    own = hessian[:, p:, p:] + np.eye(nx)
    own_gradient = gradient[:, p:] + starts
    border = hessian[:, p:, :p].copy()
    if continuity:
        own[1:] += np.einsum("kia,kib->kab", onward, onward)[:-1]
        own_gradient[1:] += np.einsum("kia,ki->ka", onward, jump)[:-1]
        border[1:] += np.einsum("kia,kib->kab", onward, slope[:, :, :p])[:-1]
    return Arrow(
        hessian[:, :p, :p].sum(axis=0) + prior_hessian,
        gradient[:, :p].sum(axis=0) + prior_gradient,
        border,
        _regular(own),
        below,
        own_gradient,
        gradient[:, :p],
        hessian[:, :p, :p],
    )


class Eliminated(NamedTuple):
    """The problem of the parameters alone.

    - `matrix`, `gradient`: Schur complement and its gradient.
    - `border`: starts per parameter, `(k, nx, p)`; `offset`: `(k, nx)`. The step of the
        starts is `-(offset + border @ step)`.
    """

    matrix: np.ndarray
    gradient: np.ndarray
    border: np.ndarray
    offset: np.ndarray


def eliminate(arrow: Arrow, damping: float = 0.0) -> Eliminated:
    """Eliminate the starts.

    **Arguments:**

    - `damping`: share of its diagonal that is added to the matrix of starts.
    """
    diagonal = arrow.diagonal.copy()
    index = np.arange(diagonal.shape[1])
    diagonal[:, index, index] *= 1.0 + damping
    right = np.concatenate([arrow.border, arrow.gradient[:, :, None]], axis=2)
    if arrow.below is None:
        solved = np.linalg.solve(diagonal, right)
    else:
        solved = _tridiagonal(diagonal, arrow.below, right)
    border, offset = solved[:, :, :-1], solved[:, :, -1]
    matrix = arrow.theta - np.einsum("kxa,kxb->ab", arrow.border, border)
    gradient = arrow.theta_gradient - np.einsum("kxa,kx->a", arrow.border, offset)
    return Eliminated(0.5 * (matrix + matrix.T), gradient, border, offset)


def scores(arrow: Arrow, eliminated: Eliminated) -> np.ndarray:
    """Compute the gradient of each window by the parameters, after elimination."""
    inner = np.einsum("kxa,kx->ka", eliminated.border, arrow.gradient)
    return arrow.scores - inner


def informations(arrow: Arrow, eliminated: Eliminated) -> np.ndarray:
    """Compute the part of each window in the matrix of the parameters alone. With
    continuity, only sums over all windows of a recording are positive semidefinite."""
    inner = np.einsum("kxa,kxb->kab", arrow.border, eliminated.border)
    return arrow.own - inner


def _tridiagonal(diagonal, below, right) -> np.ndarray:
    """Solve a symmetric block-tridiagonal system."""
    count = len(diagonal)
    pivots, rows = [diagonal[0]], [right[0]]
    for k in range(1, count):
        if not below[k - 1].any():
            pivots.append(diagonal[k])
            rows.append(right[k])
            continue
        share = np.linalg.solve(pivots[-1], below[k - 1].T).T
        pivots.append(diagonal[k] - share @ below[k - 1].T)
        rows.append(right[k] - share @ rows[-1])
    out = [np.linalg.solve(pivots[-1], rows[-1])]
    for k in range(count - 2, -1, -1):
        rest = rows[k]
        if below[k].any():
            rest = rest - below[k].T @ out[-1]
        out.append(np.linalg.solve(pivots[k], rest))
    return np.stack(out[::-1])


class Solver(NamedTuple):
    """Settings of the Levenberg-Marquardt solver.

    **Arguments:**

    - `max_steps`: largest number of evaluations of residuals and Jacobians per noise
        estimate.
    - `rtol`: a fit has converged if the relative decrease of the cost, both that of a step and
        that which derivatives predict, is below `rtol`. At kinks the cost decreases less than
        predicted; a fit that ends there has converged if the root mean square of the distances
        of its parameters from the predicted minimum is at most half a standard deviation.
    - `damping`: initial damping, relative to the diagonal.
    - `rounds`: largest number of noise estimates.
    - `restarts`: largest number of times that the starts of badly fitted windows, and of those
        held at kinks, are searched again, see `docs/identification.md`.
    """

    max_steps: int = 200
    rtol: float = 1e-5
    damping: float = 1e-3
    rounds: int = 4
    restarts: int = 2


class Iterate(NamedTuple):
    """A point of the solver.

    - `cost`: data, priors and jumps.
    - `steps`: evaluations so far.
    """

    theta: np.ndarray
    starts: np.ndarray
    cost: float
    blocks: Blocks
    arrow: Arrow
    steps: int


Told = Callable[[np.ndarray, np.ndarray, float, int], bool]
"""Called with each accepted `theta`, `starts`, cost and number of evaluations. Returns true
to stop."""


def minimize(
    problem: FitProblem,
    theta: np.ndarray,
    starts: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    solver: Solver,
    told: Told,
    places: Sequence[str],
) -> tuple[Iterate, optx.RESULTS]:
    """Minimize the cost of a problem.

    **Arguments:**

    - `bounds`: lower and upper bounds of `theta`.
    - `told`: called with each accepted iterate.
    - `places`: description of each window, for errors.

    **Raises:** `FloatingPointError` if the cost of the start is not finite, or a window is
    too sensitive to its start.
    """
    now = iterate_at(problem, theta, starts, 0)
    check_start(now, places)
    if told(now.theta, now.starts, now.cost, now.steps):
        return now, optx.RESULTS.successful
    damping, growth, largest = solver.damping, 4.0, _largest_steps(problem)
    # A step that is limited, or more damped than `light`, is small not only at a minimum.
    light, idle, failed = damping, 0, False
    possible = lambda now: _step(now, bounds, largest, light)[2]
    while now.steps < solver.max_steps:
        step, slope, whole = _step(now, bounds, largest, damping)
        new = iterate_at(problem, *step, now.steps + 1)
        least = now.cost - 1e-3 * slope
        if not new.cost < least:
            count = min(_CORRECTIONS, solver.max_steps - new.steps)
            new = _corrected(problem, now, new, count, least)
        decrease, enough = now.cost - new.cost, solver.rtol * (abs(now.cost) + 1e-12)
        if np.isfinite(new.cost) and decrease > 1e-3 * slope:
            small = decrease <= enough
            idle = idle + 1 if small and whole <= slope else 0
            failed = failed and small
            ratio = decrease / max(slope, 1e-300)
            damping *= max(0.1, 1 - (2 * min(ratio, 1.5) - 1) ** 3)
            damping, growth, now = max(damping, 1e-9), 4.0, new
            light = min(damping, solver.damping)
            if told(now.theta, now.starts, now.cost, now.steps):
                return now, optx.RESULTS.successful
            stalled = idle >= _IDLE
        else:
            now, failed = now._replace(steps=new.steps), not np.isfinite(new.cost)
            small, stalled = True, whole <= enough
            damping, growth = damping * growth, growth * 2
        stalled = stalled and not failed
        smooth = small and possible(now) <= enough
        if smooth or (stalled and _near_minimum(now, bounds)):
            return now, optx.RESULTS.successful
        if stalled or damping > 1e12:
            return now, optx.RESULTS.nonlinear_divergence
    return now, optx.RESULTS.nonlinear_max_steps_reached


_IDLE = 3
"""Steps in a row with small decreases after which a fit ends."""
_NEAR = 0.5
"""Root mean square of the remaining steps, in standard deviations, up to which a fit that ends
at kinks of the cost has converged."""


def _near_minimum(now: Iterate, bounds) -> bool:
    """Return true if the parameters, and all unknowns, are within `_NEAR` of the minimum of the
    quadratic model. At kinks, such as those of dry friction, the cost decreases less than the
    model predicts."""
    unlimited = np.full(len(now.theta), np.inf)
    (theta, _), slope, _ = _step(now, bounds, unlimited, 0.0)
    step = theta - now.theta
    least = _NEAR**2 * np.median(now.blocks.misfit)
    near = step @ eliminate(now.arrow).matrix @ step <= least * len(step)
    return bool(near and 2 * slope <= least * (len(step) + now.starts.size))


_SINGULAR = 1e-14
"""Least eigenvalue of the matrix of a start, scaled to a unit diagonal, below which rounding
errors of the matrix exceed the prior. Precise sensors make the diagonal large, not this small;
motions that depend on one direction of the start alone do."""
_SENSITIVE = 1e18
"""Information about a start, in units of its prior, beyond which a window whose matrix is
singular makes rounding errors of the matrix of the parameters too large."""


def _singular(matrices: np.ndarray, least: float) -> np.ndarray:
    """Return true for finite matrices of starts whose least eigenvalue, scaled to a unit
    diagonal, is below `least`."""
    out = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
    # With the prior no eigenvalue is below the inverse of the largest entry.
    out[out] = np.abs(matrices[out]).max(axis=(1, 2), initial=0.0) > 1 / least
    matrix = matrices[out]
    scale = 1 / np.sqrt(np.maximum(np.diagonal(matrix, axis1=1, axis2=2), 1e-300))
    scaled = matrix * scale[:, :, None] * scale[:, None, :]
    out[out] = np.linalg.eigvalsh(scaled).min(axis=1, initial=1.0) < least
    return out


def _regular(matrices: np.ndarray) -> np.ndarray:
    """Return matrices of starts that can be inverted. The diagonal of those that lose the
    prior to rounding is raised slightly, so that steps in undetermined directions are small."""
    share = np.where(_singular(matrices, _SINGULAR), 2 * _SINGULAR, 0.0)
    return matrices * (1 + share[:, None, None] * np.eye(matrices.shape[1]))


def _sensitive(diagonal: np.ndarray) -> np.ndarray:
    """Return true for windows with a finite matrix that are too sensitive to their starts."""
    large = np.abs(diagonal).max(axis=(1, 2), initial=0.0) > _SENSITIVE
    return large & _singular(diagonal, 10 * _SINGULAR)


def check_start(now: Iterate, places: Sequence[str]) -> None:
    """Raise `FloatingPointError` if the cost or a derivative of the first iterate is not
    finite, or if a window is too sensitive to its start."""
    if np.isfinite(now.cost):
        return
    check_finite_costs(now.blocks.cost, places)
    diagonal = now.arrow.diagonal
    bad = np.flatnonzero(~np.isfinite(diagonal).all(axis=(1, 2)))
    if len(bad):
        raise FloatingPointError(_not_finite(f"The derivative of {places[bad[0]]}"))
    bad = np.flatnonzero(_sensitive(diagonal))
    if len(bad):
        growth = np.sqrt(np.abs(diagonal[bad[0]]).max())
        raise FloatingPointError(
            f"The simulation of {places[bad[0]]} is too sensitive to its initial state: one "
            f"standard deviation of its prior changes the residuals by {growth:.1e} times "
            "the noise. The windows are too long, or the simulation is unstable with these "
            "parameters. Choose shorter windows, reduce `sys.dt`, or start closer."
        )
    raise FloatingPointError(_not_finite("The cost"))


def check_finite_costs(windows: Any, places: Sequence[str]) -> None:
    """Raise `FloatingPointError` if the cost of a window is not finite."""
    bad = np.flatnonzero(~np.isfinite(np.asarray(windows)))
    if len(bad):
        raise FloatingPointError(_not_finite(f"The simulation of {places[bad[0]]}"))


def _not_finite(what: str) -> str:
    return (
        f"{what} is not finite at the start of the fit. Check units and signs of the "
        "recording, reduce `sys.dt`, or choose shorter windows."
    )


def iterate_at(problem: FitProblem, theta, starts, steps: int) -> Iterate:
    """Evaluate cost, derivatives and the Gauss-Newton matrix at a point. The cost is infinite
    where they cannot be used."""
    blocks = evaluate(problem, jnp.asarray(theta), jnp.asarray(starts))
    return _assembled(problem, theta, starts, jax.tree.map(np.asarray, blocks), steps)


def _assembled(problem: FitProblem, theta, starts, blocks: Blocks, steps: int):
    """Return the iterate with these blocks."""
    continuity = bool(problem.gap_weight > 0)
    cost, gradient, hessian = _prior(problem, theta)
    total = float(blocks.cost.sum() + cost + 0.5 * (starts**2).sum())
    if continuity:
        total += 0.5 * float((blocks.gap**2).sum())
    arrow = assemble(blocks, starts, gradient, hessian, continuity)
    finite = all(np.isfinite(x).all() for x in arrow if x is not None)
    finite = finite and not _sensitive(arrow.diagonal).any()
    return Iterate(theta, starts, total if finite else np.inf, blocks, arrow, steps)


_CORRECTIONS = 3
"""Largest number of corrections of starts after a step that does not decrease the cost."""


def _corrected(
    problem: FitProblem, now: Iterate, new: Iterate, count: int, least: float
) -> Iterate:
    """Move the starts of windows that a step made worse, with its parameters, until the cost
    is below `least`. Without this, one window whose residuals are very nonlinear in its start,
    such as one that begins near sticking, makes all steps small.

    Nothing is moved if most windows are worse, because then the step of the parameters is too
    large, or with continuity, where windows depend on each other."""
    worse = ~(_costs(new) < _costs(now))
    if problem.gap_weight > 0 or 2 * worse.sum() > len(worse):
        return new
    starts = np.where(worse[:, None], now.starts, new.starts)
    damping = np.full(len(starts), 1e-3)
    for _ in range(count):
        trial = iterate_at(problem, new.theta, starts, new.steps + 1)
        better = _costs(trial) < _costs(new)
        starts = _choose(better, trial.starts, new.starts)
        pick = lambda a, b: _choose(better, a, b)
        blocks = jax.tree.map(pick, trial.blocks, new.blocks)
        new = _assembled(problem, new.theta, starts, blocks, trial.steps)
        if new.cost < least:
            break
        step = _start_steps(_usable(new), new.arrow.gradient, damping)
        starts = np.where(worse[:, None], starts + step, starts)
        damping = np.where(better, 0.3 * damping, 10 * damping)
    return new


def _choose(flags: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Choose for each window."""
    return np.where(flags.reshape(-1, *[1] * (a.ndim - 1)), a, b)


def _usable(now: Iterate) -> np.ndarray:
    """Return the matrix of each start; unit matrices where steps cannot be computed."""
    matrix = now.arrow.diagonal
    bad = ~np.isfinite(matrix).all(axis=(1, 2)) | _sensitive(matrix)
    return _choose(~bad, matrix, np.broadcast_to(np.eye(matrix.shape[1]), matrix.shape))


def _start_steps(matrix: np.ndarray, gradient: np.ndarray, damping: np.ndarray):
    """Compute damped Gauss-Newton steps of each start by itself."""
    damped, index = matrix.copy(), np.arange(matrix.shape[1])
    damped[:, index, index] *= 1 + damping[:, None]
    return -np.linalg.solve(damped, gradient[:, :, None])[..., 0]


def _largest_steps(problem: FitProblem) -> np.ndarray:
    """Return the largest steps of the free numbers: one for logarithms."""
    pairs = zip(problem.unknowns, problem.sizes, strict=True)
    limit = lambda unknown: 1.0 if isinstance(unknown.transform, Log) else np.inf
    return np.concatenate([np.full(size, limit(unknown)) for unknown, size in pairs])


def _step(now: Iterate, bounds, largest: np.ndarray, damping: float):
    """Return the next point, the decrease of the cost that the quadratic model predicts, and
    the one without a largest change.

    **Arguments:**

    - `largest`: largest change of each free number.
    """
    lower, upper = bounds
    reduced = eliminate(now.arrow, damping)
    diagonal = np.maximum(np.diag(now.arrow.theta), 1e-12)
    matrix = reduced.matrix + damping * np.diag(diagonal)
    theta, step = now.theta, np.zeros_like(now.theta)
    held = np.zeros(len(theta), bool)
    # Bounds are found one after the other: those that a step would leave are held.
    for _ in range(len(theta) + 1):
        free = ~held
        right = reduced.gradient[free] + matrix[np.ix_(free, held)] @ step[held]
        if free.any():
            step[free] = -_solved(matrix[np.ix_(free, free)], right)
        leaves = free & ((theta + step < lower) | (theta + step > upper))
        if not leaves.any():
            break
        step[leaves] = np.clip(theta + step, lower, upper)[leaves] - theta[leaves]
        held |= leaves
    starts = -(reduced.offset + reduced.border @ step)
    slope = -(now.arrow.theta_gradient @ step + (now.arrow.gradient * starts).sum())
    # Far from the solution, the linear model asks for factors beyond which it is wrong.
    share = 1 / max(1.0, float((np.abs(step) / largest).max(initial=0.0)))
    place = theta + share * step, now.starts + share * starts
    slope = max(float(slope), 0.0)
    return place, share * (1 - 0.5 * share) * slope, 0.5 * slope


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix * scale * scale[:, None]
    return scale * np.linalg.lstsq(scaled, scale * right, rcond=1e-14)[0]


def _prior(problem: FitProblem, theta) -> tuple[float, np.ndarray, np.ndarray]:
    """Compute the cost of the priors, with gradient and positive semidefinite Hessian."""
    size = len(theta)
    if all(unknown.prior is None for unknown in problem.unknowns):
        return 0.0, np.zeros(size), np.zeros((size, size))
    cost, gradient, hessian = prior_terms(problem, jnp.asarray(theta))
    values, vectors = np.linalg.eigh(np.asarray(hessian))
    fixed = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return float(cost), np.asarray(gradient), fixed


def floors(
    recordings: Sequence[Recording], channels: Sequence[str], widths: dict[str, int]
) -> dict[str, np.ndarray]:
    r"""Return the least noise of each channel and column.

    It is $\Delta/\sqrt{12}$ with the resolution $\Delta$ of the sensor, where it shows.
    """
    out = {}
    for name in channels:
        if any(name not in recording.channels for recording in recordings):
            # An error that is not in the units of a sensor.
            out[name] = np.full(widths[name], 1e-9)
            continue
        values = np.concatenate([recording.channels[name] for recording in recordings])
        if values.shape[1] == widths[name]:
            found = np.array([quantum(column) for column in values.T]) / np.sqrt(12)
        else:
            found = np.zeros(widths[name])
        out[name] = np.maximum(found, 1e-9)
    return out


def estimated(
    now: Iterate, loss: AbstractLoss, floor: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    r"""Estimate $\sigma_c^2 = \sum w r_c^2 / (\kappa \nu_c)$ for each channel and column,
    with the weights $w$ of the robust loss and their mean $\kappa$ for normal residuals.

    A channel of which all columns have one common noise is pooled.

    The degrees of freedom $\nu_c$ are the samples less the share of the parameters and
    starts that the data determine.
    """
    count = sum(float(x.sum()) for x in now.blocks.counts.values())
    inverse = np.linalg.inv(now.arrow.diagonal)
    used = len(now.theta) + now.starts.size - np.trace(inverse, axis1=1, axis2=2).sum()
    return noise_of(now.blocks, loss, floor, max(1.0 - used / max(count, 1.0), 0.05))


def noise_of(
    found: Blocks | Losses,
    loss: AbstractLoss,
    floor: dict[str, np.ndarray],
    share: float = 1.0,
) -> dict[str, np.ndarray]:
    """Estimate the noise of each channel and column, see `estimated`.

    **Arguments:**

    - `share`: degrees of freedom per sample.
    """
    out, kappa = {}, consistency(loss)
    for name, squares in found.squares.items():
        square = np.asarray(squares).sum(axis=0)
        count = np.asarray(found.counts[name]).sum(axis=0)
        if len(floor[name]) == 1:
            square, count = square.sum(keepdims=True), count.sum(keepdims=True)
        freedom = np.maximum(count * share, 1.0)
        out[name] = np.maximum(np.sqrt(square / (kappa * freedom)), floor[name])
    return out


_RATIO = 3.0
"""Mean square residual, in units of the median, above which a window is tried again."""
_STEPS = 6
"""Steps for each horizon."""


def restarted(problem: FitProblem, now: Iterate) -> np.ndarray | None:
    """Find better starts of windows, with parameters as they are: of those that are fitted
    much worse than others, and of those whose start is held at a kink of the cost, so that
    its quadratic model predicts a decrease of more than one.

    Losses per window discount badly fitted windows themselves, and continuity ties windows to
    their neighbors; then nothing is tried.

    **Returns:** starts of all windows, or None if none is better.
    """
    if problem.loss.per_window or problem.gap_weight > 0:
        return None
    misfit, slope = np.asarray(now.blocks.misfit), now.arrow.gradient
    own = -_start_steps(_usable(now), slope, np.zeros(len(slope)))
    held = 0.5 * (own * slope).sum(axis=1) > np.median(misfit)
    bad = held | (misfit > _RATIO * np.median(misfit))
    if not bad.any():
        return None
    starts = np.where(bad[:, None], 0.0, now.starts)
    time, mask = problem.batch.time, problem.batch.mask
    end = jnp.max(jnp.where(mask, time, 0.0), axis=1, keepdims=True)
    first = jnp.min(jnp.where(mask, time, end), axis=1, keepdims=True)
    for share in (0.25, 0.5, 1.0):
        near = eqx.tree_at(
            lambda p: p.batch.mask,
            problem,
            mask & (time <= first + share * (end - first)),
        )
        starts = _descended(near, now.theta, starts, bad)
    cost = _state(problem, now.theta, starts)[0]
    better = bad & (cost < _costs(now) * (1 - 1e-3))
    if not better.any():
        return None
    return np.where(better[:, None], starts, now.starts)


def _descended(problem: FitProblem, theta, starts, moving) -> np.ndarray:
    """Take Levenberg-Marquardt steps of each start by itself."""
    cost, gradient, matrix = _state(problem, theta, starts)
    damping = np.full(len(starts), 1e-3)
    for _ in range(_STEPS):
        step = _start_steps(matrix, gradient, damping)
        trial = np.where(moving[:, None], starts + step, starts)
        new = _state(problem, theta, trial)
        better = moving & (new[0] < cost)
        starts = _choose(better, trial, starts)
        pairs = zip(new, (cost, gradient, matrix), strict=True)
        cost, gradient, matrix = (_choose(better, a, b) for a, b in pairs)
        damping = np.where(better, 0.3 * damping, 10 * damping)
    return starts


def _state(
    problem: FitProblem, theta, starts
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute cost, gradient and Gauss-Newton matrix of each start. Costs are infinite where
    a step cannot be computed."""
    now = iterate_at(problem, theta, starts, 0)
    matrix = _usable(now)
    known = (matrix == now.arrow.diagonal).all(axis=(1, 2))
    return np.where(known, _costs(now), np.inf), now.arrow.gradient, matrix


def _costs(now: Iterate) -> np.ndarray:
    """Compute costs of windows, with the priors of their starts."""
    return now.blocks.cost + 0.5 * (now.starts**2).sum(axis=1)


class Adam(NamedTuple):
    """Settings of first-order steps (Kingma and Ba, *Adam: a method for stochastic
    optimization*, 2015), for thousands of parameters such as weights of networks.

    A step takes one gradient by reverse mode, however many parameters there are: for 1,313
    weights and 1 s windows of a double pendulum 0.034 s, and a step of `Solver` 15 s of one
    CPU. There is no Gauss-Newton matrix, and therefore neither covariances nor intervals.

    Windows whose simulation fails are left out of gradients and of the noise. The outcome is
    `nonlinear_divergence` if any fails at the end, otherwise `successful`: there is no test of
    convergence.

    **Arguments:**

    - `steps`: largest number of steps.
    - `learning_rate`: size of the first steps, in units of the scale of each unknown; it
        decreases to zero along a cosine.
    - `batch`: windows per step, drawn at random. By default all of them.
    - `check_every`: steps between two estimates of the noise; held-out errors are computed
        then.
    - `seed`: seed of the choice of windows.
    """

    steps: int = 2000
    learning_rate: float = 1e-2
    batch: int | None = None
    check_every: int = 100
    seed: int = 0


class Descent(NamedTuple):
    """The end of first-order steps.

    - `influence`: true for free numbers on which the data depended in some step.
    """

    theta: np.ndarray
    starts: np.ndarray
    sigma: dict[str, Array]
    steps: int
    influence: np.ndarray


def descend(
    problem: FitProblem,
    theta: np.ndarray,
    starts: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    settings: Adam,
    noise: Callable[[Losses, dict[str, Array]], dict[str, Array]],
    told: Told,
    places: Sequence[str],
) -> Descent:
    """Minimize the cost of a problem by first-order steps.

    **Arguments:**

    - `noise`: `(losses, sigma) -> sigma` estimates the noise from windows with finite
        losses.
    - `told`: called at the start, and after each `check_every` steps.
    - `places`: description of each window, for errors.

    **Raises:** `FloatingPointError` if the cost of the start is not finite.
    """
    free, begin = (jnp.asarray(theta), jnp.asarray(starts)), 0
    moments, influence = _means().init(free), jnp.zeros(theta.shape, bool)
    size = jnp.asarray(settings.learning_rate * _free_scales(problem, theta))
    edges = jnp.asarray(bounds[0]), jnp.asarray(bounds[1])
    while True:
        found, prior = total(problem, free)
        if not begin:
            check_finite_costs(found.cost, places)
        sigma = finite_noise(found, problem.sigma, noise)
        problem = eqx.tree_at(lambda p: p.sigma, problem, sigma)
        cost = float(total(problem, free)[0].cost.sum() + prior)
        stop = told(np.asarray(free[0]), np.asarray(free[1]), cost, begin)
        if stop or begin >= settings.steps:
            break
        count = min(settings.check_every, settings.steps - begin)
        rows = _rows(problem.batch.q.shape[0], settings, begin, count)
        index = jnp.arange(begin, begin + count)
        at = rows, index / settings.steps
        carry = free, moments, influence
        free, moments, influence = _adam(problem, carry, (size, *edges), at)
        begin += count
    theta, starts = map(np.asarray, free)
    return Descent(theta, starts, problem.sigma, begin, np.asarray(influence))


def finite_noise(found: Losses, sigma: dict[str, Array], noise) -> dict[str, Array]:
    """Estimate the noise from the windows with finite losses. A noise that is not finite is
    not accepted."""
    finite = np.isfinite(np.asarray(found.cost))
    if not finite.any():
        return sigma
    kept = jax.tree.map(lambda x: np.asarray(x)[finite], found)
    new = noise(kept, sigma)
    return {k: jnp.where(jnp.isfinite(new[k]), new[k], x) for k, x in sigma.items()}


def _rows(windows: int, settings: Adam, begin: int, count: int) -> Array:
    """Return the windows of each step, `(count, batch)`."""
    size = windows if settings.batch is None else min(settings.batch, windows)
    rng = np.random.default_rng((settings.seed, begin))
    return jnp.asarray(
        np.stack([rng.permutation(windows)[:size] for _ in range(count)])
    )


def _free_scales(problem: FitProblem, theta: np.ndarray) -> np.ndarray:
    """Return a large change of the free numbers, one for all those of an unknown."""
    values, free, out = problem.scales(jnp.asarray(theta)), jnp.asarray(theta), []
    for unknown, part in zip(problem.unknowns, problem.parts(free), strict=True):
        one = jnp.ones_like(part)
        slope = np.abs(np.asarray(jax.jvp(unknown.values, (part,), (one,))[1]))
        own, values = values[: len(slope)], values[len(slope) :]
        ratio = own / np.where(slope > 0, slope, 1.0)
        out += [float(np.sqrt(np.mean(ratio**2)))] * len(part)
    return np.array(out)


@eqx.filter_jit
def total(problem: FitProblem, free: tuple[Array, Array]) -> tuple[Losses, Array]:
    """Compute the losses of all windows, and the cost of priors and starts."""
    theta, starts = free
    prior = problem.prior(theta) + 0.5 * jnp.sum(starts**2)
    return losses(problem, theta, starts), prior


def _means() -> Any:
    """Return the rule that divides means of gradients by their sizes."""
    # Here, because other parts of eqsim do not need Optax.
    import optax

    return optax.scale_by_adam()


@eqx.filter_jit
def _adam(problem: FitProblem, carry, limits, at):
    """Take steps.

    **Arguments:**

    - `carry`: free numbers and starts, state of the optimizer, and on which free numbers
        the data have depended.
    - `limits`: sizes of the first steps, and bounds, of the parameters.
    - `at`: windows of each step, and its place in all steps, from 0 to 1.
    """
    size, lower, upper = limits

    def data(free, rows, known):
        theta, starts = free
        part = jax.tree.map(lambda x: x[rows], problem.batch)
        few = eqx.tree_at(lambda p: p.batch, problem, part)
        share = starts.shape[0] / jnp.maximum(jnp.sum(known, dtype=theta.dtype), 1.0)
        found = losses(few, theta, starts[rows]).cost
        return share * jnp.sum(jnp.where(known, found, 0.0)), found

    def slope_of_data(free, rows):
        # One failing simulation makes the gradient of the sum NaN, even with weight zero.
        # So failing windows are replaced by another one with weight zero in a second pass.
        def attempt(carry):
            rows, known, _, _, passes = carry
            gradient = jax.value_and_grad(data, has_aux=True)
            (_, found), slope = gradient(free, rows, known)
            finite = jnp.isfinite(found) & jnp.isfinite(slope[1][rows]).all(axis=1)
            known = known & finite
            rows = jnp.where(finite, rows, rows[jnp.argmax(known)])
            return rows, known, slope, finite.all(), passes + 1

        first = rows, jnp.ones(rows.shape, bool), free, jnp.asarray(False), 0
        again = lambda carry: ~carry[3] & (carry[4] < 2)
        slope = jax.lax.while_loop(again, attempt, first)[2]
        return jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), slope)

    def priors(free):
        return problem.prior(free[0]) + 0.5 * jnp.sum(free[1] ** 2)

    def step(carry, x):
        (theta, starts), moments, influence = carry
        rows, place = x
        slope = slope_of_data((theta, starts), rows)
        influence = influence | (slope[0] != 0.0)
        slope = jax.tree.map(jnp.add, slope, jax.grad(priors)((theta, starts)))
        move: Any = None
        with jax.numpy_dtype_promotion("standard"):  # Optax needs it.
            move, moments = _means().update(slope, moments)
        rate = (0.5 + 0.5 * jnp.cos(jnp.pi * place)).astype(theta.dtype)
        theta = jnp.clip(theta - rate * size * move[0], lower, upper)
        starts = starts - _START_RATE * rate * move[1]
        return ((theta, starts), moments, influence), None

    return jax.lax.scan(step, carry, at)[0]


_START_RATE = 1e-3
"""Size of the first steps of starts of windows, in units of their priors."""
