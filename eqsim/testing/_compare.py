"""Comparison of trees, with a description of the differences."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from .._errors import is_key


class Comparison:
    """Result of a comparison, true or false, with the differences, which pytest prints
    when an `assert` fails.

    **Arguments:**

    - `differences`: one line for each difference; empty if the trees are close.
    """

    def __init__(self, differences: list[str]):
        self.differences = differences

    def __bool__(self):
        return not self.differences

    def __repr__(self):
        return "equal" if self else " | ".join(self.differences)


def tree_allclose(
    x: Any, y: Any, *, rtol: float | int = 1e-8, atol: float | int = 1e-8
) -> Comparison:
    r"""Compare structure, shapes, dtypes and values of two trees.

    Values are close if $|x - y| \le \mathrm{atol} + \mathrm{rtol}\,|y|$; NaN is equal
    to NaN. Leaves that are not floating point must be equal.

    **Arguments:**

    - `x`, `y`: trees of arrays, numbers and other leaves.
    - `rtol`, `atol`: relative and absolute tolerance.

    **Returns:** a `Comparison`, for `assert`.
    """
    x_leaves, x_structure = jtu.tree_flatten_with_path(x)
    y_leaves, y_structure = jtu.tree_flatten_with_path(y)
    if x_structure != y_structure:
        return Comparison([f"structures differ: {x_structure} != {y_structure}"])
    pairs = zip(x_leaves, y_leaves, strict=True)
    named = ((leaf_name(path), a, b) for (path, a), (_, b) in pairs)
    found = (_difference(name, a, b, rtol, atol) for name, a, b in named)
    return Comparison([line for line in found if line])


def same_shapes(x: Any, y: Any) -> Comparison:
    """Compare structure, shapes and dtypes of two trees, which a compiled loop requires
    to be equal.

    **Arguments:**

    - `x`, `y`: trees of arrays, or results of `equinox.filter_eval_shape`; leaves that
        are not arrays must be equal.
    """
    x_leaves, x_structure = jtu.tree_flatten_with_path(x)
    y_leaves, y_structure = jtu.tree_flatten_with_path(y)
    if x_structure != y_structure:
        return Comparison([f"structures differ: {x_structure} != {y_structure}"])
    differences = []
    for (path, a), (_, b) in zip(x_leaves, y_leaves, strict=True):
        one, other = describe(a), describe(b)
        if one != other:
            differences.append(f"{leaf_name(path)}: {one} != {other}")
    return Comparison(differences)


def describe(leaf: Any) -> str:
    """Describe type and shape of an array, or any other leaf."""
    if not (eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)):
        return f"{leaf!r}, not an array"
    # Python numbers have weak types, which loops and program caches distinguish from
    # array types.
    weak = " of weak type" if leaf.weak_type else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def leaf_name(path: Any) -> str:
    """Return the path of a leaf in its tree, as a Python expression."""
    return jtu.keystr(path) or "value"


def _difference(name: str, x: Any, y: Any, rtol: float | int, atol: float | int) -> str:
    if is_key(x) and is_key(y) and x.dtype == y.dtype:
        x, y = jr.key_data(x), jr.key_data(y)
    if not (eqx.is_array_like(x) and eqx.is_array_like(y)):
        return "" if x is y or x == y else f"{name}: {x!r} != {y!r}"
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
