"""Convolutions with derivatives of their own are those of JAX, and stay fast in loops."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax

from eqsim_zoo.vision.layers import convolve


# Height, kernel, stride, padding. Some strides leave rows of the image unused, and some
# kernels reach less far than the padding.
CASES = [(11, 3, 2, 1), (12, 4, 2, 0), (9, 3, 1, 1), (13, 6, 3, 0), (10, 7, 2, 3)]
CASES += [(8, 1, 2, 0), (6, 1, 1, 2), (14, 6, 3, 2)]
each_case = pytest.mark.parametrize("height,kernel,stride,padding", CASES)


def convolutions(stride, padding):
    """Return ours and that of JAX."""

    def reference(x, weight):
        around = ((padding, padding), (padding, padding))
        layout = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return lax.conv_general_dilated(
            x, weight, strides, around, dimension_numbers=layout
        )

    return lambda x, weight: convolve(x, weight, stride, padding), reference


def arguments(height, kernel, *batch):
    x = jr.normal(jr.key(0), (*batch, 2, height, height + 1, 3))
    weight = jr.normal(jr.key(1), (*batch, kernel, kernel, 3, 5))
    return x, weight


def check_equal(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@each_case
@pytest.mark.quick_cases("11-3-2-1", "10-7-2-3", "9-3-1-1")
def test_values_and_first_derivatives(height, kernel, stride, padding):
    def everything(function, primals):
        y, pull = jax.vjp(function, *primals)
        tangents = jax.tree.map(jnp.cos, primals)
        _, tangent = jax.jvp(function, primals, tangents)
        return y, tangent, *pull(jnp.sin(y))

    ours, reference = convolutions(stride, padding)
    primals = arguments(height, kernel)
    check_equal(
        jax.jit(everything, static_argnums=0)(ours, primals),
        jax.jit(everything, static_argnums=0)(reference, primals),
    )


@pytest.mark.parametrize("height,kernel,stride,padding", CASES[::3])
@pytest.mark.quick_cases("11-3-2-1")
def test_second_derivatives(height, kernel, stride, padding):
    def product(function, primals):
        loss = lambda *primals: jnp.sum(jnp.sin(function(*primals)))
        tangents = jax.tree.map(jnp.cos, primals)
        slope = lambda *primals: jax.jvp(loss, primals, tangents)[1]
        along = lambda *primals: sum(
            jnp.vdot(gradient, tangent)
            for gradient, tangent in zip(jax.grad(loss, (0, 1))(*primals), tangents)
        )
        both = jax.grad(slope, (0, 1))(*primals), jax.grad(along, (0, 1))(*primals)
        return both[0] + both[1]

    ours, reference = convolutions(stride, padding)
    primals = arguments(height, kernel)
    check_equal(
        jax.jit(product, static_argnums=0)(ours, primals),
        jax.jit(product, static_argnums=0)(reference, primals),
    )


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.quick_cases("axes0")
def test_batches(axes):
    def everything(function, primals):
        loss = lambda *primals: jnp.sum(jnp.sin(function(*primals)))
        y = jax.vmap(function, axes)(*primals)
        return y, *jax.vmap(jax.grad(loss, (0, 1)), axes)(*primals)

    ours, reference = convolutions(2, 1)
    many, one = arguments(7, 3, 4), arguments(7, 3)
    primals = tuple(one[k] if axes[k] is None else many[k] for k in (0, 1))
    check_equal(
        jax.jit(everything, static_argnums=0)(ours, primals),
        jax.jit(everything, static_argnums=0)(reference, primals),
    )


def test_derivatives_in_a_loop_have_channels_last():
    """Other layouts have no fast convolution on a CPU (jax-ml/jax, issue 12868)."""
    x, weight = arguments(20, 3)
    gradient = jax.grad(lambda weight: jnp.sum(convolve(x, weight, 2, 1) ** 2))

    def descend(weight):
        step = lambda weight, _: (weight - 1e-3 * gradient(weight), None)
        return lax.scan(step, weight, None, length=3)[0]

    text = jax.jit(descend).lower(weight).compile().as_text()
    found = [line for line in text.splitlines() if " convolution(" in line]
    assert len(found) >= 2
    for line in found:
        assert "dim_labels=b01f_01io->b01f" in line
        assert "{3,2,1,0}" in line.split(" convolution(")[0]
