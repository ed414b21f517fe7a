"""Lists whose length is known at run time: lanes of a device, and sums with derivatives."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun, Primitive
from jax.interpreters import ad, batching, mlir

from ._primitive import are_rows_together


# Lists of all environments in one sequence of lanes, for devices other than the CPU.
#
# A list is an array `(capacity, *batch)` of which each environment uses the first `count` rows.
# On a CPU each environment walks along its own list. A GPU computes the rows of all
# environments together, one in each *lane*: row by row and environment by environment, the
# lists are cut into chunks of a fixed number of lanes. A search in a lane takes as many passes
# as the slowest one of its chunk, and the work follows the total number of rows that are used.
# Nothing is dropped: there are as many chunks as the lists need.


MOST_LANES = 1 << 15
"""Largest number of lanes of a chunk; bounds the memory."""
MOST_IN_NEED = 1 << 13
"""Largest number of lanes of a chunk of `where_needed`."""


def lanes_per_chunk(capacity: int, batch: tuple[int, ...]) -> int:
    """Return the number of lanes for lists of a capacity: at least two, so that an axis of
    lanes differs from one that all lanes share."""
    return max(2, min(MOST_LANES, capacity * math.prod(batch)))


class Lanes(NamedTuple):
    """Rows of lists, one in each lane, `(lanes,)`. Lanes that are not used repeat another.

    - `row`: number of the row in the list of its environment.
    - `env`: index of its environment along each axis of the batch.
    - `first`: first lane of the chunk with the same environment.
    - `used`: true if there is a row.
    """

    row: Any
    env: tuple[Any, ...]
    first: Any
    used: Any

    def read(self, x, numbers):
        """Return entries `(1, lanes)` of a table `(m, *batch)` at numbers `(1, lanes)`."""
        if math.prod(x.shape[1:]) == 1:
            place = (numbers,)
            x = x.reshape(x.shape[0])
        else:
            place = (numbers, *(e[None] for e in self._places(x.shape[1:])))
        return x.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def read_tree(self, tree, numbers):
        """Return entries of all tables of a tree."""
        return jtu.tree_map(lambda x: self.read(x, numbers), tree)

    def of(self, x):
        """Return what an array `(..., *batch)` holds for each lane, `(..., lanes)`; an axis
        of one stands for all lanes if all environments share it."""
        start = x.ndim - len(self.env)
        if math.prod(x.shape[start:]) == 1:
            return x.reshape(*x.shape[:start], 1)
        place = (slice(None),) * start + self._places(x.shape[start:])
        return x.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def _places(self, batch) -> tuple:
        return tuple(
            e if n > 1 else 0 * e for e, n in zip(self.env, batch, strict=True)
        )

    def add(self, total, x, numbers=None):
        """Add values `(..., lanes)` of used lanes to an array `(..., *batch)`; or with
        numbers, to these rows of an array `(m, *batch)`. Values `(..., 1)` are added to
        what all environments share."""
        if numbers is None and x.shape[-1] == 1:
            return total + x.reshape(total.shape)
        used = self.used.reshape(*(1 for _ in x.shape[1:]), -1)
        x = jnp.where(used, x, jnp.zeros_like(x))
        if numbers is not None:
            place = (numbers, *(e[None] for e in self.env))
            return total.at[place].add(x, mode="promise_in_bounds")
        if not self.env:
            return total + jnp.sum(x, axis=-1)
        start = total.ndim - len(self.env)
        place = (slice(None),) * start + self.env
        return total.at[place].add(x, mode="promise_in_bounds")

    def places(self, count, flags) -> tuple[Any, Any]:
        """Return the places `(n, lanes)` at which flagged values are appended to lists that
        hold `count` rows, and the new counts. Places of other values are negative."""
        number = jnp.sum(flags, axis=0, dtype=jnp.int32)
        before = jnp.cumsum(number, dtype=jnp.int32) - number
        begin = self.of(count[None]) + (before - before[self.first])[None]
        place = begin + jnp.cumsum(flags, axis=0, dtype=jnp.int32) - 1
        number = jnp.where(self.used, number, 0)
        if not self.env:
            return jnp.where(flags, place, -1), count + jnp.sum(number, dtype=jnp.int32)
        return jnp.where(flags, place, -1), count.at[self.env].add(number)

    def write(self, x, places, values):
        """Write values `(n, lanes)` to places of lists; negative places are left out."""
        places = jnp.where(places < 0, x.shape[0], places)
        values = jnp.broadcast_to(values, places.shape)
        rows = x.at[(places, *(e[None] for e in self.env))]
        return rows.set(values, mode="drop", wrap_negative_indices=False)


def for_lanes(count, size: int, visit: Callable, start: Any) -> Any:
    """Fold `visit(carry, lanes)` over the rows of all lists, in chunks of `size` lanes.

    **Arguments:**

    - `count`: number of rows of each environment, `(*batch)`.
    """
    own = count.reshape(-1)
    ends = jnp.cumsum(own, dtype=jnp.int32)
    begins, total = ends - own, ends[-1]
    lane = jnp.arange(size, dtype=jnp.int32)

    def body(carry):
        k, kept = carry
        place = k + lane
        used = place < total
        place = jnp.minimum(place, total - 1)
        number = jnp.searchsorted(ends, place, side="right", method="scan_unrolled")
        number = jnp.minimum(number.astype(jnp.int32), own.size - 1)
        env = _indices(number, count.shape)
        begin = begins[number]
        first = jnp.maximum(begin - k, 0)
        lanes = Lanes(place - begin, env, first, used)
        return k + size, visit(kept, lanes)

    going = lambda carry: carry[0] < total
    return lax.while_loop(going, body, (jnp.zeros((), jnp.int32), start))[1]


def _indices(number, shape: tuple[int, ...]) -> tuple:
    """Return the index along each axis of an entry of an array."""
    found = []
    for size in reversed(shape):
        found.append(number % size)
        number = number // size
    return tuple(reversed(found))


def where_needed(
    when, fn: Callable, arguments: Any, shared: Any, otherwise: Any
) -> Any:
    """Return `fn(arguments, shared, when)` in the lanes where `when` holds, and `otherwise`
    elsewhere: the lanes in need are moved together, in chunks. Derivatives are computed in
    all lanes.

    **Arguments:**

    - `when`: `(1, lanes)`.
    - `fn`: function that reads no other arrays.
    - `arguments`: tree of arrays `(..., lanes)` or `(..., 1)`.
    - `shared`: tree of arrays that all lanes share.
    - `otherwise`: tree of arrays `(n, lanes)`, like the results.
    """

    @jax.custom_jvp
    def run(when, arguments, shared, otherwise):
        return _moved_together(when, fn, arguments, shared, otherwise)

    @run.defjvp
    def _(primals, tangents):
        def whole(when, arguments, shared, otherwise):
            choose = lambda x, y: jnp.where(when, x, y)
            return jtu.tree_map(choose, fn(arguments, shared, when), otherwise)

        return jax.jvp(whole, primals, tangents)

    return run(when, arguments, shared, otherwise)


def _moved_together(when, fn: Callable, arguments: Any, shared: Any, otherwise: Any):
    size = when.shape[-1]
    chunk = min(size, MOST_IN_NEED)
    (numbers,) = jnp.nonzero(when[0], size=size, fill_value=size)
    numbers = jnp.pad(numbers.astype(jnp.int32), (0, chunk), constant_values=size)
    total = jnp.sum(when, dtype=jnp.int32)
    take = lambda x, at: x if x.shape[-1] == 1 else x[..., at]

    def body(carry):
        k, kept = carry
        place = lax.dynamic_slice_in_dim(numbers, k, chunk)
        at = jnp.minimum(place, size - 1)
        own = jtu.tree_map(lambda x: take(x, at), arguments)
        found = fn(own, shared, (place < size)[None])
        put = lambda x, y: x.at[:, place].set(y, mode="drop")
        return k + chunk, jtu.tree_map(put, kept, found)

    going = lambda carry: carry[0] < total
    return lax.while_loop(going, body, (jnp.zeros((), jnp.int32), otherwise))[1]


# Sums over lists whose length is known at run time, with derivatives.
#
# A list is an array `(capacity, *batch)` of which each environment uses the first `count`
# rows. `each` computes
#
# $y = \sum_{k < n} f(i_k, T[i_k], c)$
#
# where $i_k$ are integers of row $k$, $T[i_k]$ are rows of tables, and $c$ are arrays that all
# rows share. Its Jacobian-vector product is such a sum, and so is its vector-Jacobian product,
# which adds cotangents to the rows of the tables. Both compute $f$ again: nothing is stored for
# each row, and the cost follows the number of rows that are used, not the capacity.
#
# Rows are visited one by one in kernels, which have rules of their own
# (`_kernels/_reductions.py`). Elsewhere, the rows of all environments are computed together, one
# in each lane (above).


OWN_VALUE = -1
"""The value of a row itself, in place of a column, see `each`."""


def each(
    fn: Callable[..., Any],
    count: Any,
    rows: Any,
    columns: Sequence[Any],
    tables: Sequence[tuple[Any, int]],
    shared: Any,
    targets: Sequence[tuple[int, int] | None],
) -> tuple[Any, ...]:
    """Sum a function over the rows of a list.

    **Arguments:**

    - `fn`: function `(row, columns, entries, shared) -> results`. Arrays of all arguments
        but the last, and of the results, have a leading axis of n rows.
    - `count`: number of rows, `(*batch)`.
    - `rows`: list of integers, `(capacity, *batch)`.
    - `columns`: integers for each value of a row, such as the shapes of a pair: a sequence
        of known ones, or an array `(m, *batch)`.
    - `tables`: trees of arrays `(m, *batch)`, and the column that holds the entry to read.
    - `shared`: tree of arrays.
    - `targets`: destinations of the results: None for the sum `(1, ..., *batch)`, or
        `(column, m)` to add the rows to the entries, which the column holds, of an array
        `(m, *batch)`. With `OWN_VALUE` as the column, the row itself is the entry.

    **Returns:** the sums.
    """
    trees = [table for table, _ in tables]
    leaves, treedef = jtu.tree_flatten((trees, shared))
    places = [1] * len(columns) + [
        2 + column for tree, column in tables for _ in jtu.tree_leaves(tree)
    ]
    known = [_known(numbers, rows) for numbers in columns]
    args = [count, rows, *known, *leaves]
    term = _Term(fn, len(columns), treedef, targets)
    capacity, *batch = rows.shape
    lanes = lanes_per_chunk(capacity, tuple(batch)) if are_rows_together() else None
    inner = tuple(batch) if lanes is None else (lanes,)
    row = lambda dtype: jax.ShapeDtypeStruct((1, *inner), dtype)
    cut = _TABLES + len(places)
    common = [_shape_in(x, len(batch), lanes) for x in args[cut:]]
    given = [row(bool), *(row(x.dtype) for x in args[1:cut]), *common]
    closed, structure = jax.make_jaxpr(term, return_shape=True)(*given)
    into = [
        None if target is None else (2 + target[0], target[1])
        for target, own in zip(targets, structure, strict=True)
        for _ in jtu.tree_leaves(own)
    ]
    layout = _Layout(tuple(places), tuple(into), lanes)
    found = _bind(closed, layout, args)
    return jtu.tree_unflatten(jtu.tree_structure(structure), found)


@dataclasses.dataclass(frozen=True)
class _Term:
    """The function of `each` on flat arguments, whose results are zero in unused rows.

    - `columns`: number of columns, which are the first tables.
    - `treedef`: structure of the tables and the shared arrays.
    """

    fn: Callable[..., Any]
    columns: int
    treedef: Any
    targets: Sequence[tuple[int, int] | None]

    def __call__(self, used, row, *xs):
        entries, common = jtu.tree_unflatten(self.treedef, xs[self.columns :])
        found = self.fn(row, list(xs[: self.columns]), entries, common)
        only = lambda x: jnp.where(_flags(used, x), x, 0.0)
        total = lambda x: jnp.sum(only(x), axis=0, keepdims=True)
        return tuple(
            jtu.tree_map(total if target is None else only, value)
            for value, target in zip(found, self.targets, strict=True)
        )


def _known(numbers, like):
    """Return integers as a table."""
    if isinstance(numbers, jax.Array):
        return numbers
    column = np.asarray(numbers, np.int32)
    return jnp.asarray(column.reshape(-1, *(1 for _ in like.shape[1:])))


def _flags(used, x):
    """Return flags `(n, *batch)` that broadcast against `(n, ..., *batch)`."""
    inner = x.ndim - used.ndim
    return used.reshape(used.shape[0], *(1 for _ in range(inner)), *used.shape[1:])


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Arguments and results of a sum. The arguments are the number of rows, the list,
    tables, and shared arrays; columns are the first tables.

    - `places`: argument whose row holds the entry to read, one for each table.
    - `into`: destination of each result: None for a sum, else the argument whose row holds
        the entry, and the number of entries.
    - `lanes`: number of lanes of a chunk; None: rows are visited one by one.
    """

    places: tuple[int, ...]
    into: tuple[tuple[int, int] | None, ...]
    lanes: int | None

    @property
    def first_shared(self) -> int:
        """The first argument that is not a table."""
        return _TABLES + len(self.places)


_TABLES = 2
"""The first argument that is a table."""

each_p = Primitive("each")
each_p.multiple_results = True


def _bind(body: ClosedJaxpr, layout: _Layout, args) -> list:
    return each_p.bind(*args, body=body, layout=layout)


def _shape(x) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _shape_in(x, nbatch: int, lanes: int | None) -> jax.ShapeDtypeStruct:
    """Return the shape in which the function reads what all rows share."""
    if lanes is None:
        return _shape(x)
    event, batch = x.shape[: x.ndim - nbatch], x.shape[x.ndim - nbatch :]
    own = 1 if math.prod(batch) == 1 else lanes
    return jax.ShapeDtypeStruct((*event, own), x.dtype)


def _run(body: ClosedJaxpr, layout: _Layout, args) -> list:
    """Compute the sums by a loop."""
    count, rows = args[:_TABLES]
    pairs = zip(_result_shapes(body, layout, count.shape), body.out_avals, strict=True)
    start = [jnp.zeros(shape, aval.dtype) for shape, aval in pairs]
    if layout.lanes is not None:
        add = lambda totals, lanes: _added(body, layout, args, totals, lanes)
        return for_lanes(count, layout.lanes, add, start)
    tables, shared = args[_TABLES : layout.first_shared], args[layout.first_shared :]

    def visit(carry):
        k, totals = carry
        used = (k < count)[None]
        place = jnp.minimum(k, jnp.maximum(count - 1, 0))[None]
        own = [used, read_rows(rows, place)]
        for table, where in zip(tables, layout.places, strict=True):
            own.append(read_rows(table, own[where]))
        found = jaxpr_as_fun(body)(*own, *shared)
        new = [
            total + x if into is None else add_rows(total, own[into[0]], x, used)
            for total, x, into in zip(totals, found, layout.into, strict=True)
        ]
        return k + 1, new

    going = lambda carry: jnp.any(carry[0] < count)
    return lax.while_loop(going, visit, (jnp.zeros_like(count), start))[1]


def _added(body: ClosedJaxpr, layout: _Layout, args, totals, lanes: Lanes) -> list:
    """Return the sums with the rows of a chunk of lanes."""
    tables, shared = args[_TABLES : layout.first_shared], args[layout.first_shared :]
    own = [lanes.used[None], lanes.read(args[1], lanes.row[None])]
    for table, where in zip(tables, layout.places, strict=True):
        own.append(lanes.read(table, own[where]))
    avals = body.in_avals[layout.first_shared :]
    common = [
        jnp.broadcast_to(lanes.of(x), aval.shape)
        for x, aval in zip(shared, avals, strict=True)
    ]
    found = jaxpr_as_fun(body)(*own, *common)
    return [
        lanes.add(total, x, None if into is None else own[into[0]])
        for total, x, into in zip(totals, found, layout.into, strict=True)
    ]


@each_p.def_impl
def _impl(*args, body, layout):
    return _run(body, layout, args)


def _result_shapes(body: ClosedJaxpr, layout: _Layout, batch) -> list[tuple[int, ...]]:
    """Return the shapes of the sums."""
    shapes = []
    for aval, into in zip(body.out_avals, layout.into, strict=True):
        own = aval.shape
        if layout.lanes is not None:
            shared = into is None and own[-1] == 1
            own = (*own[:-1], *((1 for _ in batch) if shared else batch))
        shapes.append(own if into is None else (into[1], *own[1:]))
    return shapes


@each_p.def_abstract_eval
def _abstract_eval(*args, body, layout):
    shapes = _result_shapes(body, layout, args[0].shape)
    pairs = zip(shapes, body.out_avals, strict=True)
    return [ShapedArray(shape, aval.dtype) for shape, aval in pairs]


def _batch(args, axes, *, body, layout):
    out = jax.vmap(lambda *xs: _run(body, layout, xs), axes, 0)(*args)
    return out, [0] * len(out)


def _jvp(primals, tangents, *, body, layout):
    out = _bind(body, layout, primals)
    moving = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    moving = [k for k in moving if k >= _TABLES]
    if not moving:
        return out, [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    tables = [k for k in moving if k < layout.first_shared]
    shared = [k for k in moving if k >= layout.first_shared]
    first, count = layout.first_shared, len(primals)

    def push(*xs):
        # Rows, tables, tangents of tables, shared arrays, and their tangents.
        cut = first + len(tables), count + len(tables)
        full = [*xs[:first], *xs[cut[0] : cut[1]]]
        rates = [*xs[first : cut[0]], *xs[cut[1] :]]

        def chosen(*own):
            given = list(full)
            for k, x in zip(moving, own, strict=True):
                given[k] = x
            return jaxpr_as_fun(body)(*given)

        return jax.jvp(chosen, [full[k] for k in moving], rates)[1]

    def arranged(values, rates):
        one, two = ([rates[k] for k in own] for own in (tables, shared))
        return [*values[:first], *one, *values[first:], *two]

    avals = body.in_avals
    new = jax.make_jaxpr(push)(*map(_shape, arranged(avals, avals)))
    places = (*layout.places, *(layout.places[k - _TABLES] for k in tables))
    made = dataclasses.replace(layout, places=places)
    return out, _bind(new, made, arranged(primals, tangents))


def _transpose(cotangents, *args, body, layout):
    linear = [k for k, x in enumerate(args) if ad.is_undefined_primal(x)]
    known = [k for k in range(1, len(args)) if k not in linear]
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    # Cotangents of what is added to tables are read like tables, the others are shared.
    spread = [k for k, into in enumerate(layout.into) if into is not None]
    summed = [k for k, into in enumerate(layout.into) if into is None]
    tables = [k for k in known if k < layout.first_shared]
    shared = [k for k in known if k >= layout.first_shared]
    avals, outs = body.in_avals, body.out_avals

    def pull(used, *xs):
        own = iter(xs)
        values = {0: used, **{k: next(own) for k in tables}}
        cts = {k: next(own) for k in spread}
        values.update({k: next(own) for k in shared})
        cts.update({k: next(own) for k in summed})

        def chosen(*unknown):
            full = {**values, **dict(zip(linear, unknown, strict=True))}
            return jaxpr_as_fun(body)(*(full[k] for k in range(len(args))))

        back = jax.linear_transpose(chosen, *(_shape(avals[k]) for k in linear))
        return back([cts[k] for k in range(len(layout.into))])

    def arranged(values, cts):
        one, two = ([values[k] for k in own] for own in (tables, shared))
        return [
            values[0],
            *one,
            *(cts[k] for k in spread),
            *two,
            *(cts[k] for k in summed),
        ]

    new = jax.make_jaxpr(pull)(*map(_shape, arranged(avals, outs)))
    # Integers are known, so entries of tables are still at hand, at other places.
    moved = {k: 1 + number for number, k in enumerate(tables)}
    place_of = lambda k: moved[layout.places[k - _TABLES]]
    places = [place_of(k) for k in tables if k >= _TABLES]
    places += [moved[x[0]] for x in layout.into if x is not None]
    targets = [
        (place_of(k), args[k].aval.shape[0]) if k < layout.first_shared else None
        for k in linear
    ]
    made = _Layout(tuple(places), tuple(targets), layout.lanes)
    found = dict(zip(linear, _bind(new, made, arranged(args, given)), strict=True))
    return [
        _fit(found[k], x.aval.shape) if k in found else None for k, x in enumerate(args)
    ]


def _fit(x, shape):
    """Sum over the axes of the batch that an argument does not have."""
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1)
    return jnp.sum(x, axis=axes, keepdims=True) if axes else x


ad.primitive_jvps[each_p] = _jvp
ad.primitive_transposes[each_p] = _transpose
batching.primitive_batchers[each_p] = _batch
mlir.register_lowering(each_p, mlir.lower_fun(_impl, multiple_results=True))


# Rows of arrays whose numbers differ between environments.


def read_rows(x, numbers):
    """Return rows of each environment; `numbers`, `(k, *batch)`, are within bounds."""
    if are_rows_together() and math.prod(x.shape[1:]) == 1 and numbers.ndim >= x.ndim:
        # A gather from a short list, not from one that is repeated for the batch.
        rows = jnp.asarray(x).reshape(-1).at[numbers]
        return rows.get(mode="promise_in_bounds", wrap_negative_indices=False)
    batch = jnp.broadcast_shapes(x.shape[1:], numbers.shape[1:])
    # Tables that all environments share have no axes of the batch.
    own = x.reshape(*x.shape, *(1 for _ in numbers.shape[x.ndim :]))
    values = jnp.broadcast_to(own, (x.shape[0], *batch))
    rows = jnp.broadcast_to(numbers, (numbers.shape[0], *batch))
    return jnp.take_along_axis(values, rows, axis=0, mode="promise_in_bounds")


def read_rows_of(tree, numbers):
    """Return rows of all arrays of a tree."""
    return jtu.tree_map(lambda x: read_rows(x, numbers), tree)


def _places(x, numbers, when):
    """Return an index of rows of each environment, which lies outside where `when` does
    not hold."""
    shape = (numbers.shape[0], *x.shape[1:])
    others = jnp.indices(shape, dtype=jnp.int32, sparse=True)[1:]
    place = jnp.broadcast_to(jnp.where(when, numbers, x.shape[0]), shape)
    return x.at[(place, *others)]


def write_rows(x, numbers, values, when):
    """Replace rows of each environment, where `when` holds; all `(k, *batch)`."""
    values = jnp.broadcast_to(values, (numbers.shape[0], *x.shape[1:]))
    rows = _places(x, numbers, when)
    return rows.set(values, mode="drop", wrap_negative_indices=False)


def add_rows(x, numbers, values, when):
    """Add values to rows of each environment, where `when` holds; all `(k, *batch)`."""
    values = jnp.broadcast_to(values, (numbers.shape[0], *x.shape[1:]))
    rows = _places(x, numbers, when)
    return rows.add(values, mode="drop", wrap_negative_indices=False)


def table_rows(numbers, index):
    """Return entries of a list of known integers; `index`: `(k, *batch)`."""
    column = np.asarray(numbers, np.int32).reshape(-1, *(1 for _ in index.shape[1:]))
    return read_rows(jnp.asarray(column), index)
