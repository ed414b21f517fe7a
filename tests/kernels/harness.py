"""Functions of one environment, run as kernels and by XLA."""

import jax
import jax.numpy as jnp
import numpy as np

from eqsim import _kernels as kernels
from eqsim._kernels import _compile


WIDTH = _compile.machine().width("f4")
"""Lanes of a vector of the kernels that take no double precision."""


class Kernel:
    """A function of one environment as a kernel of a batch. What has no kernel raises.

    **Arguments:**

    - `function`: takes arrays without batch axes, returns a tuple of them.
    - `shared`: numbers of the arguments that all environments share.
    - `patterns`: assumptions about each argument.
    - `pulled`: numbers of the arguments whose cotangents are computed, in place of the
        results: cotangents of the results follow the arguments.
    - `pushed`: numbers of the arguments whose tangents follow the arguments; the results
        are tangents.
    """

    def __init__(
        self,
        function,
        shared: tuple[int, ...] = (),
        patterns=(),
        pulled=None,
        pushed=None,
    ):
        self.function, self.shared, self.patterns = function, shared, patterns
        self.pulled, self.pushed = pulled, pushed
        self._kernel = jax.jit(self._call)
        xla = function if pulled is None else self._cotangents
        xla = xla if pushed is None else self._tangents
        self._xla = jax.jit(lambda *xs: jax.vmap(xla, self._axes(xs))(*xs))

    def _axes(self, args) -> list[int | None]:
        return [None if k in self.shared else 0 for k in range(len(args))]

    def _chosen(self, numbers, args):
        """The function of some of its arguments, these, and what follows all arguments."""
        count = self.function.__code__.co_argcount
        xs = list(args[:count])

        def function(*own):
            for k, x in zip(numbers, own, strict=True):
                xs[k] = x
            return tuple(self.function(*xs))

        return function, [xs[k] for k in numbers], list(args[count:])

    def _cotangents(self, *args):
        function, own, cotangents = self._chosen(self.pulled, args)
        out, pull = jax.vjp(function, *own)
        given = [
            ct if x.dtype.kind == "f" else np.zeros(x.shape, jax.dtypes.float0)
            for ct, x in zip(cotangents, out, strict=True)
        ]
        return pull(tuple(given))

    def _tangents(self, *args):
        out, rates = jax.jvp(*self._chosen(self.pushed, args))
        return tuple(
            rate if x.dtype.kind == "f" else jnp.zeros_like(x)
            for x, rate in zip(out, rates, strict=True)
        )

    def _traced(self, shapes) -> kernels.Function:
        count = len(shapes)
        if self.pulled is not None or self.pushed is not None:
            count = self.function.__code__.co_argcount
        given = [jax.ShapeDtypeStruct(*entry) for entry in shapes[:count]]
        closed = jax.make_jaxpr(lambda *xs: tuple(self.function(*xs)))(*given)
        return kernels.Function(closed, self.pulled, self.pushed)

    def _call(self, *args):
        axes = self._axes(args)
        size = next(x.shape[0] for x, axis in zip(args, axes) if axis == 0)
        leaves = [
            x[..., None] if axis is None else jnp.moveaxis(x, 0, -1)
            for x, axis in zip(args, axes, strict=True)
        ]
        shapes = tuple((x.shape[:-1], x.dtype) for x in leaves)
        traced = self._traced(shapes)
        out = [jax.ShapeDtypeStruct((*x.shape, size), x.dtype) for x in traced.results]
        trace = lambda: traced
        program = kernels.Program("test", trace, shapes, self, self.patterns)
        found = kernels.call(program, leaves, 1, out, ((),) * len(out))
        return tuple(jnp.moveaxis(x, -1, 0) for x in found)

    def __call__(self, *args) -> list[np.ndarray]:
        """The results of the kernel, with the batch axis in front."""
        return [np.asarray(x) for x in self._kernel(*map(jnp.asarray, args))]

    def by_xla(self, *args) -> list[np.ndarray]:
        """The results of XLA."""
        return [np.asarray(x) for x in self._xla(*map(jnp.asarray, args))]


def same(got, expected) -> np.ndarray:
    """Where two arrays are equal bit for bit; all NaN are equal."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype.kind != "f":
        return got == expected
    raw = f"u{got.dtype.itemsize}"
    bitwise = got.view(raw) == expected.view(raw)
    return bitwise | (np.isnan(got) & np.isnan(expected))


def assert_same(got, expected, names=None, inputs=()) -> None:
    """Asserts that all results are equal bit for bit."""
    assert len(got) == len(expected)
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        wrong = ~same(a, b)
        if wrong.any():
            name = k if names is None else names[k]
            given = [x[wrong][:4].tolist() for x in inputs if x.shape == wrong.shape]
            pair = a[wrong][:4].tolist(), b[wrong][:4].tolist()
            raise AssertionError(f"{name} of {given}: got {pair[0]}, not {pair[1]}")


def assert_close(got, expected, rtol=1e-5, atol=1e-6) -> None:
    """Asserts that all results agree but for rounding; those that are no floats agree
    exactly."""
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(a, b)


def compare(function, *args, shared=(), exact=False, **bounds) -> list[np.ndarray]:
    """Runs a function both ways on a batch, and returns what the kernel gives."""
    kernel = Kernel(function, shared)
    got, expected = kernel(*args), kernel.by_xla(*args)
    if exact:
        assert_same(got, expected)
    else:
        assert_close(got, expected, **bounds)
    return got
