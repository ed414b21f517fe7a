from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, AbstractOnlineAgent

from ._fields import number


class LinearPolicy(eqx.Module):
    r"""A linear policy $a = \mathrm{squash}(W (o, 1))$, squashed to the bounds of
    actions that have both.

    **Arguments:**

    - `weights`: matrix $W$.
    - `bounds`: lower and upper bound of each action.
    """

    weights: Float[Array, "nu inputs"]
    bounds: Float[Array, "nu 2"]

    def __call__(
        self, obs: Float[Array, " nobs"], key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        raw = self.weights[:, :-1] @ obs + self.weights[:, -1]
        low, high = self.bounds.T
        both = jnp.isfinite(low) & jnp.isfinite(high)
        low, high = jnp.where(both, low, -1.0), jnp.where(both, high, 1.0)
        squashed = low + 0.5 * (high - low) * (1.0 + jnp.tanh(raw))
        return jnp.where(both, squashed, jnp.clip(raw, *self.bounds.T))


class CrossEntropyState(eqx.Module):
    """State of `CrossEntropy`: the distribution of weights.

    **Arguments:**

    - `mean`, `deviation`: mean and standard deviation of the weights.
    - `bounds`: bounds of the actions.
    - `key`: key for the next iteration.
    """

    mean: Float[Array, "nu inputs"]
    deviation: Float[Array, "nu inputs"]
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class Trials(eqx.Module):
    """A batch for `CrossEntropy.update`: candidates and their returns.

    **Arguments:**

    - `weights`: weights of the candidates.
    - `returns`: return of each candidate.
    """

    weights: Float[Array, "population nu inputs"]
    returns: Float[Array, " population"]


class CrossEntropy(AbstractOnlineAgent):
    r"""The cross-entropy method, for linear policies.

    Weights $W$ of a linear policy are drawn from a normal distribution. All candidates
    run the same few episodes, and the distribution moves to the mean $\mu$ and the
    standard deviation $\sigma$ of the best ones:

    $$\mu \leftarrow \mathrm{mean}_{\mathrm{elites}} W, \qquad
    \sigma \leftarrow \sqrt{\mathrm{var}_{\mathrm{elites}} W + z^2}.$$

    The noise $z$ prevents premature convergence. The method needs no derivatives, and
    works for tasks with few parameters.

    **Arguments:**

    - `population`: number of candidates per iteration.
    - `elites`: number of candidates that are kept.
    - `episodes`: number of episodes per candidate. Their initial states are the same
        for all candidates, so that returns are comparable.
    - `length`: largest number of control steps of an episode.
    - `deviation`: standard deviation of the initial distribution.
    - `noise`: noise $z$.

    ??? cite "Reference"
        Rubinstein, *The cross-entropy method for combinatorial and continuous
        optimization*, 1999. Szita, Lőrincz, *Learning Tetris using the noisy
        cross-entropy method*, 2006.
    """

    population: int = eqx.field(static=True, default=40)
    elites: int = eqx.field(static=True, default=8)
    episodes: int = eqx.field(static=True, default=4)
    length: int = eqx.field(static=True, default=200)
    deviation: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    noise: Float[Array, ""] = eqx.field(converter=number, default=0.1)

    def __check_init__(self):
        if not 1 <= self.elites <= self.population:
            raise ValueError(
                f"`elites` is {self.elites}, of a `population` of {self.population}: "
                "at least one of them, and at most all, must be kept."
            )
        if self.episodes < 1 or self.length < 1:
            raise ValueError(
                f"`episodes` is {self.episodes} and `length` is {self.length}: each policy "
                "needs an episode, and that a step."
            )

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> CrossEntropyState:
        _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, key)
        obs = timestep.obs
        if not isinstance(obs, jax.ShapeDtypeStruct) or len(obs.shape) != 1:
            raise ValueError(
                f"`CrossEntropy` takes observations that are one vector, but those of "
                f"`{type(env).__name__}` are {obs}."
            )
        mean = jnp.zeros((env.sys.nu, obs.shape[0] + 1), env.sys.dt.dtype)
        first = jnp.full_like(mean, self.deviation.astype(mean.dtype))
        return CrossEntropyState(mean, first, env.action_range, key)

    def act(
        self, state: CrossEntropyState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        weights = state.mean
        if key is not None:
            normal = jr.normal(key, weights.shape, weights.dtype)
            weights = weights + state.deviation * normal
        return LinearPolicy(weights, state.bounds)(obs)

    def update(
        self, state: CrossEntropyState, batch: Trials
    ) -> tuple[CrossEntropyState, dict[str, Float[Array, "..."]]]:
        """Fit the distribution to the best of some `Trials`.

        **Returns:** the new state; metrics `return`, the mean of all returns, `best`,
        the largest one, and `deviation`, the mean standard deviation.
        """
        # An episode with values that are not finite counts as the worst.
        worst = -jnp.inf
        returns = jnp.where(jnp.isfinite(batch.returns), batch.returns, worst)
        _, best = jax.lax.top_k(returns, self.elites)
        chosen = batch.weights[best]
        noise = self.noise.astype(chosen.dtype)
        deviation = jnp.sqrt(jnp.var(chosen, axis=0) + noise**2)
        new = CrossEntropyState(
            jnp.mean(chosen, axis=0), deviation, state.bounds, state.key
        )
        report = {
            "return": jnp.mean(batch.returns),
            "best": jnp.max(returns),
            "deviation": jnp.mean(deviation),
        }
        return new, report

    def iterate(
        self, state: CrossEntropyState, env: AbstractEnv
    ) -> tuple[CrossEntropyState, dict[str, Float[Array, "..."]]]:
        key, key_draw, key_try = jr.split(state.key, 3)
        shape = (self.population, *state.mean.shape)
        normal = jr.normal(key_draw, shape, state.mean.dtype)
        weights = state.mean[None] + state.deviation[None] * normal
        keys = jr.split(key_try, self.episodes)
        one = lambda weights: self._earned(state, env, weights, keys)
        trials = Trials(weights, jax.vmap(one)(weights))
        new, report = self.update(state, trials)
        return eqx.tree_at(lambda s: s.key, new, key), report

    def _earned(self, state: CrossEntropyState, env: AbstractEnv, weights, keys):
        """Compute the mean return of some episodes."""
        policy = LinearPolicy(weights, state.bounds)
        trajectory = eqsim.rollout(
            env, policy, keys, self.length, stop=lambda timestep: timestep.done
        )
        rewards = jnp.where(trajectory.valid, trajectory.timestep.reward, 0.0)
        return jnp.mean(jnp.sum(rewards, axis=-1))
