"""The physics of one environment as one JAX primitive.

`batch_last` turns a function into a primitive with rules of its own. Under `jax.vmap`,
batch axes are appended at the end, and arguments that are not batched get an axis of
size one, so that a robot which all environments share costs nothing per environment.
The derivative of such a call is again such a call: a Jacobian-vector or a
vector-Jacobian product of the same function. So `vmap`, `jvp` and `vjp` nest in any
order, and reverse mode recomputes what happened inside instead of storing it.

On the CPU a call becomes a kernel: the function is traced without batch axes, as the
program of one environment, and compiled for vectors of environments (`_kernels`). On
other devices, and where there is no kernel for it, the function is traced on arrays with
trailing batch axes, and XLA compiles it.

A function given to `batch_last` takes and returns trees of arrays. All its arrays carry
the same number of trailing batch axes (maybe none), each of size one or of the size of
the batch, and it may only index, reduce and reshape leading axes.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _kernels as kernels
from ._partitioning import along, partitioned


_Leaves = tuple[Any, ...]


def batch_last(fn: Callable) -> Callable:
    """Makes `fn` one call that keeps batch axes last, under every transformation.

    **Arguments:**

    - `fn`: as described at the top of this module. Must be a module-level function;
        what is not an array among its arguments must be hashable.

    **Returns:** a function with the same signature, on arrays without batch axes.
    """

    @ft.wraps(fn)
    def wrapper(*args):
        args = jtu.tree_map(_to_jax, args)
        dynamic, static = eqx.partition(args, eqx.is_array)
        leaves, treedef = jtu.tree_flatten(dynamic)
        call = _Primal(fn, treedef, _Static(*_hashable(static)), len(leaves))
        _, out_treedef = _output(call, *_signature(leaves))
        out = _call_p.bind(*leaves, call=call, nbatch=0)
        return jtu.tree_unflatten(out_treedef, out)

    return wrapper


def full_batch(first: tuple, *others):
    """Gives the arrays of `first` the batch axes of everything, for use inside a
    function given to `batch_last`, where loops carry arrays. The first array of `first`
    must have one axis that is not a batch axis."""
    nbatch = jtu.tree_leaves(first)[0].ndim - 1
    arrays = [x for x in jtu.tree_leaves((first, others)) if eqx.is_array(x)]
    batch = _batch_shape(arrays, nbatch)
    return jtu.tree_map(lambda x: _broadcast_batch(x, batch), first)


def _to_jax(leaf):
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _hashable(tree):
    leaves, treedef = jtu.tree_flatten(tree)
    return tuple(leaves), treedef


@dataclasses.dataclass(frozen=True)
class _Static:
    leaves: tuple[Hashable, ...]
    treedef: Any

    @property
    def tree(self):
        return jtu.tree_unflatten(self.treedef, self.leaves)


@dataclasses.dataclass(frozen=True)
class _Primal:
    """The function itself. None of its arguments enters linearly."""

    fn: Callable
    treedef: Any
    static: _Static
    num_fixed: int

    @property
    def summed_axes(self) -> frozenset[int]:
        """The batch axes along which results are sums: parts of a batch do not give
        them."""
        return frozenset()

    @property
    def sums(self) -> tuple[tuple[int, ...], ...] | None:
        """The batch axes along which each result is a sum; None if there are none."""
        return None

    @property
    def single(self) -> "_Primal":
        """The same of one environment: nothing is summed."""
        return self

    @property
    def name(self) -> str:
        """What is computed, for messages."""
        return self.fn.__name__.strip("_")

    def arguments(self, leaves: _Leaves):
        return eqx.combine(jtu.tree_unflatten(self.treedef, leaves), self.static.tree)

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        out = jtu.tree_leaves(self.fn(*self.arguments(leaves)))
        batch = _batch_shape(leaves, nbatch)
        return tuple(_broadcast_batch(jnp.asarray(x), batch) for x in out)

    def out_shapes(self, leaves, nbatch):
        events = [(leaf.shape[: leaf.ndim - nbatch], leaf.dtype) for leaf in leaves]
        shapes, _ = _output(self, tuple(events), _is_double())
        batch = _batch_shape(leaves, nbatch)
        return [ShapedArray(s.shape + batch, s.dtype) for s in shapes]


@dataclasses.dataclass(frozen=True)
class _Tangent:
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
    def name(self) -> str:
        return f"jvp({self.call.name})"

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        fixed, tangents = list(leaves[: self.num_fixed]), leaves[self.num_fixed :]
        shared = _shared(fixed, tangents, nbatch)
        for i, tangent in zip(self.which, tangents, strict=True):
            batch = _batch_shape([fixed[i], tangent], nbatch)
            fixed[i] = _broadcast_batch(fixed[i], _but_one(batch, shared))
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
            batch = _batch_shape([fixed[i], tangent], nbatch)
            fixed[i] = _with_batch(fixed[i], batch)
        return self.call.out_shapes(fixed, nbatch)

    def transpose(self, args, cotangents, nbatch):
        fixed, linear = args[: self.num_fixed], args[self.num_fixed :]
        batch = _batch_shape([*fixed, *map(_aval, linear)], nbatch)
        summed = tuple(_singletons(_aval(x), batch) for x in linear)
        call = _Cotangent(self.call, self.which, summed, self.num_fixed)
        return _call_p.bind(*fixed, *cotangents, call=call, nbatch=nbatch)


@dataclasses.dataclass(frozen=True)
class _Cotangent:
    """Vector-Jacobian product of `call` for the arguments in `which`.

    `summed[k]` are the batch axes along which argument `which[k]` had size one when the
    product was taken: its cotangent is the sum along them.
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
    def name(self) -> str:
        return f"vjp({self.call.name})"

    def __call__(self, leaves: _Leaves, nbatch: int) -> _Leaves:
        fixed, cotangents = list(leaves[: self.num_fixed]), leaves[self.num_fixed :]
        shared = _shared(fixed, cotangents, nbatch) - self.summed_axes
        batch = _but_one(_batch_shape(leaves, nbatch), shared)
        for i, summed in zip(self.which, self.summed, strict=True):
            fixed[i] = _broadcast_batch(fixed[i], _but_one(batch, summed))
        fn, primals = _restrict(self.call, fixed, self.which, nbatch)
        out, pull = jax.vjp(fn, *primals)
        fit = lambda cotangents: tuple(
            jnp.broadcast_to(c, o.shape) for c, o in zip(cotangents, out, strict=True)
        )
        return along(lambda *each: pull(fit(each)), cotangents, shared, nbatch)

    def out_shapes(self, leaves, nbatch):
        batch = _batch_shape(leaves, nbatch)
        shapes = []
        for i, summed in zip(self.which, self.summed, strict=True):
            sizes = tuple(1 if k in summed else n for k, n in enumerate(batch))
            shapes.append(_with_batch(leaves[i], sizes))
        return shapes

    def transpose(self, args, cotangents, nbatch):
        fixed, linear = args[: self.num_fixed], args[self.num_fixed :]
        call = _Tangent(self.call, self.which, self.num_fixed)
        out = _call_p.bind(*fixed, *cotangents, call=call, nbatch=nbatch)
        return [_sum_to(x, _aval(y).shape) for x, y in zip(out, linear, strict=True)]


def _shared(fixed, vectors, nbatch: int) -> frozenset[int]:
    """The batch axes that only vectors have: many vectors meet at one point."""
    point, full = _batch_shape(fixed, nbatch), _batch_shape(vectors, nbatch)
    return frozenset(k for k in range(nbatch) if point[k] == 1 < full[k])


def _but_one(batch, axes) -> tuple[int, ...]:
    return tuple(1 if k in axes else n for k, n in enumerate(batch))


def _restrict(call, leaves, which, nbatch):
    """`call` as a function of the arguments in `which`, and those arguments."""

    def fn(*chosen):
        full = list(leaves)
        for i, leaf in zip(which, chosen, strict=True):
            full[i] = leaf
        return call(tuple(full), nbatch)

    return fn, tuple(leaves[i] for i in which)


def _batch_shape(leaves, nbatch: int) -> tuple[int, ...]:
    tails = [leaf.shape[leaf.ndim - nbatch :] for leaf in leaves]
    return tuple(
        next((n for n in sizes if n != 1), 1) for sizes in zip(*tails, strict=True)
    )


def _broadcast_batch(leaf, batch):
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


def _signature(leaves):
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return shapes, _is_double()


def _is_double() -> bool:
    return bool(jax.config.read("jax_enable_x64"))


def _output(call: _Primal, signature, x64: bool):
    """Shapes and structure of what `call` returns without batch axes."""
    _, leaves, treedef = _traced(call, signature, x64)
    return leaves, treedef


@ft.lru_cache(maxsize=512)
def _traced(call: _Primal, signature, x64: bool):
    """The program of one environment, and the shapes and structure of its results."""
    del x64
    given = [jax.ShapeDtypeStruct(*entry) for entry in signature]
    function = lambda *xs: call.fn(*call.arguments(xs))
    closed, out = jax.make_jaxpr(function, return_shape=True)(*given)
    leaves, treedef = jtu.tree_flatten(out)
    return closed, leaves, treedef


@ft.lru_cache(maxsize=1024)
def _compiled(call, nbatch: int, x64: bool):
    del x64
    return jax.jit(lambda *leaves: _call_p.bind(*leaves, call=call, nbatch=nbatch))


_call_p = Primitive("batch_last")
_call_p.multiple_results = True


@_call_p.def_impl
def _impl(*leaves, call, nbatch):
    return _compiled(call, nbatch, _is_double())(*leaves)


@_call_p.def_abstract_eval
def _abstract_eval(*leaves, call, nbatch):
    return call.out_shapes(leaves, nbatch)


def _batch(leaves, axes, *, call, nbatch):
    moved = [
        jnp.expand_dims(leaf, -1) if axis is None else jnp.moveaxis(leaf, axis, -1)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    out = _call_p.bind(*moved, call=call, nbatch=nbatch + 1)
    return out, [x.ndim - 1 for x in out]


def _jvp(primals, tangents, *, call, nbatch):
    out = _call_p.bind(*primals, call=call, nbatch=nbatch)
    which = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    if not isinstance(call, _Primal) and min(which) >= call.num_fixed:
        linear = [ad.instantiate_zeros(t) for t in tangents[call.num_fixed :]]
        fixed = primals[: call.num_fixed]
        return out, _call_p.bind(*fixed, *linear, call=call, nbatch=nbatch)
    derivative = _Tangent(call, which, len(primals))
    chosen = [tangents[i] for i in which]
    return out, _call_p.bind(*primals, *chosen, call=derivative, nbatch=nbatch)


def _transpose(cotangents, *args, call, nbatch):
    known = [i for i, x in enumerate(args) if not ad.is_undefined_primal(x)]
    if known != list(range(call.num_fixed)):
        raise NotImplementedError(
            "A batch_last call can only be transposed in all its tangents at once."
        )
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    linear = call.transpose(args, cotangents, nbatch)
    return [None] * call.num_fixed + list(linear)


batching.primitive_batchers[_call_p] = _batch
ad.primitive_jvps[_call_p] = _jvp
ad.primitive_transposes[_call_p] = _transpose


def _run(*leaves, call, nbatch):
    return call(leaves, nbatch)


def _run_kernel(*leaves, call, nbatch):
    if kernels.enabled() and 0 not in _batch_shape(leaves, nbatch):
        try:
            return _kernel(leaves, call, nbatch)
        except (kernels.Unsupported, kernels.CompileError) as error:
            kernels.note(call.name, str(error))
    return call(leaves, nbatch)


def _kernel(leaves, call, nbatch: int):
    single, out = call.single, call.out_shapes(leaves, nbatch)
    shapes = tuple((x.shape[: x.ndim - nbatch], x.dtype) for x in leaves)
    trace = lambda: _program(single, shapes, _is_double())
    program = kernels.Program(call.name, trace, shapes, single)
    sums = call.sums or ((),) * len(out)
    return kernels.call(program, leaves, nbatch, out, sums)


def _program(single, shapes, x64: bool):
    """The jaxpr of a call for one environment."""
    if isinstance(single, _Primal):
        return _traced(single, shapes, x64)[0]
    given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    return jax.make_jaxpr(lambda *xs: single(xs, 0))(*given)


def _run_parts(*leaves, call, nbatch):
    part = lambda *xs: _part_p.bind(*xs, call=call, nbatch=nbatch)
    if nbatch == 0 or call.summed_axes or not _can_split:
        return part(*leaves)
    return partitioned(part, leaves, call.out_shapes(leaves, nbatch), nbatch)


# JAX tells a lowering the devices only if the primitive is on a list of its own.
try:
    from jax._src.dispatch import prim_requires_devices_during_lowering as _with_devices

    _with_devices.add(_call_p)
    _can_split = True
except ImportError:
    _can_split = False

# What one device does of a call.
_part_p = Primitive("batch_last_part")
_part_p.multiple_results = True
_part_p.def_abstract_eval(_abstract_eval)

mlir.register_lowering(_call_p, mlir.lower_fun(_run_parts, multiple_results=True))
mlir.register_lowering(_part_p, mlir.lower_fun(_run, multiple_results=True))
mlir.register_lowering(
    _part_p, mlir.lower_fun(_run_kernel, multiple_results=True), platform="cpu"
)
