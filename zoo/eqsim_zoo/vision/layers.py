"""Convolution whose derivatives are fast inside loops on a CPU.

XLA's fast convolutions on a CPU need channels last, also in memory. The derivatives of
`jax.lax.conv_general_dilated` permute axes instead, and within `scan` the compiler then
falls back to plain loops, ten to a hundred times slower (jax-ml/jax, issue 12868). Here
the operands of derivatives are transposed before the convolution.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.bridges import check_count

from .images import Image


Pair: TypeAlias = tuple[int, int]
_LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(
    x: Float[Array, "rows height width inputs"],
    weight: Float[Array, "kernel kernel inputs outputs"],
    stride: int = 1,
    padding: int = 0,
) -> Float[Array, "rows high wide outputs"]:
    r"""Compute $y_{nijo} = \sum_{klc} W_{klco}\, x_{n,\,si+k-p,\,sj+l-p,\,c}$, where $x$ is
    zero outside the image.

    **Arguments:**

    - `x`: images, channels last.
    - `weight`: $W$.
    - `stride`: $s$.
    - `padding`: $p$, on each side.
    """
    around = (padding, padding)
    return _bind(x, weight, (stride, stride), (around, around), (1, 1), (1, 1))


def _bind(
    x: Array,
    weight: Array,
    strides: Pair,
    padding: tuple[Pair, Pair],
    lhs_dilation: Pair,
    rhs_dilation: Pair,
) -> Array:
    return _convolve_p.bind(
        x,
        weight,
        strides=strides,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
    )


def _plain(x, weight, *, strides, padding, lhs_dilation, rhs_dilation):
    return lax.conv_general_dilated(
        x, weight, strides, padding, lhs_dilation, rhs_dilation, _LAYOUT
    )


def _compiled(x, weight, *, padding, lhs_dilation, **params):
    # Without the barrier, the compiler merges transposes of the operands into the
    # convolution, whose channels are then no longer last.
    x, weight = lax.optimization_barrier((x, weight))
    if min(min(pair) for pair in padding) < 0:
        images = [
            (low, high, dilation - 1)
            for (low, high), dilation in zip(padding, lhs_dilation)
        ]
        zero = jnp.zeros((), x.dtype)
        x = lax.pad(x, zero, [(0, 0, 0), *images, (0, 0, 0)])
        padding, lhs_dilation = ((0, 0), (0, 0)), (1, 1)
    return _plain(x, weight, padding=padding, lhs_dilation=lhs_dilation, **params)


def _dilated(size: int, dilation: int) -> int:
    return 1 + (size - 1) * dilation


def _transpose_x(cotangent, x, weight, **params: Any):
    """Return the cotangent of `x`: a convolution of that of `y` with the kernel, turned by
    half a turn, with inputs and outputs exchanged."""
    strides, padding = params["strides"], params["padding"]
    inner, outer = params["lhs_dilation"], params["rhs_dilation"]
    sides = []
    for axis in (0, 1):
        kernel = _dilated(weight.shape[axis], outer[axis])
        before = kernel - 1 - padding[axis][0]
        size = _dilated(x.aval.shape[1 + axis], inner[axis])
        known = _dilated(cotangent.shape[1 + axis], strides[axis])
        sides.append((before, size + kernel - 1 - known - before))
    turned = jnp.flip(weight, (0, 1)).transpose(0, 1, 3, 2)
    return _bind(cotangent, turned, inner, tuple(sides), strides, outer)


def _transpose_weight(cotangent, x, weight, **params: Any):
    """Return the cotangent of `weight`: a convolution of `x` with that of `y`, in which
    rows of the batch are the channels."""
    strides, padding = params["strides"], params["padding"]
    inner, outer = params["lhs_dilation"], params["rhs_dilation"]
    sides = []
    for axis in (0, 1):
        kernel = _dilated(weight.aval.shape[axis], outer[axis])
        size = _dilated(x.shape[1 + axis], inner[axis])
        window = _dilated(cotangent.shape[1 + axis], strides[axis])
        before = padding[axis][0]
        sides.append((before, window + kernel - 1 - size - before))
    channels, window = x.transpose(3, 1, 2, 0), cotangent.transpose(1, 2, 0, 3)
    found = _bind(channels, window, outer, tuple(sides), inner, strides)
    return found.transpose(1, 2, 0, 3)


def _batched(operands, axes, **params: Any):
    x, weight = operands
    if axes[1] is None:
        rows = jnp.moveaxis(x, axes[0], 0)
        flat = rows.reshape(-1, *rows.shape[2:])
        y = _convolve_p.bind(flat, weight, **params)
        return y.reshape(*rows.shape[:2], *y.shape[1:]), 0
    plain = lambda x, weight: _plain(x, weight, **params)
    return jax.vmap(plain, in_axes=axes)(x, weight), 0


def _abstract_eval(x, weight, **params: Any):
    y = jax.eval_shape(lambda x, weight: _plain(x, weight, **params), x, weight)
    return ShapedArray(y.shape, y.dtype)


_SETTINGS = "strides", "padding", "lhs_dilation", "rhs_dilation"
_convolve_p = Primitive("convolve")
_convolve_p.def_impl(jax.jit(_compiled, static_argnames=_SETTINGS))
_convolve_p.def_abstract_eval(_abstract_eval)
ad.defbilinear(_convolve_p, _transpose_x, _transpose_weight)
batching.primitive_batchers[_convolve_p] = _batched
mlir.register_lowering(_convolve_p, mlir.lower_fun(_compiled, multiple_results=False))


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
