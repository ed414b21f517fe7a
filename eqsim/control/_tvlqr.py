r"""Linear-quadratic feedback along a trajectory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_shape
from ._dynamics import as_dynamics
from ._finite_lq import LQ, solve_lq
from ._lqr import LQR
from ._tangent import before


def tvlqr(
    system: Any,
    states: Any,
    actions: Float[Array, "T nu"],
    Q: Float[Array, "nx nx"],
    R: Float[Array, "nu nu"],
    terminal: Float[Array, "nx nx"] | None = None,
    *,
    parallel: bool = False,
) -> LQR:
    r"""Compute the time-varying linear-quadratic regulator along a trajectory.

    The feedback $u_t = \bar u_t + K_t (x_t \ominus \bar x_t)$ minimizes the sum of
    $\tfrac12 \delta x' Q \delta x + \tfrac12 \delta u' R \delta u$ for the dynamics
    linearized along the trajectory, in tangent coordinates.

    **Arguments:**

    - `system`: an environment, a pair `(pipeline, sys)`, or an `AbstractDynamics`.
    - `states`, `actions`: the trajectory, as in `Plan`: `T + 1` states, `T` actions.
    - `Q`, `R`: weights of states (tangent coordinates) and actions.
    - `terminal`: weight of the last state, for instance the value matrix of `lqr`
        there; `Q` by default.
    - `parallel`: see `solve_lq`.

    **Returns:** gains `(T, nu, nx)` and value matrices `(T + 1, nx, nx)`.

    **Raises:** `ValueError` if a shape is wrong.
    """
    dynamics = as_dynamics(system)
    nx, nu = dynamics.nx, dynamics.nu
    T = jnp.shape(actions)[0]
    check_shape("actions", actions, {"T": T, "nu": nu})
    check_shape("Q", Q, {"nx": nx, "nx ": nx})
    check_shape("R", R, {"nu": nu, "nu ": nu})
    terminal = Q if terminal is None else terminal
    check_shape("terminal", terminal, {"nx": nx, "nx ": nx})
    lengths = {len(leaf) for leaf in jax.tree.leaves(states)}
    if lengths - {T + 1}:
        raise ValueError(
            f"`states` must hold T + 1 = {T + 1} states, one more than `actions`; got "
            f"{sorted(lengths)}."
        )
    many = eqx.filter_vmap(lambda d, x, u: d.linearize(x, u), in_axes=(None, 0, 0))
    A, B = many(dynamics, before(states), actions)
    tile = lambda x, n: jnp.broadcast_to(x, (n, *x.shape))
    zero = jnp.zeros((), A.dtype)
    lq = LQ(
        A,
        B,
        jnp.broadcast_to(zero, (T, nx)),
        jnp.concatenate([tile(Q, T), terminal[None]]),
        jnp.broadcast_to(zero, (T + 1, nx)),
        tile(R, T),
        jnp.broadcast_to(zero, (T, nu)),
        jnp.broadcast_to(zero, (T, nx, nu)),
    )
    solution = solve_lq(lq, parallel=parallel)
    return LQR(solution.gain, solution.value)
