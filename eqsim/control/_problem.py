r"""Optimal control problems: costs as sums of squared residuals, constraints, limits."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._errors import check_count, check_numbers, check_shape
from ..envs import AbstractEnv
from ..model import State
from ..model.arrays import as_array
from ..spatial import clamp
from ._dynamics import (
    AbstractDynamics,
    as_dynamics,
    before,
    last,
    state_difference,
    Timed,
)


NOT_NEGATIVE = lambda x: x >= 0.0, "at least 0"


class AbstractTrajectoryCost(eqx.Module):
    r"""The cost of a plan,
    $\sum_{t<T} \tfrac12 |r(x_t, u_t)|^2 + \tfrac12 |r_T(x_T)|^2$.

    Residuals make the Gauss-Newton Hessian $J'J$ positive semidefinite.
    """

    @abc.abstractmethod
    def stage(
        self, sys: Any, state: Any, action: Float[Array, " nu"]
    ) -> Float[Array, " n"]:
        """Compute the residual $r$ of one control step."""

    @abc.abstractmethod
    def terminal(self, sys: Any, state: Any) -> Float[Array, " n"]:
        """Compute the residual $r_T$ of the last state."""


class ResidualCost(AbstractTrajectoryCost):
    """A cost of functions that return residuals.

    **Arguments:**

    - `stage_fn`: `(sys, state, action) -> residual`.
    - `terminal_fn`: `(sys, state) -> residual`; no terminal cost by default.

    A function may be an `eqx.Module` with `__call__`: then its arrays can be batched and
    differentiated.
    """

    stage_fn: Callable[[Any, Any, Array], Array]
    terminal_fn: Callable[[Any, Any], Array] | None = None

    def stage(self, sys: Any, state: Any, action: Float[Array, " nu"]):
        return jnp.ravel(self.stage_fn(sys, state, action))

    def terminal(self, sys: Any, state: Any):
        if self.terminal_fn is None:
            return jnp.zeros(1, jax.tree.leaves(state)[0].dtype)
        return jnp.ravel(self.terminal_fn(sys, state))


class QuadraticCost(AbstractTrajectoryCost):
    r"""A quadratic cost of the distance to a target,
    $\tfrac12 \sum_i w_i \delta x_i^2 + \tfrac12 \sum_j c_j (u_j - u^*_j)^2$ with
    $\delta x = x \ominus x^*$ in tangent coordinates.

    **Arguments:**

    - `target`: $x^*$, a `State` or a vector. For `TimedDynamics`, also a trajectory with a
        leading axis of time: the target at `state.step`, its last row from then on.
    - `state_weight`: $w$ `(nx,)`, or one number for all; at least zero. A plan has no
        derivative by a weight of zero: it is given as zero.
    - `action_weight`: $c$ `(nu,)`, or one number, likewise.
    - `terminal_weight`: $w$ of the last state; `state_weight` by default.
    - `action`: $u^*$, or likewise a trajectory; zero by default.
    """

    target: Any
    state_weight: Float[Array, "..."] = eqx.field(converter=as_array)
    action_weight: Float[Array, "..."] = eqx.field(converter=as_array)
    terminal_weight: Float[Array, "..."] | None = eqx.field(
        converter=as_array, default=None
    )
    action: Float[Array, "..."] = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        for name in ("state_weight", "action_weight", "terminal_weight"):
            check_numbers(f"QuadraticCost.{name}", vars(self)[name], *NOT_NEGATIVE)

    def stage(self, sys: Any, state: Any, action: Float[Array, " nu"]):
        change, target = self._change(sys, state), self.action
        if target.ndim == 2:
            target = _at_step("action", target, state)
        away = action - jnp.broadcast_to(target, action.shape).astype(action.dtype)
        state_part = _scaled("state_weight", self.state_weight, change)
        action_part = _scaled("action_weight", self.action_weight, away)
        return jnp.concatenate([state_part, action_part])

    def terminal(self, sys: Any, state: Any):
        name, weight = "terminal_weight", self.terminal_weight
        if weight is None:
            name, weight = "state_weight", self.state_weight
        return _scaled(name, weight, self._change(sys, state))

    def _change(self, sys, state):
        target, inner = self.target, state.state if isinstance(state, Timed) else state
        many, one = (jax.tree.leaves(x)[0].ndim for x in (target, inner))
        if many > one:
            target = _at_step("target", target, state)
        if isinstance(inner, State):
            return state_difference(sys, target, inner)
        return inner - target


def _at_step(name: str, trajectory, state):
    """Return the row of a trajectory at the time of a state."""
    if not isinstance(state, Timed):
        raise ValueError(
            f"`QuadraticCost.{name}` is a trajectory, but a {type(state).__name__} has no "
            "time. Use `TimedDynamics`."
        )
    row = lambda x: x[jnp.clip(state.step, 0, len(x) - 1)]
    return jax.tree.map(row, trajectory)


def _scaled(name: str, weight, change):
    if weight.ndim and weight.shape != change.shape:
        raise ValueError(
            f"`{name}` must be a number or have shape {change.shape}, but its shape is "
            f"{weight.shape}."
        )
    root = jnp.broadcast_to(root_weight(weight), change.shape)
    return root.astype(change.dtype) * change


def root_weight(weight: Float[Array, "..."]) -> Float[Array, "..."]:
    """Compute the root of weights; its derivative at zero is zero, not infinite."""
    positive = weight > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, weight, 1.0)), 0.0)


class RewardCost(AbstractTrajectoryCost):
    r"""The negative reward of an environment, as a sum of squares.

    A step costs $\mathrm{softplus}(c - r)$ with $c$ an upper bound of the reward $r$, and
    `termination` where the task ends. The cost at the end is zero. Only what is
    differentiable of a reward guides `ILQR`; planners that draw plans follow all of it.

    **Arguments:**

    - `env`: the environment; its state is a `State`. Its robot is that of the problem.
    - `upper`: $c$; about the best reward of a step.
    - `termination`: cost of a step that ends the task.
    - `action_weight`: weight of half the squared action; keeps plans unique.
    """

    env: AbstractEnv
    upper: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    termination: Float[Array, ""] = eqx.field(converter=as_array, default=10.0)
    action_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1e-3)

    def __check_init__(self):
        for name in ("termination", "action_weight"):
            check_numbers(f"RewardCost.{name}", vars(self)[name], *NOT_NEGATIVE)

    def stage(self, sys: Any, state: Any, action: Float[Array, " nu"]):
        env = eqx.tree_at(lambda env: env.sys, self.env, sys)
        _, timestep = env.step(state, action)
        dtype = action.dtype
        missing = jax.nn.softplus(self.upper.astype(dtype) - timestep.reward)
        ends = jnp.where(timestep.terminated, self.termination.astype(dtype), 0.0)
        terms = jnp.sqrt(2.0 * jnp.stack([missing, ends + 1e-12]))
        weight = root_weight(self.action_weight.astype(dtype))
        return jnp.concatenate([terms, weight * action])

    def terminal(self, sys: Any, state: Any):
        del sys
        return jnp.zeros(1, state.q.dtype)


class Constraint(eqx.Module):
    r"""A constraint on every control step: $c(x_t, u_t) \le 0$, or $= 0$.

    **Arguments:**

    - `fn`: `(sys, state, action) -> values`, JAX code.
    - `equality`: true if values must be zero; by default, at most zero.
    """

    fn: Callable[[Any, Any, Array], Array]
    equality: bool = eqx.field(static=True, default=False)


class TerminalConstraint(eqx.Module):
    r"""A constraint on the last state: $c(x_T) \le 0$, or $= 0$.

    **Arguments:**

    - `fn`: `(sys, state) -> values`, JAX code.
    - `equality`: true if values must be zero; by default, at most zero.
    """

    fn: Callable[[Any, Any], Array]
    equality: bool = eqx.field(static=True, default=False)


class Multipliers(NamedTuple):
    r"""Multipliers $\lambda$ of constraints, and their penalty weight $\rho$.

    - `stage`: one array `(T, n)` per `Constraint`, in order.
    - `terminal`: one array `(n,)` per `TerminalConstraint`.
    - `penalty`: $\rho$.
    """

    stage: tuple[Float[Array, "T n"], ...]
    terminal: tuple[Float[Array, " n"], ...]
    penalty: Float[Array, ""]


def stage_constraints(constraints: tuple) -> list[Constraint]:
    """Select the constraints on control steps."""
    return [c for c in constraints if isinstance(c, Constraint)]


def terminal_constraints(constraints: tuple) -> list[TerminalConstraint]:
    """Select the constraints on the last state."""
    return [c for c in constraints if isinstance(c, TerminalConstraint)]


def evaluate(constraints, *args) -> tuple[Array, ...]:
    """Compute the values of constraints, each as a vector."""
    return tuple(jnp.ravel(c.fn(*args)) for c in constraints)


def penalty_residual(constraints, values, multipliers, penalty) -> Array | None:
    r"""Compute residuals whose squares are the terms of the augmented Lagrangian.

    $\tfrac{1}{2\rho} \max(0, \lambda + \rho c)^2$ for an inequality, without the
    maximum for an equality; the constant $-\lambda^2 / 2\rho$ is left out.
    """
    parts = []
    for constraint, c, multiplier in zip(constraints, values, multipliers, strict=True):
        shifted = multiplier + penalty * c
        if not constraint.equality:
            shifted = jnp.maximum(shifted, 0.0)
        parts.append(shifted / jnp.sqrt(penalty))
    return jnp.concatenate(parts) if parts else None


def updated(constraints, values, multipliers, penalty) -> tuple[Array, ...]:
    r"""Compute new multipliers, $\lambda + \rho c$, not negative for inequalities."""
    new = []
    for constraint, c, multiplier in zip(constraints, values, multipliers, strict=True):
        shifted = multiplier + penalty * c
        new.append(shifted if constraint.equality else jnp.maximum(shifted, 0.0))
    return tuple(new)


def violation(constraints, values) -> list[Array]:
    """Compute by how much each constraint is violated, at most."""
    away = lambda c, x: jnp.abs(x) if c.equality else jnp.maximum(x, 0.0)
    pairs = zip(constraints, values, strict=True)
    return [jnp.max(away(c, x), initial=0.0) for c, x in pairs]


def zeros_like_values(constraints, *args) -> tuple[Array, ...]:
    """Return zero multipliers of the right shapes."""
    shapes = jax.eval_shape(lambda: evaluate(constraints, *args))
    return tuple(jnp.zeros(x.shape, x.dtype) for x in shapes)


class ControlProblem(eqx.Module):
    """An optimal control problem: what is controlled, its cost, and its constraints.

    **Arguments:**

    - `system`: an environment whose state is a `State`, a pair `(pipeline, sys)`, or an
        `AbstractDynamics` such as `PipelineDynamics(pipeline, sys, substeps)`.
    - `cost`: the cost to minimize.
    - `horizon`: number of control steps.
    - `limits`: lower and upper bound of each control, `(nu, 2)`; by default those of the
        environment or of the actuators.
    - `constraints`: `Constraint` and `TerminalConstraint`.

    **Raises:** `ValueError` if the horizon is not positive, or limits have a wrong shape,
    are NaN, or leave no control.
    """

    dynamics: AbstractDynamics
    cost: AbstractTrajectoryCost
    limits: Float[Array, "nu 2"] | None
    constraints: tuple[Constraint | TerminalConstraint, ...]
    horizon: int = eqx.field(static=True)

    def __init__(
        self,
        system: Any,
        cost: AbstractTrajectoryCost,
        horizon: int,
        limits: Float[Array, "nu 2"] | None = None,
        constraints: Sequence[Constraint | TerminalConstraint] = (),
    ):
        self.dynamics = as_dynamics(system)
        self.cost, self.horizon = cost, horizon
        self.constraints = tuple(constraints)
        limits = self.dynamics.limits if limits is None else jnp.asarray(limits)
        self.limits = _checked_limits(limits, self.dynamics.nu)
        check_count("horizon", horizon)

    def clip(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        """Return the nearest control within the limits."""
        if self.limits is None:
            return action
        return clamp(action, self.limits[:, 0], self.limits[:, 1])

    def bounds(self, dtype) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
        """Return lower and upper bounds of controls, infinite without limits."""
        if self.limits is None:
            endless = jnp.full(self.dynamics.nu, jnp.inf, dtype)
            return -endless, endless
        limits = self.limits.astype(dtype)
        return limits[:, 0], limits[:, 1]

    def multipliers(self, state: Any) -> Multipliers:
        """Return zero multipliers."""
        dtype = jax.tree.leaves(state)[0].dtype
        action, sys = jnp.zeros(self.dynamics.nu, dtype), self.dynamics.sys
        stage = zeros_like_values(self._stage(), sys, state, action)
        many = tuple(jnp.zeros((self.horizon, *x.shape), x.dtype) for x in stage)
        terminal = zeros_like_values(self._terminal(), sys, state)
        return Multipliers(many, terminal, jnp.ones((), dtype))

    def stage_values(self, state: Any, action: Float[Array, " nu"]):
        """Compute the values of all `Constraint`."""
        return evaluate(self._stage(), self.dynamics.sys, state, action)

    def terminal_values(self, state: Any):
        """Compute the values of all `TerminalConstraint`."""
        return evaluate(self._terminal(), self.dynamics.sys, state)

    def stage_residual(self, state: Any, action, multipliers, penalty):
        """Compute the residual of a control step, with that of its constraints."""
        own = self.cost.stage(self.dynamics.sys, state, action)
        values = self.stage_values(state, action)
        more = penalty_residual(self._stage(), values, multipliers, penalty)
        return own if more is None else jnp.concatenate([own, more.astype(own.dtype)])

    def terminal_residual(self, state: Any, multipliers, penalty):
        """Compute the residual of the last state, with that of its constraints."""
        own = self.cost.terminal(self.dynamics.sys, state)
        values = self.terminal_values(state)
        more = penalty_residual(self._terminal(), values, multipliers, penalty)
        return own if more is None else jnp.concatenate([own, more.astype(own.dtype)])

    def value(self, states: Any, actions: Float[Array, "T nu"]) -> Float[Array, ""]:
        """Compute the cost of given states and actions, without constraints."""
        sys = self.dynamics.sys
        half = lambda r: 0.5 * jnp.sum(r**2)
        stage = lambda x, u: half(self.cost.stage(sys, x, u))
        stages = jnp.sum(jax.vmap(stage)(before(states), actions))
        return stages + half(self.cost.terminal(sys, last(states)))

    def _stage(self):
        return stage_constraints(self.constraints)

    def _terminal(self):
        return terminal_constraints(self.constraints)


def _checked_limits(limits, nu: int):
    check_shape("limits", limits, {"nu": nu, "2": 2})
    if isinstance(limits, Tracer):
        return limits
    values = np.asarray(limits)
    if np.any(np.isnan(values)):
        raise ValueError(f"`limits` must not be NaN, got {values.tolist()}.")
    for k, (low, high) in enumerate(values):
        if low > high:
            raise ValueError(
                f"`limits` of control {k} are infeasible: the lower bound {low} exceeds "
                f"the upper bound {high}."
            )
    return None if np.all(np.isinf(values)) else limits
