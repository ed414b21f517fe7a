"""What checks of all kinds of objects need."""

import collections
import contextlib
import dataclasses
import functools as ft
import io
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from ._check import NotApplicable
from ._compare import is_key, leaf_name, tree_allclose


def require(condition: Any, message: str) -> None:
    """Raises `AssertionError` unless the condition is true."""
    if not condition:
        raise AssertionError(message)


def require_equal(what: str, x: Any, y: Any, tolerance: float = 0.0) -> None:
    """Raises `AssertionError` unless two trees are equal, but for rounding: a difference
    of `tolerance`, relative to numbers above one, is allowed."""
    comparison = tree_allclose(x, y, rtol=tolerance, atol=tolerance)
    require(comparison, f"{what}: {comparison}")


def rounding(tree: Any) -> float:
    """What the order of operations may change of numbers, relatively: the square root of
    the precision, $3 \\cdot 10^{-4}$ or $10^{-8}$."""
    precision = [
        float(jnp.finfo(x.dtype).eps)
        for x in jtu.tree_leaves(tree)
        if eqx.is_inexact_array(x)
    ]
    return max(precision, default=0.0) ** 0.5


def require_finite(what: str, tree: Any) -> None:
    """Raises `AssertionError` if a number in a tree is NaN or infinite."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if eqx.is_inexact_array(leaf) and not np.all(np.isfinite(leaf)):
            raise AssertionError(f"{what}{leaf_name(path)} is {leaf}")


@contextlib.contextmanager
def double_precision() -> Iterator[Callable[[Any], Any]]:
    """Within it JAX computes in double precision; it gives a function that converts the
    numbers of a tree."""
    with jax.enable_x64(True):
        yield lambda tree: in_precision(tree, jnp.float64)


def in_precision(tree: Any, dtype: Any) -> Any:
    """A tree whose floating-point arrays have another precision."""

    def convert(x):
        if eqx.is_inexact_array(x):
            return jnp.asarray(np.asarray(x), dtype)
        return x if is_key(x) or not eqx.is_array(x) else jnp.asarray(np.asarray(x))

    return jtu.tree_map(convert, tree)


def moved(tree: Any, factor: float) -> Any:
    """A tree whose floating-point arrays are multiplied: new numbers, and zero stays."""
    # A number of Python changes no type, not even a weak one.
    return jtu.tree_map(lambda x: x * factor if eqx.is_inexact_array(x) else x, tree)


def require_arrays(what: str, tree: Any) -> None:
    """Raises `AssertionError` if a leaf is a number of Python, or something else that
    every program that is compiled holds fixed."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if isinstance(leaf, bool | int | float | complex | np.generic):
            raise AssertionError(
                f"{what}{leaf_name(path)} is the number {leaf!r} of "
                f"{'Python' if type(leaf).__module__ == 'builtins' else 'NumPy'}, for "
                "each value of which everything is compiled anew"
            )


def require_no_static_float(subject: eqx.Module) -> None:
    """Raises `AssertionError` if a static field of a module is a `float`."""
    for field in dataclasses.fields(subject):
        value = vars(subject).get(field.name)
        if field.metadata.get("static", False) and isinstance(value, float):
            raise AssertionError(
                f"the field `{field.name}` is static and holds the number {value!r}, for "
                "each value of which everything is compiled anew"
            )


def require_round_trip(what: str, tree: Any) -> None:
    """Raises `AssertionError` unless a tree is the same after it was written by
    `equinox.tree_serialise_leaves` and read into a tree of zeros."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if not (eqx.is_array_like(leaf) or callable(leaf)):
            raise AssertionError(
                f"{what}{leaf_name(path)} is {leaf!r}, which is not saved: neither an "
                "array nor static"
            )
    data = jtu.tree_map(lambda x: jr.key_data(x) if is_key(x) else x, tree)
    zeros = jtu.tree_map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, data)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, data)
    file.seek(0)
    require_equal(what, eqx.tree_deserialise_leaves(file, zeros), data)


def require_rebuild(subject: Any, build: Callable[[], Any] | None) -> None:
    """Raises `AssertionError` unless two objects that are built alike have one structure,
    which can be hashed; `NotApplicable` if one cannot tell how to build it."""
    hash(jtu.tree_structure(subject))
    if build is None:
        build = type(subject)
        try:
            first = build()
        except TypeError as error:
            raise NotApplicable(
                f"`{build.__name__}` cannot be built without arguments; pass `build`"
            ) from error
    else:
        first = build()
    one, other = jtu.tree_structure(first), jtu.tree_structure(build())
    require(
        one == other,
        "two of them have different structures, so that each is compiled by itself: "
        f"{one} != {other}",
    )


_traced = collections.Counter()


def counted_jit(fn: Callable) -> Callable:
    """`equinox.filter_jit`, which counts how often a function is traced: how often it is
    compiled."""

    @ft.wraps(fn)
    def traced(*args):
        _traced[fn.__name__] += 1
        return fn(*args)

    return eqx.filter_jit(traced)


@contextlib.contextmanager
def no_trace(fn: Callable, what: str) -> Iterator[None]:
    """Raises `AssertionError` if a function of `counted_jit` is traced within."""
    before = _traced[fn.__name__]
    yield
    again = _traced[fn.__name__] - before
    require(again == 0, f"`{fn.__name__.strip('_')}` was compiled again for {what}")


def same_program(fn: Callable, *args: Any) -> bool:
    """Whether a function gives the same program when it is traced again."""
    fresh = lambda: eqx.filter_jit(lambda *args: fn(*args)).lower(*args).as_text()
    return fresh() == fresh()
