"""Which numbers of a module are zero or one, as a hint to the kernel compiler.

Kernels leave out products with numbers that were zero when a robot was loaded. They
compare the numbers in every call (`_kernels/_assumptions.py`), so a hint that is no longer
true costs time and changes no result.
"""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer

from . import _kernels as kernels


class Pattern:
    """What may be assumed of each array of a module, in the order of its leaves.

    All patterns are equal: robots that differ in their numbers alone are alike for `jit`,
    and can be stacked.
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
    """Return the module with a pattern."""
    # Not through `__init__`: it checks and converts fields, which may be placeholders.
    new = object.__new__(type(module))
    for field in dataclasses.fields(module):
        object.__setattr__(new, field.name, vars(module).get(field.name))
    object.__setattr__(new, "pattern", Pattern(entries))
    return new


def patterned(module: _T) -> _T:
    """Return the module with the pattern of the numbers that it has now."""
    leaves = jtu.tree_leaves(eqx.filter(module, eqx.is_array))
    return with_entries(module, tuple(map(_pattern, leaves)))


# Of large arrays, such as the vertices of meshes, little is known; kernels read them from
# memory.
_LARGEST = 1024


def _pattern(leaf) -> bytes | None:
    if isinstance(leaf, Tracer) or leaf.size > _LARGEST:
        return None
    return kernels.pattern_of(np.asarray(leaf))


def assumptions(tree: Any) -> tuple[bytes | None, ...]:
    """Return what the modules in a tree say of its arrays, one entry for each array."""
    found: list[bytes | None] = []
    is_module = lambda x: isinstance(x, AbstractPatterned)
    for part in jtu.tree_leaves(tree, is_leaf=is_module):
        count = len(jtu.tree_leaves(eqx.filter(part, eqx.is_array)))
        entries = part.pattern.entries if is_module(part) else ()
        found += entries if len(entries) == count else [None] * count
    return tuple(found)
