"""The deep residual network of IMPALA."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks import check_positive, Linear, static
from ..blocks._encoding import AbstractEncoder, Image
from ._encoders import features
from ._layers import centered, check_shape, check_sizes, Conv, Maps, max_pool


class Impala(AbstractEncoder):
    r"""Stacks of a convolution, a maximum that halves the image, and residual blocks
    $x + \mathrm{conv}(\mathrm{relu}(\mathrm{conv}(\mathrm{relu}(x))))$; then a layer of
    numbers between two ReLUs. Convolutions are of 3 x 3, with zeros around the image.

    **Arguments:**

    - `widths`: channels of each stack.
    - `blocks`: in each stack.
    - `outputs`: numbers in the result.

    ??? cite "Reference"
        Espeholt et al., *IMPALA: scalable distributed deep-RL with importance weighted
        actor-learner architectures*, 2018, figure 3, right; without its recurrent part.
    """

    widths: tuple[int, ...] = static((16, 32, 32))
    blocks: int = static(2)
    outputs: int = static(256)

    def __check_init__(self):
        check_positive(self, "blocks", "outputs")
        check_sizes("Impala.widths", self.widths)

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ImpalaNet":
        check_shape(shape, 2 ** len(self.widths), "`Impala`")
        stacks, inputs = [], shape[2]
        for k, width in enumerate(self.widths):
            stack_key = jr.fold_in(key, k)
            stacks.append(Stack.create(stack_key, inputs, width, self.blocks, dtype))
            inputs = width
        seen = features(lambda x: _see(tuple(stacks), x), shape, dtype)
        key = jr.fold_in(key, len(stacks))
        last = Linear.create(key, seen, self.outputs, 1.0, dtype)
        return ImpalaNet(tuple(stacks), last)


class Residual(eqx.Module):
    """A block of `Impala`."""

    first: Conv
    second: Conv

    def __call__(self, x: Maps) -> Maps:
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


class Stack(eqx.Module):
    """A stack of `Impala`."""

    entry: Conv
    blocks: tuple[Residual, ...]

    @staticmethod
    def create(
        key: PRNGKeyArray, inputs: int, width: int, blocks: int, dtype: Any
    ) -> "Stack":
        """Create a stack with random parameters."""
        conv = lambda key, inputs: Conv.create(
            key, inputs, width, 3, padding=1, dtype=dtype
        )
        keys = jr.split(key, 2 * blocks + 1)
        pairs = zip(keys[1::2], keys[2::2])
        residuals = tuple(Residual(conv(a, width), conv(b, width)) for a, b in pairs)
        return Stack(conv(keys[0], inputs), residuals)

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        x = max_pool(self.entry(x))
        for block in self.blocks:
            x = block(x)
        return x


class ImpalaNet(eqx.Module):
    """Network of `Impala`."""

    stacks: tuple[Stack, ...]
    last: Linear

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = centered(image, self.last.weight.dtype)
        return jax.nn.relu(self.last(_see(self.stacks, x)))


def _see(stacks: tuple[Stack, ...], x: Maps) -> Float[Array, " features"]:
    for stack in stacks:
        x = stack(x)
    return jax.nn.relu(x).reshape(-1)
