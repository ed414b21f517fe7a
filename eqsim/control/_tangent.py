"""States in tangent coordinates, and trajectories of states."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics import difference, integrate
from ..model import State, System


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
