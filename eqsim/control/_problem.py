"""Optimal control problems."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._errors import check_count, check_shape
from ..spatial import clamp
from ._constraints import (
    Constraint,
    evaluate,
    Multipliers,
    penalty_residual,
    stage_constraints,
    terminal_constraints,
    TerminalConstraint,
    zeros_like_values,
)
from ._cost import AbstractCost
from ._dynamics import AbstractDynamics, as_dynamics
from ._tangent import before, last


class Problem(eqx.Module):
    """An optimal control problem: what is controlled, its cost, and its constraints.

    **Arguments:**

    - `system`: an environment whose state is a `State`, a pair `(pipeline, sys)`, or an
        `AbstractDynamics` such as `Robot(pipeline, sys, substeps)`.
    - `cost`: the cost to minimize.
    - `horizon`: number of control steps.
    - `limits`: lower and upper bound of each control, `(nu, 2)`; by default those of the
        environment or of the actuators.
    - `constraints`: `Constraint` and `TerminalConstraint`.

    **Raises:** `ValueError` if the horizon is not positive, or limits have a wrong shape,
    are NaN, or leave no control.
    """

    dynamics: AbstractDynamics
    cost: AbstractCost
    limits: Float[Array, "nu 2"] | None
    constraints: tuple[Constraint | TerminalConstraint, ...]
    horizon: int = eqx.field(static=True)

    def __init__(
        self,
        system: Any,
        cost: AbstractCost,
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
