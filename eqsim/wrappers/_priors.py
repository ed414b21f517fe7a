"""Distributions of skills."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453


class AbstractPrior(eqx.Module):
    """What skills there are, and how they are drawn: vectors of `size` numbers."""

    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def all(self) -> Float[Array, "size size"] | None:
        """All skills, one-hot, if they can be counted; None of a continuum."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draws a skill."""

    @abc.abstractmethod
    def log_prob(self, skill: Float[Array, " size"]) -> Float[Array, ""]:
        """The logarithm of the probability, or of the density, of a skill."""

    @abc.abstractmethod
    def project(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """The skill that is nearest to any numbers."""


def _check_size(prior: AbstractPrior) -> None:
    value = prior.size
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"`{type(prior).__name__}.size` is {value}: an integer is expected, at least 1."
        )


class OneHotSkills(AbstractPrior):
    """So many skills, equally likely: one entry is 1, the others are 0.

    **Arguments:**

    - `size`: how many.

    **Raises:** `ValueError` if there are none.
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
    r"""Every point of $[-1, 1]^d$ is a skill, all equally likely.

    **Arguments:**

    - `size`: $d$.

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
    r"""Every point of $\mathbb{R}^d$ is a skill: independent normal numbers of mean 0 and
    variance 1.

    **Arguments:**

    - `size`: $d$.

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
