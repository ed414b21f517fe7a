r"""Constraints of states and controls, by the augmented Lagrangian."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


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
