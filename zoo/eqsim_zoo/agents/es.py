"""Evolution strategies: ascent along the mean return under noise on the parameters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
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
from ..blocks.networks import Learner, MLP
from ..blocks.observations import acts_on_batches, init_statistics, normalize
from ..blocks.parallel import check_divisible
from ..blocks.policies import check_action_bounds, DeterministicPolicy, scale_action
from ..blocks.populations import evaluate_pairs, Perturbations


class ESState(eqx.Module):
    """State of `ES`: `learner` of a `DeterministicPolicy`, running `statistics` of
    observations, action range `bounds`, and number of control `steps`."""

    learner: Learner
    statistics: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray
    steps: Int[Array, ""]


class ES(AbstractOnlineAgent):
    r"""Evolution strategies: ascent along the gradient of the expected return under noise
    on the parameters.

    $$g = \frac{1}{2 n \sigma} \sum_{i=1}^{n} (F_i^+ - F_i^-)\,\epsilon_i, \qquad
    \epsilon_i \sim N(0, 1),$$

    where $F_i^\pm$ are the centered ranks, from $-1/2$ to $1/2$, of the returns of the
    policies with parameters $\theta \pm \sigma \epsilon_i$ among all $2n$. It needs no
    derivative of anything.

    Differences from the paper: both policies of a pair begin alike; observations are
    normalized by running statistics of all that was seen; no virtual batch normalization.

    **Arguments:**

    - `num_pairs`: number $n$ of pairs of policies per iteration.
    - `episode_length`: time limit of an episode in control steps.
    - `hidden`: hidden layer sizes of the policy.
    - `normalize_observations`: true to normalize observations.
    - `noise`: standard deviation $\sigma$ of the parameters.
    - `learning_rate`: Adam step size.
    - `weight_decay`: decay of the parameters per step, relative to the learning rate.

    ??? cite "Reference"
        Salimans et al., *Evolution strategies as a scalable alternative to reinforcement
        learning*, 2017, algorithm 1 and section 2.1.
    """

    num_pairs: int = static(64)
    episode_length: int = static(1000)
    hidden: tuple[int, ...] = static((32, 32))
    normalize_observations: bool = static(True)
    noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.05)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.01)
    weight_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)

    def __check_init__(self):
        check_positive(self, "num_pairs", "episode_length", "hidden")
        check_ranges(self, "noise")

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> ESState:
        check_env(self, env)
        check_action_bounds(self, env)
        check_divisible(self, "num_pairs")
        key, key_policy, key_reset = jr.split(key, 3)
        obs = env.reset(key_reset)[1].obs
        sizes = (obs.shape[0], *self.hidden, env.sys.nu)
        network = MLP.create(key_policy, sizes, jnp.tanh, dtype=obs.dtype)
        optimizer = self._optimizer()
        return ESState(
            Learner.create(DeterministicPolicy(network), optimizer),
            init_statistics(obs) if self.normalize_observations else None,
            jnp.array(env.action_range),
            key,
            jnp.zeros((), jnp.int32),
        )

    @acts_on_batches
    def act(
        self, state: ESState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        policy = state.learner.model
        if key is not None:
            flat, build = _flat(policy)
            noise = self.noise.astype(flat.dtype)
            policy = build(flat + noise * jr.normal(key, flat.shape, flat.dtype))
        return scale_action(state.bounds, policy(normalize(state.statistics, obs)))

    @same_precision
    def iterate(
        self, state: ESState, env: AbstractEnv
    ) -> tuple[ESState, dict[str, Float[Array, "..."]]]:
        flat, build = _flat(state.learner.model)
        key, key_noise, key_try = jr.split(state.key, 3)
        noise = jr.normal(key_noise, (self.num_pairs, flat.shape[0]), flat.dtype)
        pair = lambda e: jnp.stack([flat + self.noise * e, flat - self.noise * e])
        policies = jax.vmap(lambda e: eqx.filter_vmap(build)(pair(e)))(noise)
        returns, statistics, report = evaluate_pairs(
            env, policies, state.statistics, key_try, self.episode_length
        )
        steps = add_steps(report, state.steps)
        place = lambda s: (s.statistics, s.key, s.steps)
        none = lambda x: x is None
        state = eqx.tree_at(place, state, (statistics, key, steps), is_leaf=none)
        state, metrics = self.update(state, Perturbations(noise, returns))
        return state, report | metrics

    @same_precision
    def update(
        self, state: ESState, batch: Perturbations
    ) -> tuple[ESState, dict[str, Float[Array, "..."]]]:
        r"""Learn from `Perturbations`, whose noise is $\epsilon$.

        **Returns:** the new state; `best`, the largest return, and `grad_norm`.
        """
        flat, build = _flat(state.learner.model)
        ranks = centered_ranks(batch.returns)
        slope = (ranks[:, 0] - ranks[:, 1]) @ batch.noise
        slope = slope / (2.0 * batch.noise.shape[0] * self.noise)
        learner, norm = state.learner.apply_gradients(build(-slope), self._optimizer())
        new = eqx.tree_at(lambda s: s.learner, state, learner)
        best = jnp.max(
            batch.returns, where=jnp.isfinite(batch.returns), initial=-jnp.inf
        )
        return new, {"best": best, "grad_norm": norm}

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adamw(self.learning_rate, weight_decay=self.weight_decay)


def centered_ranks(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Compute ranks from -1/2 (smallest) to 1/2 (largest); equal numbers have the mean of
    their ranks. NaN counts as the smallest."""
    flat = jnp.where(jnp.isfinite(x), x, -jnp.inf).reshape(-1)
    place = lambda side: jnp.searchsorted(jnp.sort(flat), flat, side=side)
    ranks = 0.5 * (place("left") + place("right") - 1).astype(x.dtype)
    return (ranks / (flat.size - 1) - 0.5).reshape(x.shape)


def _flat(policy: DeterministicPolicy):
    """Return the parameters as one vector, and a function that builds a policy from a
    vector."""
    arrays, static = eqx.partition(policy, eqx.is_array)
    flat, unravel = ravel_pytree(arrays)
    return flat, lambda flat: eqx.combine(unravel(flat), static)
