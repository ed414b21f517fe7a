"""Fits parameters of a robot to recordings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import check_count, check_numbers
from ..model import System, validate as validate_system
from ..pipelines import AbstractPipeline, Generalized
from ._arrow import eliminate
from ._checks import (
    check_channels,
    check_influence,
    check_split,
    predicted_channels,
    tangent_widths,
    warn_without_influence,
)
from ._covariance import covariance, pseudo_inverse
from ._evaluate import prior_terms, Problem
from ._identifiability import identifiability
from ._measure import AbstractMeasurement, JointPositions, measurement
from ._noise import estimated, floors
from ._objective import AbstractObjective, Given, Simulation
from ._recording import Recording
from ._restarts import restarted
from ._result import Result
from ._robust import AbstractLoss, Square
from ._signals import Delay
from ._solver import Iterate, iterate_at, minimize, Solver
from ._unknowns import AbstractUnknown, Context
from ._validation import validate as validation
from ._windows import Cut, cut, Windows


_MOVES = 10
"""Maximum number of times that a fit continues beyond bounds of positive values."""


class Setup(NamedTuple):
    """A problem, its recordings and windows, first free numbers, their names and bounds."""

    problem: Problem
    runs: Sequence[Recording]
    found: Cut
    theta: np.ndarray
    labels: tuple[str, ...]
    bounds: tuple[np.ndarray, np.ndarray]


def fit(
    sys: System,
    recordings: Recording | Sequence[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    *,
    measure: Any = JointPositions(),
    windows: Windows = Windows(0.5),
    objective: AbstractObjective = Simulation(),
    loss: AbstractLoss = Square(),
    noise: Mapping[str, Any] | None = None,
    pipeline: AbstractPipeline = Generalized(),
    smoothing: Sequence[float] = (),
    solver: Solver = Solver(),
    validate: Sequence[Recording] = (),
    horizons: Sequence[float] | None = None,
    progress: Callable[[np.ndarray, float, int], Any] | None = None,
    accepted: Callable[[System], Any] | None = None,
) -> Result:
    """Find parameters of a robot for which the simulation follows recordings.

    Recordings are cut into windows, whose states at the start are unknown as well. All
    Jacobians are exact (forward mode). Run it in double precision.

    **Arguments:**

    - `sys`: the robot, with parameters to start from.
    - `recordings`: measured motions. `unknowns`: parameters by name.
    - `measure`: a measurement that predicts the channels of the recordings, a tuple of
        them, or a function `(sys, state) -> {channel: array}`.
    - `windows`: lengths and starts of windows. `objective`: the comparison.
    - `loss`: robust loss of the residuals.
    - `noise`: standard deviations by channel. By default they are estimated.
    - `pipeline`: the physics. `solver`: settings of the solver.
    - `smoothing`: widths of the onset of contacts, m, one after the other:
        `(2e-3, 5e-4, 0.0)`. Each fit starts from the last one.
    - `validate`: held-out recordings, of other runs. `horizons`: s, at which their errors
        are reported; by default a quarter, a half and all of a window.
    - `progress`, `accepted`: called after each accepted step, with values, cost and
        evaluations, and with the robot.

    **Raises:** `ValueError` if recordings, parameters or starts are invalid;
    `FloatingPointError` if the simulation is not finite at the start.
    """
    runs = [recordings] if isinstance(recordings, Recording) else list(recordings)
    check_split(runs, validate)
    _check_solver(solver)
    how = measurement(measure), pipeline, objective, loss
    setup = prepare(sys, runs, unknowns, windows, noise, *how)
    result = _annealed(setup, smoothing, solver, noise, (progress, accepted))
    if not validate:
        return result
    spans = horizons or [windows.length * share for share in (0.25, 0.5, 1.0)]
    return _validated(result, list(validate), windows, spans, _before(unknowns))


def _check_solver(solver: Solver) -> None:
    """Raise `ValueError` if a setting of the solver is out of its range."""
    not_negative = lambda x: x >= 0
    check_count("Solver.max_steps", solver.max_steps)
    check_count("Solver.rounds", solver.rounds)
    check_count("Solver.restarts", solver.restarts, 0)
    check_numbers("Solver.rtol", solver.rtol, not_negative, "at least 0")
    check_numbers("Solver.damping", solver.damping, lambda x: x > 0, "positive")


def _annealed(setup: Setup, smoothing, solver: Solver, noise, callbacks) -> Result:
    """Fit with each width of the onset of contacts in turn."""
    problem, runs, found, theta, labels, bounds = setup
    widths = {k: v.shape[0] for k, v in problem.sigma.items()}
    floor = floors(runs, list(widths), widths)
    told = _told(problem, *callbacks)
    starts, steps = np.zeros(found.batch.sd.shape), 0
    for width in smoothing or (None,):
        if width is not None:
            problem = _smoothed(problem, float(width))
        problem, now, outcome, bounds = _reached(
            problem, theta, starts, bounds, solver, noise, floor, told
        )
        theta, starts, steps = now.theta, now.starts, steps + now.steps
    warn_without_influence(now, labels)
    now = now._replace(steps=steps)
    return _result(problem, now, outcome, found, runs, labels, bounds)


def _validated(result: Result, held, windows: Windows, spans, before: float) -> Result:
    """Add errors on held-out recordings."""
    first = np.asarray(result.problem.origin)
    args = result.problem, result.theta, first, held, windows, spans, before
    return dataclasses.replace(result, validation=validation(*args))


def prepare(
    sys: System,
    runs: Sequence[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    windows: Windows,
    noise: Mapping[str, Any] | None,
    measure: AbstractMeasurement,
    pipeline: AbstractPipeline = Generalized(),
    objective: AbstractObjective = Simulation(),
    loss: AbstractLoss = Square(),
) -> Setup:
    """Check everything that can be checked before a simulation.

    **Arguments:** as for `fit`.
    """
    validate_system(sys)
    if not unknowns:
        raise ValueError("`unknowns` is empty: at least one parameter is required.")
    predicted = predicted_channels(sys, measure)
    check_channels(runs, predicted)
    widths = tangent_widths(sys, measure, predicted)
    context = Context(sys, {"ctrl": sys.nu} | widths)
    starts, labels = [], []
    for name, unknown in unknowns.items():
        starts.append(unknown.start(name, context))
        labels += unknown.labels(name, context)
    check_influence(sys, unknowns, context)
    given = Given(sys, pipeline, measure, runs, windows, widths)
    runs, channels, compared = objective.compare(given)
    found = cut(sys, runs, channels, windows, _before(unknowns))
    sizes = tuple(len(start) for start in starts)
    theta = np.concatenate(starts)
    sigma = {name: np.ones(width) for name, width in compared.items()}
    for name, value in (noise or {}).items():
        if name not in sigma:
            raise ValueError(
                f"`noise` names the unknown channel {name!r}. Channels: {[*sigma]}."
            )
        check_numbers(f"noise of {name!r}", value, lambda x: x > 0, "positive")
        sigma[name] = np.broadcast_to(np.asarray(value, float), sigma[name].shape)
    weight = 0.0 if windows.continuity is None else 1.0 / windows.continuity
    problem = Problem(
        sys,
        tuple(unknowns.values()),
        sizes,
        jnp.asarray(theta),
        found.batch,
        found.steps,
        found.rows,
        measure,
        pipeline,
        objective,
        loss,
        {k: jnp.asarray(v) for k, v in sigma.items()},
        jnp.asarray(weight),
    )
    bounds = _bounds(problem, theta)
    return Setup(problem, runs, found, theta, tuple(labels), bounds)


def _reached(problem, theta, starts, bounds, solver, noise, floor, told):
    """Fit, and again where a positive number is far from where the data want it: its
    bounds are relative to its start, and at a tiny value the cost is flat in its
    logarithm."""
    args = solver, noise, floor, told
    problem, now, outcome = _fitted(problem, theta, starts, bounds, *args)
    for _ in range(_MOVES):
        moved, wider = _further(problem, now, bounds)
        if np.array_equal(wider, bounds):
            break
        if not np.isfinite(iterate_at(problem, moved, now.starts, 0).cost):
            break  # The simulation fails there.
        other, new, reached = _fitted(problem, moved, now.starts, wider, *args)
        gain = now.cost - iterate_at(problem, new.theta, new.starts, 0).cost
        new = new._replace(steps=now.steps + new.steps)
        # By chance the cost decreases by half for each number.
        if not gain > max(2.0, solver.rtol * abs(now.cost)):
            return problem, now._replace(steps=new.steps), outcome, bounds
        problem, now, outcome, bounds = other, new, reached, wider
    return problem, now, outcome, bounds


def _further(problem: Problem, now: Iterate, bounds: tuple[np.ndarray, np.ndarray]):
    """Return free numbers to continue from, and bounds, which are wider where the data
    want another value than a logarithm can reach. A larger one starts from the minimum of
    the linear model of the data; a smaller one stays at its lower bound."""
    (lower, upper), theta = bounds, now.theta
    reduced = eliminate(now.arrow)
    slope, curvature = -reduced.gradient, np.diag(reduced.matrix)
    wanted = np.divide(slope, curvature, np.zeros_like(slope), where=curvature > 0)
    larger = np.log1p(np.maximum(wanted, 0.0))
    up = np.where(theta >= upper, wanted > 0, theta + larger > upper)
    moved = np.where(up & (_bounds(problem, theta)[1] > upper), theta + larger, theta)
    least, most = _bounds(problem, moved)
    down = (theta <= lower) & (wanted < 0)
    lower = np.where(down, np.minimum(lower, least), lower)
    return moved, (lower, np.where(up, np.maximum(upper, most), upper))


def _fitted(problem, theta, starts, bounds, solver, noise, floor, told):
    """Fit, and try windows again that ended in a wrong minimum."""
    args = bounds, solver, noise, floor, told
    problem, now, outcome = _noisy(problem, theta, starts, *args)
    for _ in range(solver.restarts):
        better = restarted(problem, now)
        if better is None:
            break
        steps = now.steps
        problem, now, outcome = _noisy(problem, now.theta, better, *args)
        now = now._replace(steps=now.steps + steps)
    return problem, now, outcome


def _noisy(problem, theta, starts, bounds, solver, noise, floor, told):
    """Fit, and estimate the noise, in turns."""
    fixed = set(noise or ())
    if len(fixed) == len(problem.sigma):
        now, outcome = minimize(problem, theta, starts, bounds, solver, told)
        return problem, now, outcome
    settle, steps = solver._replace(rtol=1e-2, max_steps=1), 0
    now, outcome = minimize(problem, theta, starts, bounds, settle, told)
    for _ in range(max(solver.rounds, 1)):
        sigma = estimated(now, problem.loss, floor)
        sigma = {
            k: problem.sigma[k] if k in fixed else jnp.asarray(v)
            for k, v in sigma.items()
        }
        change = max(
            float(np.abs(np.log(sigma[k] / problem.sigma[k])).max()) for k in sigma
        )
        if steps and change < 0.02:
            break
        problem = eqx.tree_at(lambda p: p.sigma, problem, sigma)
        now, outcome = minimize(problem, now.theta, now.starts, bounds, solver, told)
        steps += now.steps
    return problem, now._replace(steps=steps), outcome


def _result(problem: Problem, now: Iterate, outcome, found: Cut, runs, labels, bounds):
    theta = jnp.asarray(now.theta)
    values = np.asarray(problem.values(theta))
    jacobian = np.asarray(jax.jacfwd(problem.values)(theta))
    samples = int(sum(float(x.sum()) for x in now.blocks.counts.values()))
    linked = bool(found.batch.linked.any())
    known = covariance(now, found.run, samples, jacobian, linked)
    _, _, hessian = prior_terms(problem, theta)
    prior_sd = _prior_sd(np.asarray(hessian), jacobian)
    scale = np.where(np.isfinite(prior_sd), prior_sd, problem.scales(theta))
    data = now.arrow._replace(theta=now.arrow.theta - np.asarray(hessian))
    to_values = np.linalg.inv(jacobian)
    information = to_values.T @ eliminate(data).matrix @ to_values
    model = problem.model(theta)
    names = tuple(
        (runs[k].name, float(t)) for k, t in zip(found.recording, found.begin)
    )
    return Result(
        sys=model.sys,
        signals=model.signals,
        names=labels,
        values=values,
        sigma={k: np.asarray(v) for k, v in problem.sigma.items()},
        covariance=known,
        identifiability=identifiability(information, scale, labels),
        validation=None,
        outcome=outcome,
        cost=now.cost,
        steps=now.steps,
        misfit=np.asarray(now.blocks.misfit),
        window=names,
        problem=problem,
        theta=now.theta,
        starts=now.starts,
        jacobian=jacobian,
        bounds=bounds,
        prior_sd=prior_sd,
    )


def _before(unknowns: Mapping[str, AbstractUnknown]) -> float:
    """Return the longest delay of commands, s."""
    delays = [x for x in unknowns.values() if isinstance(x, Delay)]
    return max([x.upper for x in delays if x.channel == "ctrl"], default=0.0)


def _bounds(problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a fit that starts from these free numbers."""
    parts = np.split(theta, np.cumsum(problem.sizes)[:-1])
    pairs = zip(problem.unknowns, parts, strict=True)
    lower, upper = zip(*(unknown.bounds(part) for unknown, part in pairs))
    return np.concatenate(lower), np.concatenate(upper)


def _smoothed(problem: Problem, width: float) -> Problem:
    if not isinstance(problem.pipeline, Generalized):
        raise ValueError(
            "`smoothing` needs the pipeline `Generalized`, got "
            f"{type(problem.pipeline).__name__}."
        )
    pipeline = dataclasses.replace(problem.pipeline, smoothing=jnp.asarray(width))
    return eqx.tree_at(lambda p: p.pipeline, problem, pipeline)


def _told(problem: Problem, progress, accepted):
    def told(now: Iterate) -> None:
        if accepted is not None:
            accepted(problem.model(jnp.asarray(now.theta)).sys)
        if progress is not None:
            values = np.asarray(problem.values(jnp.asarray(now.theta)))
            progress(values, now.cost, now.steps)

    return told


def _prior_sd(hessian: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """Return standard deviations of the values by their priors alone."""
    known = np.diag(hessian) > 0
    if not known.any():
        return np.full(len(hessian), np.inf)
    inverse = np.zeros_like(hessian)
    inverse[np.ix_(known, known)] = pseudo_inverse(hessian[np.ix_(known, known)])[0]
    variance = np.diag(jacobian @ inverse @ jacobian.T)
    reached = np.abs(jacobian) @ known > 0
    return np.where(reached, np.sqrt(np.maximum(variance, 0.0)), np.inf)
