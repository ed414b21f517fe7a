"""Order of evaluation, and where values lie.

Nodes are visited depth first from the results: a value is computed shortly before it is
used, which halves both the time of LLVM's register allocation and that of the code. Runs
of scalar operations are cut into chunks, each a function of its own; what one chunk
leaves for another goes through a slot of the scratch memory. Slots are reused.
"""

import dataclasses

from ._graph import Branch, Graph, LANE, LOOP, Loop, TILE


LONGEST_CHUNK = 400
"""Nodes to a function: compile time stays linear in their number."""


@dataclasses.dataclass
class Extent:
    """When a loop begins and ends."""

    start: int
    end: int = 0


@dataclasses.dataclass
class Chunk:
    """Scalar operations in order."""

    time: int
    nodes: list[int]


@dataclasses.dataclass
class Copy:
    """Parallel assignment of values to states, and of stacked results to arrays.

    `stacked`: array, node that counts the passes, values.
    """

    time: int
    pairs: list[tuple[int, int]]
    stacked: list[tuple[int, int, list[int]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Repeat:
    """A loop: `head` computes `test`, `body` and `last` follow if it holds."""

    init: Copy
    counter: int | None
    length: int | None
    head: list
    test: int | None
    body: list
    last: Copy


@dataclasses.dataclass
class Choose:
    """A branch on a uniform boolean."""

    test: int
    then: list
    other: list


Item = Chunk | Copy | Repeat | Choose

_LEAVES = frozenset({"const", "param", "input", "pointer", "state", "table"})


class Schedule:
    """The program of a graph.

    **Arguments:**

    - `nest`: the axes of the batch from the outermost loop on, `LANE` or `LOOP`.
    - `outputs`: nodes of the results.

    **Attributes:**

    - `regions`: items that run once, and once per pass of each axis of the nest.
    - `born`: for each value, when it is computed and in which loops.
    - `uses`: value, time and loops of each use.
    - `reads`: for each array, when it is read.
    - `assigned`: for each array that a loop carries, the loop and the node that the
        array becomes at the end of a pass.
    - `starts`: copies of arrays into loops: the array that is copied, the array that the
        loop carries, and the time.
    - `place`: offset of each value in scratch memory; `size`: bytes of it (see
        `_allocate.py`).
    """

    def __init__(self, graph: Graph, nest: tuple[int, ...], outputs: list[int], width):
        self.graph, self.nest, self.width = graph, nest, width
        self.alias: dict[int, int] = {}
        self.time = 0
        self._loops: tuple[Extent, ...] = ()
        self.born: dict[int, tuple[int, tuple[Extent, ...]]] = {}
        self.uses: list[tuple[int, int, tuple[Extent, ...]]] = []
        self.reads: dict[int, list[int]] = {}
        self.assigned: dict[int, tuple[Extent, int]] = {}
        self.starts: list[tuple[int, int, int]] = []
        self._done: set[int] = set()
        self.live, self._carried, self._stacked = _live(graph, outputs)
        self._results: dict[int, list[int]] = {}
        self._stacks: dict[tuple[int, int], int] = {}
        for node in sorted(self.live):
            if graph.op[node] == "get":
                (control,) = graph.args[node]
                self._results.setdefault(control, []).append(node)
                self._stacks.setdefault((control, graph.aux[node]), node)
        self.regions = self._top(outputs)
        self.place: dict[int, int] = {}
        self.size = 0

    # Order.

    def region(self, node: int) -> int:
        """Return the number of axes of the nest that a node waits for."""
        dep, found = self.graph.dep[node], 0
        for k, axis in enumerate(self.nest, 1):
            bits = LANE | TILE if axis == LANE else LOOP
            found = k if dep & bits else found
        return found

    def _top(self, outputs: list[int]) -> list[list[Item]]:
        order: list[list[int]] = [[] for _ in range(len(self.nest) + 1)]
        for node in self._order(outputs, 0):
            order[self.region(node)].append(node)
        regions = [self._items(order[0])]
        outer = self._loops
        extents = []
        for part in order[1:]:
            extents.append(Extent(self._tick()))
            self._loops = (*self._loops, extents[-1])
            regions.append(self._items(part))
        for node in outputs:
            self._use(node)
        self._tick()
        for extent in extents:
            extent.end = self._tick()
        self._loops = outer
        return regions

    def _order(self, roots: list[int], depth: int) -> list[int]:
        """Sort the nodes of a block that `roots` need, arguments first."""
        graph, done, found = self.graph, self._done, []
        for root in roots:
            stack = [(root, False)]
            while stack:
                node, ready = stack.pop()
                if ready:
                    found.append(node)
                    continue
                if node in done or graph.depth[node] < depth:
                    continue
                op = graph.op[node]
                done.add(node)
                if op in _LEAVES:
                    continue
                if op != "get":
                    stack.append((node, True))
                for arg in reversed(graph.needs(node)):
                    if arg not in done and (arg in self.live):
                        stack.append((arg, False))
        return found

    def _items(self, order: list[int]) -> list[Item]:
        items: list[Item] = []
        chunk: list[int] = []

        def flush():
            if chunk:
                items.append(self._chunk(list(chunk)))
                chunk.clear()

        for node in order:
            if isinstance(self.graph.aux[node], Loop | Branch):
                flush()
                items.append(self._control(node))
                continue
            chunk.append(node)
            if len(chunk) >= LONGEST_CHUNK:
                flush()
        flush()
        return items

    def _tick(self) -> int:
        self.time += 1
        return self.time

    def resolve(self, node: int) -> int:
        """Return the value that a node stands for."""
        while node in self.alias:
            node = self.alias[node]
        return node

    def read(self, node: int) -> int:
        """Return the node that is read in memory for a value. An element at a fixed index is
        never stored: its users read the array."""
        graph, node = self.graph, self.resolve(node)
        if graph.op[node] == "load" and graph.args[node][1] in graph.value:
            return self.resolve(graph.args[node][0])
        return node

    def _use(self, node: int, reads: bool = True) -> None:
        node = self.read(node)
        if node in self.graph.value:
            return
        self.uses.append((node, self.time, self._loops))
        if reads and self.graph.rows[node]:
            self.reads.setdefault(node, []).append(self.time)

    def _bear(self, node: int) -> None:
        self.born[node] = self.time, self._loops

    def _chunk(self, nodes: list[int]) -> Chunk:
        time, own, rows = self._tick(), set(nodes), self.graph.rows
        for node in nodes:
            # Times of their own: an update in place comes after all other reads.
            self._tick()
            self._bear(node)
            for arg in self.graph.args[node]:
                if self.resolve(arg) not in own or rows[self.read(arg)]:
                    self._use(arg)
        return Chunk(time, nodes)

    def _state(self, like: int) -> int:
        graph = self.graph
        state = graph.source("state", graph.dtype[like], graph.dep[like], None, 0)
        graph.rows[state] = graph.rows[like]
        self._bear(state)
        return state

    def _copy(self, pairs, stacked=()) -> Copy:
        time = self._tick()
        for source, state in pairs:
            self._use(source)
            self._use(state, reads=False)
        for array, index, values in stacked:
            self._use(array)
            self._use(index)
            for value in values:
                self._use(value)
        return Copy(time, pairs, list(stacked))

    def _control(self, node: int) -> Item:
        aux = self.graph.aux[node]
        if isinstance(aux, Branch):
            return self._choose(node, aux)
        return self._repeat(node, aux)

    def _repeat(self, node: int, loop: Loop) -> Repeat:
        graph, start = self.graph, self.graph.args[node]
        kept = sorted(self._carried.get(node, ()))
        self._tick()
        states = {k: self._state(loop.params[k]) for k in kept}
        init = self._copy([(start[k], states[k]) for k in kept])
        for k in kept:
            if graph.rows[states[k]]:
                source = self.resolve(start[k])
                self.starts.append((source, states[k], init.time))
            self.alias[loop.params[k]] = states[k]
        counter = None
        if loop.index is not None:
            counter = self._state(loop.index)
            self.alias[loop.index] = counter
        arrays = {}
        for k in sorted(self._stacked.get(node, ())):
            arrays[k] = self._stack(node, k)
        outer, extent = self._loops, Extent(self._tick())
        self._loops = (*outer, extent)
        head: list[Item] = []
        if loop.test is not None:
            head = self._items(self._order([loop.test], loop.depth))
            self._tick()
            self._use(loop.test)
            going = lanes_going(graph, loop.test)
            if going is not None:
                self._use(going)
        values = [loop.outs[k] for k in kept]
        first = len(loop.params)
        stacked = [(arrays[k], counter, loop.stacked[k - first]) for k in arrays]
        values += [value for _, _, entries in stacked for value in entries]
        body = self._items(self._order(values, loop.depth))
        pairs = [(loop.outs[k], states[k]) for k in kept]
        self.assigned.update((state, (extent, out)) for out, state in pairs)
        last = self._copy([p for p in pairs if self.resolve(p[0]) != p[1]], stacked)
        if counter is not None:
            self._use(counter)
        extent.end = self._tick()
        self._loops = outer
        for get in self._gets(node):
            number = graph.aux[get]
            self.alias[get] = states[number] if number in states else arrays[number]
        return Repeat(init, counter, loop.length, head, loop.test, body, last)

    def _gets(self, control: int) -> list[int]:
        return self._results.get(control, [])

    def _stack(self, node: int, number: int) -> int:
        """Return the array of a stacked result."""
        return self._state(self._stacks[node, number])

    def _choose(self, node: int, branch: Branch) -> Choose:
        graph, (test,) = self.graph, self.graph.args[node]
        self._tick()
        self._use(test)
        states = {}
        for get in self._gets(node):
            number = graph.aux[get]
            if number not in states:
                states[number] = self._state(get)
        numbers = sorted(states)
        parts = []
        for values in (branch.then, branch.other):
            items = self._items(self._order([values[k] for k in numbers], branch.depth))
            items.append(self._copy([(values[k], states[k]) for k in numbers]))
            parts.append(items)
        self._tick()
        for number in numbers:
            self._use(states[number])
        for get in self._gets(node):
            self.alias[get] = states[graph.aux[get]]
        return Choose(test, parts[0], parts[1])


def lanes_going(graph: Graph, test: int) -> int | None:
    """Return which lanes need another pass of a loop; None if all are alike."""
    return graph.args[test][0] if graph.op[test] == "any" else None


def _live(graph: Graph, outputs: list[int]):
    """Find the nodes that the outputs need; for loops, the carried and stacked results
    that they need."""
    owner: dict[int, tuple[int, int]] = {}
    for node, aux in enumerate(graph.aux):
        if isinstance(aux, Loop):
            for k, param in enumerate(aux.params):
                owner[param] = node, k
    live: set[int] = set()
    carried: dict[int, set[int]] = {}
    stacked: dict[int, set[int]] = {}
    stack = list(outputs)

    def result(control: int, number: int) -> None:
        aux = graph.aux[control]
        stack.append(control)
        if isinstance(aux, Branch):
            stack.extend((aux.then[number], aux.other[number]))
        elif number < len(aux.params):
            carried.setdefault(control, set()).add(number)
            stack.extend((aux.outs[number], graph.args[control][number]))
        else:
            stacked.setdefault(control, set()).add(number)
            stack.extend(aux.stacked[number - len(aux.params)])

    while stack:
        node = stack.pop()
        if node in live:
            continue
        live.add(node)
        aux = graph.aux[node]
        if graph.op[node] == "get":
            result(graph.args[node][0], graph.aux[node])
        elif node in owner:
            result(*owner[node])
        elif isinstance(aux, Branch):
            stack.extend(graph.args[node])
        elif isinstance(aux, Loop):
            if aux.test is not None:
                stack.append(aux.test)
        else:
            stack.extend(graph.args[node])
    return live, carried, stacked
