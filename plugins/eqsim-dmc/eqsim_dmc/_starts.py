"""Initial states without contact."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import System
from eqsim.collision import in_contact


MOST_DRAWS = 10_000


def draw_without_contact(
    draw: Callable[[PRNGKeyArray, System], Any], key: PRNGKeyArray, sys: System
) -> Any:
    """Draw until no shapes are in contact, as in the suite (rejection sampling).

    The loop carries only keys, and the accepted draw is computed after it, so
    derivatives with respect to the robot are those of the accepted draw, in both modes.

    **Arguments:**

    - `draw`: function `(key, sys) -> (q, robot, result)`: coordinates and the robot,
        whose shapes must not be in contact, and the value to return.

    **Returns:** the result of the first draw without contact, or of the last of 10,000
    draws.
    """
    fixed = _without_derivatives(sys)

    # The result of the test is carried, because a condition would be computed twice in
    # a batch.
    def go_on(carry):
        return carry[3] & (carry[2] < MOST_DRAWS)

    def go(carry):
        chain, key = jr.split(carry[0])
        q, robot, _ = draw(key, fixed)
        return chain, key, carry[2] + 1, in_contact(robot, q)

    first = key, key, jnp.zeros((), jnp.int32), jnp.ones((), bool)
    return draw(lax.while_loop(go_on, go, first)[1], sys)[2]


def lift_without_contact(
    sys: System, q: Float[Array, " nq"], height: int
) -> Float[Array, " nq"]:
    """Raise a robot from height 0 in steps of 1 cm until no shapes are in contact.

    **Arguments:**

    - `q`: coordinates.
    - `height`: index of the height among the coordinates.

    **Returns:** the coordinates, at a height of at most 100 m. Their derivatives are
    those of `q`, except that of the height, which is zero.
    """
    fixed, held = _without_derivatives((sys, q))
    raised = lambda q, count: q.at[height].set(0.01 * count.astype(q.dtype))

    def go_on(carry):
        return carry[1] & (carry[0] < MOST_DRAWS)

    def go(carry):
        count = carry[0] + 1
        return count, in_contact(fixed, raised(held, count))

    first = -jnp.ones((), jnp.int32), jnp.ones((), bool)
    return raised(q, lax.while_loop(go_on, go, first)[0])


def _without_derivatives(tree: Any) -> Any:
    hold = lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(hold, tree)
