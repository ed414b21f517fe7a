r"""Estimators: their interface, Kalman filters and their smoother.

An estimate is a state and a factor $S$ of its covariance $P = S S^\top$ in tangent coordinates,
so that covariances stay positive semidefinite in single precision. In this order: the interface;
what filters share, with the smoother; the extended and the unscented filter.
"""

import abc
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from .._errors import check_count, check_finite, check_numbers, check_shape
from .._loops import scan
from ..control import (
    retract,
    state_difference,
)
from ..model import check_state, State, System
from ..model.arrays import as_array
from .stochastic_model import (
    AbstractSpace,
    channels_of,
    check_mapping,
    compress,
    correct,
    dot,
    independent_rows,
    per_entry,
    push_forward,
    States,
    StochasticModel,
    triangular,
)


class Estimate(eqx.Module):
    r"""A Gaussian estimate of a state.

    **Arguments:**

    - `state`: the mean.
    - `factor`: $S$ of the covariance $P = S S^\top$ in tangent coordinates of the mean,
        $(\delta q, \delta \dot q, \delta a)$: any factor, such as a Cholesky factor.
        Derivatives of `factor` are defined up to a rotation, those of `covariance` are exact.
    """

    state: State
    factor: Float[Array, "*batch nx nx"]

    @property
    def covariance(self) -> Float[Array, "*batch nx nx"]:
        """The covariance in tangent coordinates."""
        return dot(self.factor, jnp.swapaxes(self.factor, -1, -2))

    @property
    def sd(self) -> Float[Array, "*batch nx"]:
        """Standard deviations of tangent coordinates."""
        square = jnp.sum(self.factor**2, -1)
        # The root has no derivative at zero.
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


class Innovation(eqx.Module):
    r"""A measurement minus its prediction, all channels in one vector.

    **Arguments:**

    - `error`: $e = y \ominus \hat y$, zero where nothing was measured.
    - `root`: $L$ of the covariance $L L^\top$ of $e$; ones where nothing was measured.
    - `whitened`: $L^{-1} e$, independent with variance one if the model is true.
    - `valid`: true for numbers that were measured.
    - `log_likelihood`: logarithm of the density of $e$.
    """

    error: Float[Array, "*batch m"]
    root: Float[Array, "*batch m m"]
    whitened: Float[Array, "*batch m"]
    valid: Bool[Array, "*batch m"]
    log_likelihood: Float[Array, "*batch"]

    @property
    def nis(self) -> Float[Array, "*batch"]:
        r"""Normalized innovation squared $e^\top (L L^\top)^{-1} e$, which is $\chi^2$ with as
        many degrees of freedom as numbers were measured."""
        return jnp.sum(self.whitened**2, -1)


class AbstractEstimator(eqx.Module):
    """An estimator of the state of a robot from its controls and measurements.

    All methods can be batched by `eqx.filter_vmap`, also over robots, and differentiated.

    **Arguments:**

    - `model`: motion and measurements with their noise.
    """

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        @property
        def model(self) -> StochasticModel:
            """Motion and measurements with their noise."""
            ...

    else:
        model: eqx.AbstractVar[StochasticModel]

    @abc.abstractmethod
    def init(self, sys: System, state: State, sd: Any) -> Any:
        """Return the memory of an estimator that knows a state.

        **Arguments:**

        - `sys`: the robot.
        - `state`: first guess, for instance `pipeline.init(sys, q, qd)`. Its activations are
            part of the estimate.
        - `sd`: standard deviations of its tangent coordinates, `(2 nv + na,)` or one number;
            may be zero.

        **Raises:** `ValueError` if a shape is wrong, or a number is negative or not finite.
        """

    @abc.abstractmethod
    def estimate(self, memory: Any) -> Estimate:
        """Return the current estimate."""

    @abc.abstractmethod
    def converged(self, memory: Any) -> Bool[Array, "*batch"]:
        """Return true if the solver of the last step has converged; filters have none."""

    @abc.abstractmethod
    def step(
        self,
        sys: System,
        memory: Any,
        ctrl: Float[Array, " nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> tuple[Any, Innovation]:
        """Advance an estimate by one step, to the next measurement.

        **Arguments:**

        - `sys`: the robot.
        - `memory`: from `init`, or the previous step.
        - `ctrl`: control during the step.
        - `measured`: values of all channels at its end.
        - `valid`: false where nothing was measured: one boolean for all, or a dictionary with
            one per channel, or one per tangent coordinate of a channel. Values there have no
            influence, also if they are NaN. None: all were measured.

        **Returns:** the new memory, and the innovation.

        **Raises:** `ValueError` if a shape or a name of a channel is wrong.
        """

    def track(
        self,
        sys: System,
        memory: Any,
        ctrl: Float[Array, "T nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> "Track":
        """Follow a recording, in one compiled loop.

        **Arguments:** as for `step`, with a leading axis of time.

        **Raises:** as `step`; `ValueError` if a measured value that is valid is not finite
        (skipped for traced values).
        """
        T = check_rows(sys, ctrl, measured, valid)
        return _track(self, sys, memory, ctrl, dict(measured), valid, T)


class Track(NamedTuple):
    """The course of an estimator.

    - `estimates`: estimates after each measurement, with a leading axis of time.
    - `innovations`: innovations, likewise.
    - `memory`: memory after the last one.
    - `converged`: true for steps whose solver has converged; always true for filters.
    """

    estimates: Estimate
    innovations: Innovation
    memory: Any
    converged: Bool[Array, "*batch"]

    @property
    def log_likelihood(self) -> Float[Array, "*batch"]:
        """Logarithm of the density of all measurements."""
        return jnp.sum(self.innovations.log_likelihood, -1)


def check_rows(sys: System, ctrl: Any, measured: Any, valid: Any) -> int:
    """Return the number of rows of a recording; raise `ValueError` if they differ, or if a
    valid value is not finite."""
    check_mapping(measured)
    T = jnp.shape(ctrl)[0] if jnp.ndim(ctrl) else 0
    check_shape("ctrl", ctrl, {"T": T, "nu": sys.nu})
    for name, x in measured.items():
        if jnp.ndim(x) < 2:
            raise ValueError(
                f"`measured[{name!r}]` must have shape (T, columns) = ({T}, columns), also for "
                f"one column, but its shape is {jnp.shape(x)}. Pass `x[:, None]`."
            )
    rows = {name: jnp.shape(x)[:1] for name, x in measured.items()}
    rows |= {
        f"valid {k}": jnp.shape(x)[:1] for k, x in enumerate(jax.tree.leaves(valid))
    }
    wrong = {name: shape for name, shape in rows.items() if shape != (T,)}
    if wrong or T == 0:
        raise ValueError(
            f"`ctrl`, `measured` and `valid` must have the same number of rows, at least one; "
            f"`ctrl` has {T}, and leading axes of others are {wrong}."
        )
    for name, value in measured.items():
        flags = valid.get(name) if isinstance(valid, Mapping) else valid
        _check_known(name, value, True if flags is None else flags)
    return T


def _check_known(name: str, value: Any, valid: Any) -> None:
    """Raise `ValueError` if a valid value is not finite. Skipped for traced values."""
    if isinstance(value, Tracer) or isinstance(valid, Tracer):
        return
    finite = np.isfinite(np.asarray(value)).reshape(len(value), -1)
    known = np.asarray(valid, bool)
    known = known.reshape(len(known), -1) if known.ndim else known[None, None]
    if known.shape[1] != finite.shape[1]:
        # Tangent coordinates of orientations, or one flag for all.
        known = np.all(known, 1, keepdims=True)
    wrong = np.any(~finite & known, 1)
    if np.any(wrong):
        raise ValueError(
            f"`measured[{name!r}]` is not finite in {np.sum(wrong)} of {len(wrong)} rows, "
            f"first in row {np.argmax(wrong)}. Pass `valid=` that is false there."
        )


@eqx.filter_jit
def _track(
    estimator: AbstractEstimator, sys, memory, ctrl, measured, valid, T
) -> Track:
    def advance(memory, now):
        memory, innovation = estimator.step(sys, memory, *now)
        done = estimator.converged(memory)
        return memory, (estimator.estimate(memory), innovation, done)

    memory, found = scan(advance, memory, (ctrl, measured, valid), T)
    estimates, innovations, done = found
    return Track(estimates, innovations, memory, done)


def first_estimate(sys: System, state: State, sd: Any) -> Estimate:
    """Return an estimate with independent tangent coordinates."""
    check_state(sys, state.q, state.qd, act=state.act)
    for name in ("q", "qd", "act"):
        check_finite(f"state.{name}", vars(state)[name])
    sd = as_array(sd)
    check_numbers("sd", sd, lambda x: x >= 0, "at least 0")
    nx = 2 * sys.nv + sys.na
    return Estimate(state, jnp.diag(per_entry("sd", sd, nx, state.q.dtype)))


class Moments(NamedTuple):
    """A value of an uncertain state, and its uncertainty.

    - `value`: mean of the value.
    - `spread`: $D$, deviations of the value; $D D^T$ is its covariance.
    - `source`: $E$, deviations of the state: $E D^T$ is the covariance of both.
    """

    value: Any
    spread: Float[Array, "m k"]
    source: Float[Array, "nx k"]


class AbstractFilter(AbstractEstimator):
    """A Kalman filter; its memory is an `Estimate`.

    Filters differ in how they transform an uncertain state. The rest is written here.

    **Arguments:** see `AbstractEstimator`.
    """

    @abc.abstractmethod
    def transform(
        self,
        sys: System,
        estimate: Estimate,
        fn: Callable[[State], Any],
        space: AbstractSpace,
    ) -> Moments:
        """Compute mean and deviations of a function of an uncertain state.

        **Arguments:**

        - `fn`: function of a state.
        - `space`: space of its values.
        """

    @abc.abstractmethod
    def compress(self, factor: Float[Array, "n m"]) -> Float[Array, "n n"]:
        """Reduce a factor of a covariance to a square one."""

    def init(self, sys: System, state: State, sd: Any) -> Estimate:
        channels_of(self.model, sys)
        return first_estimate(sys, state, sd)

    def estimate(self, memory: Estimate) -> Estimate:
        return memory

    def converged(self, memory: Estimate) -> Bool[Array, "*batch"]:
        return jnp.ones(memory.state.q.shape[:-1], bool)

    def predict(
        self, sys: System, estimate: Estimate, ctrl: Float[Array, " nu"]
    ) -> Estimate:
        """Compute the estimate one step later, before a measurement."""
        return advanced(self, sys, estimate, ctrl)[0]

    def update(
        self,
        sys: System,
        estimate: Estimate,
        ctrl: Float[Array, " nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> tuple[Estimate, Innovation]:
        """Correct an estimate by a measurement at the same time.

        **Arguments:** as for `step`; `ctrl` is the control of the step before, which sensors
        such as accelerometers read.
        """
        channels = channels_of(self.model, sys)
        seen = lambda state: self.model.predict(sys, state, ctrl)
        moments = self.transform(sys, estimate, seen, channels)
        mask = channels.mask(valid)
        error = channels.error(moments.value, measured, mask)
        spread = jnp.where(mask[:, None], moments.spread, 0.0)
        noise = jnp.where(mask, channels.noise, 1.0)
        root, gain, factor = correct(moments.source, spread, noise, self.compress)
        new = moved(sys, estimate, dot(gain, error), factor)
        white = jax.scipy.linalg.solve_triangular(root, error, lower=True)
        size = jnp.sum(mask).astype(error.dtype) * jnp.log(2 * jnp.pi).astype(
            error.dtype
        )
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        likelihood = -0.5 * (jnp.sum(white**2) + log_det + size)
        return new, Innovation(error, root, white, mask, likelihood)

    def step(
        self,
        sys: System,
        memory: Estimate,
        ctrl: Float[Array, " nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> tuple[Estimate, Innovation]:
        return self.update(sys, self.predict(sys, memory, ctrl), ctrl, measured, valid)

    def smooth(
        self,
        sys: System,
        estimate: Estimate,
        ctrl: Float[Array, "T nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> Estimate:
        r"""Estimate all states of a recording from all of its measurements, by the smoother of
        Rauch, Tung and Striebel.

        With $G$ the regression of a state on the next one, filtered states are corrected
        backward in time, $x \oplus G (x^s_+ \ominus x^-_+)$. Combinations of coordinates that
        are known exactly are not corrected. The covariance of $x^s_+$, in tangent coordinates
        of $x^s_+$, is used in those of $x^-_+$: exact for vector spaces, and of first order in
        the correction on manifolds.

        **Arguments:** as for `track`; `estimate` is that before the first step, from `init`.

        **Returns:** `T + 1` estimates.

        **Raises:** as `track`.

        ??? cite "Reference"
            Särkkä, Svensson, *Bayesian Filtering and Smoothing*, 2023, chapter 13.
        """
        check_rows(sys, ctrl, measured, valid)
        return _smoothed(self, sys, estimate, ctrl, dict(measured), valid)


def moved(sys: System, estimate: Estimate, step: Array, factor: Array) -> Estimate:
    """Move the mean of an estimate. A factor in tangent coordinates of the old mean becomes
    one in those of the new mean."""
    new = retract(sys, estimate.state, step)
    if sys.nq == sys.nv:
        return Estimate(new, factor)
    back = lambda change: state_difference(
        sys, new, retract(sys, estimate.state, change)
    )
    return Estimate(new, dot(jax.jacfwd(back)(step), factor))


def advanced(filter: AbstractFilter, sys, estimate: Estimate, ctrl):
    """Return the estimate one step later, the moments of the step, and a factor of its noise."""
    step = lambda state: filter.model.step(sys, state, ctrl)
    moments = filter.transform(sys, estimate, step, States(sys))
    noise = filter.model.process_factor(sys)
    factor = filter.compress(jnp.concatenate([moments.spread, noise], 1))
    return Estimate(moments.value, factor), moments, noise


@eqx.filter_jit
def _smoothed(filter: AbstractFilter, sys, estimate, ctrl, measured, valid) -> Estimate:
    solve = jax.scipy.linalg.solve_triangular

    def forward(old, now):
        ctrl, measured, valid = now
        ahead, moments, noise = advanced(filter, sys, old, ctrl)
        new, _ = filter.update(sys, ahead, ctrl, measured, valid)
        return new, (old, ahead.state, moments.spread, moments.source, noise)

    def backward(later, now):
        old, ahead, spread, source, noise = now
        # The covariance ahead may be singular: coordinates that follow from others have the
        # same correction without a gain of their own.
        ahead_factor = jnp.concatenate([spread, noise], 1)
        own = independent_rows(ahead_factor)
        keep = lambda A: jnp.where(own[:, None], A, 0.0)
        root = triangular(keep(ahead_factor))
        root = jnp.where(jnp.diag(~own), 1.0, root)
        both = solve(root, dot(keep(spread), source.T), lower=True)
        gain = solve(root, both, lower=True, trans=1).T
        step = dot(gain, state_difference(sys, ahead, later.state))
        parts = [source - dot(gain, spread), dot(gain, noise), dot(gain, later.factor)]
        new = moved(sys, old, step, filter.compress(jnp.concatenate(parts, 1)))
        return new, new

    end, kept = scan(forward, estimate, (ctrl, measured, valid))
    _, found = jax.lax.scan(backward, end, kept, reverse=True)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), found, end)


class ExtendedKalmanFilter(AbstractFilter):
    r"""The extended Kalman filter: means follow the nonlinear model, covariances its exact
    derivatives $F$ along the mean, in tangent coordinates: $P^- = F P F^\top + Q$.

    At a contact, $F$ is that of the contact as it is at the mean: the possibility that a shape
    touches earlier or later is not part of the covariance.

    **Arguments:**

    - `model`: motion and measurements with their noise.

    ??? cite "Reference"
        Solà, Deray, Atchuthan, *A micro Lie theory for state estimation in robotics*, 2018.
    """

    model: StochasticModel  # pyright: ignore

    def transform(
        self,
        sys: System,
        estimate: Estimate,
        fn: Callable[[State], Any],
        space: AbstractSpace,
    ) -> Moments:
        S = estimate.factor
        at = lambda change: fn(retract(sys, estimate.state, dot(S, change)))
        value, spread = push_forward(at, space, jnp.zeros_like(S[0]))
        return Moments(value, spread, S)

    def compress(self, factor: Float[Array, "n m"]) -> Float[Array, "n n"]:
        return compress(factor)


class UnscentedKalmanFilter(AbstractFilter):
    r"""The unscented Kalman filter: moments from `2 nx + 1` states, without derivatives.

    With the columns $s_i$ of the factor and $\gamma = \alpha \sqrt{n + \kappa}$, the states are
    the mean and $x \oplus \pm \gamma s_i$, simulated as one batch. Weights are $1 / 2\gamma^2$;
    those of the mean are $1 - n/\gamma^2$ in means and $1 - n/\gamma^2 + 1 - \alpha^2 + \beta$ in
    covariances. Means on manifolds are found by iteration in the tangent space. The defaults are
    the cubature rule.

    Derivatives need positive definite covariances, apart from coordinates without any
    uncertainty: a `disturbance` or start that is not zero.

    **Arguments:**

    - `model`: motion and measurements with their noise.
    - `alpha`: spread of the states. `beta`: weight of the mean in covariances, see above.
    - `kappa`: secondary spread, $\gamma = \alpha \sqrt{n + \kappa}$. The weight of the mean in
        covariances must be at least 0, because a covariance with a negative weight can be
        indefinite; this excludes `alpha=1e-3`.
    - `iterations`: steps to a mean on a manifold; vector spaces need one.

    ??? cite "References"
        Julier, Uhlmann, *Unscented filtering and nonlinear estimation*, 2004. Van der Merwe,
        *Sigma-point Kalman filters*, 2004 (scaled weights). Arasaratnam, Haykin, *Cubature
        Kalman filters*, 2009.
    """

    model: StochasticModel  # pyright: ignore
    alpha: float = eqx.field(static=True, default=1.0)
    beta: float = eqx.field(static=True, default=0.0)
    kappa: float = eqx.field(static=True, default=0.0)
    iterations: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        check_count("UnscentedKalmanFilter.iterations", self.iterations)
        for name in ("alpha", "beta", "kappa"):
            check_finite(f"UnscentedKalmanFilter.{name}", vars(self)[name])

    def transform(
        self,
        sys: System,
        estimate: Estimate,
        fn: Callable[[State], Any],
        space: AbstractSpace,
    ) -> Moments:
        S = estimate.factor
        n = S.shape[0]
        weights, center, gamma = self.weights(n)
        steps = gamma * jnp.concatenate([jnp.zeros_like(S[:1]), S.T, -S.T])
        states = jax.vmap(ft.partial(retract, sys, estimate.state))(steps)
        values = jax.vmap(fn)(states)
        mean = jax.tree.map(lambda x: x[0], values)
        along = jnp.asarray(weights, S.dtype)
        for _ in range(1 if space.linear else self.iterations):
            mean = space.integrate(mean, dot(along, _away(space, mean, values)))
        root = jnp.asarray(np.sqrt([center, *weights[1:]]), S.dtype)[:, None]
        spread = root * _away(space, mean, values)
        return Moments(mean, spread.T, (root * steps).T)

    def compress(self, factor: Float[Array, "n m"]) -> Float[Array, "n n"]:
        return triangular(factor)

    def weights(self, size: int) -> tuple[np.ndarray, float, float]:
        r"""Return the weights of all states in a mean, that of the center in a covariance,
        and $\gamma$.

        **Raises:** `ValueError` if $\gamma^2$ is not positive, or a weight in the covariance
        is negative.
        """
        square = self.alpha**2 * (size + self.kappa)
        first = 1.0 - size / square if square > 0 else -np.inf
        center = first + 1.0 - self.alpha**2 + self.beta
        # Rounding errors of weights that are zero.
        center = 0.0 if abs(center) < 1e-12 else center
        if not (square > 0 and center >= 0):
            raise ValueError(
                f"`UnscentedKalmanFilter` with alpha={self.alpha}, beta={self.beta} and "
                f"kappa={self.kappa} gives the mean of {size} tangent coordinates the weight "
                f"{center:.3g} in covariances, which must be at least 0. Use alpha=1 with "
                "beta and kappa of at least 0."
            )
        return np.array([first, *[0.5 / square] * (2 * size)]), center, square**0.5


def _away(space: AbstractSpace, mean: Any, values: Any) -> Array:
    return jax.vmap(space.difference, (None, 0))(mean, values)
