"""From numbers at each place of an image to a vector."""

import abc
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks import check_positive, static
from ._layers import Maps


Pool: TypeAlias = Callable[[Maps], Float[Array, " outputs"]]


class AbstractPool(eqx.Module):
    """Recipe of the last layer of an image encoder."""

    @abc.abstractmethod
    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        """Create the layer with its initial parameters.

        **Arguments:**

        - `key`: random key.
        - `shape`: height, width and channels of its input.
        - `dtype`: type of the parameters.
        """


class Flatten(AbstractPool):
    """All numbers, one after the other. Images of one size only."""

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        return x.reshape(-1)


class Mean(AbstractPool):
    """The mean of each channel: what is seen, and not where."""

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        return self

    def __call__(self, x: Maps) -> Float[Array, " channels"]:
        return jnp.mean(x, (0, 1))


class SpatialEmbeddings(AbstractPool):
    """Learned weighted sums of each channel over the image: see `WeightedPlaces`, which
    this creates. Images of one size only.

    **Arguments:**

    - `features`: number of sums of each channel.
    """

    features: int = static(8)

    def __check_init__(self):
        check_positive(self, "features")

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
        # The fan-in is the number of places that are summed.
        first = jax.nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal", in_axis=(0, 1), batch_axis=(2,)
        )
        return WeightedPlaces(first(key, (*shape, self.features), dtype))


class WeightedPlaces(eqx.Module):
    r"""Weighted sums of each channel $c$: $y_{cf} = \sum_{ij} W_{ijcf}\, x_{ijc}$, the
    spatial learned embeddings of jaxrl_m. Initially $W$ is normal with the variance
    $1 / (\mathrm{height} \cdot \mathrm{width})$.

    ??? cite "Reference"
        Walke et al., *BridgeData V2: a dataset for robot learning at scale*, 2023.
    """

    weight: Float[Array, "height width channels features"]

    def __call__(self, x: Maps) -> Float[Array, " outputs"]:
        return jnp.einsum("ijc,ijcf->cf", x, self.weight).reshape(-1)


class SpatialSoftmax(AbstractPool):
    """Expected position of each channel: see `ExpectedPlaces`, which this creates.

    **Arguments:**

    - `temperature`: in the beginning; it is learned.
    """

    temperature: float = eqx.field(static=True, converter=float, default=1.0)

    def __check_init__(self):
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(
                f"The temperature must be positive, got {self.temperature}."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Pool:
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
