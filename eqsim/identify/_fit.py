"""Fit parameters of a robot to recordings, and choose experiments for it.

In reading order: `fit`, the preparation of its problem, the rounds of its solver (widths of
contacts, bounds, noise, restarts), its result; `structural_identifiability` and
`design_experiment`, which evaluate the same problem before there are data; checks.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from .._errors import check_count, check_numbers, listed
from .._loops import scan
from ..estimate import AbstractMeasurement, JointPositions
from ..estimate.stochastic_model import (
    measurement,
    predicted_channels,
    tangent_widths,
    with_pipeline,
)
from ..kinematics import integrate
from ..model import System, validate as validate_system
from ..pipelines import AbstractPipeline, Generalized, inactive_parameters
from ._assessment import (
    Covariance,
    covariance,
    EarlyStop,
    held_out_errors,
    HeldOut,
    Identifiability,
    identifiability,
    pseudo_inverse,
)
from ._channels import ChannelBias, ChannelDelay
from ._fit_problem import AbstractLoss, FitProblem, prior_terms, SquareLoss
from ._objectives import AbstractObjective, Given, Simulation
from ._recordings import Recording
from ._result import Result
from ._solver import (
    Adam,
    descend,
    eliminate,
    estimated,
    finite_noise,
    floors,
    Iterate,
    iterate_at,
    minimize,
    noise_of,
    restarted,
    Solver,
    Told,
    total,
)
from ._unknowns import AbstractUnknown, RUNS
from ._windows import Cut, cut, start_channel, Windows


class IdentificationWarning(UserWarning):
    """Something in the data or the parameters that cannot contribute to a fit, or a result
    that cannot be trusted."""


_MOVES = 10
"""Maximum number of times that a fit continues beyond bounds of positive values."""


class Setup(NamedTuple):
    """A problem, its recordings and windows, first free numbers, their names and bounds."""

    problem: FitProblem
    runs: Sequence[Recording]
    found: Cut
    theta: np.ndarray
    labels: tuple[str, ...]
    bounds: tuple[np.ndarray, np.ndarray]

    @property
    def places(self) -> list[str]:
        """Description of each window, for errors."""
        pairs = enumerate(zip(self.found.recording, self.found.begin, strict=True))
        text = "window {} (recording {!r}, from {:.3g} s)"
        return [text.format(k, self.runs[r].name, at) for k, (r, at) in pairs]


def fit(
    sys: System,
    recordings: Recording | Sequence[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    *,
    measure: Any = JointPositions(),
    windows: Windows = Windows(0.5),
    objective: AbstractObjective = Simulation(),
    loss: AbstractLoss = SquareLoss(),
    noise: Mapping[str, Any] | None = None,
    pipeline: AbstractPipeline = Generalized(),
    smoothing: Sequence[float] = (),
    solver: Solver | Adam = Solver(),
    stop: EarlyStop | None = None,
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
    - `pipeline`: the physics. `solver`: settings of Levenberg-Marquardt, or of `Adam`.
    - `stop`: held-out recordings that end the fit, see `EarlyStop`.
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
    watched = [] if stop is None else stop.runs
    check_split(runs, validate)
    check_split([*runs, *validate], watched)
    _check_solver(solver)
    _warn_of_memory(sys, windows, objective)
    setup = prepare(
        sys,
        runs,
        unknowns,
        windows,
        noise,
        measurement(measure),
        pipeline,
        objective,
        loss,
    )
    problem = setup.problem
    widths = {k: v.shape[0] for k, v in problem.sigma.items()}
    floor = floors(setup.runs, list(widths), widths)
    told, fixed = _told(problem, progress, accepted), frozenset(noise or ())
    watch = lambda now: _watch(now, stop, windows, longest_delay(unknowns))
    if isinstance(solver, Adam):
        result = _fit_by_adam(solver, setup, smoothing, fixed, floor, told, watch)
    else:
        rounds = _Rounds(solver, fixed, floor, told, setup.places)
        result = _annealed(rounds, setup, smoothing, watch)
        if result.not_converged:
            warnings.warn(
                f"The fit has {result.not_converged} Pass a larger `Solver.max_steps`, shorter "
                "windows, or a better start.",
                IdentificationWarning,
                stacklevel=2,
            )
    if not validate:
        return result
    held_out = held_out_errors(
        result.problem,
        result.theta,
        np.asarray(result.problem.origin),
        list(validate),
        windows,
        horizons or [windows.length * share for share in (0.25, 0.5, 1.0)],
        longest_delay(unknowns),
    )
    return dataclasses.replace(result, validation=held_out)


class _Rounds(NamedTuple):
    """Settings that all rounds of a fit share.

    - `fixed`: channels whose noise is given. `floor`: least noise of each channel.
    - `told`: called with each accepted iterate.
    - `places`: description of each window, for errors.
    """

    solver: Solver
    fixed: frozenset[str]
    floor: dict[str, np.ndarray]
    told: Told
    places: Sequence[str]


def _warn_of_memory(
    sys: System, windows: Windows, objective: AbstractObjective
) -> None:
    """Warn of activations, which are zero at the start of a window, if they are compared."""
    if sys.na and not windows.settle and isinstance(objective, Simulation):
        warnings.warn(
            f"The robot has {sys.na} activations (memory of actuators), which are zero at the "
            "start of each window. This biases the fit: pass `Windows(..., settle=)`, a few of "
            "their time constants in s, for which a window is simulated but not compared.",
            IdentificationWarning,
            stacklevel=3,
        )


def _check_solver(solver: Solver | Adam) -> None:
    """Raise `ValueError` if a setting of the solver is out of its range."""
    not_negative = lambda x: x >= 0
    if isinstance(solver, Adam):
        check_count("Adam.steps", solver.steps)
        check_count("Adam.check_every", solver.check_every)
        if solver.batch is not None:
            check_count("Adam.batch", solver.batch)
        rate = solver.learning_rate
        check_numbers("Adam.learning_rate", rate, lambda x: x > 0, "positive")
        return
    check_count("Solver.max_steps", solver.max_steps)
    check_count("Solver.rounds", solver.rounds)
    check_count("Solver.restarts", solver.restarts, 0)
    check_numbers("Solver.rtol", solver.rtol, not_negative, "at least 0")
    check_numbers("Solver.damping", solver.damping, lambda x: x > 0, "positive")


_Watch = Callable[[FitProblem], HeldOut | None]


def _watch(
    problem: FitProblem, stop: EarlyStop | None, windows: Windows, before: float
):
    if stop is None:
        return None
    check_count("EarlyStop.patience", stop.patience)
    if not stop.runs:
        raise ValueError(
            "`EarlyStop.recordings` is empty: at least one held-out recording is required."
        )
    check_channels(stop.runs, predicted_channels(problem.sys, problem.measure))
    return HeldOut(problem, stop, windows, before)


def _watched(told: Told, held: HeldOut | None) -> Told:
    """Return a callback that stops a fit where the held-out error is least."""
    if held is None:
        return told
    last: list[np.ndarray] = []

    def watched(theta, starts, cost, steps):
        told(theta, starts, cost, steps)
        # Each estimate of the noise starts from the last iterate.
        if last and np.array_equal(last[-1], theta):
            return held.over
        last[:] = [theta]
        return held.take(theta, starts)

    return watched


def _annealed(
    rounds: _Rounds, setup: Setup, smoothing: Sequence[float], watch: _Watch
) -> Result:
    """Fit with each width of the onset of contacts in turn."""
    problem, theta, bounds = setup.problem, setup.theta, setup.bounds
    starts, steps = np.zeros(problem.batch.sd.shape), 0
    early = False
    for width in smoothing or (None,):
        if width is not None:
            problem = _smoothed(problem, float(width))
        held = watch(problem)
        own = rounds._replace(told=_watched(rounds.told, held))
        problem, now, outcome, bounds = _reached(own, problem, theta, starts, bounds)
        theta, starts, steps = now.theta, now.starts, steps + now.steps
        best = None if held is None else held.best
        early = best is not None and not np.array_equal(best[0], theta)
        if best is not None and early:
            theta, starts = best
            now = iterate_at(problem, theta, starts, now.steps)
            problem = _with_noise(rounds, problem, now)
            now = iterate_at(problem, theta, starts, now.steps)
    hessian = np.asarray(now.blocks.hessian)
    index = np.arange(len(theta))
    warn_without_influence(hessian[:, index, index].sum(axis=0), setup.labels)
    setup = setup._replace(problem=problem, bounds=bounds)
    result = _result(setup, now._replace(steps=steps), outcome, early)
    return _with_errors(result, held)


def _with_noise(rounds: _Rounds, problem: FitProblem, now: Iterate) -> FitProblem:
    """Return the problem with the noise that is estimated at an iterate."""
    found = estimated(now, problem.loss, rounds.floor)
    sigma = {
        k: problem.sigma[k] if k in rounds.fixed else jnp.asarray(v)
        for k, v in found.items()
    }
    return eqx.tree_at(lambda p: p.sigma, problem, sigma)


def _with_errors(result: Result, held: HeldOut | None) -> Result:
    errors = () if held is None else tuple(held.errors)
    return dataclasses.replace(result, held_out=errors)


def _fit_by_adam(
    settings: Adam,
    setup: Setup,
    smoothing: Sequence[float],
    fixed: frozenset[str],
    floor: dict[str, np.ndarray],
    told: Told,
    watch: _Watch,
) -> Result:
    """Fit by first-order steps, with each width of the onset of contacts in turn."""
    problem, theta = setup.problem, setup.theta
    if problem.gap_weight > 0:
        raise ValueError(
            "`Windows.continuity` needs `Solver`. Leave it out for `Adam`."
        )
    starts, steps = np.zeros(problem.batch.sd.shape), 0
    influence = np.zeros(theta.shape, bool)

    def noise(found, sigma):
        new = noise_of(found, problem.loss, floor)
        return {k: x if k in fixed else jnp.asarray(new[k]) for k, x in sigma.items()}

    for width in smoothing or (None,):
        if width is not None:
            problem = _smoothed(problem, float(width))
        held = watch(problem)
        own = _watched(told, held)
        end = descend(
            problem, theta, starts, setup.bounds, settings, noise, own, setup.places
        )
        theta, starts, steps = end.theta, end.starts, steps + end.steps
        influence |= end.influence
        if held is not None and held.best is not None:
            theta, starts = held.best
        problem = eqx.tree_at(lambda p: p.sigma, problem, end.sigma)
        if not np.array_equal(theta, end.theta):
            found, _ = total(problem, (jnp.asarray(theta), jnp.asarray(starts)))
            sigma = finite_noise(found, problem.sigma, noise)
            problem = eqx.tree_at(lambda p: p.sigma, problem, sigma)
    free = jnp.asarray(theta), jnp.asarray(starts)
    found, prior = total(problem, free)
    warn_without_influence(influence, setup.labels)
    cost = float(found.cost.sum() + prior)
    finite, none = np.isfinite(cost), np.zeros(0)
    outcome = optx.RESULTS.successful if finite else optx.RESULTS.nonlinear_divergence
    unknown = _no_covariance(len(theta))
    told_by_data = Identifiability(problem.scales(free[0]), none, (), np.nan)
    setup = setup._replace(problem=problem)
    missing = _Linear(unknown.used, np.full(len(theta), np.nan))
    result = _described(
        setup, theta, starts, found.misfit, unknown, told_by_data, outcome, missing
    )
    return _with_errors(dataclasses.replace(result, cost=cost, steps=steps), held)


def prepare(
    sys: System,
    runs: Sequence[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    windows: Windows,
    noise: Mapping[str, Any] | None,
    measure: AbstractMeasurement,
    pipeline: AbstractPipeline = Generalized(),
    objective: AbstractObjective = Simulation(),
    loss: AbstractLoss = SquareLoss(),
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
    # Programs do not depend on names that nothing reads.
    many = any(isinstance(x, ChannelBias) and x.per_run for x in unknowns.values())
    names = tuple(sorted({recording.run for recording in runs})) if many else ()
    columns = {"ctrl": sys.nu, RUNS: len(names)} | widths
    starts, labels = [], []
    for name, unknown in unknowns.items():
        starts.append(unknown.start(name, sys, columns))
        labels += unknown.labels(name, sys, columns)
    check_influence(sys, unknowns, columns)
    given = Given(sys, pipeline, measure, runs, windows, widths)
    runs, channels, compared = objective.compare(given)
    found = cut(sys, runs, channels, windows, longest_delay(unknowns), names)
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
    problem = FitProblem(
        sys,
        tuple(unknowns.values()),
        sizes,
        names,
        start_channel(windows),
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


def _reached(rounds: _Rounds, problem: FitProblem, theta, starts, bounds):
    """Fit, and again where a positive number is far from where the data want it: its
    bounds are relative to its start, and at a tiny value the cost is flat in its
    logarithm."""
    problem, now, outcome = _fitted(rounds, problem, theta, starts, bounds)
    for _ in range(_MOVES):
        moved, wider = _further(problem, now, bounds)
        if np.array_equal(wider, bounds):
            break
        if not np.isfinite(iterate_at(problem, moved, now.starts, 0).cost):
            break  # The simulation fails there.
        other, new, reached = _fitted(rounds, problem, moved, now.starts, wider)
        gain = now.cost - iterate_at(problem, new.theta, new.starts, 0).cost
        new = new._replace(steps=now.steps + new.steps)
        # By chance the cost decreases by half for each number.
        if not gain > max(2.0, rounds.solver.rtol * abs(now.cost)):
            return problem, now._replace(steps=new.steps), outcome, bounds
        problem, now, outcome, bounds = other, new, reached, wider
    return problem, now, outcome, bounds


def _further(problem: FitProblem, now: Iterate, bounds: tuple[np.ndarray, np.ndarray]):
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


def _fitted(rounds: _Rounds, problem: FitProblem, theta, starts, bounds):
    """Fit, and try windows again that ended in a wrong minimum."""
    problem, now, outcome = _noisy(rounds, problem, theta, starts, bounds)
    for _ in range(rounds.solver.restarts):
        better = restarted(problem, now)
        if better is None:
            break
        steps = now.steps
        problem, now, outcome = _noisy(rounds, problem, now.theta, better, bounds)
        now = now._replace(steps=now.steps + steps)
    return problem, now, outcome


_ROUGH = 1e-2
"""Relative decrease of the cost that ends a fit whose noise is not yet known."""


def _noisy(rounds: _Rounds, problem: FitProblem, theta, starts, bounds):
    """Fit, and estimate the noise, in turns. Until the noise is known, fits are rough: with
    far too large a noise starts are hardly determined, and convergence is slow."""
    solver, told, places = rounds.solver, rounds.told, rounds.places
    if len(rounds.fixed) == len(problem.sigma):
        now, outcome = minimize(problem, theta, starts, bounds, solver, told, places)
        return problem, now, outcome
    rough = solver._replace(rtol=max(solver.rtol, _ROUGH))
    first = rough._replace(max_steps=1)
    now, outcome = minimize(problem, theta, starts, bounds, first, told, places)
    steps, finished = now.steps, False
    for left in range(solver.rounds, 0, -1):
        new, old = _with_noise(rounds, problem, now), problem.sigma
        change = max(float(np.abs(np.log(new.sigma[k] / old[k])).max()) for k in old)
        if finished and change < 0.02:
            break
        if finished and not np.isfinite(iterate_at(new, now.theta, now.starts, 0).cost):
            break  # With this noise a window is too sensitive to its start.
        problem, finished = new, left == 1 or change < 0.5
        use = solver if finished else rough
        now, outcome = minimize(
            problem, now.theta, now.starts, bounds, use, told, places
        )
        steps += now.steps
    return problem, now._replace(steps=steps), outcome


def _no_covariance(size: int) -> Covariance:
    """Return covariances of NaN, which need no memory."""
    missing = np.broadcast_to(np.nan, (size, size))
    return Covariance(missing, missing, missing, 0, False, np.full(size, np.nan))


def _result(setup: Setup, now: Iterate, outcome, early: bool) -> Result:
    """Describe a minimum with its covariance, or an iterate before the minimum (`early`),
    which has none."""
    problem, found, labels = setup.problem, setup.found, setup.labels
    theta = jnp.asarray(now.theta)
    jacobian = np.asarray(jax.jacfwd(problem.values)(theta))
    samples = int(sum(float(x.sum()) for x in now.blocks.counts.values()))
    linked = bool(found.batch.linked.any())
    hessian = np.asarray(prior_terms(problem, theta)[2])
    prior_sd = _prior_sd(hessian, jacobian)
    scale = np.where(np.isfinite(prior_sd), prior_sd, problem.scales(theta))
    # Runs with parameters of their own have scores of zero, from which no covariance
    # follows: their windows are the clusters then.
    own = problem.model(theta).signals.run_biases
    clusters = np.zeros_like(found.run) if own else found.run
    spread = _no_covariance(len(theta))
    if not early:
        spread = covariance(now, clusters, samples, jacobian, linked)
    told_by_data = _told_by_data(
        now, now.arrow.theta - hessian, jacobian, scale, labels
    )
    result = _described(
        setup,
        now.theta,
        now.starts,
        now.blocks.misfit,
        spread,
        told_by_data,
        outcome,
        _Linear(jacobian, prior_sd),
    )
    return dataclasses.replace(result, cost=now.cost, steps=now.steps)


class _Linear(NamedTuple):
    """Derivative of the values by the free numbers, and standard deviations of their priors.
    NaN after `Adam`: with thousands of parameters they need too much memory and time."""

    jacobian: np.ndarray
    prior_sd: np.ndarray


def _described(
    setup: Setup,
    theta,
    starts,
    misfit,
    spread: Covariance,
    told_by_data,
    outcome,
    linear: _Linear,
) -> Result:
    """Return a result whose cost and number of steps are still zero."""
    problem, found = setup.problem, setup.found
    free = jnp.asarray(theta)
    model, names = problem.model(free), [setup.runs[k].name for k in found.recording]
    return Result(
        sys=model.sys,
        signals=model.signals,
        names=setup.labels,
        values=np.asarray(problem.values(free)),
        sigma={k: np.asarray(v) for k, v in problem.sigma.items()},
        covariance=spread,
        identifiability=told_by_data,
        validation=None,
        outcome=outcome,
        cost=0.0,
        steps=0,
        misfit=np.asarray(misfit),
        window=tuple(zip(names, found.begin.tolist(), strict=True)),
        problem=problem,
        theta=theta,
        starts=starts,
        jacobian=linear.jacobian,
        bounds=setup.bounds,
        prior_sd=linear.prior_sd,
    )


def _told_by_data(
    now: Iterate, matrix: np.ndarray, jacobian: np.ndarray, scale, labels
) -> Identifiability:
    """Find what the data tell about the values, without priors.

    **Arguments:**

    - `matrix`: Gauss-Newton matrix of the free numbers by the data alone.
    - `jacobian`: derivative of the values by the free numbers.
    """
    reduced = eliminate(now.arrow._replace(theta=matrix)).matrix
    to_values = np.linalg.inv(jacobian)
    return identifiability(to_values.T @ reduced @ to_values, scale, labels)


def longest_delay(unknowns: Mapping[str, AbstractUnknown]) -> float:
    """Return the longest delay of commands, s."""
    delays = [x for x in unknowns.values() if isinstance(x, ChannelDelay)]
    return max([x.upper for x in delays if x.channel == "ctrl"], default=0.0)


def _bounds(problem: FitProblem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a fit that starts from these free numbers."""
    parts = np.split(theta, np.cumsum(problem.sizes)[:-1])
    pairs = zip(problem.unknowns, parts, strict=True)
    lower, upper = zip(*(unknown.transform.bounds(part) for unknown, part in pairs))
    return np.concatenate(lower), np.concatenate(upper)


def _smoothed(problem: FitProblem, width: float) -> FitProblem:
    if not isinstance(problem.pipeline, Generalized):
        raise ValueError(
            "`smoothing` needs the pipeline `Generalized`, got "
            f"{type(problem.pipeline).__name__}."
        )
    pipeline = dataclasses.replace(problem.pipeline, smoothing=jnp.asarray(width))
    return eqx.tree_at(lambda p: p.pipeline, problem, pipeline)


def _told(problem: FitProblem, progress, accepted) -> Told:
    def told(theta, starts, cost, steps):
        if accepted is not None:
            accepted(problem.model(jnp.asarray(theta)).sys)
        if progress is not None:
            progress(np.asarray(problem.values(jnp.asarray(theta))), cost, steps)
        return False

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


class Excitation(NamedTuple):
    """An experiment.

    - `time`, `ctrl`: commands to record with.
    - `information`: log-determinant of the information about the parameters, with the
        scales of `Identifiability` as a prior.
    - `identifiability`: combinations that the experiment would tell.
    """

    time: np.ndarray
    ctrl: np.ndarray
    information: float
    identifiability: Identifiability


def structural_identifiability(
    sys: System,
    unknowns: Mapping[str, AbstractUnknown],
    *,
    measure: Any = JointPositions(),
    noise: float = 1e-3,
    length: float = 1.0,
    motions: int = 8,
    amplitude: float = 1.0,
    pipeline: AbstractPipeline = Generalized(),
    seed: int = 0,
) -> Identifiability:
    """Find which parameters random motions would tell.

    Combinations in `unknown` cannot be told by any recording of these channels, or not
    with this noise.

    **Arguments:**

    - `sys`, `unknowns`, `measure`: see `fit`.
    - `noise`: standard deviation of all channels, in their units.
    - `length`: length of each motion, s. `motions`: their number.
    - `amplitude`: amplitude of the commands and of the initial velocities.
    """
    check_count("motions", motions)
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, length, float(sys.dt))
    ctrl = [amplitude * _sines(rng, time, sys.nu) for _ in range(motions)]
    plan = _Experiment(sys, unknowns, measurement(measure), pipeline, noise, time)
    return plan.evaluated(ctrl, amplitude, rng)[0]


def design_experiment(
    sys: System,
    unknowns: Mapping[str, AbstractUnknown],
    length: float,
    limits: float,
    *,
    measure: Any = JointPositions(),
    noise: float = 1e-3,
    candidates: int = 16,
    pipeline: AbstractPipeline = Generalized(),
    seed: int = 0,
) -> Excitation:
    """Choose the commands that tell most about parameters (D-optimal).

    Candidates are sums of sines with random frequencies and phases, within limits. The
    one with the largest log-determinant of the information is returned.

    **Arguments:**

    - `sys`, `unknowns`, `measure`, `noise`: see `structural_identifiability`.
    - `length`: length of the experiment, s; it starts at rest in the reference pose.
    - `limits`: largest absolute command.
    - `candidates`: number of random commands.
    """
    check_count("candidates", candidates)
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, length, float(sys.dt))
    best = None
    plan = _Experiment(sys, unknowns, measurement(measure), pipeline, noise, time)
    for _ in range(candidates):
        ctrl = _sines(rng, time, sys.nu)
        ctrl *= limits / np.maximum(np.abs(ctrl).max(axis=0), 1e-12)
        found, value = plan.evaluated([ctrl], 0.0, rng)
        if best is None or value > best.information:
            best = Excitation(time, ctrl, value, found)
    assert best is not None
    return best


class _Experiment(NamedTuple):
    """An experiment that is evaluated by the Jacobians of a fit to its simulation."""

    sys: System
    unknowns: Mapping[str, AbstractUnknown]
    measure: AbstractMeasurement
    pipeline: AbstractPipeline
    noise: float
    time: np.ndarray

    def evaluated(
        self, ctrl: Sequence[np.ndarray], speed: float, rng: np.random.Generator
    ) -> tuple[Identifiability, float]:
        """Return what motions tell, and the log-determinant of their information.

        **Arguments:**

        - `ctrl`: commands of each motion.
        - `speed`: standard deviation of their first coordinates and velocities.
        """
        starts, recordings = {}, []
        for k, u in enumerate(ctrl):
            name = f"motion-{k}"
            step, qd = (jnp.asarray(speed * rng.normal(size=self.sys.nv)) for _ in "ab")
            q = integrate(self.sys, jnp.asarray(self.sys.joints.ref), step)
            values = _trajectory(
                self.sys, self.measure, self.pipeline, jnp.asarray(u), q, qd
            )
            channels = {key: np.asarray(v) for key, v in values.items()}
            recordings.append(Recording(self.time, u, channels, name))
            starts[name] = np.asarray(q), np.asarray(qd)
        windows = Windows(
            2 * self.time[-1],
            start=lambda recording, row: starts[recording.name],
            start_sd=(1e-6, 1e-6),
        )
        noise = {name: self.noise for name in recordings[0].channels}
        setup = prepare(
            self.sys,
            recordings,
            self.unknowns,
            windows,
            noise,
            self.measure,
            self.pipeline,
        )
        problem, theta = setup.problem, jnp.asarray(setup.theta)
        now = iterate_at(problem, setup.theta, np.zeros(problem.batch.sd.shape), 0)
        size = len(setup.theta)
        data = np.asarray(now.blocks.hessian)[:, :size, :size].sum(axis=0)
        jacobian = np.asarray(jax.jacfwd(problem.values)(theta))
        scale = problem.scales(theta)
        found = _told_by_data(now, data, jacobian, scale, setup.labels)
        return found, float(np.log1p(found.singular_values**2).sum())


@eqx.filter_jit
def _trajectory(sys, measure, pipeline, ctrl, q, qd):
    measure = with_pipeline(measure, pipeline)

    def step(state, u):
        return pipeline.step(sys, state, u), measure.predict(sys, state, u)

    return scan(step, pipeline.init(sys, q, qd), ctrl)[1]


def _sines(rng: np.random.Generator, time: np.ndarray, size: int) -> np.ndarray:
    """Return sums of four sines of 0.2 to 4 Hz."""
    frequency = rng.uniform(0.2, 4.0, (4, size))
    phase = rng.uniform(0, 2 * np.pi, (4, size))
    return 0.5 * np.sin(2 * np.pi * frequency * time[:, None, None] + phase).sum(axis=1)


def check_split(runs: Sequence[Recording], held: Sequence[Recording]) -> None:
    """Raise `ValueError` if a run is on both sides."""
    both = {r.run for r in runs} & {r.run for r in held}
    if both:
        raise ValueError(
            f"Run {sorted(both)[0]!r} is both fitted and held out, so the held-out "
            "error is meaningless. Split by run, for instance with `identify.split`."
        )


def check_channels(
    runs: Sequence[Recording], predicted: Mapping[str, jax.ShapeDtypeStruct]
) -> None:
    """Raise `ValueError` if a recording lacks a channel; warn of those that never change."""
    for recording in runs:
        for name, value in predicted.items():
            if name not in recording.channels:
                raise ValueError(
                    f"Recording {recording.name!r} has no channel {name!r}, which "
                    "`measure` predicts. Its channels are "
                    f"{sorted(recording.channels)}."
                )
            width = recording.channels[name].shape[1]
            if value.shape != (width,):
                raise ValueError(
                    f"Recording {recording.name!r}: channel {name!r} has {width} columns, "
                    f"but `measure` predicts the shape {value.shape}."
                )
    for name in predicted:
        columns = np.concatenate([recording.channels[name] for recording in runs])
        constant = np.flatnonzero(np.ptp(columns, axis=0) == 0)
        if len(constant):
            warnings.warn(
                f"Channel {name!r} is constant in column {constant.tolist()} of all "
                "recordings. A sensor that is not connected looks like this; if so, leave "
                "the channel out.",
                IdentificationWarning,
                stacklevel=4,
            )


def check_influence(
    sys: System, unknowns: Mapping[str, AbstractUnknown], widths: Mapping[str, int]
) -> None:
    """Raise `ValueError` for parameters that cannot influence the motion."""
    mask = None
    for name, unknown in unknowns.items():
        mask = inactive_parameters(sys) if mask is None else mask
        off = unknown.inactive(mask.mask)
        if off is None or not off.any():
            continue
        labels = unknown.labels(name, sys, widths)
        found = [label for label, x in zip(labels, off, strict=True) if x]
        raise ValueError(
            f"Unknown {name!r}: {', '.join(found)} cannot influence the motion of this "
            "robot, because the model switches it off (see "
            "`eqsim.pipelines.inactive_parameters(sys).reasons`). Leave it out with `entries`, or "
            "switch it on in the model, for instance with a `frictionloss` above zero."
        )


def warn_without_influence(information: np.ndarray, labels: Sequence[str]) -> None:
    """Warn of parameters on which no residual depends: those without information."""
    unused = [label for label, x in zip(labels, information, strict=True) if x == 0.0]
    if unused:
        warnings.warn(
            f"No measured value depends on {listed(unused)} in these recordings, so "
            "initial values are kept. Record motions that depend on these unknowns, or "
            "leave them out.",
            IdentificationWarning,
            stacklevel=4,
        )
