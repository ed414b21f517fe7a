"""Helpers for checks of all kinds of objects."""

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

from .._errors import is_key
from ._check import NotApplicable
from ._compare import leaf_name, tree_allclose


def require(condition: Any, message: str) -> None:
    """Raise `AssertionError` unless the condition is true."""
    if not condition:
        raise AssertionError(message)


def require_equal(what: str, x: Any, y: Any, tolerance: float = 0.0) -> None:
    """Raise `AssertionError` unless two trees are equal up to `tolerance`, relative to
    values above one."""
    comparison = tree_allclose(x, y, rtol=tolerance, atol=tolerance)
    require(comparison, f"{what}: {comparison}")


def rounding(tree: Any) -> float:
    """Return the relative error that a different order of operations may cause: the
    square root of the precision, $3 \\cdot 10^{-4}$ or $10^{-8}$."""
    precision = [
        float(jnp.finfo(x.dtype).eps)
        for x in jtu.tree_leaves(tree)
        if eqx.is_inexact_array(x)
    ]
    return max(precision, default=0.0) ** 0.5


def require_finite(what: str, tree: Any) -> None:
    """Raise `AssertionError` if a value in a tree is NaN or infinite."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if eqx.is_inexact_array(leaf) and not np.all(np.isfinite(leaf)):
            raise AssertionError(f"{what}{leaf_name(path)} is {leaf}")


@contextlib.contextmanager
def double_precision() -> Iterator[Callable[[Any], Any]]:
    """Enable double precision in JAX within the context; yield a function that converts
    the arrays of a tree."""
    with jax.enable_x64(True):
        yield lambda tree: in_precision(tree, jnp.float64)


def in_precision(tree: Any, dtype: Any) -> Any:
    """Return a tree whose floating-point arrays are converted to another precision."""

    def convert(x):
        if eqx.is_inexact_array(x):
            return jnp.asarray(np.asarray(x), dtype)
        return x if is_key(x) or not eqx.is_array(x) else jnp.asarray(np.asarray(x))

    return jtu.tree_map(convert, tree)


def moved(tree: Any, factor: float) -> Any:
    """Return a tree whose floating-point arrays are scaled: other values, and the same
    zeros."""
    # A Python number does not change a type, not even a weak one.
    return jtu.tree_map(lambda x: x * factor if eqx.is_inexact_array(x) else x, tree)


def require_arrays(what: str, tree: Any) -> None:
    """Raise `AssertionError` if a leaf is a Python number, or any other constant of
    compiled programs."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if isinstance(leaf, bool | int | float | complex | np.generic):
            raise AssertionError(
                f"{what}{leaf_name(path)} is the number {leaf!r} of "
                f"{'Python' if type(leaf).__module__ == 'builtins' else 'NumPy'}, every "
                "value of which compiles another program"
            )


def require_no_static_float(subject: eqx.Module) -> None:
    """Raise `AssertionError` if a static field of a module is a `float`."""
    for field in dataclasses.fields(subject):
        value = vars(subject).get(field.name)
        if field.metadata.get("static", False) and isinstance(value, float):
            raise AssertionError(
                f"the field `{field.name}` is static and contains {value!r}, every value of "
                "which compiles another program"
            )


def require_round_trip(what: str, tree: Any) -> None:
    """Raise `AssertionError` unless a tree is unchanged after it is saved by
    `equinox.tree_serialise_leaves` and loaded into a tree of zeros."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if not (eqx.is_array_like(leaf) or callable(leaf)):
            raise AssertionError(
                f"{what}{leaf_name(path)} is {leaf!r}, which cannot be saved: it is neither "
                "an array nor static"
            )
    data = jtu.tree_map(lambda x: jr.key_data(x) if is_key(x) else x, tree)
    zeros = jtu.tree_map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, data)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, data)
    file.seek(0)
    require_equal(what, eqx.tree_deserialise_leaves(file, zeros), data)


def require_rebuild(subject: Any, build: Callable[[], Any] | None) -> None:
    """Raise `AssertionError` unless two objects that are built alike have the same
    hashable structure; `NotApplicable` if it is unknown how to build the object."""
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
        "two of them have different structures, so they do not share compiled programs: "
        f"{one} != {other}",
    )


_traced = collections.Counter()


def counted_jit(fn: Callable) -> Callable:
    """Apply `equinox.filter_jit`, and count how often a function is traced, and thus
    compiled."""

    @ft.wraps(fn)
    def traced(*args):
        _traced[fn.__name__] += 1
        return fn(*args)

    return eqx.filter_jit(traced)


@contextlib.contextmanager
def no_trace(fn: Callable, what: str) -> Iterator[None]:
    """Raise `AssertionError` if a function of `counted_jit` is traced within the
    context."""
    before = _traced[fn.__name__]
    yield
    again = _traced[fn.__name__] - before
    require(again == 0, f"`{fn.__name__.strip('_')}` was compiled again for {what}")


def same_program(fn: Callable, *args: Any) -> bool:
    """Test if tracing a function again gives the same program."""
    fresh = lambda: eqx.filter_jit(lambda *args: fn(*args)).lower(*args).as_text()
    return fresh() == fresh()
