"""Slots of scratch memory: a linear scan over the lifetimes of values."""

import heapq

from ._graph import LANE
from ._instructions import bits
from ._schedule import Extent, Schedule


def allocate(schedule: Schedule, base: int, fixed: dict[int, int]) -> None:
    """Assign memory from `base` on to each value of a schedule; `fixed` values keep theirs."""
    schedule.size = _Scan(schedule).run(base, fixed)


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
        return -(-top // 64) * 64

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
        return self.schedule.width if self.schedule.graph.dep[node] & LANE else 1

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
