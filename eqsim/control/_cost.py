r"""Costs as sums of squared residuals."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..model import State
from ..model.arrays import as_array
from ._tangent import state_difference


NOT_NEGATIVE = lambda x: x >= 0.0, "at least 0"


class AbstractCost(eqx.Module):
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


class Residual(AbstractCost):
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


class Quadratic(AbstractCost):
    r"""A quadratic cost of the distance to a target,
    $\tfrac12 \sum_i w_i \delta x_i^2 + \tfrac12 \sum_j c_j (u_j - u^*_j)^2$ with
    $\delta x = x \ominus x^*$ in tangent coordinates.

    **Arguments:**

    - `target`: $x^*$, a `State` or a vector.
    - `state_weight`: $w$ `(nx,)`, or one number for all; at least zero. A plan has no
        derivative by a weight of zero: it is given as zero.
    - `action_weight`: $c$ `(nu,)`, or one number, likewise.
    - `terminal_weight`: $w$ of the last state; `state_weight` by default.
    - `action`: $u^*$; zero by default.
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
            check_numbers(f"Quadratic.{name}", vars(self)[name], *NOT_NEGATIVE)

    def stage(self, sys: Any, state: Any, action: Float[Array, " nu"]):
        change = self._change(sys, state)
        away = action - jnp.broadcast_to(self.action, action.shape).astype(action.dtype)
        state_part = _scaled("state_weight", self.state_weight, change)
        action_part = _scaled("action_weight", self.action_weight, away)
        return jnp.concatenate([state_part, action_part])

    def terminal(self, sys: Any, state: Any):
        name, weight = "terminal_weight", self.terminal_weight
        if weight is None:
            name, weight = "state_weight", self.state_weight
        return _scaled(name, weight, self._change(sys, state))

    def _change(self, sys, state):
        if isinstance(state, State):
            return state_difference(sys, self.target, state)
        return state - self.target


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
