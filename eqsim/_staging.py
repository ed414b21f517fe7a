"""Stages: parts of a computation that XLA compiles one by one on the CPU.

XLA's fusion copies a cheap operation into everything that uses it. In long chains of
spatial algebra, where each number is used several times, that multiplies the work many
times over, and compile time with it. A stage is a function that XLA is told not to
inline: what crosses its boundary is computed once and stored. The functions that are
stages are so short that copying inside them is cheap.

Short also means that XLA leaves them to one thread. It splits an operation with more
arithmetic than bytes between threads, and for the small arrays of a few links waking
them takes longer than the operation.

On other devices a stage is nothing but the function.
"""

import functools as ft
from collections.abc import Callable
from contextvars import ContextVar

import equinox as eqx
import jax
import jax.tree_util as jtu
from jax.experimental.xla_metadata import set_xla_metadata


_ACTIVE: ContextVar[bool] = ContextVar("eqsim_stages_active", default=False)


class staged:
    """Context in which stages are kept apart."""

    def __enter__(self):
        self.token = _ACTIVE.set(True)

    def __exit__(self, *_):
        _ACTIVE.reset(self.token)


def is_staged() -> bool:
    """Whether stages are kept apart: on the CPU."""
    return _ACTIVE.get()


def stage(fn: Callable) -> Callable:
    """Marks a function as a stage. Arguments that are not arrays must be hashable."""

    def call(static, leaves):
        treedef, rest = static
        args = eqx.combine(jtu.tree_unflatten(treedef, leaves), _restore(rest))
        # What JAX itself writes as a call, such as `jnp.where`, may be inlined.
        with set_xla_metadata(inlineable="true"):
            return fn(*args)

    call.__name__ = call.__qualname__ = fn.__name__.strip("_")
    call = jax.jit(call, static_argnums=0)

    @ft.wraps(fn)
    def wrapper(*args):
        if not _ACTIVE.get():
            return fn(*args)
        dynamic, rest = eqx.partition(args, eqx.is_array)
        leaves, treedef = jtu.tree_flatten(dynamic)
        rest_leaves, rest_treedef = jtu.tree_flatten(rest)
        with set_xla_metadata(inlineable="false"):
            return call((treedef, (tuple(rest_leaves), rest_treedef)), leaves)

    return wrapper


def _restore(rest):
    leaves, treedef = rest
    return jtu.tree_unflatten(treedef, leaves)
