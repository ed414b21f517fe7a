"""What many tests need: trees that are close, and gradients that are right."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np


class Comparison:
    """True or false, and why: pytest prints it when `assert` fails."""

    def __init__(self, differences: list[str]):
        self.differences = differences

    def __bool__(self):
        return not self.differences

    def __repr__(self):
        return "equal" if self else " | ".join(self.differences)


def tree_allclose(x: Any, y: Any, *, rtol=1e-8, atol=1e-8) -> Comparison:
    """Whether two trees have one structure, shapes, dtypes, and close numbers."""
    x_leaves, x_structure = jtu.tree_flatten_with_path(x)
    y_leaves, y_structure = jtu.tree_flatten_with_path(y)
    if x_structure != y_structure:
        return Comparison([f"structures differ: {x_structure} != {y_structure}"])
    pairs = zip(x_leaves, y_leaves, strict=True)
    named = ((_name(path), a, b) for (path, a), (_, b) in pairs)
    found = (_difference(name, a, b, rtol, atol) for name, a, b in named)
    return Comparison([line for line in found if line])


def _difference(name: str, x: Any, y: Any, rtol: float, atol: float) -> str:
    if not (eqx.is_array_like(x) and eqx.is_array_like(y)):
        return "" if x == y else f"{name}: {x!r} != {y!r}"
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype}{x.shape} != {y.dtype}{y.shape}"
    if not np.issubdtype(x.dtype, np.inexact):
        return "" if np.array_equal(x, y) else f"{name}: {x} != {y}"
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(close):
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return (
        f"{name}: {np.sum(~close)} of {x.size} differ, the first at {at}: {x[at]} != "
        f"{y[at]}; largest difference {np.max(np.abs(x - y))}"
    )


def check_gradients(
    fn: Callable, *args, order=1, eps=1e-6, rtol=1e-5, atol=1e-7, seed=0
) -> dict[str, float]:
    """Asserts that forward mode, reverse mode and central differences agree.

    Every floating-point array in `args` is moved on its own along a random direction,
    by `eps` times the largest number in it (or `eps` where all are zero), so a wrong
    derivative cannot hide behind a larger one. Double precision is required.

    **Arguments:**

    - `fn`: takes and returns trees; only floating-point arrays in them are looked at.
    - `order`: 2 also checks the derivatives of both the forward and the reverse mode.
    - `rtol`, `atol`: relative to, and added to, the largest entry of an output array.

    **Returns:** the largest derivative found for each array, by name, so that a test
    can assert that none is zero where it should not be.
    """
    function = _Function.of(fn, args)
    rng = np.random.default_rng(seed)
    names, largest = function.names(), {}
    cotangents = [_direction(rng, y, 1.0) for y in function.value(function.leaves)]
    pulled = function.pull(function.leaves, cotangents)
    for i, name in enumerate(names):
        scale = float(np.max(np.abs(function.leaves[i]), initial=0.0)) or 1.0
        tangents = [jnp.zeros_like(x) for x in function.leaves]
        tangents[i] = _direction(rng, function.leaves[i], scale)
        pushed = function.push(function.leaves, tangents)
        plus, minus = (
            function.value([x + s * t for x, t in zip(function.leaves, tangents)])
            for s in (eps, -eps)
        )
        for k, (a, b, c) in enumerate(zip(pushed, plus, minus, strict=True)):
            what = f"output {k} by {name}: forward mode against differences"
            _assert_close(what, a, (b - c) / (2 * eps), rtol, atol)
        forward = [np.sum(c * t) for c, t in zip(cotangents, pushed, strict=True)]
        size = max(float(np.max(np.abs(t), initial=0.0)) for t in pushed)
        reverse = np.sum(pulled[i] * tangents[i])
        what = f"all outputs by {name}: reverse mode against forward mode"
        _assert_close(what, reverse, np.sum(forward), rtol, atol + rtol * size)
        largest[name] = size / scale
    if order > 1:
        ones = [_direction(rng, x, 1.0) for x in function.leaves]
        options = dict(order=order - 1, eps=eps, rtol=rtol, atol=atol, seed=seed + 1)
        check_gradients(
            lambda *xs: function.push(list(xs), ones), *function.leaves, **options
        )
        check_gradients(
            lambda *xs: function.pull(list(xs), cotangents), *function.leaves, **options
        )
    return largest


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function of a list of floating-point arrays, and its compiled derivatives."""

    value: Callable
    push: Callable
    pull: Callable
    leaves: list[jax.Array]
    tree: Any

    @staticmethod
    def of(fn: Callable, args: tuple) -> "_Function":
        # NumPy numbers become JAX arrays: annotations in signatures accept only these.
        numbers = (float, np.floating, np.ndarray)
        to_jax = lambda x: jnp.asarray(x) if isinstance(x, numbers) else x
        args = jtu.tree_map(to_jax, args)
        moving, fixed = eqx.partition(args, eqx.is_inexact_array)
        leaves, structure = jtu.tree_flatten(moving)
        if any(x.dtype != jnp.float64 for x in leaves):
            raise TypeError(
                "Finite differences need double precision in all arguments."
            )

        def value(leaves):
            out = fn(*eqx.combine(jtu.tree_unflatten(structure, leaves), fixed))
            return jtu.tree_leaves(eqx.filter(out, eqx.is_inexact_array))

        push = lambda x, t: jax.jvp(value, (x,), (t,))[1]
        pull = lambda x, c: jax.vjp(value, x)[1](c)[0]
        return _Function(jax.jit(value), jax.jit(push), jax.jit(pull), leaves, moving)

    def names(self) -> list[str]:
        return [_name(path) for path, _ in jtu.tree_flatten_with_path(self.tree)[0]]


def _direction(rng: np.random.Generator, like: jax.Array, scale: float) -> jax.Array:
    return jnp.asarray(scale * rng.standard_normal(like.shape))


def _assert_close(what: str, x: Any, y: Any, rtol: float, atol: float) -> None:
    x, y = np.asarray(x), np.asarray(y)
    bound = atol + rtol * float(np.max(np.abs(y), initial=0.0))
    error = np.abs(x - y)
    if not np.all(error <= bound):  # also if one is NaN
        at = np.unravel_index(np.argmax(np.nan_to_num(error, nan=np.inf)), error.shape)
        at = tuple(int(i) for i in at)
        raise AssertionError(
            f"{what}\n  at {at}: {x[at]} against {y[at]}; the difference "
            f"{error[at]:.3g} exceeds {bound:.3g}"
        )


def _name(path: Any) -> str:
    return jtu.keystr(path) or "value"
