"""Distributions over actions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray


_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453


class Normal(eqx.Module):
    """Independent normal distributions.

    **Arguments:**

    - `mean`, `log_std`: mean and logarithm of the standard deviation of each number.
    """

    mean: Float[Array, " nu"]
    log_std: Float[Array, " nu"]

    def mode(self) -> Float[Array, " nu"]:
        """Return the most likely value."""
        return self.mean

    def sample(self, key: PRNGKeyArray) -> Float[Array, " nu"]:
        """Draw a reparameterized sample."""
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Float[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the density."""
        z = (x - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (z**2 + _LOG_2PI) - self.log_std)

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        return jnp.sum(self.log_std + 0.5 * (1.0 + _LOG_2PI))


class TanhNormal(eqx.Module):
    r"""Distribution of $\tanh(u)$ for normal $u$.

    Log-densities take $u$, since it cannot be recovered from $\tanh(u)$ near $\pm 1$.

    **Arguments:**

    - `normal`: distribution of $u$.

    ??? cite "Reference"
        Haarnoja et al., *Soft actor-critic: off-policy maximum entropy deep reinforcement
        learning with a stochastic actor*, 2018, appendix C.
    """

    normal: Normal

    def mode(self) -> Float[Array, " nu"]:
        r"""Return $\tanh$ of the mean, which is the median."""
        return jnp.tanh(self.normal.mean)

    def sample_and_log_prob(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nu"], Float[Array, ""]]:
        """Draw a sample that is differentiable by the parameters, and compute its
        log-density."""
        u = self.normal.sample(key)
        return jnp.tanh(u), self.log_prob(u)

    def log_prob(self, u: Float[Array, " nu"]) -> Float[Array, ""]:
        r"""Compute the logarithm of the density at $\tanh(u)$: $\log N(u) - \sum \log(1
        - \tanh^2 u)$."""
        return self.normal.log_prob(u) - jnp.sum(log_slope(u))


def log_slope(u: Float[Array, " nu"]) -> Float[Array, " nu"]:
    r"""Compute $\log(1 - \tanh^2 u) = 2 (\log 2 - u - \mathrm{softplus}(-2u))$, which
    is exact for large $u$ as well."""
    return 2.0 * (_LOG_2 - u - jax.nn.softplus(-2.0 * u))


class Categorical(eqx.Module):
    """One of several levels, independently for each actuator.

    **Arguments:**

    - `logits`: logit of each level.
    """

    logits: Float[Array, "nu levels"]

    def mode(self) -> Int[Array, " nu"]:
        """Return the most likely levels."""
        return jnp.argmax(self.logits, axis=-1)

    def sample(self, key: PRNGKeyArray) -> Int[Array, " nu"]:
        """Draw a sample."""
        return jr.categorical(key, self.logits, axis=-1)

    def log_prob(self, x: Int[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability."""
        chosen = jnp.take_along_axis(self._log(), x[:, None], axis=-1)
        return jnp.sum(chosen)

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        log = self._log()
        return -jnp.sum(jnp.exp(log) * log)

    def _log(self) -> Float[Array, "nu levels"]:
        return jax.nn.log_softmax(self.logits, axis=-1)


class NormalMixture(eqx.Module):
    """One of several vectors of independent normal numbers.

    **Arguments:**

    - `logits`: logit of each component.
    - `mean`, `log_std`: mean and log standard deviation of each component.
    """

    logits: Float[Array, " components"]
    mean: Float[Array, "components n"]
    log_std: Float[Array, "components n"]

    def log_prob(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """Compute the logarithm of the density."""
        each = jax.vmap(lambda mean, log_std: Normal(mean, log_std).log_prob(x))
        weights = jax.nn.log_softmax(self.logits)
        return jax.nn.logsumexp(weights + each(self.mean, self.log_std))

    def expectation(self) -> Float[Array, " n"]:
        """Compute the mean over all components."""
        return jax.nn.softmax(self.logits) @ self.mean
