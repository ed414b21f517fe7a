"""Prior distributions of skills."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count


_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453


class AbstractPrior(eqx.Module):
    """A prior distribution of skills, which are vectors with `size` entries."""

    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def all(self) -> Float[Array, "size size"] | None:
        """Return all skills, one-hot, or None if they are not finite in number."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw a skill."""

    @abc.abstractmethod
    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability or density of a skill."""

    @abc.abstractmethod
    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Return the skill nearest to a vector."""


def _check_size(prior: AbstractPrior) -> None:
    check_count(f"{type(prior).__name__}.size", prior.size)


class OneHotSkills(AbstractPrior):
    """Discrete skills, uniformly distributed, as one-hot vectors.

    **Arguments:**

    - `size`: number of skills.

    **Raises:** `ValueError` if the number is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> Float[Array, "size size"]:
        return jnp.eye(self.size)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jax.nn.one_hot(jr.randint(key, (), 0, self.size), self.size)

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        return jnp.full((), -jnp.log(float(self.size)), skill.dtype)

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return jax.nn.one_hot(jnp.argmax(x), self.size, dtype=x.dtype)


class UniformSkills(AbstractPrior):
    r"""Continuous skills, uniformly distributed in $[-1, 1]^d$.

    **Arguments:**

    - `size`: dimension $d$.

    **Raises:** `ValueError` if it is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> None:
        return None

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jr.uniform(key, (self.size,), minval=-1.0, maxval=1.0)

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        inside = jnp.all(jnp.abs(skill) <= 1.0)
        return jnp.where(
            inside, jnp.asarray(-self.size * _LOG_2, skill.dtype), -jnp.inf
        )

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return jnp.clip(x, -1.0, 1.0)


class NormalSkills(AbstractPrior):
    r"""Continuous skills in $\mathbb{R}^d$ with a standard normal distribution.

    **Arguments:**

    - `size`: dimension $d$.

    **Raises:** `ValueError` if it is not positive.
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        _check_size(self)

    def all(self) -> None:
        return None

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        return jr.normal(key, (self.size,))

    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        return -0.5 * jnp.sum(skill**2 + _LOG_2PI)

    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        return x
