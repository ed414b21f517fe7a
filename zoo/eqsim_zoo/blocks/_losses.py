"""Losses of value functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


TD_METRICS = "q", "target", "target_std"
"""Metrics of `td_loss`."""


def td_loss(
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    action: Float[Array, "rows nu"],
    target: Float[Array, " rows"],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Squared temporal-difference error $\sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2$ of an
    ensemble of critics; metrics: the mean value `q`, and mean `target` and standard
    deviation `target_std` of $y$."""
    q = jax.vmap(critic)(obs, action)
    errors = jnp.mean((q - target[:, None]) ** 2, axis=0)
    statistics = {"target": jnp.mean(target), "target_std": jnp.std(target)}
    return jnp.sum(errors), {"q": jnp.mean(q), **statistics}


def td_target(
    reward: Float[Array, " rows"],
    next_value: Float[Array, " rows"],
    terminated: Bool[Array, " rows"],
    discount: Float[Array, ""],
) -> Float[Array, " rows"]:
    r"""One-step target $r + \gamma V(o')$, without the second term where the task
    terminated. Truncated steps are bootstrapped."""
    return reward + jnp.where(terminated, 0.0, discount) * next_value


def lowest_value(
    critic: Callable[[Any, Any], Float[Array, " critics"]],
    obs: Any,
    action: Float[Array, "rows nu"],
) -> Float[Array, " rows"]:
    r"""Compute the minimum $\min_k Q_k(o, a)$ over an ensemble of critics."""
    return jnp.min(jax.vmap(critic)(obs, action), axis=1)


def clipped_policy_loss(
    log_prob: Float[Array, " rows"],
    old_log_prob: Float[Array, " rows"],
    advantage: Float[Array, " rows"],
    clip: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Clipped surrogate loss
    $-\mathrm{mean} \min(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A)$ with the
    ratio $\rho = \pi / \pi_{old}$, and the estimate $\mathrm{mean}(\rho - 1 - \log \rho)$ of
    the divergence from $\pi_{old}$."""
    change = log_prob - old_log_prob
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    gain = jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    return -gain, jnp.mean(ratio - 1.0 - change)


def clipped_value_loss(
    value: Float[Array, " rows"],
    old_value: Float[Array, " rows"],
    target: Float[Array, " rows"],
    clip: Float[Array, ""],
) -> Float[Array, ""]:
    """Half the mean squared error of values, the larger of that of the value and that of
    the value clipped to `old_value` plus and minus `clip`; without clipping if that is 0.
    """
    error = (value - target) ** 2
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    larger = jnp.maximum(error, (near - target) ** 2)
    return 0.5 * jnp.mean(jnp.where(clip > 0.0, larger, error))
