"""Tangents and cotangents as values: sums, and zeros where one is missing."""

from collections.abc import Sequence

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import Value
from ._elementwise import elementwise
from ._scalarize import dtype_of, Translation


Vectors = list[Value | None]
"""Tangents or cotangents of several values; None for zero."""


class AbstractWalk:
    """A walk over a jaxpr with tangents or cotangents.

    **Arguments:**

    - `walk`: translates the equations.
    """

    def __init__(self, walk: Translation):
        self.walk, self.graph = walk, walk.graph

    def plus(self, aval, x: Value, y: Value) -> Value:
        """Return a sum."""
        graph, dtype = self.graph, dtype_of(aval)
        add = lambda *pair: algebra.apply(graph, "add", pair, dtype)
        return elementwise(self.walk, aval.shape, dtype, (x, y), add)

    def filled(self, avals, vectors: Sequence[Value | None]) -> list[Value]:
        """Return vectors with zeros for those that are missing."""
        return [
            self.zeros(aval) if vector is None else vector
            for aval, vector in zip(avals, vectors, strict=True)
        ]

    def zeros(self, aval) -> Value:
        """Return a vector of zeros."""
        return arrays.constant(self.graph, np.zeros(aval.shape, dtype_of(aval)))
