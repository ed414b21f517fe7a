"""Sharding of batches, known zeros and ones of arrays, and calls of a function of one
environment with their derivatives: parameters of the primitive that `_batching` binds.
"""

import contextlib
import contextvars
import dataclasses
import functools as ft
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.custom_derivatives import SymbolicZero
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    custom_partitioning,
    SdyShardingRule,
)
from jax.extend.core import Primitive
from jax.interpreters import ad
from jax.sharding import NamedSharding, PartitionSpec

from . import _kernels as kernels


# Sharding: batches are split between devices without communication.
#
# A compiled function sees the whole batch, including its parts on other devices. XLA
# would partition every operation inside the loops of a step, so all devices would wait
# for the slowest one in every iteration. Here XLA is told that the parts of a batch are
# independent.


def along(linear: Callable, vectors: Sequence, axes: frozenset[int], nbatch: int):
    """Apply a linear function to vectors, mapped over some of their batch axes.

    **Arguments:**

    - `linear`: function of arrays whose batch axes in `axes` have size one.
    - `vectors`: its arguments, with all batch axes.
    """
    for k in axes:
        linear = _mapped(linear, k - nbatch)
    return tuple(linear(*vectors))


def _mapped(linear: Callable, axis: int) -> Callable:
    """Return `linear` mapped along an axis, counted from the end."""

    def one(xs):
        out = linear(*(jnp.expand_dims(x, axis) for x in xs))
        return [jnp.squeeze(x, axis) for x in out]

    def wrapper(*args):
        size = max(x.shape[axis] for x in args)
        front = [jnp.moveaxis(x, axis, 0) for x in args]
        front = [jnp.broadcast_to(x, (size, *x.shape[1:])) for x in front]
        return [jnp.moveaxis(x, 0, axis) for x in jax.vmap(one)(front)]

    return wrapper


def partitioned(fn: Callable, args: Sequence, out: Sequence, nbatch: int) -> tuple:
    """Call `fn` on the part of the batch that each device has.

    **Arguments:**

    - `fn`: function of arrays with `nbatch` trailing batch axes, each of size one or of
        the size of the batch.
    - `args`: its arguments, for the whole batch.
    - `out`: its results, as arrays or shapes.
    """

    def whole(*args):
        return tuple(fn(*args))

    def partition(mesh, args, results):
        # Arguments are sharded like the results: a batch axis is split in the same
        # way in all arrays, and no other axis is split.
        spec = results[0].sharding.spec
        first = len(results[0].shape) - nbatch
        cuts = [*spec, *(None for _ in results[0].shape)][first : first + nbatch]

        def sharding(x):
            batch = zip(cuts, x.shape[len(x.shape) - nbatch :], strict=True)
            event = [None] * (len(x.shape) - nbatch)
            entries = [*event, *(cut if n > 1 else None for cut, n in batch)]
            return NamedSharding(mesh, PartitionSpec(*entries))

        return mesh, whole, tuple(map(sharding, results)), tuple(map(sharding, args))

    split = custom_partitioning(whole)
    rule = lambda *_: _rule(args, out, nbatch)
    split.def_partition(partition, sharding_rule=rule)
    return split(*args)


def _rule(args, out, nbatch: int) -> SdyShardingRule:
    """Return the sharding rule: batch axes correspond to each other; all other axes are
    replicated."""
    names: list[str] = []

    def name(axis: int, size: int) -> str:
        """Return the name of an axis, counted from the first batch axis."""
        found = f"b{axis}" if axis >= 0 and size > 1 else f"e{len(names)}"
        if found not in names:
            names.append(found)
        return found

    def mapping(x) -> ArrayMapping:
        first = x.ndim - nbatch
        return ArrayMapping(*(name(k - first, n) for k, n in enumerate(x.shape)))

    operands, results = tuple(map(mapping, args)), tuple(map(mapping, out))
    kept = tuple(name for name in names if name.startswith("e"))
    return SdyShardingRule(operands, results, need_replication_factors=kept)


# Known zeros and ones.


class AbstractPattern:
    """Known zeros and ones of the arrays of a module: a hint to the kernel compiler.

    Kernels omit products with them. Every call compares the actual values
    (`_kernels/_assumptions.py`), so an outdated pattern costs time but does not change
    results. Compiled code depends on the pattern, so it is part of the structure of a
    module: patterns that differ are not equal.

    - `entries`: the pattern of each array, in the order of the leaves, or None.
    """

    entries: tuple[bytes | None, ...]


@dataclasses.dataclass(frozen=True)
class Pattern(AbstractPattern):
    """Known zeros and ones, found in the values of arrays. By default nothing is known."""

    entries: tuple[bytes | None, ...] = ()

    def __repr__(self) -> str:
        if not self.entries:
            return "Pattern()"
        code = zlib.crc32(repr(self.entries).encode())
        # JAX shows it where robots of different patterns are stacked.
        return f"Pattern({code:08x}, see System.without_pattern)"


class AbstractPatterned(eqx.Module):
    """A module that carries a pattern."""

    pattern: eqx.AbstractVar[AbstractPattern]


_T = TypeVar("_T", bound=AbstractPatterned)


def with_pattern(module: _T, pattern: AbstractPattern) -> _T:
    """Return the module with the given pattern."""
    # `__init__` is bypassed because it checks and converts fields, which may be
    # placeholders.
    new = object.__new__(type(module))
    for field in dataclasses.fields(module):
        object.__setattr__(new, field.name, vars(module).get(field.name))
    object.__setattr__(new, "pattern", pattern)
    return new


def patterned(module: _T) -> _T:
    """Return the module with the pattern of its current values."""
    leaves = jtu.tree_leaves(eqx.filter(module, eqx.is_array))
    return with_pattern(module, Pattern(tuple(map(_pattern, leaves))))


# Nothing is assumed about large arrays, such as mesh vertices, which kernels read
# from memory.
_LARGEST = 1024


def _pattern(leaf) -> bytes | None:
    if isinstance(leaf, Tracer) or leaf.size > _LARGEST:
        return None
    return kernels.pattern_of(np.asarray(leaf))


class Known(NamedTuple):
    """Known zeros and ones of some arguments of a call.

    - `pattern`: their pattern; None if there is none.
    - `size`: number of these arguments.
    """

    pattern: AbstractPattern | None
    size: int

    @property
    def entries(self) -> tuple[bytes | None, ...]:
        """The pattern of each argument; None for all if the pattern does not fit."""
        entries = () if self.pattern is None else self.pattern.entries
        return entries if len(entries) == self.size else (None,) * self.size


def known_values(tree: Any) -> tuple[Known, ...]:
    """Return the known zeros and ones of the arrays in a tree."""
    is_module = lambda x: isinstance(x, AbstractPatterned)
    return tuple(
        Known(
            part.pattern if is_module(part) else None,
            len(jtu.tree_leaves(eqx.filter(part, eqx.is_array))),
        )
        for part in jtu.tree_leaves(tree, is_leaf=is_module)
    )


# Calls of a function of one environment and their derivatives: parameters of the
# primitive of `batch_last` (see `_batching.py`).
#
# Each kind of call computes on arrays with trailing batch axes, returns the shapes of its
# results, and, if it is linear, has a transpose. Its code depends on the shapes of its
# arguments and on known zeros and ones among their values (`Pattern`).


_Leaves = tuple[Any, ...]

call_p = Primitive("batch_last")
call_p.multiple_results = True


@dataclasses.dataclass(frozen=True)
class Static:
    leaves: tuple[Hashable, ...]
    treedef: Any

    @property
    def tree(self):
        return jtu.tree_unflatten(self.treedef, self.leaves)


@dataclasses.dataclass(frozen=True)
class Primal:
    """The function itself. It is not linear in any argument.

    - `known`: known zeros and ones of the arguments.
    - `chosen`: indices of the results to return; None for all.
    """

    fn: Callable
    treedef: Any
    static: Static
    num_fixed: int
    known: tuple[Known, ...] = ()
    chosen: tuple[int, ...] | None = None

    @property
    def patterns(self) -> tuple[bytes | None, ...]:
        """Return the assumptions about each argument."""
        return tuple(entry for part in self.known for entry in part.entries)

    @property
    def summed_axes(self) -> frozenset[int]:
        """Return the batch axes over which results are summed, which parts of a batch
        do not complete."""
        return frozenset()

    @property
    def sums(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the batch axes over which each result is summed; None if there are
        none."""
        return None

    @property
    def single(self) -> "Primal":
        """Return the same call for one environment, without sums."""
        return self

    @property
    def name(self) -> str:
        """Describe the call, for messages."""
        return self.fn.__name__.strip("_")

    def arguments(self, leaves: _Leaves):
        return eqx.combine(jtu.tree_unflatten(self.treedef, leaves), self.static.tree)

    def results(self, leaves: _Leaves):
        """Compute the results of the function: a tree, or a list of the chosen
        results."""
        out = self.fn(*self.arguments(leaves))
        if self.chosen is None:
            return out
        found = jtu.tree_leaves(out)
        return [found[k] for k in self.chosen]

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        out = jtu.tree_leaves(self.results(leaves))
        batch = batch_shape(leaves, nbatch)
        return tuple(broadcast_batch(jnp.asarray(x), batch) for x in out)

    def out_shapes(self, leaves, nbatch):
        events = [(leaf.shape[: leaf.ndim - nbatch], leaf.dtype) for leaf in leaves]
        shapes, _ = output(self, tuple(events), is_double())
        batch = batch_shape(leaves, nbatch)
        return [ShapedArray(s.shape + batch, s.dtype) for s in shapes]


@dataclasses.dataclass(frozen=True)
class Tangent:
    """Jacobian-vector product of `call` along the arguments in `which`."""

    call: Any
    which: tuple[int, ...]
    num_fixed: int

    @property
    def summed_axes(self) -> frozenset[int]:
        return self.call.summed_axes

    @property
    def sums(self):
        return self.call.sums

    @property
    def single(self):
        return dataclasses.replace(self, call=self.call.single)

    @property
    def patterns(self):
        return self.call.patterns

    @property
    def name(self) -> str:
        return f"jvp({self.call.name})"

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        fixed, tangents = list(leaves[: self.num_fixed]), leaves[self.num_fixed :]
        shared = _shared(fixed, tangents, nbatch)
        for i, tangent in zip(self.which, tangents, strict=True):
            batch = batch_shape([fixed[i], tangent], nbatch)
            fixed[i] = broadcast_batch(fixed[i], _but_one(batch, shared))
        fn, primals = _restrict(self.call, fixed, self.which, nbatch)
        fit = lambda tangents: [
            jnp.broadcast_to(t, p.shape) for t, p in zip(tangents, primals, strict=True)
        ]
        if not shared:
            return jax.jvp(fn, primals, tuple(fit(tangents)))[1]
        _, push = jax.linearize(fn, *primals)
        return along(lambda *tangents: push(*fit(tangents)), tangents, shared, nbatch)

    def out_shapes(self, leaves, nbatch):
        fixed, tangents = list(leaves[: self.num_fixed]), leaves[self.num_fixed :]
        for i, tangent in zip(self.which, tangents, strict=True):
            batch = batch_shape([fixed[i], tangent], nbatch)
            fixed[i] = _with_batch(fixed[i], batch)
        return self.call.out_shapes(fixed, nbatch)

    def transpose(self, args, cotangents, nbatch):
        fixed, linear = args[: self.num_fixed], args[self.num_fixed :]
        batch = batch_shape([*fixed, *map(_aval, linear)], nbatch)
        summed = tuple(_singletons(_aval(x), batch) for x in linear)
        call = Cotangent(self.call, self.which, summed, self.num_fixed)
        return call_p.bind(*fixed, *cotangents, call=call, nbatch=nbatch)


@dataclasses.dataclass(frozen=True)
class Cotangent:
    """Vector-Jacobian product of `call` for the arguments in `which`.

    `summed[k]` lists the batch axes along which argument `which[k]` had size one when
    the product was taken. Its cotangent is summed over them.
    """

    call: Any
    which: tuple[int, ...]
    summed: tuple[tuple[int, ...], ...]
    num_fixed: int

    @property
    def summed_axes(self) -> frozenset[int]:
        return frozenset(k for summed in self.summed for k in summed)

    @property
    def sums(self):
        return self.summed

    @property
    def single(self):
        none = ((),) * len(self.which)
        return dataclasses.replace(self, call=self.call.single, summed=none)

    @property
    def patterns(self):
        return self.call.patterns

    @property
    def name(self) -> str:
        return f"vjp({self.call.name})"

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        fixed, cotangents = list(leaves[: self.num_fixed]), leaves[self.num_fixed :]
        shared = _shared(fixed, cotangents, nbatch) - self.summed_axes
        batch = _but_one(batch_shape(leaves, nbatch), shared)
        for i, summed in zip(self.which, self.summed, strict=True):
            fixed[i] = broadcast_batch(fixed[i], _but_one(batch, summed))
        fn, primals = _restrict(self.call, fixed, self.which, nbatch)
        out, pull = jax.vjp(fn, *primals)
        fit = lambda cotangents: tuple(
            jnp.broadcast_to(c, o.shape) for c, o in zip(cotangents, out, strict=True)
        )
        return along(lambda *each: pull(fit(each)), cotangents, shared, nbatch)

    def out_shapes(self, leaves, nbatch):
        batch = batch_shape(leaves, nbatch)
        shapes = []
        for i, summed in zip(self.which, self.summed, strict=True):
            sizes = tuple(1 if k in summed else n for k, n in enumerate(batch))
            shapes.append(_with_batch(leaves[i], sizes))
        return shapes

    def transpose(self, args, cotangents, nbatch):
        fixed, linear = args[: self.num_fixed], args[self.num_fixed :]
        call = Tangent(self.call, self.which, self.num_fixed)
        out = call_p.bind(*fixed, *cotangents, call=call, nbatch=nbatch)
        return [_sum_to(x, _aval(y).shape) for x, y in zip(out, linear, strict=True)]


def _shared(fixed, vectors, nbatch: int) -> frozenset[int]:
    """Return the batch axes that only vectors have: many vectors at one point."""
    point, full = batch_shape(fixed, nbatch), batch_shape(vectors, nbatch)
    return frozenset(k for k in range(nbatch) if point[k] == 1 < full[k])


def _but_one(batch, axes) -> tuple[int, ...]:
    return tuple(1 if k in axes else n for k, n in enumerate(batch))


def _restrict(call, leaves, which, nbatch):
    """Return `call` as a function of the arguments in `which`, and these arguments."""

    def fn(*chosen):
        full = list(leaves)
        for i, leaf in zip(which, chosen, strict=True):
            full[i] = leaf
        return call(tuple(full), nbatch)

    return fn, tuple(leaves[i] for i in which)


def batch_shape(leaves, nbatch: int) -> tuple[int, ...]:
    tails = [leaf.shape[leaf.ndim - nbatch :] for leaf in leaves]
    return tuple(
        next((n for n in sizes if n != 1), 1) for sizes in zip(*tails, strict=True)
    )


def broadcast_batch(leaf, batch):
    return jnp.broadcast_to(leaf, leaf.shape[: leaf.ndim - len(batch)] + batch)


def _with_batch(leaf, batch):
    event = leaf.shape[: leaf.ndim - len(batch)]
    return ShapedArray(event + batch, leaf.dtype)


def _singletons(leaf, batch) -> tuple[int, ...]:
    tail = leaf.shape[leaf.ndim - len(batch) :]
    return tuple(k for k, n in enumerate(batch) if tail[k] == 1 and n != 1)


def _sum_to(leaf, shape):
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and leaf.shape[k] != 1)
    return jnp.sum(leaf, axis=axes, keepdims=True) if axes else leaf


def _aval(leaf):
    return leaf.aval if ad.is_undefined_primal(leaf) else leaf


def signature(leaves):
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return shapes, is_double()


def is_double() -> bool:
    return bool(jax.config.read("jax_enable_x64"))


@ft.lru_cache(maxsize=4096)
def output(call: Primal, signature, x64: bool):
    """Return shapes and structure of the result of `call` without batch axes."""
    _, leaves, treedef = traced(call, signature, x64)
    return leaves, treedef


# Programs are large, so only recent ones are cached, which are about to be compiled.
@ft.lru_cache(maxsize=8)
@kernels.without_collection()
def traced(call: Primal, signature, x64: bool):
    """Return the program of one environment, with the shapes and structure of its
    results."""
    del x64
    given = [jax.ShapeDtypeStruct(*entry) for entry in signature]
    function = lambda *xs: call.results(xs)
    with rows_together(False):  # For kernels, whichever device asks first.
        closed, out = jax.make_jaxpr(function, return_shape=True)(*given)
    leaves, treedef = jtu.tree_flatten(out)
    return closed, leaves, treedef


def symbolic_jvp(fn: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """Return the Jacobian-vector product of a function for a rule of `jax.custom_jvp` with
    symbolic zeros: arguments without a tangent are not differentiated."""
    leaves, treedef = jtu.tree_flatten(primals)
    rates = treedef.flatten_up_to(tangents)
    moving = [k for k, rate in enumerate(rates) if not isinstance(rate, SymbolicZero)]

    def chosen(*own):
        full = list(leaves)
        for k, x in zip(moving, own, strict=True):
            full[k] = x
        return fn(*jtu.tree_unflatten(treedef, full))

    given = [leaves[k] for k in moving], [rates[k] for k in moving]
    return jax.jvp(chosen, *given)[1]


# Rows of lists.


_TOGETHER = contextvars.ContextVar("rows_together", default=False)


@contextlib.contextmanager
def rows_together(together: bool = True) -> Iterator[None]:
    """Choose whether functions vectorize over the rows of lists (`_lists.py`), within a
    context. Kernels visit one row after another."""
    before = _TOGETHER.set(together)
    try:
        yield
    finally:
        _TOGETHER.reset(before)


def are_rows_together() -> bool:
    """Return the choice of `rows_together`."""
    return _TOGETHER.get()
