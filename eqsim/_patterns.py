"""Known zeros and ones in the arrays of a module, as a hint to the kernel compiler.

Kernels omit products with values that were zero when a robot was loaded. Every call
compares the actual values (`_kernels/_assumptions.py`), so an outdated hint costs time
but does not change results.
"""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer

from . import _kernels as kernels


class Pattern:
    """Assumptions about each array of a module, in the order of its leaves.

    All patterns compare equal, so robots that differ only in values share compiled
    programs and can be stacked.
    """

    def __init__(self, entries: tuple[bytes | None, ...] = ()):
        self.entries = entries

    def __eq__(self, other) -> bool:
        return isinstance(other, Pattern)

    def __hash__(self) -> int:
        return hash(Pattern)

    def __repr__(self) -> str:
        return "Pattern()"


class AbstractPatterned(eqx.Module):
    """A module that carries a `Pattern`."""

    pattern: eqx.AbstractVar[Pattern]


_T = TypeVar("_T", bound=AbstractPatterned)


def with_entries(module: _T, entries: tuple[bytes | None, ...]) -> _T:
    """Return the module with the given pattern."""
    # `__init__` is bypassed because it checks and converts fields, which may be
    # placeholders.
    new = object.__new__(type(module))
    for field in dataclasses.fields(module):
        object.__setattr__(new, field.name, vars(module).get(field.name))
    object.__setattr__(new, "pattern", Pattern(entries))
    return new


def patterned(module: _T) -> _T:
    """Return the module with the pattern of its current values."""
    leaves = jtu.tree_leaves(eqx.filter(module, eqx.is_array))
    return with_entries(module, tuple(map(_pattern, leaves)))


# Nothing is assumed about large arrays, such as mesh vertices, which kernels read
# from memory.
_LARGEST = 1024


def _pattern(leaf) -> bytes | None:
    if isinstance(leaf, Tracer) or leaf.size > _LARGEST:
        return None
    return kernels.pattern_of(np.asarray(leaf))


def assumptions(tree: Any) -> tuple[bytes | None, ...]:
    """Return the assumptions of the modules in a tree, one entry per array."""
    found: list[bytes | None] = []
    is_module = lambda x: isinstance(x, AbstractPatterned)
    for part in jtu.tree_leaves(tree, is_leaf=is_module):
        count = len(jtu.tree_leaves(eqx.filter(part, eqx.is_array)))
        entries = part.pattern.entries if is_module(part) else ()
        found += entries if len(entries) == count else [None] * count
    return tuple(found)
