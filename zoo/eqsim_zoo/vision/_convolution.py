"""Convolution whose derivatives are fast inside loops on a CPU.

XLA's fast convolutions on a CPU need channels last, also in memory. The derivatives of
`jax.lax.conv_general_dilated` permute axes instead, and within `scan` the compiler then
falls back to plain loops, ten to a hundred times slower (jax-ml/jax, issue 12868). Here
the operands of derivatives are transposed before the convolution.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


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
