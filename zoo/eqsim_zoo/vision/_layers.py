"""Layers of networks that see. An image is (height, width, channels) throughout."""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.bridges import check_count

from ..blocks._encoding import Image
from ._convolution import convolve


Maps: TypeAlias = Float[Array, "height width channels"]


def to_numbers(image: Image, dtype: Any) -> Maps:
    """Convert an image to a floating-point type: bytes are divided by 255, other values
    are kept."""
    x = image.astype(dtype)
    return x / 255.0 if image.dtype == jnp.uint8 else x


def centered(image: Image, dtype: Any) -> Maps:
    """Convert an image to the input of an encoder, with values from -0.5 to 0.5.

    Features of images that are all positive consist mainly of their mean, which grows
    with each step of Adam until normalization removes what differs between images.
    """
    return to_numbers(image, dtype) - 0.5


class Conv(eqx.Module):
    r"""$y_{ijo} = b_o + \sum_{klc} W_{klco}\, x_{si+k-p,\,sj+l-p,\,c}$, where $x$ is zero
    outside the image. In the beginning $b$ is zero and $W$ uniform, with the variance
    `scale` over the number of terms.

    **Arguments:**

    - `stride`: $s$. `padding`: $p$, on each side.
    - `bias`: may be missing.

    ??? cite "Reference"
        LeCun et al., *Efficient backprop*, 1998, section 4.6; with `scale` 2 for layers
        before a ReLU: He et al., *Delving deep into rectifiers*, 2015, equation 10.
    """

    weight: Float[Array, "kernel kernel inputs outputs"]
    bias: Float[Array, " outputs"] | None
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)

    @staticmethod
    def create(
        key: PRNGKeyArray,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        scale: float = 1.0,
        bias: bool = True,
        dtype: Any = jnp.float32,
    ) -> "Conv":
        """Create a layer with random parameters."""
        first = jax.nn.initializers.variance_scaling(scale, "fan_in", "uniform")
        weight = first(key, (kernel, kernel, inputs, outputs), dtype)
        zeros = jnp.zeros(outputs, dtype) if bias else None
        return Conv(weight, zeros, stride, padding)

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "rows columns outputs"]:
        y = convolve(x[None], self.weight, self.stride, self.padding)[0]
        return y if self.bias is None else y + self.bias[None, None]


class GroupNorm(eqx.Module):
    """Numbers less the mean of their group of channels, over its standard deviation;
    scaled and shifted by channel.

    ??? cite "Reference"
        Wu, He, *Group normalization*, 2018.
    """

    scale: Float[Array, " channels"]
    shift: Float[Array, " channels"]
    groups: int = eqx.field(static=True)

    @staticmethod
    def create(channels: int, groups: int, dtype: Any = jnp.float32) -> "GroupNorm":
        """Create a layer with random parameters."""
        return GroupNorm(jnp.ones(channels, dtype), jnp.zeros(channels, dtype), groups)

    def __check_init__(self):
        if self.scale.shape[-1] % self.groups:
            raise ValueError(
                "The number of channels must be a multiple of the number of groups, "
                f"{self.groups}, got {self.scale.shape[-1]}."
            )

    def __call__(self, x: Maps) -> Maps:
        groups = x.reshape(*x.shape[:2], self.groups, -1)
        off = groups - jnp.mean(groups, (0, 1, 3), keepdims=True)
        variance = jnp.mean(off**2, (0, 1, 3), keepdims=True)
        normal = (off * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return normal * self.scale[None, None] + self.shift[None, None]


def max_pool(x: Maps) -> Float[Array, "rows columns channels"]:
    """Compute the maximum over 3 x 3 pixels with stride 2."""
    around = (1, 1)
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), (around, around, (0, 0))
    )


def check_shape(shape: tuple[int, int, int], least: int, network: str) -> None:
    """Raise `ValueError` unless images of that shape have at least `least` rows and
    columns."""
    if min(shape[:2]) < least or shape[2] < 1:
        raise ValueError(
            f"{network} needs images (height, width, channels) of at least {least} x "
            f"{least} x 1, got shape {shape}."
        )


def check_sizes(name: str, sizes: tuple[int, ...]) -> None:
    """Raise `ValueError` unless there are sizes, and all are positive integers."""
    if not isinstance(sizes, tuple) or not sizes:
        raise ValueError(
            f"`{name}` must be a tuple of positive integers, got {sizes!r}."
        )
    for k, size in enumerate(sizes):
        check_count(f"{name}[{k}]", size)
