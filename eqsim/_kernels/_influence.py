"""Which elements of its arguments a function varies with.

The results of a function are followed back through its graph, number by number. Only floats
are followed: what a comparison or an integer decides has no derivative.

An integer that is computed inside a loop, such as the number of a pair of shapes, often has
few possible values, and other integers and conditions are looked up with it in tables of
constants. So it is known for each of these values which elements are read at computed
indices, and which branch of a selection is taken.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._graph import Branch, Graph, Loop
from ._operations import FLAT, OPERATIONS, PARTIALS
from ._passes import elements, Function, translated


def influences(function: Function) -> list[np.ndarray]:
    """Return flags of the elements of each argument that the floats among the results of
    a function vary with. An element without a flag has no influence.

    **Raises:** `Unsupported` if a primitive of the function has no rule.
    """
    graph, count = Graph(keeps_blanks=True), len(function.arguments)
    nothing = (0,) * count, (None,) * count
    _, sources, results = translated(graph, function, *nothing)
    outputs = [node for value in results for node in elements(graph, value)]
    read, found = _Influence(graph).read(outputs), []
    sources = iter(sources)
    for aval, is_read in zip(function.arguments, function.reads, strict=True):
        flags = np.zeros(math.prod(aval.shape), bool)
        if flags.size and is_read:
            places = read.get(next(sources), set())
            flags[[k for k in places if k is not None]] = True
            flags |= None in places
        found.append(flags.reshape(aval.shape))
    return found


class _Known(NamedTuple):
    """An integer or boolean, known for the possible values of another integer.

    - `by`: node of the other integer; None for a constant.
    - `values`: value for each possible value of `by`.
    - `certain`: false where the value is not known.
    """

    by: int | None
    values: np.ndarray
    certain: np.ndarray


class _When(NamedTuple):
    """Possible values of an integer for which a number counts.

    - `by`: node of the integer; None if there is one case only.
    - `cases`: flags of its possible values, in the order of `_Known.values`.
    """

    by: int | None
    cases: np.ndarray


_ALWAYS, _NEVER = (_When(None, np.full(1, holds)) for holds in (True, False))
_MOST_VALUES = 10_000
"""Largest number of possible values of an integer that are told apart."""


def _certain(by: int | None, values: Any) -> _Known:
    return _Known(by, np.asarray(values), np.ones(len(values), bool))


class _Loops:
    """Where values come from that loops and branches carry."""

    def __init__(self, graph: Graph):
        self.graph, self._owners = graph, {}
        for control, aux in enumerate(graph.aux):
            if isinstance(aux, Loop):
                for k, param in enumerate(aux.params):
                    self._owners[param] = control, k

    def origins(self, node: int) -> list[int]:
        """Return the nodes whose value a `param` or `get` can have; none for the index of
        a loop."""
        graph = self.graph
        control, k = self._owners.get(node, (-1, -1))
        if graph.op[node] == "get":
            (control,), k = graph.args[node], graph.aux[node]
        elif control == -1:
            return []
        aux = graph.aux[control]
        if isinstance(aux, Branch):
            return [aux.then[k], aux.other[k]]
        if self.is_stacked(node):
            return aux.stacked[k - len(aux.params)]
        return [graph.args[control][k], aux.outs[k]]

    def is_stacked(self, node: int) -> bool:
        """Return whether a `get` is an array that holds rows of all passes of a loop."""
        if self.graph.op[node] != "get":
            return False
        aux = self.graph.aux[self.graph.args[node][0]]
        return isinstance(aux, Loop) and self.graph.aux[node] >= len(aux.params)


class _Integers:
    """What is known about the integers and booleans of a graph."""

    def __init__(self, graph: Graph, loops: _Loops):
        self.graph, self.loops = graph, loops
        self._found: dict[int, _Known | None] = {}
        self._busy: set[int] = set()

    def known(self, node: int) -> _Known | None:
        """Return what is known about a node; None if nothing is."""
        graph, stack = self.graph, [node]
        while stack:
            top = stack[-1]
            needs = graph.args[top] if graph.dtype[top][0] != "f" else ()
            needs = needs[1:] if graph.op[top] == "load" else needs
            needs = [x for x in needs if x not in self._found and x not in self._busy]
            if top in self._found or top in self._busy:
                stack.pop()
            elif needs and graph.op[top] in _LOOKED_UP:
                stack += needs
            else:
                self._found[top] = self._compute(top)
        return self._found.get(node)

    def when(self, which: int, holds: bool) -> _When:
        """Return the cases in which a boolean may hold, or may not hold."""
        known = self.known(which)
        if known is None:
            return _ALWAYS
        cases = ~known.certain | (known.values.astype(bool) == holds)
        return _ALWAYS if cases.all() else _When(known.by, cases)

    def _compute(self, node: int) -> _Known | None:
        graph, op, args = self.graph, self.graph.op[node], self.graph.args[node]
        if graph.dtype[node][0] == "f":
            return None
        if node in graph.value:
            return _certain(None, [graph.value[node]])
        if op == "load" and graph.op[args[0]] == "table":
            table, place = _table(graph, args[0]), self._found.get(args[1])
            if place is None:
                place = _certain(args[1], np.arange(len(table)))
                self._found[args[1]] = place
            values = table[np.clip(place.values, 0, len(table) - 1)]
            return place._replace(values=values)
        found = None
        if op in _LOOKED_UP and op != "load":
            found = self._combined(node, [self._found.get(arg) for arg in args])
        return self._enumerated(node) if found is None else found

    def _combined(self, node: int, operands: list[_Known | None]) -> _Known | None:
        """Return the result of an operation, from what is known about its operands."""
        graph, op = self.graph, self.graph.op[node]
        dtype = np.dtype("?" if graph.dtype[node] == "b1" else graph.dtype[node])
        # The innermost integer by which an operand is known.
        by = max((x.by for x in operands if x and x.by is not None), default=None)
        used = [x if x and x.by in (None, by) else None for x in operands]
        count = max((len(x.values) for x in used if x), default=0)
        spread = lambda x: np.broadcast_to(x, count)
        values = [spread(x.values if x else False) for x in used]
        certain = [spread(x.certain if x else False) for x in used]
        everything = functools.reduce(np.logical_and, certain)
        if op == "select":
            which = values[0].astype(bool)
            found = np.where(which, values[2], values[1])
            everything = certain[0] & np.where(which, certain[2], certain[1])
        elif op == "convert":
            found = values[0]
        elif op in ("and", "or") and dtype == bool:
            decides = [c & (v == (op == "or")) for c, v in zip(certain, values)]
            decided = functools.reduce(np.logical_or, decides)
            found = decided if op == "or" else ~decided
            everything = everything | decided
        else:
            found = np.zeros(count, dtype)
            for k in np.flatnonzero(everything):
                found[k] = OPERATIONS[op].fold(*(x[k] for x in values))
        return _Known(by, found.astype(dtype), everything) if everything.any() else None

    def _enumerated(self, node: int) -> _Known | None:
        """Return an integer that is known by its own possible values."""
        if self.graph.dtype[node] == "b1":
            return None
        self._busy.add(node)
        values = self._possible_values(node)
        self._busy.remove(node)
        return _certain(node, sorted(values)) if values else None

    def _possible_values(self, node: int) -> set[int] | None:
        """Return the values that an integer can have; None if that is unknown."""
        values, seen, stack = set(), {node}, [node]
        while stack:
            found = self._values_and_origins(stack.pop())
            if found is None or len(values) > _MOST_VALUES:
                return None
            values |= found[0]
            new = set(found[1]) - seen
            seen |= new
            stack += new
        return values

    def _values_and_origins(self, node: int) -> tuple[set, Sequence[int]] | None:
        """Return values that a node, or an element of it, can have, and nodes whose values
        it can have as well; None if something else is possible."""
        graph, op, args = self.graph, self.graph.op[node], self.graph.args[node]
        if node in graph.value:
            return {int(graph.value[node])}, ()
        if op == "table":
            return set(_table(graph, node).tolist()), ()
        if op in _COPIED:
            return set(), args[_COPIED[op]]
        if op in ("param", "get"):
            origins = self.loops.origins(node)
            return (set(), origins) if origins else None
        if op == "select":
            which, other, then = args
            one = self._chosen(other, self.when(which, False))
            two = self._chosen(then, self.when(which, True))
            return one[0] | two[0], (*one[1], *two[1])
        if op == "update":
            array, _, value, *masks = args
            when = self.when(masks[0], True) if masks else _ALWAYS
            values, origins = self._chosen(value, when)
            return values, (array, *origins)
        known = self.known(node)
        if known is None or not known.certain.all():
            return None
        return set(known.values.tolist()), ()

    def _chosen(self, node: int, when: _When) -> tuple[set, Sequence[int]]:
        """Return the values of a node in the cases in which it counts, or the node."""
        known = self.known(node)
        if not when.cases.any():
            return set(), ()
        if known is None or not known.certain.all():
            return set(), (node,)
        same = when is not _ALWAYS and when.by == known.by
        return set(known.values[when.cases if same else slice(None)].tolist()), ()


_LOOKED_UP = {"load", "select", "convert", *OPERATIONS}
"""Operations whose result is computed from what is known about their operands."""
_COPIED = {
    "blank": slice(0),
    "pack": slice(None),
    "join": slice(None),
    "blend": slice(1, None),
    "load": slice(1),
}
"""Operands whose values, or those of their elements, an operation copies."""


def _table(graph: Graph, node: int) -> np.ndarray:
    dtype, data = graph.aux[node]
    return np.frombuffer(data, dtype)


_Place = tuple[int, int | None]
"""A number: its node, and its place if the node is an array in memory; without a place, all
elements of the array."""


class _Influence:
    """The numbers that some results vary with."""

    def __init__(self, graph: Graph):
        self.graph, self.loops = graph, _Loops(graph)
        self.integers = _Integers(graph, self.loops)
        self._when: dict[_Place, _When] = {}
        self._stack: list[_Place] = []

    def read(self, outputs: Sequence[int]) -> dict[int, set[int | None]]:
        """Return the places of each input of the graph that `outputs` vary with."""
        found: dict[int, set[int | None]] = {}
        for node in outputs:
            self._mark(node, _ALWAYS)
        while self._stack:
            node, place = here = self._stack.pop()
            if self.graph.op[node] in ("input", "pointer"):
                found.setdefault(node, set()).add(place)
            else:
                self._follow(node, place, self._when[here])
        return found

    def _mark(self, node: int, when: _When, place: int | None = None) -> None:
        """Mark a number that results vary with in some cases."""
        graph, key = self.graph, (node, place)
        if graph.dtype[node][0] != "f" or node in graph.value:
            return
        if not when.cases.any():
            return
        # Outside of the loop in which the cases differ, all of them count.
        outside = when.by is not None and graph.depth[node] < graph.depth[when.by]
        when = _ALWAYS if outside or when.cases.all() else when
        old, whole = (self._when.get(x, _NEVER) for x in (key, (node, None)))
        if old is _ALWAYS or whole is _ALWAYS:
            return
        if old is not _NEVER:
            when = _either(old, when)
            if when is not _ALWAYS and np.array_equal(when.cases, old.cases):
                return
        self._when[key] = when
        self._stack.append(key)

    def _follow(self, node: int, place: int | None, when: _When) -> None:
        """Mark the numbers from which a number is computed."""
        graph, op, args = self.graph, self.graph.op[node], self.graph.args[node]
        if op in ("param", "get"):
            self._follow_carried(node, place, when)
        elif op == "load":
            array, index = args
            self._follow_load(array, index, when)
        elif op == "pack":
            for arg in args if place is None else (args[place],):
                self._mark(arg, when)
        elif op == "join":
            for arg in args:
                size = graph.rows[arg]
                if place is None or 0 <= place < size:
                    self._mark(arg, when, place)
                place = place if place is None else place - size
        elif op == "update":
            array, _, value, *masks = args
            self._mark(array, when, place)
            holds = self.integers.when(masks[0], True) if masks else _ALWAYS
            self._mark(value, _both(when, holds))
        elif op == "blend":
            for arg in args[1:]:
                self._mark(arg, when, place)
        elif op == "select":
            which, other, then = args
            self._mark(other, _both(when, self.integers.when(which, False)))
            self._mark(then, _both(when, self.integers.when(which, True)))
        elif PARTIALS.get(op) != FLAT:
            for arg in args:
                self._mark(arg, when)

    def _follow_carried(self, node: int, place: int | None, when: _When) -> None:
        depth, origins = self.graph.depth, self.loops.origins(node)
        if self.loops.is_stacked(node):
            each = origins if place is None else [origins[place % len(origins)]]
            for origin in each:
                self._mark(origin, when)
            return
        if when is not _ALWAYS and self.graph.op[node] == "param":
            # The pass before is another case.
            if when.by is None or depth[when.by] >= depth[node]:
                when = _ALWAYS
        for origin in origins:
            self._mark(origin, when, place)

    def _follow_load(self, array: int, index: int, when: _When) -> None:
        known = self.integers.known(index)
        if known is None:
            self._mark(array, when)
            return
        cases = np.ones(len(known.values), bool)
        if when is not _ALWAYS and when.by == known.by:
            cases = when.cases
        if np.any(cases & ~known.certain):
            self._mark(array, when)
        for place in set(known.values[cases & known.certain].tolist()):
            here = _When(known.by, cases & (known.values == place))
            self._mark(array, when if known.by is None else here, place)


def _both(one: _When, two: _When) -> _When:
    """Return the cases in which two conditions may hold, or some more."""
    if one is _ALWAYS or two is _ALWAYS:
        return two if one is _ALWAYS else one
    if one.by == two.by:
        return one._replace(cases=one.cases & two.cases)
    return one if two.cases.any() else two


def _either(one: _When, two: _When) -> _When:
    """Return the cases in which one of two conditions may hold, or some more."""
    if two is _ALWAYS or one.by != two.by:
        return _ALWAYS
    cases = one.cases | two.cases
    return _ALWAYS if cases.all() else one._replace(cases=cases)
