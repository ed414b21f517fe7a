r"""Dynamics to control: discrete-time systems whose states lie on a manifold."""

import abc
from collections.abc import Callable
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_count, check_finite, check_shape
from .._loops import scan
from ..envs import AbstractEnv, AbstractTask
from ..model import check_state, State, System
from ..pipelines import AbstractPipeline, Generalized
from ._linearize import jacobians
from ._tangent import retract, state_difference, tangent_size


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


class Robot(AbstractStateDynamics):
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
                f"control, got {type(state).__name__}. Plan with the environment inside "
                "the wrapper, from `env.physics(state)`."
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
    if isinstance(dynamics, Robot):
        return lambda d: d.pipeline
    if isinstance(dynamics, EnvDynamics):
        return lambda d: d.env.pipeline
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
            return Robot(pipeline, sys)
    raise ValueError(
        "An environment, a pair `(pipeline, sys)` or an `AbstractDynamics` is expected, "
        f"got {type(system).__name__}."
    )


def _check_state(sys: System, state: State) -> None:
    check_state(sys, state.q, state.qd, act=state.act)
    for name, value in (("q", state.q), ("qd", state.qd), ("act", state.act)):
        check_finite(f"state.{name}", value)
