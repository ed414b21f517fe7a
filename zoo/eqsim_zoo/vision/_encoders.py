"""Encoders: from an image to a vector."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks import check_positive, Linear, static
from ..blocks._encoding import AbstractEncoder, Image
from ..blocks._networks import LayerNorm
from ._layers import centered, check_shape, check_sizes, Conv, Maps
from ._pools import AbstractPool, Flatten, Pool


class SmallCNN(AbstractEncoder):
    """Three convolutions, each with a ReLU; then a layer of numbers, normalized, and
    the hyperbolic tangent.

    The convolutions are those of DQN but for the first, of 6 x 6 with stride 3 instead
    of 8 x 8 with stride 4: images of 64 x 64 then leave 7 x 7 places, as those of 84 x 84
    did. The end is that of DrQ.

    **Arguments:**

    - `widths`, `kernels`, `strides`: sizes of the convolutions, which have no padding.
    - `outputs`: numbers in the result.
    - `pool`: pooling after the last convolution.

    ??? cite "Reference"
        Mnih et al., *Human-level control through deep reinforcement learning*, 2015,
        methods; Kostrikov, Yarats, Fergus, *Image augmentation is all you need:
        regularizing deep reinforcement learning from pixels*, 2020.
    """

    widths: tuple[int, ...] = static((32, 64, 64))
    kernels: tuple[int, ...] = static((6, 4, 3))
    strides: tuple[int, ...] = static((3, 2, 1))
    outputs: int = static(256)
    pool: AbstractPool = Flatten()

    def __check_init__(self):
        check_positive(self, "outputs")
        for name in ("widths", "kernels", "strides"):
            check_sizes(f"SmallCNN.{name}", vars(self)[name])
        if not len(self.widths) == len(self.kernels) == len(self.strides):
            raise ValueError(
                "The numbers of widths, kernels and strides must be equal, got "
                f"{self.widths}, {self.kernels} and {self.strides}."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ConvNet":
        check_shape(shape, self._least(), "`SmallCNN`")
        layers, inputs = [], shape[2]
        for k, width in enumerate(self.widths):
            kernel, stride = self.kernels[k], self.strides[k]
            kwargs: dict[str, Any] = dict(stride=stride, scale=2.0, dtype=dtype)
            layers.append(
                Conv.create(jr.fold_in(key, k), inputs, width, kernel, **kwargs)
            )
            inputs = width
        maps = output_shape(lambda x: _see(tuple(layers), x), shape, dtype)
        pool = self.pool.create(jr.fold_in(key, len(layers) + 1), maps, dtype)
        seen = features(pool, maps, dtype)
        key = jr.fold_in(key, len(layers))
        last = Linear.create(key, seen, self.outputs, 1.0, dtype)
        norm = LayerNorm(jnp.ones(self.outputs, dtype), jnp.zeros(self.outputs, dtype))
        return ConvNet(tuple(layers), pool, last, norm)

    def _least(self) -> int:
        """Return the smallest image height of which the last convolution leaves one
        row."""
        rows = 1
        for kernel, stride in zip(self.kernels[::-1], self.strides[::-1]):
            rows = (rows - 1) * stride + kernel
        return rows


class ConvNet(eqx.Module):
    """Network of `SmallCNN`."""

    layers: tuple[Conv, ...]
    pool: Pool
    last: Linear
    norm: LayerNorm

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = centered(image, self.last.weight.dtype)
        return jnp.tanh(self.norm(self.last(self.pool(_see(self.layers, x)))))


def _see(layers: tuple[Conv, ...], x: Maps) -> Float[Array, "rows columns outputs"]:
    for layer in layers:
        x = jax.nn.relu(layer(x))
    return x


def features(network: Callable, shape: tuple[int, int, int], dtype: Any) -> int:
    """Return the number of outputs of a network for maps of that shape."""
    return math.prod(output_shape(network, shape, dtype))


def output_shape(network: Callable, shape: tuple[int, int, int], dtype: Any) -> Any:
    """Return the shape of the output of a network for maps of that shape."""
    return jax.eval_shape(network, jax.ShapeDtypeStruct(shape, dtype)).shape
