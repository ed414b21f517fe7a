r"""Dynamics to control: states in tangent coordinates, linear models, discrete steps.

In this order: states and trajectories of states; `linearize` and `linearize_step`;
`AbstractDynamics` with robots, environments and functions of vectors.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._errors import check_count, check_finite, check_shape, check_type
from .._loops import scan
from ..envs import AbstractEnv, AbstractTask
from ..kinematics import difference, integrate
from ..model import check_state, State, System
from ..pipelines import AbstractPipeline, Generalized


def tangent_size(sys: System) -> int:
    """Return the number of tangent coordinates of a state: `2 nv + na`."""
    return 2 * sys.nv + sys.na


def retract(sys: System, state: State, change: Float[Array, " nx"]) -> State:
    r"""Move a state by a step in tangent coordinates, $x \oplus \delta x$.

    **Arguments:**

    - `sys`: the robot.
    - `state`: start state.
    - `change`: $(\delta q, \delta \dot q, \delta a)$, as in `Linearization`.

    **Returns:** the new state; `aux` is kept.
    """
    nv = sys.nv
    shift, rate, act = jnp.split(change, (nv, 2 * nv))
    q = integrate(sys, state.q, shift)
    return State(q, state.qd + rate, state.act + act, state.aux)


def state_difference(sys: System, start: State, end: State) -> Float[Array, " nx"]:
    r"""Compute the step between two states in tangent coordinates,
    $x_1 \ominus x_0$.

    **Arguments:**

    - `sys`: the robot.
    - `start`, `end`: $x_0$ and $x_1$.

    **Returns:** $(\delta q, \delta \dot q, \delta a)$: the inverse of `retract`.
    """
    shift = difference(sys, start.q, end.q)
    return jnp.concatenate([shift, end.qd - start.qd, end.act - start.act])


def where(keep: Any, one: Any, two: Any) -> Any:
    """Choose one of two trees by a flag."""
    return jax.tree.map(lambda x, y: jnp.where(keep, x, y), one, two)


# Trajectories: trees whose leading axis is time.


def before(states: Any) -> Any:
    """Drop the last state."""
    return jax.tree.map(lambda x: x[:-1], states)


def after(states: Any) -> Any:
    """Drop the first state."""
    return jax.tree.map(lambda x: x[1:], states)


def last(states: Any) -> Any:
    """Return the last state."""
    return jax.tree.map(lambda x: x[-1], states)


def appended(states: Any, state: Any) -> Any:
    """Append one state."""
    join = lambda x, y: jnp.concatenate([x, y[None]])
    return jax.tree.map(join, states, state)


# Derivatives of solutions.


def push(function: Callable, parameters: Any, change: Any) -> tuple[Any, Any]:
    """Compute values and tangents, zero where nothing depends on the parameters."""
    values, moved = eqx.filter_jvp(function, (parameters,), (change,))
    filled = lambda x, y: jnp.zeros_like(y) if x is None else x
    return values, jax.tree.map(filled, moved, values, is_leaf=lambda x: x is None)


class Linearization(NamedTuple):
    r"""The linear model of one control step, $x' = A x + B u$, $y = C x + D u$.

    $x = (\delta q, \delta \dot q, \delta a)$ are small changes of coordinates,
    velocities and activations, in tangent coordinates: a change of orientation has
    three numbers, about the axes of the body (see `eqsim.kinematics.integrate`). $u$ is
    a change of the action, $y$ that of the observation, which is one of the new state; the
    parts of a dictionary are joined, in the order of their names.

    - `A`: `(2 nv + na, 2 nv + na)`.
    - `B`: `(2 nv + na, nu)`.
    - `C`: `(nobs, 2 nv + na)`.
    - `D`: `(nobs, nu)`.
    """

    A: Float[Array, "nx nx"]
    B: Float[Array, "nx nu"]
    C: Float[Array, "nobs nx"]
    D: Float[Array, "nobs nu"]


_INSIDE = (
    "Take the environment inside the wrapper, and its state from `env.physics(state)`."
)


def linearize(
    env: AbstractEnv, state: State, action: Float[Array, " nu"]
) -> Linearization:
    r"""Linearize a control step of an environment.

    With $f$ the control step and $h$ the observation,
    $A = \partial (f(x_0 \oplus x, u_0) \ominus f(x_0, u_0)) / \partial x$ at $x = 0$,
    $B$ likewise by the action; $C$ and $D$ are the derivatives of $h(f(x, u))$. All are
    exact, by forward mode. For a batch of states, wrap it in `eqx.filter_vmap`.

    **Arguments:**

    - `env`: environment with any pipeline.
    - `state`, `action`: point of linearization.

    **Returns:** the four matrices, which also unpack: `A, B, C, D = linearize(...)`.

    **Raises:** `ValueError` if a shape is wrong; `TypeError` if the state is not that of
    the robot.
    """
    _check(env.sys, state, "action", action)

    def step(state, action):
        new, timestep = env.step(state, action)
        parts = jax.tree.leaves(timestep.obs)
        return new, jnp.concatenate([jnp.ravel(x) for x in parts])

    return Linearization(*jacobians(env.sys, step, state, action))


def linearize_step(
    pipeline: AbstractPipeline, sys: System, state: State, ctrl: Float[Array, " nu"]
) -> tuple[Float[Array, "nx nx"], Float[Array, "nx nu"]]:
    r"""Linearize one time step of a pipeline, without an environment.

    **Arguments:**

    - `pipeline`, `sys`: the physics and the robot.
    - `state`, `ctrl`: point of linearization.

    **Returns:** $A$ and $B$ of `Linearization`, for one step of `sys.dt` (MuJoCo:
    `mjd_transitionFD`).

    **Raises:** `ValueError` if a shape is wrong.
    """
    _check(sys, state, "ctrl", ctrl)
    step = lambda state, ctrl: (pipeline.step(sys, state, ctrl), ctrl[:0])
    A, B, _, _ = jacobians(sys, step, state, ctrl)
    return A, B


def _check(sys: System, state: Any, name: str, ctrl) -> None:
    check_type("state", state, State, "a state of the robot", _INSIDE)
    check_state(sys, state.q, state.qd, act=state.act)
    check_shape(name, ctrl, {"nu": sys.nu})


def jacobians(sys: System, step: Callable, state: State, ctrl):
    """Return the Jacobians of the new state, as a tangent vector, and of the second
    output of `step`."""
    size = tangent_size(sys)

    def outputs(change):
        moved = retract(sys, state, change[:size])
        new, seen = step(moved, ctrl + change[size:])
        return (new.q, jnp.concatenate([new.qd, new.act]), seen), new.q

    none = jnp.zeros(size + sys.nu, state.q.dtype)
    (shift, rest, seen), end = jax.jacfwd(outputs, has_aux=True)(none)
    # From numbers to tangent coordinates at the end of the step.
    tangent = jax.jacfwd(lambda q: difference(sys, end, q))(end)
    shift = jnp.matmul(tangent, shift, precision=jax.lax.Precision.HIGHEST)
    after = jnp.concatenate([shift, rest])
    return [block for x in (after, seen) for block in (x[:, :size], x[:, size:])]


class AbstractDynamics(eqx.Module):
    r"""A discrete-time system $x_{t+1} = f(x_t, u_t)$, with states on a manifold.

    `sys` is what costs and constraints are given as their first argument.
    """

    if TYPE_CHECKING:
        # A field here would be an argument of every subclass.
        @property
        def sys(self) -> Any:
            """Parameters of the system: a `System` for robots."""
            ...

    else:
        sys: eqx.AbstractVar[Any]

    @property
    @abc.abstractmethod
    def nx(self) -> int:
        """Number of tangent coordinates of a state."""

    @property
    @abc.abstractmethod
    def nu(self) -> int:
        """Number of controls."""

    @property
    @abc.abstractmethod
    def limits(self) -> Float[Array, "nu 2"]:
        """Lower and upper bound of each control; infinite without one."""

    @abc.abstractmethod
    def step(self, state: Any, action: Float[Array, " nu"]) -> Any:
        """Compute the state one control step later."""

    @abc.abstractmethod
    def retract(self, state: Any, change: Float[Array, " nx"]) -> Any:
        r"""Move a state by a step in tangent coordinates, $x \oplus \delta x$."""

    @abc.abstractmethod
    def difference(self, start: Any, end: Any) -> Float[Array, " nx"]:
        r"""Compute the step from one state to another, $x_1 \ominus x_0$."""

    @abc.abstractmethod
    def linearize(
        self, state: Any, action: Float[Array, " nu"]
    ) -> tuple[Float[Array, "nx nx"], Float[Array, "nx nu"]]:
        """Compute the derivatives $A$, $B$ of a step, in tangent coordinates."""

    @abc.abstractmethod
    def check(self, state: Any) -> None:
        """Raise `ValueError` unless a state has the right shape and finite numbers."""


class AbstractStateDynamics(AbstractDynamics):
    """A robot whose states are `State`, in tangent coordinates."""

    @property
    def nx(self) -> int:
        return tangent_size(self.sys)

    @property
    def nu(self) -> int:
        return self.sys.nu

    def retract(self, state: State, change: Float[Array, " nx"]) -> State:
        return retract(self.sys, state, change)

    def difference(self, start: State, end: State) -> Float[Array, " nx"]:
        return state_difference(self.sys, start, end)

    def linearize(self, state: State, action: Float[Array, " nu"]):
        step = lambda state, action: (self.step(state, action), action[:0])
        A, B, _, _ = jacobians(self.sys, step, state, action)
        return A, B


class PipelineDynamics(AbstractStateDynamics):
    """A robot stepped by a pipeline; the control is held for `substeps` time steps.

    **Arguments:**

    - `pipeline`, `sys`: the physics and the robot.
    - `substeps`: time steps of `sys.dt` per control step.
    """

    pipeline: AbstractPipeline
    sys: System  # pyright: ignore
    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_count("substeps", self.substeps)

    @property
    def limits(self) -> Float[Array, "nu 2"]:
        actuators = self.sys.actuators
        limited = jnp.asarray(actuators.ctrl_limited, bool)[:, None]
        endless = jnp.asarray([-jnp.inf, jnp.inf], actuators.ctrl_range.dtype)
        return jnp.where(limited, actuators.ctrl_range, endless[None])

    def step(self, state: State, action: Float[Array, " nu"]) -> State:
        one = lambda state, _: (self.pipeline.step(self.sys, state, action), None)
        if self.substeps == 1:
            return one(state, None)[0]
        return scan(one, state, length=self.substeps)[0]

    def check(self, state: State) -> None:
        _check_state(self.sys, state)


class EnvDynamics(AbstractStateDynamics):
    """An environment whose state is that of its robot.

    **Arguments:**

    - `env`: the environment; rewards and observations are not computed.
    """

    env: AbstractEnv

    @property
    def sys(self) -> System:
        """The robot of the environment."""
        return self.env.sys

    @property
    def limits(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def step(self, state: State, action: Float[Array, " nu"]) -> State:
        if isinstance(self.env, AbstractTask):
            return self.env.transition(state, action)
        return self.env.step(state, action)[0]

    def check(self, state: State) -> None:
        if not isinstance(state, State):
            raise ValueError(
                f"The state of {type(self.env).__name__} must be a `State` for optimal "
                f"control, got {type(state).__name__}. {_INSIDE}"
            )
        _check_state(self.sys, state)


class VectorDynamics(AbstractDynamics):
    """A system with states in $R^n$, given by a function.

    **Arguments:**

    - `step_fn`: `(sys, x, u) -> x`, JAX code on vectors.
    - `sys`: its parameters, any PyTree.
    - `state_size`, `action_size`: sizes of state and control.
    - `action_limits`: bounds of controls, `(nu, 2)`; none by default.
    """

    step_fn: Callable[[Any, Array, Array], Array]
    sys: Any
    state_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)
    action_limits: Float[Array, "nu 2"] | None = None

    @property
    def nx(self) -> int:
        return self.state_size

    @property
    def nu(self) -> int:
        return self.action_size

    @property
    def limits(self) -> Float[Array, "nu 2"]:
        if self.action_limits is not None:
            return self.action_limits
        return jnp.tile(jnp.asarray([[-jnp.inf, jnp.inf]]), (self.nu, 1))

    def step(self, state: Array, action: Float[Array, " nu"]) -> Array:
        return self.step_fn(self.sys, state, action)

    def retract(self, state: Array, change: Float[Array, " nx"]) -> Array:
        return state + change

    def difference(self, start: Array, end: Array) -> Float[Array, " nx"]:
        return end - start

    def linearize(self, state: Array, action: Float[Array, " nu"]):
        return jax.jacfwd(self.step, (0, 1))(state, action)

    def check(self, state: Array) -> None:
        check_shape("state", state, {"nx": self.nx})
        check_finite("state", state)


class Timed(eqx.Module):
    """A state and its time, which costs and constraints of `TimedDynamics` are given.

    **Arguments:**

    - `state`: the state.
    - `step`: number of control steps since time zero.
    """

    state: Any
    step: Int[Array, ""] = eqx.field(converter=jnp.asarray, default=0)


class TimedDynamics(AbstractDynamics):
    """Dynamics with the control step in the state, for costs that depend on time.

    States are `Timed`; tangent coordinates are those of the inner state.

    **Arguments:**

    - `dynamics`: the dynamics, or what `ControlProblem` takes as a system.
    """

    dynamics: AbstractDynamics = eqx.field(converter=lambda x: as_dynamics(x))

    @property
    def sys(self) -> Any:
        """The parameters of the dynamics."""
        return self.dynamics.sys

    @property
    def nx(self) -> int:
        return self.dynamics.nx

    @property
    def nu(self) -> int:
        return self.dynamics.nu

    @property
    def limits(self) -> Float[Array, "nu 2"]:
        return self.dynamics.limits

    def step(self, state: Timed, action: Float[Array, " nu"]) -> Timed:
        return Timed(self.dynamics.step(state.state, action), state.step + 1)

    def retract(self, state: Timed, change: Float[Array, " nx"]) -> Timed:
        return Timed(self.dynamics.retract(state.state, change), state.step)

    def difference(self, start: Timed, end: Timed) -> Float[Array, " nx"]:
        return self.dynamics.difference(start.state, end.state)

    def linearize(self, state: Timed, action: Float[Array, " nu"]):
        return self.dynamics.linearize(state.state, action)

    def check(self, state: Any) -> None:
        if not isinstance(state, Timed):
            raise ValueError(
                "The state of `TimedDynamics` must be `Timed(state, step)`, got "
                f"{type(state).__name__}."
            )
        self.dynamics.check(state.state)


def with_smoothing(dynamics: AbstractDynamics, width: Array) -> AbstractDynamics:
    """Set the smoothing width of contacts.

    **Raises:** `ValueError` if the pipeline is not `Generalized`.
    """
    at = pipeline_of(dynamics)
    if at is None or not isinstance(at(dynamics), Generalized):
        raise ValueError(
            "`contact=Anneal(...)` needs a robot on the pipeline `Generalized`, got "
            f"{type(dynamics).__name__}."
        )
    smoothing = lambda d: at(d).smoothing
    return eqx.tree_at(smoothing, dynamics, width, is_leaf=lambda x: x is None)


def pipeline_of(dynamics: AbstractDynamics) -> Callable | None:
    """Return where in `dynamics` its pipeline is; None without one."""
    if isinstance(dynamics, PipelineDynamics):
        return lambda d: d.pipeline
    if isinstance(dynamics, EnvDynamics):
        return lambda d: d.env.pipeline
    if isinstance(dynamics, TimedDynamics):
        inner = pipeline_of(dynamics.dynamics)
        return None if inner is None else lambda d: inner(d.dynamics)
    return None


def as_dynamics(system: Any) -> AbstractDynamics:
    """Wrap an environment or a pair `(pipeline, sys)`."""
    if isinstance(system, AbstractDynamics):
        return system
    if isinstance(system, AbstractEnv):
        return EnvDynamics(system)
    if isinstance(system, tuple) and len(system) == 2:
        pipeline, sys = system
        if isinstance(pipeline, AbstractPipeline) and isinstance(sys, System):
            return PipelineDynamics(pipeline, sys)
    raise ValueError(
        "An environment, a pair `(pipeline, sys)` or an `AbstractDynamics` is expected, "
        f"got {type(system).__name__}."
    )


def _check_state(sys: System, state: State) -> None:
    check_state(sys, state.q, state.qd, act=state.act)
    for name, value in (("q", state.q), ("qd", state.qd), ("act", state.act)):
        check_finite(f"state.{name}", value)
