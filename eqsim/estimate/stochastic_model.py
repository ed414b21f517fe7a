r"""Stochastic models: measurements, covariances as factors, process and measurement noise.

In this order: spaces of values (numbers, coordinates, orientations, states); measurements,
which predict channels from a state; factors of covariances and the correction by a measurement,
which `identify.Innovations` uses as well; the stochastic model of a robot.
"""

import abc
import dataclasses
import functools as ft
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import kinematics
from .._errors import check_count, check_numbers, check_shape
from .._loops import scan
from ..control import retract, state_difference
from ..kinematics import forward
from ..model import SensorKind, State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline, Generalized
from ..spatial import integrate as turn, logarithm, Mat3, multiply, Vec3
from ..spatial.rotations import matrix_quaternion


class AbstractSpace(eqx.Module):
    """A space of values: of one channel, of all channels, or of states."""

    @property
    @abc.abstractmethod
    def linear(self) -> bool:
        """True for a vector space, where the step to a mean of differences is exact."""

    @abc.abstractmethod
    def difference(self, a: Any, b: Any) -> Array:
        r"""Compute the step from `a` to `b`, $b \ominus a$, in tangent coordinates."""

    @abc.abstractmethod
    def integrate(self, a: Any, step: Array) -> Any:
        r"""Move `a` by a step, $a \oplus \mathrm{step}$."""


class Euclidean(AbstractSpace):
    """Numbers that are subtracted."""

    @property
    def linear(self) -> bool:
        return True

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return b - a

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return a + step


class Coordinates(AbstractSpace):
    """Coordinates of a robot, in which orientations are unit quaternions.

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    """

    sys: System

    @property
    def linear(self) -> bool:
        return self.sys.nq == self.sys.nv

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return kinematics.difference(self.sys, a, b)

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return kinematics.integrate(self.sys, a, step)


class Orientation(AbstractSpace):
    """A unit quaternion, scalar first; steps are rotation vectors in body axes, rad."""

    @property
    def linear(self) -> bool:
        return False

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        w, x, y, z = _entries(a / jnp.linalg.norm(a))
        product = multiply((w, -x, -y, -z), _entries(b / jnp.linalg.norm(b)))
        return jnp.concatenate(tuple(logarithm(product)))

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return jnp.concatenate(turn(_entries(a), Vec3(*_entries(step)), 1.0))


class States(AbstractSpace):
    """States of a robot; steps are coordinates, velocities and activations.

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    """

    sys: System

    @property
    def linear(self) -> bool:
        return self.sys.nq == self.sys.nv

    def difference(self, a: State, b: State) -> Array:
        return state_difference(self.sys, a, b)

    def integrate(self, a: State, step: Array) -> State:
        return retract(self.sys, a, step)


def _entries(x: Array) -> tuple[Array, ...]:
    return tuple(x[k : k + 1] for k in range(x.shape[0]))


def interpolate(space: AbstractSpace, a: Array, b: Array, weight: Array) -> Array:
    """Compute the value between `a` (weight 0) and `b` (weight 1)."""
    return space.integrate(a, weight * space.difference(a, b))


class AbstractMeasurement(eqx.Module):
    """A prediction of one or more channels of a recording."""

    @abc.abstractmethod
    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        """Compute the value of each channel in a state."""

    @abc.abstractmethod
    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        """Return the space of each channel that is not Euclidean."""


class JointPositions(AbstractMeasurement):
    """All coordinates; orientations are compared as rotations.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="q")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.q}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.channel: Coordinates(sys)} if sys.nq != sys.nv else {}


class JointVelocities(AbstractMeasurement):
    """All velocities.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="qd")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.qd}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {}


class FreeBodyPose(AbstractMeasurement):
    """Position of the origin of a link, m, and its orientation, as motion capture
    reports them.

    **Arguments:**

    - `link`: name of the link.
    - `position`, `orientation`: names of the channels, of three and four columns.
    """

    link: str = eqx.field(static=True)
    position: str = eqx.field(static=True, default="pos")
    orientation: str = eqx.field(static=True, default="quat")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        poses = forward(sys, state.q)
        k = sys.link(self.link).index
        quat = jnp.stack(matrix_quaternion(Mat3(*jnp.ravel(poses.rot[k]))))
        return {self.position: poses.pos[k], self.orientation: quat}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.orientation: Orientation()}


_QUATERNIONS = (SensorKind.BALL_QUATERNION, SensorKind.FRAME_QUATERNION)


def _names(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


class SensorMeasurement(AbstractMeasurement):
    """Sensors of the robot (MJCF: `sensor`), one channel each.

    **Arguments:**

    - `names`: names of sensors, or one name; by default all.
    - `pipeline`: physics for forces and accelerations. By default that of the stochastic
        model or of the fit if it is `Generalized`, otherwise `Generalized()`.

    **Raises:** `ValueError` by the methods for a name that no sensor has; by `spaces` also for
    a clock.
    """

    names: tuple[str, ...] | None = eqx.field(
        static=True, default=None, converter=_names
    )
    pipeline: Generalized | None = None

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        pipeline = Generalized() if self.pipeline is None else self.pipeline
        if self.names is not None:
            self._check_names(sys)
            chosen = sys.sensors.select(self.names)
            sys = dataclasses.replace(sys, sensors=chosen)
        values = pipeline.sensors(sys, state, ctrl)
        return {name: jnp.atleast_1d(value) for name, value in values.items()}

    def _check_names(self, sys: System) -> None:
        for name in self.names or ():
            if name not in sys.sensors.names:
                raise ValueError(
                    f"There is no sensor {name!r}. Sensors: {list(sys.sensors.names)}."
                )

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        self._check_names(sys)
        names = sys.sensors.names if self.names is None else self.names
        kinds = dict(zip(sys.sensors.names, sys.sensors.kinds, strict=True))
        usable = [k for k, kind in kinds.items() if kind is not SensorKind.CLOCK]
        for name in names:
            if name not in usable:
                raise ValueError(
                    f"Sensor {name!r} is a clock, which depends on no state. Choose other "
                    f"sensors: `SensorMeasurement({tuple(usable)})`."
                )
        return {name: Orientation() for name in names if kinds[name] in _QUATERNIONS}


class FunctionMeasurement(AbstractMeasurement):
    """Any function of robot and state.

    **Arguments:**

    - `fn`: `(sys, state) -> {channel: array}`. Recompiles if it is another function.
    - `orientations`: channels that are unit quaternions.
    """

    fn: Callable[[System, State], dict[str, Any]] = eqx.field(static=True)
    orientations: tuple[str, ...] = eqx.field(static=True, default=())

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        values: Any = self.fn(sys, state)
        if not isinstance(values, Mapping):
            kind = type(values).__name__
            raise TypeError(
                "A measurement function must return a dictionary from channels to arrays, "
                f"such as {{'q': state.q}}, got {kind}."
            )
        found = {k: jnp.atleast_1d(v) for k, v in values.items()}
        missing = [name for name in self.orientations if name not in found]
        if missing:
            raise ValueError(
                f"`FunctionMeasurement.orientations` names {missing}, but `fn` returns the "
                f"channels {sorted(found)}. Name channels that `fn` returns."
            )
        return found

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {name: Orientation() for name in self.orientations}


class Joined(AbstractMeasurement):
    """Several measurements.

    **Arguments:**

    - `parts`: measurements whose channels have different names.
    """

    parts: tuple[AbstractMeasurement, ...]

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for part in self.parts:
            found = part.predict(sys, state, ctrl)
            twice = sorted(out.keys() & found.keys())
            if twice:
                raise ValueError(
                    f"`measure` has the channels {twice} more than once. Give the channels of "
                    "joined measurements different names."
                )
            out |= found
        return out

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        out: dict[str, AbstractSpace] = {}
        for part in self.parts:
            out |= part.spaces(sys)
        return out


def measurement(value: Any) -> AbstractMeasurement:
    """Return a measurement from one, several, or a function."""
    if isinstance(value, AbstractMeasurement):
        return value
    if isinstance(value, Sequence):
        return Joined(tuple(measurement(part) for part in value))
    if callable(value):
        fn: Any = value
        return FunctionMeasurement(fn)
    raise TypeError(
        "`measure` must be a measurement such as `JointPositions()`, a tuple of them, "
        f"or a function (sys, state) -> {{channel: array}}, got {value!r}."
    )


def with_pipeline(
    measure: AbstractMeasurement, pipeline: AbstractPipeline
) -> AbstractMeasurement:
    """Return a measurement whose sensors use a pipeline, if it is `Generalized` and they have
    none of their own."""
    if isinstance(measure, Joined):
        return Joined(tuple(with_pipeline(part, pipeline) for part in measure.parts))
    if isinstance(measure, SensorMeasurement) and measure.pipeline is None:
        if isinstance(pipeline, Generalized):
            return SensorMeasurement(measure.names, pipeline)
    return measure


def space_of(measure: AbstractMeasurement, sys: System, channel: str) -> AbstractSpace:
    """Return the space of a channel."""
    return measure.spaces(sys).get(channel, Euclidean())


def predicted_channels(
    sys: System, measure: AbstractMeasurement
) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape of each predicted channel."""
    measure.spaces(sys)
    q, qd = jnp.asarray(sys.joints.ref), jnp.zeros(sys.nv, sys.joints.ref.dtype)
    state, ctrl = State(q, qd, jnp.zeros(sys.na, q.dtype)), jnp.zeros(sys.nu, q.dtype)
    return jax.eval_shape(lambda: measure.predict(sys, state, ctrl))


def tangent_widths(
    sys: System,
    measure: AbstractMeasurement,
    predicted: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, int]:
    """Return the number of residuals of each channel: three for an orientation."""
    widths = {}
    for name, value in predicted.items():
        space = space_of(measure, sys, name)
        widths[name] = jax.eval_shape(space.difference, value, value).shape[0]
    return widths


dot = ft.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
"""Matrix products in full precision, also on a GPU."""


# Factors of covariances.


def _decompose(A: Array) -> tuple[Array, Array]:
    """Return lower triangular `S` with a diagonal of at least 0, and `Q` with orthonormal
    columns, such that `A = S Q'`."""
    Q, R = jnp.linalg.qr(A.T)
    sign = jnp.where(jnp.diagonal(R) < 0, -1.0, 1.0).astype(A.dtype)
    return jnp.tril((R * sign[:, None]).T), Q * sign[None]


def _solve_lower(S: Array, b: Array) -> Array:
    """Solve `S x = b`, with ones in place of numbers on the diagonal that are zero apart from
    rounding errors."""
    diagonal, size = jnp.diagonal(S), jnp.sqrt(jnp.sum(S**2, 1))
    zero = diagonal <= 8 * jnp.finfo(S.dtype).eps * size
    S = S + jnp.diag(jnp.where(zero, 1 - diagonal, 0.0))
    return jax.scipy.linalg.solve_triangular(S, b, lower=True)


@jax.custom_jvp
def _compressed(A: Array) -> tuple[Array, Array]:
    return _decompose(A)


@_compressed.defjvp
def _compressed_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    S, Q = _compressed(A)
    # Not the derivative of the triangular factor, which does not exist where `S` is singular,
    # but one with the same derivative of `S S'`: that of `S` times a rotation.
    dS = dot(dA, Q)
    return (S, Q), (dS, _solve_lower(S, dA - dot(dS, Q.T)).T)


@jax.custom_jvp
def _triangular(A: Array) -> tuple[Array, Array]:
    return _decompose(A)


@_triangular.defjvp
def _triangular_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    S, Q = _triangular(A)
    X = _solve_lower(S, dot(dA, Q))
    dS = dot(S, jnp.tril(X + X.T, -1) + jnp.diag(jnp.diagonal(X)))
    return (S, Q), (dS, _solve_lower(S, dA - dot(dS, Q.T)).T)


def compress(A: Float[Array, "n m"]) -> Float[Array, "n n"]:
    r"""Compute a square factor $S$ with $S S^\top = A A^\top$, by a QR decomposition.

    First derivatives of every function of $S S^\top$ are exact, also where it is singular or
    zero; second derivatives need full rank. Those of $S$ itself are defined up to a rotation.
    `m` is at least `n`.
    """
    return _compressed(A)[0]


def triangular(A: Float[Array, "n m"]) -> Float[Array, "n n"]:
    r"""Compute the lower triangular $S$ with $S S^\top = A A^\top$ and its derivative, which
    needs a positive definite $A A^\top$, apart from rows that are zero."""
    # In a column of its own, such a row does not mix with others.
    zero = jnp.diag(jnp.all(A == 0, 1).astype(A.dtype))
    return _triangular(jnp.concatenate([A, zero], 1))[0] - zero


def independent_rows(A: Float[Array, "n m"]) -> Bool[Array, " n"]:
    """Return false for rows that are zero or linear combinations of the rows above them,
    apart from rounding errors (Gram-Schmidt, each row twice)."""
    A = jax.lax.stop_gradient(A)
    least = jnp.finfo(A.dtype).eps ** 0.75

    def add(basis, now):
        k, row = now
        rest = row
        for _ in range(2):
            rest = rest - dot(dot(basis, rest), basis)
        size = jnp.linalg.norm(rest)
        new = size > least * jnp.linalg.norm(row)
        unit = jnp.where(new, rest / jnp.where(new, size, 1.0), 0.0)
        return basis.at[k].set(unit), new

    return scan(add, jnp.zeros_like(A), (jnp.arange(A.shape[0]), A))[1]


def acceleration_factor(
    disturbance: Float[Array, " nv"], time: Float[Array, ""]
) -> Float[Array, "2*nv 2*nv"]:
    r"""Factor the covariance of coordinates and velocities that white-noise accelerations
    add over a time $\delta$:

    $$\begin{pmatrix} \delta^3/3 & \delta^2/2 \\ \delta^2/2 & \delta \end{pmatrix}
    \otimes \mathrm{diag}(\mathrm{disturbance}^2).$$

    **Arguments:**

    - `disturbance`: rad/s$^2$ or m/s$^2$ per $\sqrt{\text{Hz}}$.
    - `time`: $\delta$, s; may be zero, where the derivative by it is given as zero.

    ??? cite "Reference"
        Bar-Shalom, Li, Kirubarajan, *Estimation with Applications to Tracking and Navigation*,
        2001.
    """
    positive = time > 0
    root = jnp.where(positive, jnp.sqrt(jnp.where(positive, time, 1.0)), 0.0)
    scaled = jnp.diag(root * disturbance)
    place, rate, both = time * 3**-0.5 * scaled, 0.5 * scaled, 0.75**0.5 * scaled
    return jnp.block([[place, jnp.zeros_like(scaled)], [both, rate]])


class Correction(NamedTuple):
    """The linear part of a correction by a measurement.

    - `root`: lower triangular factor of the covariance of the innovation.
    - `gain`: Kalman gain.
    - `factor`: factor of the covariance after the correction.
    """

    root: Float[Array, "m m"]
    gain: Float[Array, "n m"]
    factor: Float[Array, "n n"]


def correct(
    source: Float[Array, "n k"],
    spread: Float[Array, "m k"],
    noise: Float[Array, " m"],
    compress: Callable[[Array], Array] = compress,
) -> Correction:
    r"""Compute the gain and the covariance after a measurement, in Joseph's form.

    $L L^\top = D D^\top + R$, $K = E D^\top (L L^\top)^{-1}$, and
    $P = (E - K D)(E - K D)^\top + K R K^\top$.

    **Arguments:**

    - `source`: $E$, deviations of the state, with the covariance $E E^\top$.
    - `spread`: $D$, the same deviations as measured; with a linear measurement $D = H E$.
    - `noise`: standard deviations of the measurement, the roots of a diagonal $R$.
    - `compress`: reduces a factor to a square one.
    """
    solve = ft.partial(jax.scipy.linalg.solve_triangular, lower=True)
    root = triangular(jnp.concatenate([spread, jnp.diag(noise)], 1))
    gain = solve(root, solve(root, dot(spread, source.T)), trans=1).T
    left = source - dot(gain, spread)
    return Correction(
        root, gain, compress(jnp.concatenate([left, gain * noise[None]], 1))
    )


# The model.


def choose(keep: Any, one: Any, two: Any) -> Any:
    """Choose one of two trees of arrays by a flag."""
    return jax.tree.map(lambda x, y: jnp.where(keep, x, y), one, two)


def push_forward(
    fn: Callable[[Array], Any], space: AbstractSpace, zero: Float[Array, " n"]
) -> tuple[Any, Float[Array, "m n"]]:
    """Compute the value of a function at `zero`, and its derivative in tangent coordinates
    of the value."""

    def numbers(change):
        value = fn(change)
        return eqx.filter(value, eqx.is_inexact_array), value

    slopes, value = jax.jacfwd(numbers, has_aux=True)(zero)
    moving, fixed = eqx.partition(value, eqx.is_inexact_array)
    away = lambda moved: space.difference(value, eqx.combine(moved, fixed))
    along = lambda slope: jax.jvp(away, (moving,), (slope,))[1]
    return value, jax.vmap(along, in_axes=-1, out_axes=-1)(slopes)


def _pipeline(value: Any) -> Any:
    if not isinstance(value, AbstractPipeline):
        raise TypeError(
            "`StochasticModel.pipeline` must be a pipeline such as `eqsim.Generalized()`, got "
            f"{value!r}."
        )
    return value


def _noise(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(
            "`noise` must be a dictionary from channels to standard deviations, such as "
            f"{{'q': 1e-3}}, got {value!r}."
        )
    return {str(name): as_array(sd) for name, sd in value.items()}


class StochasticModel(eqx.Module):
    r"""The motion of a robot and its measurements, both with Gaussian noise:

    $$x_{t+1} = f(x_t, u_t) \oplus w_t, \qquad y_t = h(x_t, u_{t-1}) \oplus v_t.$$

    $x$ are coordinates, velocities and activations, which include the memory of actuator
    models. $f$ is a step of the pipeline, with its contacts. $w_t$ has the covariance of
    white-noise accelerations (`acceleration_factor`) plus that of `walk`.

    All numbers are arrays: they can be batched and differentiated.

    **Arguments:**

    - `pipeline`: the physics.
    - `measure`: a measurement such as `JointPositions()`, a tuple of them, or a function
        `(sys, state) -> {channel: array}`. Sensors that depend on the control, such as
        accelerometers, are given that of the step before.
    - `noise`: standard deviation of each channel, positive, in its units: one number, or one
        per column (three for an orientation, rad).
    - `disturbance`: unmodeled accelerations, rad/s$^2$ or m/s$^2$ per $\sqrt{\text{Hz}}$; one
        number, or one per degree of freedom.
    - `walk`: additional noise of tangent coordinates `(2 nv + na,)`, in their units per
        $\sqrt{\text{s}}$; one number, or one for each. None by default: activations have none.
    - `substeps`: time steps of `sys.dt` between measurements, with one control.
    """

    pipeline: AbstractPipeline = eqx.field(converter=_pipeline)
    measure: AbstractMeasurement = eqx.field(converter=measurement)
    noise: dict[str, Float[Array, "..."]] = eqx.field(converter=_noise)
    disturbance: Float[Array, "..."] = eqx.field(converter=as_array)
    walk: Float[Array, "..."] | None = eqx.field(converter=as_array, default=None)
    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        at_least_zero = lambda x: x >= 0
        for name in ("disturbance", "walk"):
            place = f"StochasticModel.{name}"
            check_numbers(place, vars(self)[name], at_least_zero, "at least 0")
        for name, sd in self.noise.items():
            place = f"StochasticModel.noise[{name!r}]"
            check_numbers(place, sd, lambda x: x > 0, "positive")
        check_count("StochasticModel.substeps", self.substeps)

    def step(self, sys: System, state: State, ctrl: Float[Array, " nu"]) -> State:
        """Compute the state at the next measurement, without noise."""
        if self.substeps == 1:
            return self.pipeline.step(sys, state, ctrl)
        one = lambda state, _: (self.pipeline.step(sys, state, ctrl), None)
        return scan(one, state, length=self.substeps)[0]

    def process_factor(self, sys: System) -> Float[Array, "nx nx"]:
        """Compute a factor of the covariance of the process noise of one step."""
        nv, na, dt = sys.nv, sys.na, sys.dt * self.substeps
        accelerations = per_entry("disturbance", self.disturbance, nv, dt.dtype)
        factor = jnp.pad(acceleration_factor(accelerations, dt), (0, na))
        if self.walk is None:
            return factor
        walk = per_entry("walk", self.walk, 2 * nv + na, dt.dtype)
        return compress(jnp.concatenate([factor, jnp.diag(jnp.sqrt(dt) * walk)], 1))

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        """Compute the value of each channel in a state, without noise."""
        measure = with_pipeline(self.measure, self.pipeline)
        return measure.predict(sys, state, ctrl)


class Channels(AbstractSpace):
    """The measured channels of a model, as one vector.

    **Arguments:**

    - `spaces`: space of each channel, in the order of their names.
    - `shapes`: shape of the values of each channel.
    - `widths`: number of tangent coordinates of each channel.
    - `noise`: standard deviations of all of them.
    """

    spaces: dict[str, AbstractSpace]
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    noise: Float[Array, " m"]

    @property
    def linear(self) -> bool:
        return all(space.linear for space in self.spaces.values())

    def difference(self, a: Mapping[str, Array], b: Mapping[str, Array]) -> Array:
        parts = [s.difference(a[name], b[name]) for name, s in self.spaces.items()]
        return jnp.concatenate(parts)

    def integrate(self, a: Mapping[str, Array], step: Array) -> dict[str, Array]:
        parts = self.split(step)
        return {k: s.integrate(a[k], parts[k]) for k, s in self.spaces.items()}

    def split(
        self, numbers: Float[Array, " m"] | Bool[Array, " m"]
    ) -> dict[str, Array]:
        """Return the part of each channel."""
        parts = jnp.split(numbers, np.cumsum(self.widths)[:-1])
        return dict(zip(self.spaces, parts, strict=True))

    def mask(self, valid: Any) -> Bool[Array, " m"]:
        """Return a flag for each number that is measured."""
        if valid is None:
            return jnp.ones(sum(self.widths), bool)
        if not isinstance(valid, Mapping):
            valid = {name: valid for name in self.spaces}
        _check_names("valid", valid, self.spaces)
        parts = []
        for name, width in zip(self.spaces, self.widths, strict=True):
            flag = jnp.asarray(valid[name])
            if flag.shape not in ((), (width,)) or flag.dtype != bool:
                raise ValueError(
                    f"`valid[{name!r}]` must be a boolean, or {width} of them, got "
                    f"{flag.dtype} of shape {flag.shape}."
                )
            parts.append(jnp.broadcast_to(flag, (width,)))
        return jnp.concatenate(parts)

    def error(
        self, predicted: Mapping[str, Array], measured: Any, mask: Bool[Array, " m"]
    ) -> Float[Array, " m"]:
        """Compute measured minus predicted values, zero where nothing was measured.

        **Raises:** `ValueError` if names or shapes of channels are wrong.
        """
        check_mapping(measured)
        _check_names("measured", measured, self.spaces)
        for name, shape in zip(self.spaces, self.shapes, strict=True):
            dims = {f"axis {k}": size for k, size in enumerate(shape)}
            check_shape(f"measured[{name!r}]", measured[name], dims)
        known = {
            name: _present(predicted[name], measured[name], part)
            for name, part in self.split(mask).items()
        }
        return jnp.where(mask, self.difference(predicted, known), 0.0)


def _present(predicted: Array, measured: Any, mask: Array) -> Array:
    """Put predictions in the place of what is missing, which may be NaN: its derivatives would
    be NaN even if they are multiplied by zero."""
    measured = jnp.asarray(measured, predicted.dtype)
    if mask.shape != predicted.shape:
        # Coordinates with quaternions, of which a part may be missing.
        mask = jnp.any(mask) & jnp.isfinite(measured)
    return jnp.where(mask, measured, predicted)


def check_mapping(measured: Any) -> None:
    """Raise `ValueError` unless measurements are a dictionary."""
    if not isinstance(measured, Mapping):
        raise ValueError(
            "`measured` must be a dictionary from channels to values, such as {'q': q}, got "
            f"{type(measured).__name__}."
        )


def _check_names(what: str, given: Mapping, expected: Mapping) -> None:
    if set(given) != set(expected):
        raise ValueError(
            f"`{what}` must have the channels {sorted(expected)} of `measure`, got "
            f"{sorted(given)}."
        )


def per_entry(name: str, value: Array, size: int, dtype) -> Array:
    """Return one number for each of `size`; raise `ValueError` if the shape is wrong."""
    if value.shape not in ((), (size,)):
        raise ValueError(
            f"`{name}` must be one number, or have shape ({size},), but its shape is "
            f"{value.shape}."
        )
    return jnp.broadcast_to(value.astype(dtype), (size,))


def channels_of(model: StochasticModel, sys: System) -> Channels:
    """Return the channels of a model.

    **Raises:** `ValueError` if names or shapes of `noise` do not fit.
    """
    predicted = predicted_channels(sys, model.measure)
    _check_names("noise", model.noise, predicted)
    widths = tangent_widths(sys, model.measure, predicted)
    sd = [
        per_entry(f"noise[{name!r}]", model.noise[name], width, sys.dt.dtype)
        for name, width in widths.items()
    ]
    spaces = {name: space_of(model.measure, sys, name) for name in widths}
    shapes = tuple(predicted[name].shape for name in widths)
    return Channels(spaces, shapes, tuple(widths.values()), jnp.concatenate(sd))
