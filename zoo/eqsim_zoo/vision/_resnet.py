"""A residual network of 18 layers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks import check_positive, static
from ..blocks._encoding import AbstractEncoder, Image
from ._layers import (
    check_shape,
    check_sizes,
    Conv,
    GroupNorm,
    max_pool,
    to_numbers,
)
from ._pools import AbstractPool, Mean, Pool


class ResNet18(AbstractEncoder):
    r"""A convolution of 7 x 7 and a maximum, which halve the image each; then four stages
    of two residual blocks, of which the last three halve it again.

    Group normalization stands where the paper has batch normalization, so that an image
    does not depend on others beside it. The last layer, which named a thousand things, is
    left out: the result is what `pool` makes of the last block.

    **Arguments:**

    - `widths`: channels of each stage.
    - `groups`: number of groups of channels that are normalized together.
    - `pool`: pooling after the last block.

    ??? cite "Reference"
        He et al., *Deep residual learning for image recognition*, 2016, table 1; Wu, He,
        *Group normalization*, 2018.
    """

    widths: tuple[int, ...] = static((64, 128, 256, 512))
    groups: int = static(32)
    pool: AbstractPool = Mean()

    def __check_init__(self):
        check_positive(self, "groups")
        check_sizes("ResNet18.widths", self.widths)
        if len(self.widths) != 4 or any(n % self.groups for n in self.widths):
            raise ValueError(
                f"Stages of widths {self.widths}, in {self.groups} groups: four multiples "
                "of the number of groups are expected."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ResNet":
        check_shape(shape, 32, "`ResNet18`")
        make = _Maker(self.groups, dtype)
        entry = make.layer(jr.fold_in(key, 0), shape[2], self.widths[0], 7, 2)
        blocks, inputs = [], self.widths[0]
        for stage, width in enumerate(self.widths):
            for stride in (1 if stage == 0 else 2, 1):
                block_key = jr.fold_in(key, len(blocks) + 1)
                blocks.append(make.block(block_key, inputs, width, stride))
                inputs = width
        return ResNet(entry, tuple(blocks), self.pool.create(dtype))


class NormalConv(eqx.Module):
    """A convolution, and the normalization of what it gives."""

    conv: Conv
    norm: GroupNorm

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        return self.norm(self.conv(x))


class BasicBlock(eqx.Module):
    r"""$\mathrm{relu}(x + f(x))$ of two convolutions $f$; $x$ goes through one of
    1 x 1 where its shape changes."""

    first: NormalConv
    second: NormalConv
    shortcut: NormalConv | None

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        straight = x if self.shortcut is None else self.shortcut(x)
        return jax.nn.relu(straight + self.second(jax.nn.relu(self.first(x))))


class ResNet(eqx.Module):
    """Network of `ResNet18`."""

    entry: NormalConv
    blocks: tuple[BasicBlock, ...]
    pool: Pool

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = to_numbers(image, self.entry.conv.weight.dtype)
        x = max_pool(jax.nn.relu(self.entry(x)))
        for block in self.blocks:
            x = block(x)
        return self.pool(x)


class _Maker(eqx.Module):
    """Layers and blocks before anything is learned."""

    groups: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def layer(
        self, key: PRNGKeyArray, inputs: int, outputs: int, kernel: int, stride: int
    ) -> NormalConv:
        conv = Conv.create(
            key,
            inputs,
            outputs,
            kernel,
            stride=stride,
            padding=kernel // 2,
            scale=2.0,
            bias=False,
            dtype=self.dtype,
        )
        return NormalConv(conv, GroupNorm.create(outputs, self.groups, self.dtype))

    def block(
        self, key: PRNGKeyArray, inputs: int, outputs: int, stride: int
    ) -> BasicBlock:
        keys = jr.split(key, 3)
        first = self.layer(keys[0], inputs, outputs, 3, stride)
        second = self.layer(keys[1], outputs, outputs, 3, 1)
        if stride == 1 and inputs == outputs:
            return BasicBlock(first, second, None)
        return BasicBlock(
            first, second, self.layer(keys[2], inputs, outputs, 1, stride)
        )
