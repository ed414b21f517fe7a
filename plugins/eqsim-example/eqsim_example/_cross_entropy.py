"""An agent from the public building blocks of `eqsim_zoo.blocks`."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import RunningStatistics
from eqsim_zoo.blocks.collecting import add_steps, check_observations
from eqsim_zoo.blocks.hyperparameters import (
    as_scalar,
    cast_floats,
    check_positive,
    check_ranges,
    static,
)
from eqsim_zoo.blocks.networks import MLP
from eqsim_zoo.blocks.observations import acts_on_batches, init_statistics, normalize
from eqsim_zoo.blocks.parallel import check_divisible
from eqsim_zoo.blocks.policies import (
    check_action_bounds,
    DeterministicPolicy,
    scale_action,
)
from eqsim_zoo.blocks.populations import evaluate_policies


class CrossEntropyState(eqx.Module):
    """State of `CrossEntropy`.

    **Arguments:**

    - `policy`: policy with the mean parameters.
    - `deviation`: standard deviations of the parameters.
    - `statistics`: running statistics of observations.
    - `bounds`: bounds of the actions.
    - `key`: key for the next iteration.
    - `steps`: number of control steps.
    """

    policy: DeterministicPolicy
    deviation: Float[Array, " size"]
    statistics: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray
    steps: Int[Array, ""]


class Candidates(eqx.Module):
    """A batch for `CrossEntropy.update`.

    **Arguments:**

    - `parameters`: parameters of the candidates.
    - `returns`: mean return of each candidate.
    """

    parameters: Float[Array, "population size"]
    returns: Float[Array, " population"]


class CrossEntropy(AbstractOnlineAgent):
    r"""The cross-entropy method for the parameters of a policy.

    Parameters $\theta$ are drawn from a normal distribution. All candidates run the same
    few episodes, and the distribution moves to the mean $\mu$ and the standard deviation
    $\sigma$ of the best ones:

    $$\mu \leftarrow \mathrm{mean}_{\mathrm{elites}}\, \theta, \qquad
    \sigma \leftarrow \sqrt{\mathrm{var}_{\mathrm{elites}}\, \theta + z^2}.$$

    The noise $z$ prevents premature convergence. The method needs no derivatives, and
    works for tasks with few parameters. Observations are normalized by running
    statistics; actions are $\tanh$ of the outputs, scaled to the action range.

    **Arguments:**

    - `population`: number of candidates per iteration.
    - `elites`: number of candidates that are kept.
    - `episodes`: number of episodes per candidate. Their initial states are the same
        for all candidates, so that returns are comparable.
    - `episode_length`: largest number of control steps of an episode.
    - `hidden`: hidden layer sizes of the policy; empty for a linear policy.
    - `normalize_observations`: true if observations are normalized.
    - `deviation`: standard deviation of the initial distribution.
    - `noise`: noise $z$.

    ??? cite "Reference"
        Rubinstein, *The cross-entropy method for combinatorial and continuous
        optimization*, 1999. Szita, Lőrincz, *Learning Tetris using the noisy
        cross-entropy method*, 2006.
    """

    population: int = static(40)
    elites: int = static(8)
    episodes: int = static(4)
    episode_length: int = static(200)
    hidden: tuple[int, ...] = static(())
    normalize_observations: bool = static(True)
    deviation: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)

    def __check_init__(self):
        sizes = "population", "elites", "episodes", "episode_length"
        check_positive(self, *sizes, "hidden")
        check_ranges(self, "deviation")
        if self.elites > self.population:
            raise ValueError(
                f"`CrossEntropy.elites` must be at most `population` = "
                f"{self.population}, got {self.elites}."
            )

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> CrossEntropyState:
        check_observations(self, env)
        check_action_bounds(self, env)
        check_divisible(self, "population")
        key, key_policy = jr.split(key)
        obs = eqx.filter_eval_shape(env.reset, key)[1].obs
        sizes = (env.observation_size, *self.hidden, env.action_size)
        network = MLP.create(
            key_policy, sizes, jnp.tanh, last_scale=0.0, dtype=obs.dtype
        )
        policy = DeterministicPolicy(network)
        parameters, _ = ravel_pytree(policy)
        return CrossEntropyState(
            policy,
            jnp.full_like(parameters, self.deviation.astype(parameters.dtype)),
            init_statistics(obs) if self.normalize_observations else None,
            # A copy, since the state may be donated.
            jnp.array(env.action_range),
            key,
            jnp.zeros((), jnp.int32),
        )

    @acts_on_batches
    def act(
        self, state: CrossEntropyState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        """Compute the action of the mean policy; with a key, that of a candidate."""
        parameters, build = ravel_pytree(state.policy)
        if key is not None:
            normal = jr.normal(key, parameters.shape, parameters.dtype)
            parameters = parameters + state.deviation * normal
        action = build(parameters)(normalize(state.statistics, obs))
        return scale_action(state.bounds, action)

    def iterate(
        self, state: CrossEntropyState, env: AbstractEnv
    ) -> tuple[CrossEntropyState, dict[str, Float[Array, "..."]]]:
        """Run the episodes of all candidates, and move the distribution."""
        key, key_draw, key_try = jr.split(state.key, 3)
        mean, build = ravel_pytree(state.policy)
        normal = jr.normal(key_draw, (self.population, mean.size), mean.dtype)
        parameters = mean[None] + state.deviation[None] * normal
        # The same episodes for all candidates.
        keys = jr.split(key_try, self.episodes)
        keys = jnp.broadcast_to(keys, (self.population, self.episodes))
        returns, statistics, report = evaluate_policies(
            env,
            jax.vmap(build)(parameters),
            state.statistics,
            keys,
            self.episode_length,
        )
        steps = add_steps(report, state.steps)
        state = dataclasses.replace(state, statistics=statistics, key=key, steps=steps)
        batch = Candidates(parameters, jnp.mean(returns, axis=1))
        state, metrics = self.update(state, batch)
        return state, report | metrics

    def update(
        self, state: CrossEntropyState, batch: Candidates
    ) -> tuple[CrossEntropyState, dict[str, Float[Array, "..."]]]:
        """Fit the distribution to the best of some `Candidates`.

        **Returns:** the new state; metrics `best`, the largest return, and `deviation`,
        the mean standard deviation.
        """
        self = cast_floats(self, batch.returns.dtype)
        # An episode with values that are not finite counts as the worst.
        returns = jnp.where(jnp.isfinite(batch.returns), batch.returns, -jnp.inf)
        _, best = jax.lax.top_k(returns, self.elites)
        chosen = batch.parameters[best]
        deviation = jnp.sqrt(jnp.var(chosen, axis=0) + self.noise**2)
        _, build = ravel_pytree(state.policy)
        policy = build(jnp.mean(chosen, axis=0))
        new = dataclasses.replace(state, policy=policy, deviation=deviation)
        return new, {"best": jnp.max(returns), "deviation": jnp.mean(deviation)}
