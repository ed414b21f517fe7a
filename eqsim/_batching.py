"""A JAX primitive for the physics of one environment.

`batch_last` turns a function into a primitive with its own batching and derivative
rules. Under `jax.vmap`, batch axes are appended at the end, and arguments that are not
batched get an axis of size one, so a robot shared by all environments costs nothing per
environment. The derivative of such a call is again such a call: a Jacobian-vector or
vector-Jacobian product of the same function. `vmap`, `jvp` and `vjp` therefore nest in
any order, and reverse mode recomputes intermediate values instead of storing them.

On the CPU a call becomes a kernel: the function is traced without batch axes, as the
program of one environment, and compiled for vectors of environments (`_kernels`). On
other devices, and if no kernel is available, the function is traced with trailing batch
axes and compiled by XLA. Functions may call other such functions, for example in a
rollout: the program of the inner call becomes part of the outer program.

A function given to `batch_last` takes and returns trees of arrays. All its arrays have
the same number of trailing batch axes (possibly none), each of size one or of the size
of the batch. It may only index, reduce and reshape leading axes.
"""

import dataclasses
import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun, Primitive
from jax.interpreters import ad, batching, mlir

from . import _kernels as kernels
from ._primitive import (
    AbstractPattern,
    AbstractPatterned,
    batch_shape,
    broadcast_batch,
    call_p,
    Cotangent,
    is_double,
    Known,
    known_values,
    output,
    partitioned,
    Pattern,
    Primal,
    rows_together,
    signature,
    Static,
    Tangent,
    traced,
    with_pattern,
)


def batch_last(fn: Callable) -> Callable:
    """Turn `fn` into one primitive call whose batch axes come last under all
    transformations.

    **Arguments:**

    - `fn`: module-level function, as described at the top of this module. Arguments
        that are not arrays must be hashable.

    **Returns:** a function with the same signature, for arrays without batch axes.
    """

    @ft.wraps(fn)
    def wrapper(*args):
        args = jtu.tree_map(_to_jax, args)
        dynamic, static = eqx.partition(args, eqx.is_array)
        leaves, treedef = jtu.tree_flatten(dynamic)
        known = known_values(args)
        call = Primal(fn, treedef, Static(*_hashable(static)), len(leaves), known)
        _, out_treedef = output(call, *signature(leaves))
        out = call_p.bind(*leaves, call=call, nbatch=0)
        out = jtu.tree_unflatten(out_treedef, out)
        if isinstance(out, AbstractPatterned) and _is_anything(known):
            out = with_pattern(out, ResultPattern(call, *signature(leaves)))
        return out

    return wrapper


def _is_anything(known: tuple[Known, ...]) -> bool:
    return any(part.pattern not in (None, Pattern()) for part in known)


@dataclasses.dataclass(frozen=True)
class ResultPattern(AbstractPattern):
    """Known zeros and ones of the results of a call, from those of its arguments.

    It is computed when a kernel is compiled that takes these results.

    - `call`, `shapes`, `x64`: the call, shapes and types of its arguments, and precision.
    """

    call: Primal
    shapes: tuple
    x64: bool

    @property
    def entries(self) -> tuple[bytes | None, ...]:
        return _resulting(self.call, self.shapes, self.x64)

    def __hash__(self) -> int:
        return hash((self.call.fn, self.call.num_fixed, self.x64))

    def __repr__(self) -> str:
        return f"ResultPattern({self.call.name})"


@ft.lru_cache(maxsize=512)
def _resulting(call: Primal, shapes, x64: bool) -> tuple[bytes | None, ...]:
    trace = lambda: _program(call, shapes, x64)
    program = kernels.Program(call.name, trace, shapes, call, call.patterns)
    try:
        return kernels.resulting_patterns(program)
    except kernels.Unsupported:
        return ()


def full_batch(first: tuple, *others):
    """Broadcast the arrays of `first` to the full batch. For use inside a function
    given to `batch_last`, where loops carry arrays. The first array of `first` must
    have exactly one axis that is not a batch axis."""
    nbatch = jtu.tree_leaves(first)[0].ndim - 1
    arrays = [x for x in jtu.tree_leaves((first, others)) if eqx.is_array(x)]
    batch = batch_shape(arrays, nbatch)
    return jtu.tree_map(lambda x: broadcast_batch(x, batch), first)


def _to_jax(leaf):
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _hashable(tree):
    leaves, treedef = jtu.tree_flatten(tree)
    return tuple(leaves), treedef


@ft.lru_cache(maxsize=1024)
def _compiled(call, nbatch: int, x64: bool):
    del x64
    return jax.jit(lambda *leaves: call_p.bind(*leaves, call=call, nbatch=nbatch))


@call_p.def_impl
def _impl(*leaves, call, nbatch):
    # A call is one operation, which is compiled, also while JAX compiles nothing else.
    with jax.disable_jit(False):
        return _compiled(call, nbatch, is_double())(*leaves)


@call_p.def_abstract_eval
def _abstract_eval(*leaves, call, nbatch):
    return call.out_shapes(leaves, nbatch)


def _batch(leaves, axes, *, call, nbatch):
    batched = tuple(axis is not None for axis in axes)
    if nbatch == 0 and isinstance(call, Primal) and not all(batched):
        waits = _depending(call, batched, *signature(_shapes(leaves, axes)))
        if not all(waits):
            return _batch_apart(leaves, axes, call, waits)
    return _batch_all(leaves, axes, call, nbatch)


def _shapes(leaves, axes) -> list[jax.ShapeDtypeStruct]:
    """Return the shapes of the arguments of one environment."""
    shape = lambda x, axis: x.shape[:axis] + x.shape[axis + 1 :]
    return [
        jax.ShapeDtypeStruct(x.shape if axis is None else shape(x, axis), x.dtype)
        for x, axis in zip(leaves, axes, strict=True)
    ]


@ft.lru_cache(maxsize=1024)
def _depending(call: Primal, batched, shapes, x64: bool) -> tuple[bool, ...]:
    """Determine which results of a call depend on the batched arguments."""
    closed = traced(call, shapes, x64)[0]
    return tuple(map(bool, kernels.dependence(closed.jaxpr, list(map(int, batched)))))


def _batch_apart(leaves, axes, call: Primal, waits):
    """Keep results that do not depend on batched arguments unbatched, such as the axes
    of robots that differ only in their masses."""
    own, shared = (
        tuple(k for k, wait in enumerate(waits) if wait is flag)
        for flag in (True, False)
    )
    number = lambda chosen: (
        chosen if call.chosen is None else tuple(call.chosen[k] for k in chosen)
    )
    part = lambda chosen: dataclasses.replace(call, chosen=number(chosen))
    out: list = [None] * len(waits)
    places: list = [None] * len(waits)
    # Nothing may be assumed about batched values.
    given = [
        leaf if axis is None else jnp.zeros(one.shape, one.dtype)
        for leaf, axis, one in zip(leaves, axes, _shapes(leaves, axes), strict=True)
    ]
    one = call_p.bind(*given, call=part(shared), nbatch=0)
    for k, x in zip(shared, one, strict=True):
        out[k] = x
    if own:
        found = zip(*_batch_all(leaves, axes, part(own), 0), strict=True)
        for k, (x, axis) in zip(own, found, strict=True):
            out[k], places[k] = x, axis
    return out, places


def _batch_all(leaves, axes, call, nbatch: int):
    moved = [
        jnp.expand_dims(leaf, -1) if axis is None else jnp.moveaxis(leaf, axis, -1)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    out = call_p.bind(*moved, call=call, nbatch=nbatch + 1)
    return out, [x.ndim - 1 for x in out]


def _jvp(primals, tangents, *, call, nbatch):
    out = call_p.bind(*primals, call=call, nbatch=nbatch)
    which = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    if not isinstance(call, Primal) and min(which) >= call.num_fixed:
        linear = [ad.instantiate_zeros(t) for t in tangents[call.num_fixed :]]
        fixed = primals[: call.num_fixed]
        return out, call_p.bind(*fixed, *linear, call=call, nbatch=nbatch)
    derivative = Tangent(call, which, len(primals))
    chosen = [tangents[i] for i in which]
    return out, call_p.bind(*primals, *chosen, call=derivative, nbatch=nbatch)


def _transpose(cotangents, *args, call, nbatch):
    # A call is linear in all of its tangents together, of which some may be known.
    unknown = [ad.is_undefined_primal(x) for x in args[call.num_fixed :]]
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    # JAX passes Python numbers if a user differentiates with respect to one.
    args = [jnp.asarray(x) if isinstance(x, float) else x for x in args]
    linear = call.transpose(args, cotangents, nbatch)
    wanted = (x if flag else None for x, flag in zip(linear, unknown, strict=True))
    return [None] * call.num_fixed + list(wanted)


batching.primitive_batchers[call_p] = _batch
ad.primitive_jvps[call_p] = _jvp
ad.primitive_transposes[call_p] = _transpose


def _run(*leaves, call, nbatch):
    with rows_together():
        return call(leaves, nbatch)


def _run_kernel(*leaves, call, nbatch):
    if kernels.enabled() and 0 not in batch_shape(leaves, nbatch):
        try:
            return _kernel(leaves, call, nbatch)
        except (kernels.Unsupported, kernels.CompileError) as error:
            kernels.note(call.name, str(error))
    return call(leaves, nbatch)


def _kernel(leaves, call, nbatch: int):
    single, out = call.single, call.out_shapes(leaves, nbatch)
    shapes = tuple((x.shape[: x.ndim - nbatch], x.dtype) for x in leaves)
    trace = lambda: _program(single, shapes, is_double())
    unknown = (None,) * (len(leaves) - len(call.patterns))
    patterns = (*call.patterns, *unknown)
    program = kernels.Program(call.name, trace, shapes, single, patterns)
    sums = call.sums or ((),) * len(out)
    return kernels.call(program, leaves, nbatch, out, sums)


def _program(single, shapes, x64: bool) -> kernels.Function:
    """Return the program of a call for one environment."""
    if isinstance(single, Primal):
        return kernels.Function(_complete(single, shapes, x64))
    closed = _jaxpr(single.call, shapes[: single.num_fixed], x64)
    if closed is None:
        return kernels.Function(_by_jax(single, shapes))
    if isinstance(single, Cotangent):
        return kernels.Function(closed, pulled=single.which)
    return kernels.Function(closed, pushed=single.which)


def _complete(call: Primal, shapes, x64: bool) -> ClosedJaxpr:
    """Return the program of a function, including the programs of calls in it."""
    return expanded(traced(call, shapes, x64)[0], ft.partial(_inner, x64=x64))


def _inner(call, shapes, x64: bool) -> ClosedJaxpr:
    """Return the program of a call within a program."""
    closed = _jaxpr(call, shapes, x64)
    return _by_jax(call, shapes) if closed is None else closed


def influences(fn: Callable, *args) -> list[np.ndarray]:
    """Return flags of the elements of all arrays of `args` that the floats which `fn`
    returns vary with: elements without a flag have no influence on them. Only shapes are
    used. If the kernel compiler does not support the function, all elements have a flag."""
    leaves, treedef = jtu.tree_flatten(args)
    program = ft.partial(_inner, x64=is_double())
    flat = lambda *leaves: jtu.tree_leaves(fn(*jtu.tree_unflatten(treedef, leaves)))
    try:
        closed = expanded(jax.make_jaxpr(flat)(*leaves), program)
        return kernels.influences(kernels.Function(closed))
    except kernels.Unsupported:
        return [np.ones(x.shape, bool) for x in leaves]


def _by_jax(single, shapes) -> ClosedJaxpr:
    given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    return jax.make_jaxpr(lambda *xs: single(xs, 0))(*given)


def _jaxpr(call, shapes, x64: bool) -> ClosedJaxpr | None:
    """Return the jaxpr of a call; None if it contains reverse mode, which has no
    jaxpr."""
    if isinstance(call, Primal):
        return _complete(call, shapes, x64)
    closed = None
    if isinstance(call, Tangent):
        closed = _jaxpr(call.call, shapes[: call.num_fixed], x64)
    if closed is None:
        return None
    given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    return jax.make_jaxpr(lambda *xs: _push(closed, call.which, xs))(*given)


def _push(closed: ClosedJaxpr, which: tuple[int, ...], leaves) -> list:
    """Compute the Jacobian-vector product of a function that has been traced
    already."""
    count = len(leaves) - len(which)
    fixed, tangents = list(leaves[:count]), list(leaves[count:])

    def chosen(*own):
        for k, leaf in zip(which, own, strict=True):
            fixed[k] = leaf
        return jaxpr_as_fun(closed)(*fixed)

    return jax.jvp(chosen, [fixed[k] for k in which], tangents)[1]


def _run_parts(*leaves, call, nbatch):
    part = lambda *xs: _part_p.bind(*xs, call=call, nbatch=nbatch)
    if nbatch == 0 or call.summed_axes or not _can_split:
        return part(*leaves)
    return partitioned(part, leaves, call.out_shapes(leaves, nbatch), nbatch)


# JAX passes the devices to a lowering rule only if the primitive is on this list.
try:
    from jax._src.dispatch import prim_requires_devices_during_lowering as _with_devices

    _with_devices.add(call_p)
    _can_split = True
except ImportError:
    _can_split = False

# The part of a call that one device computes.
_part_p = Primitive("batch_last_part")
_part_p.multiple_results = True
_part_p.def_abstract_eval(_abstract_eval)

mlir.register_lowering(call_p, mlir.lower_fun(_run_parts, multiple_results=True))
mlir.register_lowering(_part_p, mlir.lower_fun(_run, multiple_results=True))


def _lower_on_cpu(ctx, *leaves, **how):
    """Lower to a kernel; to XLA in a program that is exported, because it runs in
    processes and on machines that do not have the kernel."""
    exported = ctx.module_context.lowering_parameters.for_export
    run = _run if exported else _run_kernel
    return mlir.lower_fun(run, multiple_results=True)(ctx, *leaves, **how)


mlir.register_lowering(_part_p, _lower_on_cpu, platform="cpu")


# Calls within calls.


def over_batch(fn: Callable, nbatch: int, *args):
    """Map a function of one environment over trailing batch axes.

    Use it inside a function given to `batch_last`, for code that is easier to write
    without batch axes.

    **Arguments:**

    - `fn`: function of trees of arrays without batch axes.
    - `nbatch`: number of trailing batch axes of `args`, each of size one or of the size
        of the batch.

    **Returns:** the results, with trailing batch axes.
    """
    if nbatch == 0:
        return fn(*args)
    dynamic, static = eqx.partition(args, eqx.is_array)
    leaves, treedef = jtu.tree_flatten(dynamic)
    shared = [x.shape[-1] == 1 for x in leaves]
    axes = [None if one else -1 for one in shared]
    given = [x[..., 0] if one else x for x, one in zip(leaves, shared, strict=True)]

    def inner(*leaves):
        args = eqx.combine(jtu.tree_unflatten(treedef, leaves), static)
        return over_batch(fn, nbatch - 1, *args)

    if all(shared):
        return jtu.tree_map(lambda x: jnp.asarray(x)[..., None], inner(*given))
    return jax.vmap(inner, axes, -1)(*given)


def expanded(closed: ClosedJaxpr, program: Callable) -> ClosedJaxpr:
    """Replace the calls in a program, including those in its loops, by their programs.

    The expanded program is complete, so the hash for the kernel cache covers all of it.

    **Arguments:**

    - `closed`: the program.
    - `program`: function `(call, shapes) -> ClosedJaxpr` that returns the program of a
        call for one environment.

    **Raises:** `Unsupported` for a large batch of nested calls.
    """
    return ClosedJaxpr(_expanded(closed.jaxpr, program), closed.consts)


def _expanded(jaxpr: Jaxpr, program: Callable) -> Jaxpr:
    eqns = [_equation(eqn, program) for eqn in jaxpr.eqns]
    same = all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if same else jaxpr.replace(eqns=eqns)


def _equation(eqn, program: Callable):
    if eqn.primitive is call_p:
        call, nbatch = eqn.params["call"], eqn.params["nbatch"]
        shapes = tuple((var.aval.shape, var.aval.dtype) for var in eqn.invars)
        inner = _as_function(call, nbatch, shapes, program)
        given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
        (new,) = jax.make_jaxpr(jax.jit(inner))(*given).jaxpr.eqns
        return eqn.replace(primitive=new.primitive, params=new.params)
    new = {k: _inside(v, program) for k, v in eqn.params.items() if _has_programs(v)}
    same = all(eqn.params[k] is v for k, v in new.items())
    return eqn if same else eqn.replace(params=eqn.params | new)


_PROGRAMS = Jaxpr, ClosedJaxpr


def _has_programs(value) -> bool:
    """Return whether a parameter of an equation is a program, or several as the branches
    of `lax.cond`; most are numbers."""
    several = isinstance(value, tuple) and value and isinstance(value[0], _PROGRAMS)
    return bool(several) or isinstance(value, _PROGRAMS)


def _inside(value, program: Callable):
    if isinstance(value, Jaxpr):
        return _expanded(value, program)
    if isinstance(value, ClosedJaxpr):
        inner = _expanded(value.jaxpr, program)
        return value if inner is value.jaxpr else ClosedJaxpr(inner, value.consts)
    new = tuple(_inside(x, program) for x in value)
    same = all(x is y for x, y in zip(new, value, strict=True))
    return value if same else new


_LARGEST_BATCH = 32
"""Largest number of calls in a nested batch."""


def _as_function(call, nbatch: int, shapes, program: Callable) -> Callable:
    """Return a call as a function of arrays; the calls of a batch run one after
    another."""
    given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    batch = batch_shape(given, nbatch)
    if np.prod(batch, dtype=int) > _LARGEST_BATCH:
        raise kernels.Unsupported(f"a batch of {batch} calls within a call")
    own = tuple((x.shape[: x.ndim - nbatch], x.dtype) for x in given)
    single = jaxpr_as_fun(program(call.single, own))

    def run(*leaves):
        if nbatch == 0:
            return single(*leaves)
        indices = np.ndindex(*batch)
        each = [single(*(_entry(x, index) for x in leaves)) for index in indices]
        join = lambda *xs: jnp.stack(xs, -1).reshape(*xs[0].shape, *batch)
        return [join(*xs) for xs in zip(*each, strict=True)]

    return run


def _entry(x, index: tuple[int, ...]):
    """Return the part of an argument for one call of a batch."""
    sizes = x.shape[x.ndim - len(index) :]
    return x[(..., *(0 if n == 1 else k for k, n in zip(index, sizes, strict=True)))]
