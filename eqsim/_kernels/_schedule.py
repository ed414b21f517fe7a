"""Order of evaluation (`Schedule`), and places in scratch memory (`allocate`).

Nodes are visited depth first from the results: a value is computed shortly before it is
used, which halves both the time of LLVM's register allocation and that of the code. Runs
of scalar operations are cut into chunks, each a function of its own; what one chunk
leaves for another goes through a slot of the scratch memory. Slots are reused: a linear
scan over the lifetimes of values assigns them.
"""

import dataclasses
import heapq
from typing import NamedTuple

from ._graph import Branch, Graph, LANE, LOOP, Loop, TILE
from ._llvm import bits


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An argument or a result of a kernel.

    **Arguments:**

    - `rows`: number of elements for each environment.
    - `dep`: the axes of the batch that it has, `LANE` and `LOOP`.
    - `summed`: true if a result is added up over the axes of the nest.
    - `assumed`: assumptions about arguments, see `_assumptions.py`.
    - `pointed`: true for an argument that is read where it lies; others are copied to
        scratch memory.
    """

    rows: int
    dtype: str
    dep: int
    summed: bool = False
    assumed: bytes | None = None
    pointed: bool = False


class Interface(NamedTuple):
    """The arguments and the results of a kernel.

    - `inputs`: arguments; `sources` are their nodes, in the same order.
    - `outputs`: results; `results` are the nodes of their elements.
    - `nest`: axes of the batch from the outermost loop on, `LANE` or `LOOP`.
    """

    inputs: list[Leaf]
    sources: list[int]
    outputs: list[Leaf]
    results: list[list[int]]
    nest: tuple[int, ...]


LONGEST_CHUNK = 400
"""Nodes to a function: compile time stays linear in their number."""


@dataclasses.dataclass
class Extent:
    """When a loop begins and ends."""

    start: int
    end: int = 0


@dataclasses.dataclass
class Operations:
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


Item = Operations | Copy | Repeat | Choose

_LEAVES = frozenset({"const", "param", "input", "pointer", "state", "table"})
_CONTROL = frozenset({"loop", "branch"})


class Schedule:
    """The program of a graph.

    **Arguments:**

    - `interface`: arguments and results.

    **Attributes:**

    - `regions`: items that run once, and once per pass of each axis of the nest.
    - `born`: for each value, when it is computed and in which loops.
    - `uses`: value, time and loops of each use.
    - `reads`: for each array, when it is read.
    - `assigned`: for each array that a loop carries, the loop and the node that the
        array becomes at the end of a pass.
    - `starts`: copies of arrays into loops: the array that is copied, the array that the
        loop carries, and the time.
    - `place`: offset of each value in scratch memory, from `allocate`.
    """

    def __init__(self, graph: Graph, interface: Interface):
        self.graph, self.interface, self.nest = graph, interface, interface.nest
        outputs = [node for row in interface.results for node in row]
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
        graph, done, live, found = self.graph, self._done, self.live, []
        for root in roots:
            stack = [root]
            while stack:
                node = stack.pop()
                if node < 0:
                    found.append(~node)
                    continue
                if node in done or graph.depth[node] < depth:
                    continue
                op = graph.op[node]
                done.add(node)
                if op in _LEAVES:
                    continue
                if op != "get":
                    # The node itself, after all that it needs.
                    stack.append(~node)
                for arg in reversed(graph.needs(node)):
                    if arg in live and arg not in done:
                        stack.append(arg)
        return found

    def _items(self, order: list[int]) -> list[Item]:
        items: list[Item] = []
        chunk: list[int] = []

        def flush():
            if chunk:
                items.append(self._chunk(list(chunk)))
                chunk.clear()

        for node in order:
            if self.graph.op[node] in _CONTROL:
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
        alias = self.alias
        while node in alias:
            node = alias[node]
        return node

    def read(self, node: int) -> int:
        """Return the node that is read in memory for a value. An element at a fixed index is
        never stored: its users read the array."""
        graph, node = self.graph, self.resolve(node)
        if graph.op[node] == "load" and graph.args[node][1] in graph.value:
            return self.resolve(graph.args[node][0])
        return node

    def _use(self, node: int, reads: bool = True) -> None:
        self._use_read(self.read(node), reads)

    def _use_read(self, node: int, reads: bool = True) -> None:
        """Record the use of a node that is read in memory."""
        if node in self.graph.value:
            return
        self.uses.append((node, self.time, self._loops))
        if reads and self.graph.rows[node]:
            self.reads.setdefault(node, []).append(self.time)

    def _bear(self, node: int) -> None:
        self.born[node] = self.time, self._loops

    def _chunk(self, nodes: list[int]) -> Operations:
        graph, time, own = self.graph, self._tick(), set(nodes)
        # Most arguments are results of this chunk, which stay in registers.
        kept = {n for n in nodes if not graph.rows[n] and graph.op[n] != "load"}
        for node in nodes:
            # Times of their own: an update in place comes after all other reads.
            self._tick()
            self._bear(node)
            for arg in graph.args[node]:
                if arg not in kept:
                    source = self.read(arg)
                    if source not in own or graph.rows[source]:
                        self._use_read(source)
        return Operations(time, nodes)

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
            if (going := lanes_going(graph, loop.test)) is not None:
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
        op, aux = graph.op[node], graph.aux[node]
        if op == "get":
            result(graph.args[node][0], aux)
        elif node in owner:
            result(*owner[node])
        elif op == "loop":
            if aux.test is not None:
                stack.append(aux.test)
        else:
            stack.extend(graph.args[node])
    return live, carried, stacked


def lanes_going(graph: Graph, test: int) -> int | None:
    """Return which lanes need another pass of a loop; None if all are alike."""
    return graph.args[test][0] if graph.op[test] == "any" else None


class Scratch(NamedTuple):
    """Scratch memory.

    - `packed`: offset of each result.
    - `sums`: offsets of the sums of results that are added up, by their numbers.
    - `work`: offset of the operations of each lane in loops; `chosen`: of the environments
        of the lanes. Both are of use in kernels that sort (`_transfers.py`).
    - `size`: bytes of the memory.
    """

    packed: list[int]
    sums: dict[int, int]
    work: int
    chosen: int
    size: int


def allocate(schedule: Schedule) -> Scratch:
    """Assign memory to each value: to arguments, results and sums first, then a slot to
    each value that one chunk leaves for another."""
    width, own = schedule.graph.width, schedule.interface
    lanes = width if LANE in own.nest else 1
    row = lambda leaf, lanes: leaf.rows * max(bits(leaf.dtype), 8) // 8 * lanes
    top, fixed, packed, sums = 0, {}, [], {}
    for leaf, node in zip(own.inputs, own.sources, strict=True):
        fixed[node] = top
        size = row(leaf, width if leaf.dep & LANE else 1)
        top += _round(8 if leaf.pointed else size)
    for k, leaf in enumerate(own.outputs):
        packed.append(top)
        top += _round(row(leaf, lanes))
        if leaf.summed:
            sums[k] = top
            top += _round(row(leaf, lanes))
    work, chosen = top, top + _round(4 * lanes)
    size = _Scan(schedule).run(chosen + _round(8 * lanes), fixed) + 64
    return Scratch(packed, sums, work, chosen, size)


def _round(size: int) -> int:
    return -(-size // 64) * 64


class _Scan:
    """The values of one schedule.

    - `in_place`: arrays that share memory with the array that they update, or that they
        start from, and that array.
    - `inside`: arrays that lie inside the array that they are joined to, and where.
    - `starts`: first use of the memory of such joined arrays.
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.in_place: dict[int, int] = {}
        self.inside: dict[int, tuple[int, int]] = {}
        self.starts: dict[int, int] = {}

    def run(self, base: int, fixed: dict[int, int]) -> int:
        """Assign offsets from `base` on, and return the end of the memory."""
        last = self._last_uses()
        self._alias_updates(last)
        self._alias_starts(last, fixed)
        self._alias_joins(last, fixed)
        self.schedule.place.update(fixed)
        order = sorted((n for n in last if n not in fixed), key=self._start)
        active: list[tuple[int, int, int]] = []
        free: dict[int, list[int]] = {}
        top = base
        for node in order:
            if node in self.in_place or node in self.inside:
                continue
            born = self._start(node)
            while active and active[0][0] < born:
                _, offset, size = heapq.heappop(active)
                free.setdefault(size, []).append(offset)
            size = self.bytes(node)
            if free.get(size):
                offset = free[size].pop()
            else:
                align = min(64, 1 << (size - 1).bit_length())
                offset = -(-top // align) * align
                top = offset + size
            self.schedule.place[node] = offset
            heapq.heappush(active, (last[node], offset, size))
        for node, (whole, offset) in self.inside.items():
            self.schedule.place[node] = self.schedule.place[whole] + offset
        for node in self.in_place:
            self.schedule.place[node] = self.schedule.place[self._buffer(node)]
        return _round(top)

    def _start(self, node: int) -> int:
        return self.starts.get(node, self.schedule.born[node][0])

    def _buffer(self, node: int) -> int:
        while node in self.in_place:
            node = self.in_place[node]
        return node

    def bytes(self, node: int) -> int:
        """Return the size of the slot of a value, rounded up to a multiple of 8."""
        graph = self.schedule.graph
        size = bits(graph.dtype[node])
        if graph.rows[node]:
            return -(-graph.rows[node] * self._row(node) // 8) * 8
        return max(8, self._lanes(node) * size // 8)

    def _lanes(self, node: int) -> int:
        graph = self.schedule.graph
        return graph.width if graph.dep[node] & LANE else 1

    def _row(self, node: int) -> int:
        """Return the bytes of one element of an array, in all lanes."""
        size = bits(self.schedule.graph.dtype[node])
        return self._lanes(node) * max(size, 8) // 8

    def _last_uses(self) -> dict[int, int]:
        """Find the last use of each value. A value from outside a loop that the loop
        uses is kept until the loop ends."""
        last: dict[int, int] = {}
        for node, time, loops in self.schedule.uses:
            born = self.schedule.born.get(node)
            if born is None:
                continue
            for extent in loops:
                if born[0] < extent.start:
                    time = max(time, extent.end)
                    break
            if time > last.get(node, -1):
                last[node] = time
        return last

    def _alias_updates(self, last: dict[int, int]) -> None:
        """Let `update` write into its operand if nothing reads the operand afterwards."""
        schedule, graph = self.schedule, self.schedule.graph
        for node in list(last):
            if graph.op[node] != "update":
                continue
            operand = schedule.resolve(graph.args[node][0])
            if graph.op[operand] not in ("state", "update"):
                continue
            time, loops = schedule.born[node]
            carried = self._is_carried(operand, loops)
            if not carried and loops != schedule.born[operand][1]:
                continue
            if self.bytes(node) != self.bytes(operand):
                continue
            # After its end, a loop is read for what the array became.
            end = loops[-1].end if carried else schedule.time + 1
            if any(time < t < end for t in schedule.reads[operand]):
                continue
            self._share(node, operand, last)

    def _alias_starts(self, last: dict[int, int], fixed: dict[int, int]) -> None:
        """Let a loop begin with an array where the loop before it, or around it, left it,
        if nothing else reads it afterwards."""
        schedule, graph = self.schedule, self.schedule.graph
        for source, state, time in schedule.starts:
            if graph.op[source] not in ("state", "update") or source in fixed:
                continue
            if state not in last or source not in last:
                continue
            if self.bytes(state) != self.bytes(source):
                continue
            loops = schedule.born[state][1]
            if self._is_replaced(source, state, loops):
                # The loop around is read for what the array became.
                end = loops[-1].end
            elif loops == schedule.born[source][1]:
                end = schedule.time + 1
            else:
                continue
            if not any(time < t < end for t in schedule.reads[source]):
                self._share(state, source, last)

    def _is_replaced(self, source: int, state: int, loops: tuple[Extent, ...]) -> bool:
        """Return whether the innermost of `loops` carries an array, and replaces it by what
        a loop within it makes of it."""
        extent, out = self.schedule.assigned.get(source, (None, source))
        return (
            bool(loops) and extent is loops[-1] and self.schedule.resolve(out) == state
        )

    def _share(self, node: int, other: int, last: dict[int, int]) -> None:
        self.in_place[node] = other
        buffer = self._buffer(node)
        last[buffer] = max(last[buffer], last[node])

    def _alias_joins(self, last: dict[int, int], fixed: dict[int, int]) -> None:
        """Let arrays lie from the start in the array that they are joined to, where
        nothing reads them afterwards."""
        schedule, graph = self.schedule, self.schedule.graph
        for node in [n for n in last if graph.op[n] == "join"]:
            time, loops = schedule.born[node]
            offset = 0
            for part in graph.args[node]:
                own = schedule.resolve(part)
                fits = (
                    graph.op[own] in ("state", "pack")
                    and not (own in fixed or own in self.inside)
                    and last.get(own, time + 1) <= time
                    and schedule.born[own][1] == loops
                    and self._lanes(own) == self._lanes(node)
                )
                if fits:
                    self.inside[own] = node, offset
                    start = min(self._start(node), schedule.born[own][0])
                    self.starts[node] = start
                offset += graph.rows[part] * self._row(node)

    def _is_carried(self, state: int, loops: tuple[Extent, ...]) -> bool:
        """Return whether the innermost of `loops` carries an array and replaces it in
        every pass."""
        extent, out = self.schedule.assigned.get(state, (None, state))
        return (
            bool(loops) and extent is loops[-1] and self.schedule.resolve(out) != state
        )
