"""Functions for `batch_last` that call others, such as a rollout of many steps.

Importing this module teaches the kernel compiler calls within calls: the program of the
inner one becomes part of the outer one.
"""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from . import _kernels as kernels
from ._batching import jaxpr_of
from ._calls import batch_shape, is_double


def over_batch(fn: Callable, nbatch: int, *args):
    """Map a function of one environment over trailing batch axes.

    For use inside a function given to `batch_last` that is easier to write without them.

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


@kernels.rule("batch_last")
def _nested(walk, eqn, *operands):
    leaves, nbatch = [var.aval for var in eqn.invars], eqn.params["nbatch"]
    shapes = tuple((x.shape, x.dtype) for x in leaves)
    closed = _inlined(eqn.params["call"], nbatch, shapes, is_double())
    return walk.closed(closed, list(operands))


_LARGEST_BATCH = 32
"""Calls in a batch within a call, at most."""


@ft.lru_cache(maxsize=64)
def _inlined(call, nbatch: int, shapes, x64: bool) -> ClosedJaxpr:
    """A call as a program of its own; a batch one after another."""
    given = [jax.ShapeDtypeStruct(*entry) for entry in shapes]
    batch = batch_shape(given, nbatch)
    if np.prod(batch, dtype=int) > _LARGEST_BATCH:
        raise kernels.Unsupported(f"a batch of {batch} calls within a call")
    own = tuple((x.shape[: x.ndim - nbatch], x.dtype) for x in given)
    closed = jaxpr_of(call.single, own, x64)

    def run(*leaves):
        if nbatch == 0:
            return jaxpr_as_fun(closed)(*leaves)
        each = [
            jaxpr_as_fun(closed)(*(_entry(x, index) for x in leaves))
            for index in np.ndindex(*batch)
        ]
        join = lambda *xs: jnp.stack(xs, -1).reshape(*xs[0].shape, *batch)
        return [join(*xs) for xs in zip(*each, strict=True)]

    return jax.make_jaxpr(run)(*given)


def _entry(x, index: tuple[int, ...]):
    """The part of an argument that one call of a batch gets."""
    sizes = x.shape[x.ndim - len(index) :]
    return x[(..., *(0 if n == 1 else k for k, n in zip(index, sizes, strict=True)))]
