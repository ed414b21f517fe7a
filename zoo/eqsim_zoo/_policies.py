"""From observations to actions between -1 and 1."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim.wrappers import Statistics

from ._distributions import Normal, TanhNormal
from ._networks import MLP
from ._statistics import normalize


# Logarithms of the least and the largest deviation.
_LEAST, _LARGEST = -5.0, 2.0


class StochasticPolicy(eqx.Module):
    r"""$\tanh$ of normal numbers, whose mean and deviation depend on the observation.

    **Arguments:**

    - `network`: gives the means, and numbers from which the deviations follow, between
        $e^{-5}$ and $e^2$.
    """

    network: MLP

    def __call__(self, obs: Float[Array, " nobs"]) -> TanhNormal:
        mean, raw = jnp.split(self.network(obs), 2)
        log_std = _LEAST + 0.5 * (_LARGEST - _LEAST) * (jnp.tanh(raw) + 1.0)
        return TanhNormal(Normal(mean, log_std))


class DeterministicPolicy(eqx.Module):
    r"""$\tanh$ of what a network gives."""

    network: MLP

    def __call__(self, obs: Float[Array, " nobs"]) -> Float[Array, " nu"]:
        return jnp.tanh(self.network(obs))


class Explorer(eqx.Module):
    """Acts in order to learn.

    **Arguments:**

    - `policy`: one of the above.
    - `statistics`: of observations.
    - `noise`: standard deviation of what is added to the actions of a deterministic
        policy.
    - `random`: whether actions are uniform instead.
    """

    policy: StochasticPolicy | DeterministicPolicy
    statistics: Statistics | None
    noise: Float[Array, ""]
    random: Bool[Array, ""]

    def __call__(
        self, obs: Float[Array, " nobs"], key: PRNGKeyArray
    ) -> Float[Array, " nu"]:
        key, key_random = jr.split(key)
        found = self.policy(normalize(self.statistics, obs))
        if isinstance(found, TanhNormal):
            action, _ = found.sample_and_log_prob(key)
        else:
            noise = self.noise * jr.normal(key, found.shape, found.dtype)
            action = jnp.clip(found + noise, -1.0, 1.0)
        uniform = jr.uniform(key_random, action.shape, action.dtype, -1.0, 1.0)
        return jnp.where(self.random, uniform, action)
