"""Nested calls: functions for `batch_last` that call other such functions, for example
a rollout.

The program of the inner call becomes part of the outer program.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from . import _kernels as kernels
from ._calls import batch_shape, call_p


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
    params = {k: _parameter(v, program) for k, v in eqn.params.items()}
    same = all(params[k] is v for k, v in eqn.params.items())
    return eqn if same else eqn.replace(params=params)


def _parameter(value, program: Callable):
    if isinstance(value, Jaxpr):
        return _expanded(value, program)
    if isinstance(value, ClosedJaxpr):
        inner = _expanded(value.jaxpr, program)
        return value if inner is value.jaxpr else ClosedJaxpr(inner, value.consts)
    if isinstance(value, tuple):
        new = tuple(_parameter(x, program) for x in value)
        same = all(x is y for x, y in zip(new, value, strict=True))
        return value if same else new
    return value


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
