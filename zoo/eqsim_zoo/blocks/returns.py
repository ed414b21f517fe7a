r"""Returns and advantages of one trajectory, units of returns, losses of an on-policy agent.

Returns and advantages are those of one trajectory; use `jax.vmap` for several.

Time is the first axis. Each step has a reward $r_t$, the value $V'_t$ of the observation
after it (`timestep.final_obs`, not the first observation of the next episode), and two
flags: `terminated`, true if the task ended, so that nothing is bootstrapped; and `done`,
true if the episode ended, also at a time limit, where $V'_t$ is bootstrapped but the next
row belongs to another episode. With

$$\gamma_t = \gamma\,(1 - \mathrm{terminated}_t), \qquad
c_t = 1 - \mathrm{done}_t$$

all of them are sums backwards in time; the last row ends the trajectory.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from eqsim.wrappers import RunningStatistics

from .observations import update_statistics


def discounted_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Float[Array, ""],
) -> Float[Array, " time"]:
    r"""Compute the discounted sum of rewards until the end of the episode, or until the
    end of the trajectory plus the value of the state there: $G_t = r_t + \gamma_t (c_t
    G_{t+1} + (1 - c_t) V'_t)$."""
    one = jnp.ones_like(discount)
    return td_lambda(reward, next_value, terminated, done, discount, one)


def td_lambda(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Float[Array, ""],
    decay: Float[Array, ""],
) -> Float[Array, " time"]:
    r"""Compute the $\lambda$-return $G_t = r_t + \gamma_t \left((1 - \lambda c_t) V'_t
    + \lambda c_t G_{t+1}\right)$.

    **Arguments:**

    - `decay`: $\lambda$; 0 looks one step ahead, 1 to the end.

    ??? cite "Reference"
        Sutton, Barto, *Reinforcement Learning*, 2nd edition, section 12.1.
    """
    left = _discounts(terminated, discount)
    share = decay * _goes_on(done, reward)
    fixed = reward + left * (1.0 - share) * next_value
    return _backwards(fixed, left * share)


def gae(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Float[Array, ""],
    decay: Float[Array, ""],
) -> Float[Array, " time"]:
    r"""Generalized advantage estimation:
    $\delta_t = r_t + \gamma_t V'_t - V_t$, $A_t = \delta_t + \gamma_t \lambda c_t A_{t+1}$.

    It is the $\lambda$-return less $V_t$ where $V'_t = V_{t+1}$ within an episode.

    **Arguments:**

    - `value`: $V_t$, of what was seen before the step.
    - `decay`: $\lambda$.

    ??? cite "Reference"
        Schulman et al., *High-dimensional continuous control using generalized advantage
        estimation*, 2016, equation 16.
    """
    left = _discounts(terminated, discount)
    delta = reward + left * next_value - value
    return _backwards(delta, left * decay * _goes_on(done, reward))


def vtrace(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    log_ratio: Float[Array, " time"],
    discount: Float[Array, ""],
    clip_rho: Float[Array, ""],
    clip_c: Float[Array, ""],
) -> tuple[Float[Array, " time"], Float[Array, " time"]]:
    r"""Compute values of a policy from steps of another one: with $\rho_t =
    \min(\bar\rho, \pi/\mu)$ and $k_t = \min(\bar c, \pi/\mu)$,

    $$v_t - V_t = \rho_t \delta_t + \gamma_t k_t c_t\,(v_{t+1} - V_{t+1}).$$

    **Arguments:**

    - `value`, `next_value`: $V_t$ and $V'_t$ of the policy $\pi$.
    - `log_ratio`: $\log \pi(a_t) - \log \mu(a_t)$, with $\mu$ what acted.
    - `clip_rho`, `clip_c`: $\bar\rho$ and $\bar c$.

    **Returns:** $v_t$, and the advantages
    $\rho_t (r_t + \gamma_t v'_t - V_t)$ with $v'_t$ the $v_{t+1}$ of the same episode, or
    $V'_t$ where it ends.

    ??? cite "Reference"
        Espeholt et al., *IMPALA: scalable distributed deep-RL with importance weighted
        actor-learner architectures*, 2018, section 4.1.
    """
    ratio = jnp.exp(log_ratio)
    rho, weight = jnp.minimum(clip_rho, ratio), jnp.minimum(clip_c, ratio)
    left, on = _discounts(terminated, discount), _goes_on(done, reward)
    delta = rho * (reward + left * next_value - value)
    target = value + _backwards(delta, left * weight * on)
    # The last row is followed by nothing that is known.
    follows = jnp.concatenate([on[:-1], jnp.zeros_like(on[:1])])
    later = jnp.concatenate([target[1:], target[:1]])
    after = jnp.where(follows > 0.0, later, next_value)
    return target, rho * (reward + left * after - value)


def _discounts(terminated, discount):
    return jnp.where(terminated, jnp.zeros_like(discount), discount)


def _goes_on(done, like):
    """Return 1 where the next row is of the same episode; 0 in the last row."""
    on = ~done
    return on.at[-1].set(False).astype(like.dtype)


def _backwards(fixed: Any, factor: Any) -> Any:
    """Compute $x_t = f_t + k_t x_{t+1}$ from the end, where $k$ is zero."""
    step = lambda later, now: (now[0] + now[1] * later,) * 2
    zero = jnp.zeros_like(fixed[0])
    return lax.scan(step, zero, (fixed, factor), reverse=True)[1]


def value_units(
    returns: RunningStatistics | None,
) -> tuple[Float[Array, ""] | float, Float[Array, ""] | float]:
    """Return the origin and the unit of the outputs of a value network: mean and standard
    deviation of returns; 0 and 1 without statistics."""
    if returns is None:
        return 0.0, 1.0
    return returns.mean[0], jnp.sqrt(returns.variance[0]) + 1e-4


_Batch = TypeVar("_Batch", bound=Any)


def in_value_units(
    batch: _Batch, returns: RunningStatistics | None
) -> tuple[_Batch, RunningStatistics | None]:
    """Add the returns of a batch to the statistics, and convert its `value` and `advantage`
    to their units."""
    if returns is None:
        return batch, None
    targets = (batch.value + batch.advantage).reshape(-1, 1)
    returns = update_statistics(returns, targets)
    mean, std = value_units(returns)
    new = (batch.value - mean) / std, batch.advantage / std
    return eqx.tree_at(lambda b: (b.value, b.advantage), batch, new), returns


def clipped_policy_loss(
    log_prob: Float[Array, "*rows"],
    old_log_prob: Float[Array, "*rows"],
    advantage: Float[Array, "*rows"],
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
    value: Float[Array, "*rows"],
    old_value: Float[Array, "*rows"],
    target: Float[Array, "*rows"],
    clip: Float[Array, ""],
) -> Float[Array, ""]:
    """Half the mean squared error of values, the larger of that of the value and that of
    the value clipped to `old_value` plus and minus `clip`; without clipping if that is 0.
    """
    error = (value - target) ** 2
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    larger = jnp.maximum(error, (near - target) ** 2)
    return 0.5 * jnp.mean(jnp.where(clip > 0.0, larger, error))


def ppo_loss(
    agent: Any,
    batch: Any,
    log_prob: Float[Array, "*rows"],
    entropy: Float[Array, "*rows"],
    value: Float[Array, "*rows"],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Compute the loss of `PPO`, `value_loss`, `entropy` and the divergence `kl`.

    **Arguments:**

    - `agent`: a `PPO` or `RecurrentPPO`, with the weights of the terms.
    - `batch`: old `log_prob`, `advantage` and `value` of each row.
    - `log_prob`, `entropy`, `value`: those of the policy and value that learn.
    """
    advantage = batch.advantage - jnp.mean(batch.advantage)
    advantage = advantage / (jnp.std(batch.advantage) + 1e-8)
    policy_loss, kl = clipped_policy_loss(
        log_prob, batch.log_prob, advantage, agent.clip
    )
    target = batch.advantage + batch.value
    value_loss = clipped_value_loss(value, batch.value, target, agent.value_clip)
    entropy = jnp.mean(entropy)
    loss = policy_loss + agent.value_cost * value_loss - agent.entropy_cost * entropy
    return loss, {"value_loss": value_loss, "entropy": entropy, "kl": kl}
