"""Augmented random search: a linear policy, changed along random directions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import add_steps, check_env
from ..blocks.hyperparameters import (
    as_scalar,
    check_positive,
    check_ranges,
    same_precision,
    static,
)
from ..blocks.networks import Linear, MLP
from ..blocks.observations import acts_on_batches, init_statistics, normalize
from ..blocks.parallel import check_divisible
from ..blocks.policies import check_action_bounds, DeterministicPolicy, scale_action
from ..blocks.populations import evaluate_pairs, Perturbations


class ARSState(eqx.Module):
    """State of `ARS`: policy `weights` with the offset in the last row, running
    `statistics` of observations, action range `bounds`, and number of control `steps`."""

    weights: Float[Array, "inputs nu"]
    statistics: RunningStatistics
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray
    steps: Int[Array, ""]


class ARS(AbstractOnlineAgent):
    r"""Augmented random search: steps along the directions that changed the return most.

    A linear policy of normalized observations is changed by $\pm\nu\,\delta_i$; of $N$
    directions the $b$ with the largest $\max(r_i^+, r_i^-)$ count:

    $$W \leftarrow W + \frac{\alpha}{b\,\sigma_R} \sum_{i \le b} (r_i^+ - r_i^-)\,\delta_i,
    \qquad \delta_i \sim N(0, 1),$$

    with $\sigma_R$ the standard deviation of the $2b$ returns.

    Differences from the paper (its version V2-t): both policies of a pair begin alike; an
    offset; actions are $\tanh$ of what the policy gives, scaled to the range of the
    actuators.

    **Arguments:**

    - `num_directions`: number $N$ of directions per iteration.
    - `num_best`: number $b$ of directions that count.
    - `episode_length`: time limit of an episode in control steps.
    - `step_size`: step size $\alpha$.
    - `noise`: standard deviation $\nu$ of the parameters.

    ??? cite "Reference"
        Mania, Guy, Recht, *Simple random search of static linear policies is competitive
        for reinforcement learning*, 2018, algorithm 1.
    """

    num_directions: int = static(64)
    num_best: int = static(16)
    episode_length: int = static(1000)
    step_size: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.02)
    noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.03)

    def __check_init__(self):
        check_positive(self, "num_directions", "num_best", "episode_length")
        check_ranges(self, "noise")
        if self.num_best > self.num_directions:
            raise ValueError(
                "`ARS.num_best` must be at most `num_directions` = "
                f"{self.num_directions}, got {self.num_best}."
            )

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> ARSState:
        check_env(self, env)
        check_action_bounds(self, env)
        check_divisible(self, "num_directions")
        # Zero weights: what another key changes is which directions are tried.
        key, key_reset = jr.split(key)
        obs = env.reset(key_reset)[1].obs
        weights = jnp.zeros((obs.shape[0] + 1, env.sys.nu), obs.dtype)
        steps = jnp.zeros((), jnp.int32)
        return ARSState(
            weights, init_statistics(obs), jnp.array(env.action_range), key, steps
        )

    @acts_on_batches
    def act(
        self, state: ARSState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        weights = state.weights
        if key is not None:
            noise = jr.normal(key, weights.shape, weights.dtype)
            weights = weights + self.noise * noise
        action = _policy(weights)(normalize(state.statistics, obs))
        return scale_action(state.bounds, action)

    @same_precision
    def iterate(
        self, state: ARSState, env: AbstractEnv
    ) -> tuple[ARSState, dict[str, Float[Array, "..."]]]:
        weights = state.weights
        key, key_noise, key_try = jr.split(state.key, 3)
        shape = (self.num_directions, *weights.shape)
        noise = jr.normal(key_noise, shape, weights.dtype)
        pairs = weights[None, None] + self.noise * jnp.stack([noise, -noise], axis=1)
        policies = jax.vmap(jax.vmap(_policy))(pairs)
        returns, statistics, report = evaluate_pairs(
            env, policies, state.statistics, key_try, self.episode_length
        )
        steps = add_steps(report, state.steps)
        assert statistics is not None, "they were given"
        state = ARSState(weights, statistics, state.bounds, key, steps)
        flat = noise.reshape(self.num_directions, -1)
        state, metrics = self.update(state, Perturbations(flat, returns))
        return state, report | metrics

    @same_precision
    def update(
        self, state: ARSState, batch: Perturbations
    ) -> tuple[ARSState, dict[str, Float[Array, "..."]]]:
        r"""Learn from `Perturbations`, whose noise is $\delta$.

        **Returns:** the new state; `best`, the largest return, and `deviation`,
        $\sigma_R$.
        """
        returns = jnp.where(jnp.isfinite(batch.returns), batch.returns, -jnp.inf)
        _, best = lax.top_k(jnp.max(returns, axis=1), self.num_best)
        # A pair of which one went wrong says nothing.
        chosen = returns[best]
        fine = jnp.all(jnp.isfinite(chosen), axis=1)
        chosen = jnp.where(fine[:, None], chosen, 0.0)
        deviation = jnp.std(chosen)
        slope = (chosen[:, 0] - chosen[:, 1]) @ batch.noise[best]
        scale = self.num_best * jnp.maximum(deviation, 1e-6)
        step = self.step_size / scale * slope.reshape(state.weights.shape)
        new = eqx.tree_at(lambda s: s.weights, state, state.weights + step)
        return new, {"best": jnp.max(returns), "deviation": deviation}


def _policy(weights: Float[Array, "inputs nu"]) -> DeterministicPolicy:
    return DeterministicPolicy(MLP((Linear(weights[:-1], weights[-1]),), (), jnp.tanh))
