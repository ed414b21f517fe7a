"""Residual networks of 18, 34 and 50 layers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks.hyperparameters import check_positive, static
from .encoders import AbstractPool, Mean, output_shape, Pool
from .images import AbstractEncoder, Image
from .layers import centered, check_shape, check_sizes, Conv, GroupNorm, max_pool


class AbstractResNet(AbstractEncoder):
    r"""Residual network: a convolution of 7 x 7 and a maximum, which halve the image each;
    then four stages of residual blocks, of which the last three halve it again.

    Differences from the paper: group normalization stands where the paper has batch
    normalization, so that an image does not depend on others beside it; the last layer,
    which names one of a thousand classes, is left out. The result is that of `pool` on
    the output of the last block.

    **Arguments:**

    - `widths`: channels of each stage; blocks of `ResNet50` end with four times as many.
    - `groups`: number of groups of channels that are normalized together.
    - `pool`: pooling after the last block.

    ??? cite "Reference"
        He et al., *Deep residual learning for image recognition*, 2016, table 1; Wu, He,
        *Group normalization*, 2018.
    """

    stages: eqx.AbstractClassVar[tuple[int, int, int, int]]
    bottleneck: eqx.AbstractClassVar[bool]
    widths: tuple[int, ...] = static((64, 128, 256, 512))
    groups: int = static(32)
    pool: AbstractPool = Mean()

    def __check_init__(self):
        name = type(self).__name__
        check_positive(self, "groups")
        check_sizes(f"{name}.widths", self.widths)
        if len(self.widths) != 4 or any(n % self.groups for n in self.widths):
            raise ValueError(
                f"`{name}.widths` must be four multiples of the number of groups, "
                f"{self.groups}, got {self.widths}."
            )

    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> "ResNet":
        check_shape(shape, 32, f"`{type(self).__name__}`")
        make = _Maker(self.groups, dtype)
        entry = make.layer(jr.fold_in(key, 0), shape[2], self.widths[0], 7, 2)
        blocks, inputs = [], self.widths[0]
        block = make.bottleneck if self.bottleneck else make.basic
        for stage, width in enumerate(self.widths):
            for place in range(self.stages[stage]):
                stride = 2 if place == 0 and stage > 0 else 1
                block_key = jr.fold_in(key, len(blocks) + 1)
                blocks.append(block(block_key, inputs, width, stride))
                inputs = 4 * width if self.bottleneck else width
        layers = entry, tuple(blocks)
        maps = output_shape(lambda x: _see(*layers, x), shape, dtype)
        key = jr.fold_in(key, len(blocks) + 1)
        return ResNet(*layers, self.pool.create(key, maps, dtype))


class ResNet18(AbstractResNet):
    """Residual network of 18 layers: two blocks of two convolutions in each stage.

    **Arguments:** those of `AbstractResNet`.
    """

    stages = (2, 2, 2, 2)
    bottleneck = False


class ResNet34(AbstractResNet):
    """Residual network of 34 layers: 3, 4, 6 and 3 blocks of two convolutions.

    **Arguments:** those of `AbstractResNet`.
    """

    stages = (3, 4, 6, 3)
    bottleneck = False


class ResNet50(AbstractResNet):
    """Residual network of 50 layers: 3, 4, 6 and 3 blocks of three convolutions.

    The stride is that of the 3 x 3 convolution of a block, as in torchvision and jaxrl_m;
    the paper has it in the first one.

    **Arguments:** those of `AbstractResNet`.
    """

    stages = (3, 4, 6, 3)
    bottleneck = True


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


class BottleneckBlock(eqx.Module):
    r"""$\mathrm{relu}(x + f(x))$ of three convolutions $f$: one of 1 x 1 to fewer
    channels, one of 3 x 3, and one of 1 x 1 to four times as many; $x$ goes through one of
    1 x 1 where its shape changes."""

    first: NormalConv
    second: NormalConv
    third: NormalConv
    shortcut: NormalConv | None

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        straight = x if self.shortcut is None else self.shortcut(x)
        y = jax.nn.relu(self.second(jax.nn.relu(self.first(x))))
        return jax.nn.relu(straight + self.third(y))


class ResNet(eqx.Module):
    """Network of `ResNet18`, `ResNet34` and `ResNet50`."""

    entry: NormalConv
    blocks: tuple[BasicBlock, ...] | tuple[BottleneckBlock, ...]
    pool: Pool

    def __call__(self, image: Image) -> Float[Array, " outputs"]:
        x = centered(image, self.entry.conv.weight.dtype)
        return self.pool(_see(self.entry, self.blocks, x))


def _see(
    entry: NormalConv, blocks: tuple, x: Float[Array, "height width inputs"]
) -> Float[Array, "rows columns outputs"]:
    x = max_pool(jax.nn.relu(entry(x)))
    for block in blocks:
        x = block(x)
    return x


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

    def basic(
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

    def bottleneck(
        self, key: PRNGKeyArray, inputs: int, width: int, stride: int
    ) -> BottleneckBlock:
        keys, outputs = jr.split(key, 4), 4 * width
        first = self.layer(keys[0], inputs, width, 1, 1)
        second = self.layer(keys[1], width, width, 3, stride)
        third = self.layer(keys[2], width, outputs, 1, 1)
        if stride == 1 and inputs == outputs:
            return BottleneckBlock(first, second, third, None)
        shortcut = self.layer(keys[3], inputs, outputs, 1, stride)
        return BottleneckBlock(first, second, third, shortcut)
