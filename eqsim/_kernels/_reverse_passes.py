"""Values of each pass of a loop, for the loop that runs back through its passes.

Sums and products are computed again from what they depend on. What takes longer, such as
quotients, roots and results of inner loops, is stored by the forward loop. A pass is thus
neither repeated nor kept as a whole.
"""

from collections.abc import Callable

import numpy as np

from . import _algebra as algebra
from ._arrays import element, nodes, Pulled, Value
from ._graph import Graph, Loop
from ._indices import as_index, flat, INDEX, Index, plus, times


_CHEAP = frozenset(
    {"add", "sub", "mul", "neg", "abs", "max", "min", "sign", "select", "convert"}
    | {"and", "or", "xor", "not"}
    | algebra.COMPARISONS
)


class Passes:
    """Nodes of the passes of a finished loop.

    **Arguments:**

    - `control`: the loop; its body was made of the nodes `first` to `last - 1`.
    - `place`: node of the number of the pass.
    - `outer`: the same for the loop around it, if that goes back through passes, too.
    """

    def __init__(
        self,
        graph: Graph,
        control: int,
        first: int,
        last: int,
        place: int,
        outer: "Passes | None",
    ):
        self.graph, self.control, self.outer = graph, control, outer
        self.loop: Loop = graph.aux[control]
        self.first, self.last = first, last
        self._known: dict[int, int] = {}
        self._arrays: dict[int, tuple[int, int]] = {}
        if self.loop.index is not None:
            self._known[self.loop.index] = place
        self._place = place

    def _owns(self, node: int) -> bool:
        inside = self.first <= node < self.last
        return inside and self.graph.depth[node] >= self.loop.depth

    def node(self, node: int) -> int:
        """Return the node of a value of the pass."""
        stack = [node]
        while stack:
            now = stack[-1]
            if now in self._known:
                stack.pop()
                continue
            waits = [x for x in self._needs(now) if x not in self._known]
            if waits:
                stack += waits
                continue
            self._known[now] = self._made(stack.pop())
        return self._known[node]

    def _needs(self, node: int) -> tuple[int, ...]:
        """Return the values from which a node is recomputed."""
        graph = self.graph
        if not self._owns(node):
            return ()
        if graph.op[node] in _CHEAP:
            return graph.args[node]
        return graph.args[node][1:] if self._reads_outside(node) else ()

    def _reads_outside(self, node: int) -> bool:
        """Return whether a node is an element of an array that is not part of the loop."""
        graph = self.graph
        return graph.op[node] == "load" and not self._has(graph.args[node][0])

    def _made(self, node: int) -> int:
        graph = self.graph
        if node in graph.value:
            return node
        if not self._owns(node):
            return node if self.outer is None else self.outer.node(node)
        op, dtype = graph.op[node], graph.dtype[node]
        if self._reads_outside(node):
            array, index = graph.args[node]
            where = self._known[index]
            return graph.pure("load", (self._array_outside(array), where), dtype)
        if op not in _CHEAP:
            return self._stored(node)
        args = tuple(self._known[x] for x in graph.args[node])
        if op == "select":
            return algebra.select(graph, *args)
        if op == "convert":
            return algebra.convert(graph, args[0], dtype)
        return algebra.apply(graph, op, args, dtype)

    def _stored(self, node: int) -> int:
        """Return an element of an array in which the loop stores a value in each pass."""
        graph, loop = self.graph, self.loop
        number = len(loop.params) + len(loop.stacked)
        loop.stacked.append([node])
        assert loop.length is not None, "the number of passes is known"
        dtype = graph.dtype[node]
        array = graph.get(self.control, number, dtype, graph.dep[node], loop.length)
        array = self._array_outside(array)
        return graph.pure("load", (array, self._place), dtype)

    # Arrays.

    def value(self, value: Value) -> Value:
        """Return an array of the pass."""
        if isinstance(value, np.ndarray):
            found = [self.node(n) for n in value.reshape(-1).tolist()]
            return nodes(found, value.shape)
        array, shape = value.array, value.shape
        if array is None:
            return value
        if not self._has(array):
            if self.outer is None:
                return value
            return self.outer.value(value)
        at, dep = self._elements(array), self.graph.dep[array]
        read = lambda index: at(flat(self.graph, index, shape))
        return Pulled(shape, value.dtype, read, dep)

    def _elements(self, array: int) -> Callable[[int | Index], int]:
        """Store an array in each pass, and return a function from the number of an
        element to its node."""
        if array not in self._arrays:
            graph, loop, dtype = self.graph, self.loop, self.graph.dtype[array]
            rows = graph.rows[array]
            index = [graph.constant(k, INDEX) for k in range(rows)]
            loads = [graph.pure("load", (array, k), dtype) for k in index]
            number = len(loop.params) + len(loop.stacked)
            loop.stacked.append(loads)
            assert loop.length is not None, "the number of passes is known"
            size = loop.length * rows
            whole = graph.get(self.control, number, dtype, graph.dep[array], size)
            self._arrays[array] = self._array_outside(whole), rows
        whole, rows = self._arrays[array]
        place = as_index(self.graph, self._place)

        def at(number: int | Index) -> int:
            start = times(self.graph, place, rows)
            return element(self.graph, whole, plus(self.graph, start, number))

        return at

    def _has(self, array: int) -> bool:
        """Return whether an array belongs to the loop. An array that an inner loop
        stores may be younger than the loop."""
        if self._owns(array):
            return True
        graph = self.graph
        return graph.op[array] == "get" and self._owns(graph.args[array][0])

    def _array_outside(self, array: int) -> int:
        return array if self.outer is None else self.outer.array(array)

    def array(self, array: int) -> int:
        """Return an array in memory of the pass."""
        if not self._has(array):
            return self._array_outside(array)
        graph, at, rows = self.graph, self._elements(array), self.graph.rows[array]
        entries = tuple(map(at, range(rows)))
        return graph.pure("pack", entries, graph.dtype[array], None, rows)

    def close(self) -> None:
        """End the use, when everything that the loop stores is known."""
        self.graph.recapture(self.control)
