"""From numbers at each place of an image to a vector."""

import abc
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._layers import Maps


Pool: TypeAlias = Callable[[Maps], Float[Array, " outputs"]]


class AbstractPool(eqx.Module):
    """Recipe of the last layer of an image encoder."""

    @abc.abstractmethod
    def create(self, dtype: Any = jnp.float32) -> Pool:
        """Create a pooling layer with its parameters."""


class Flatten(AbstractPool):
    """All numbers, one after the other. Images of one size only."""

    def create(self, dtype: Any = jnp.float32) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        return x.reshape(-1)


class Mean(AbstractPool):
    """The mean of each channel: what is seen, and not where."""

    def create(self, dtype: Any = jnp.float32) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " channels"]:
        return jnp.mean(x, (0, 1))


class SpatialSoftmax(AbstractPool):
    """Expected position of each channel: see `ExpectedPlaces`, which this creates.

    **Arguments:**

    - `temperature`: in the beginning; it is learned.
    """

    temperature: float = eqx.field(static=True, converter=float, default=1.0)

    def __check_init__(self):
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(
                f"A temperature of {self.temperature}: a positive number is expected."
            )

    def create(self, dtype: Any = jnp.float32) -> Pool:
        return ExpectedPlaces(jnp.array(math.log(self.temperature), dtype))


class ExpectedPlaces(eqx.Module):
    r"""Mean position of each channel $a$, $\sum_{ij} s_{ij} (u_j, v_i)$ under

    $$s_{ij} = \frac{e^{a_{ij} / \alpha}}{\sum_{kl} e^{a_{kl} / \alpha}}.$$

    The centers of the pixels have $u$ from left to right and $v$ from top to bottom,
    between -1 and 1 at the edges of the image. The temperature $\alpha$ is learned by its
    logarithm, so that it stays positive.

    ??? cite "Reference"
        Levine et al., *End-to-end training of deep visuomotor policies*, 2016; with
        a temperature: Finn et al., *Deep spatial autoencoders for visuomotor learning*,
        2016.
    """

    log_temperature: Float[Array, ""]

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        height, width, channels = x.shape
        logits = x.reshape(-1, channels) * jnp.exp(-self.log_temperature)
        weights = jax.nn.softmax(logits, axis=0).reshape(x.shape)
        u = jnp.sum(weights, 0).T @ _centers(width, x.dtype)
        v = jnp.sum(weights, 1).T @ _centers(height, x.dtype)
        return jnp.stack([u, v], axis=1).reshape(-1)


def _centers(number: int, dtype: Any) -> Float[Array, " number"]:
    return (2.0 * jnp.arange(number, dtype=dtype) + 1.0) / number - 1.0
