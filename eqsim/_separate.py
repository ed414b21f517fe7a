"""Functions that are compiled once, apart from the programs that call them.

A collider is the same function for every robot. `separate` makes the call of such a function
a single equation. Kernels call its machine code (`_kernels/_callees.py`), which is kept on
disk under the name of the function, so a known function is neither traced nor compiled
again. Elsewhere the function is traced in place.

Its Jacobian-vector and vector-Jacobian products are such functions, too.
"""

import abc
import dataclasses
import functools as ft
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from . import _kernels as kernels


_TABLE_ROWS = 1 << 30
"""Rows of a table while a function is traced for all lengths of its tables: no table has
more."""


@dataclasses.dataclass(frozen=True)
class Separate:
    """A function of flat arrays.

    - `fn`: function of trees of arrays, which returns a list of arrays.
    - `name`: digest of the code of `fn`; part of the identity.
    - `treedef`: structure of the trees.
    - `ends`: numbers of leaves up to the end of each tree except the last one.
    - `own`: shapes and types of these leaves.
    - `tables`: types of the leaves of the last tree, arrays whose first axis may have any
        length. The function reads rows within bounds.
    - `results`: shapes and types.
    """

    fn: Callable = dataclasses.field(compare=False)
    name: str
    treedef: Any
    ends: tuple[int, ...]
    own: tuple[tuple[tuple[int, ...], np.dtype], ...]
    tables: tuple[np.dtype, ...]
    results: tuple[tuple[tuple[int, ...], np.dtype], ...]

    def __call__(self, *leaves) -> list:
        found = self.fn(*jtu.tree_unflatten(self.treedef, leaves))
        return [
            jnp.broadcast_to(x, shape)
            for x, (shape, _) in zip(found, self.results, strict=True)
        ]

    @property
    def num_arguments(self) -> int:
        """Number of leaves of all trees."""
        return len(self.own) + len(self.tables)

    @property
    def floats(self) -> list[int]:
        """Results that have derivatives."""
        return [k for k, (_, dtype) in enumerate(self.results) if dtype.kind == "f"]

    @property
    def identity(self) -> str:
        """Text that is the same in every process for equal functions of one environment."""
        shapes = self.own, self.tables, self.results
        return f"{self.name} {self.treedef} {self.ends} {shapes}"

    def widened(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return all floats of the trees that hold some of the arguments. Derivatives by
        them share code."""
        end = min(end for end in self.ends if max(numbers) < end)
        return tuple(k for k in range(end) if self.own[k][1].kind == "f")

    def traced(self) -> ClosedJaxpr:
        """Return the function of one environment, for tables of any length."""
        given = [jax.ShapeDtypeStruct(*entry) for entry in self.own]
        given += [jax.ShapeDtypeStruct((_TABLE_ROWS,), dtype) for dtype in self.tables]
        return jax.make_jaxpr(self)(*given)


@dataclasses.dataclass(frozen=True)
class AbstractPart(abc.ABC):
    """A function, or one of its derivatives.

    - `call`: the function.
    - `moving`: arguments by which it is differentiated.
    """

    call: Separate
    moving: tuple[int, ...] = ()

    @property
    def has_tangents(self) -> bool:
        """True if tangents of the moving arguments follow the arguments."""
        return False

    def widened(self) -> "AbstractPart":
        """Return the derivative by more arguments that kernels compile instead."""
        wide = self.call.widened(self.moving) if self.moving else ()
        return dataclasses.replace(self, moving=wide)

    @abc.abstractmethod
    def __call__(self, *leaves) -> list:
        """Return the results, traced in place."""

    @abc.abstractmethod
    def out_avals(self, leaves) -> list[ShapedArray]:
        """Return the shapes and types of the results."""

    @abc.abstractmethod
    def program(self) -> kernels.Function:
        """Return the part for the kernel compiler, for tables of any length."""

    def pushed(self, moving: Sequence[int]) -> "AbstractPart | None":
        """Return the Jacobian-vector product by some arguments; None if it must be
        traced in place, as derivatives by tables are."""
        return None

    def pulled(self, moving: Sequence[int]) -> "AbstractPart | None":
        """Return the vector-Jacobian product by some arguments; None as in `pushed`."""
        return None

    def restricted(self, leaves) -> tuple[Callable, list]:
        """Return the differentiable results as a function of the moving arguments, and
        these arguments."""

        def fn(*chosen):
            full = list(leaves[: self.call.num_arguments])
            for k, x in zip(self.moving, chosen, strict=True):
                full[k] = x
            found = self.call(*full)
            return [found[k] for k in self.call.floats]

        return fn, [leaves[k] for k in self.moving]


class Value(AbstractPart):
    """The function itself."""

    def __call__(self, *leaves) -> list:
        return self.call(*leaves)

    def out_avals(self, leaves) -> list[ShapedArray]:
        return [ShapedArray(*entry) for entry in self.call.results]

    def program(self) -> kernels.Function:
        return kernels.Function(self.call.traced())

    def pushed(self, moving: Sequence[int]) -> AbstractPart | None:
        fits = max(moving) < len(self.call.own)
        return Push(self.call, tuple(moving)) if fits else None

    def pulled(self, moving: Sequence[int]) -> AbstractPart | None:
        fits = max(moving) < len(self.call.own)
        return Pull(self.call, tuple(moving)) if fits else None


class Push(AbstractPart):
    """The Jacobian-vector product: a function of the arguments and the tangents of the
    moving ones, which returns the tangents of the results that are floats."""

    def __call__(self, *leaves) -> list:
        fn, at = self.restricted(leaves)
        return jax.jvp(fn, at, list(leaves[self.call.num_arguments :]))[1]

    @property
    def has_tangents(self) -> bool:
        return True

    def out_avals(self, leaves) -> list[ShapedArray]:
        return [ShapedArray(*self.call.results[k]) for k in self.call.floats]

    def program(self) -> kernels.Function:
        return kernels.Function(self.call.traced(), pushed=self.moving)

    def pulled(self, moving: Sequence[int]) -> AbstractPart | None:
        first = self.call.num_arguments
        if min(moving) < first:
            return None
        return Value(self.call).pulled([self.moving[k - first] for k in moving])


class Pull(AbstractPart):
    """The vector-Jacobian product: a function of the arguments and the cotangents of the
    results that are floats, which returns the cotangents of the moving arguments."""

    def __call__(self, *leaves) -> list:
        fn, at = self.restricted(leaves)
        return list(jax.vjp(fn, *at)[1](list(leaves[self.call.num_arguments :])))

    def out_avals(self, leaves) -> list[ShapedArray]:
        return [ShapedArray(leaves[k].shape, leaves[k].dtype) for k in self.moving]

    def program(self) -> kernels.Function:
        return kernels.Function(self.call.traced(), pulled=self.moving)


def separate(
    fn: Callable, name: str, own: Sequence[Any], tables: Any, results: Sequence[Any]
) -> list:
    """Call a function that is compiled apart.

    **Arguments:**

    - `fn`, `name`: see `Separate`.
    - `own`, `tables`: its arguments. Derivatives by the first tree of `own` are most often
        needed, and have code of their own.
    - `results`: shapes and types of its results.
    """
    trees = [jtu.tree_leaves(tree) for tree in own]
    first, second = [x for tree in trees for x in tree], jtu.tree_leaves(tables)
    entries = lambda xs: tuple((tuple(x.shape), np.dtype(x.dtype)) for x in xs)
    call = Separate(
        fn=fn,
        name=name,
        treedef=jtu.tree_structure((*own, tables)),
        ends=tuple(itertools.accumulate(map(len, trees))),
        own=entries(first),
        tables=tuple(dtype for _, dtype in entries(second)),
        results=entries(results),
    )
    return separate_p.bind(*first, *second, part=Value(call))


separate_p = Primitive("separate")
separate_p.multiple_results = True


# A function is long: it is traced once for all its uses.
@ft.partial(jax.jit, static_argnums=0)
def _in_place(part: AbstractPart, *leaves) -> list:
    return part(*leaves)


@separate_p.def_impl
def _impl(*leaves, part):
    return _in_place(part, *leaves)


@separate_p.def_abstract_eval
def _abstract_eval(*leaves, part):
    return part.out_avals(leaves)


def _batch(leaves, axes, *, part):
    out = jax.vmap(ft.partial(_in_place, part), axes, 0)(*leaves)
    return out, [0] * len(out)


def _of_some(part: AbstractPart, leaves, numbers: Sequence[int]) -> Callable:
    """Return a part, traced in place, as a function of some arguments."""

    def fn(*own):
        full = list(leaves)
        for k, x in zip(numbers, own, strict=True):
            full[k] = x
        return _in_place(part, *full)

    return fn


def _jvp(primals, tangents, *, part):
    moving = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    rates = [tangents[k] for k in moving]
    push = part.pushed(moving)
    if push is None:
        fn = _of_some(part, primals, moving)
        return jax.jvp(fn, [primals[k] for k in moving], rates)
    out = separate_p.bind(*primals, part=part)
    found = iter(separate_p.bind(*primals, *rates, part=push))
    zero = lambda x: ad.Zero(jax.typeof(x).to_tangent_aval())
    floats = part.call.floats
    return out, [next(found) if k in floats else zero(x) for k, x in enumerate(out)]


def _transpose(cotangents, *leaves, part):
    linear = [k for k, x in enumerate(leaves) if ad.is_undefined_primal(x)]
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    pull = part.pulled(linear)
    if pull is None:
        avals = [leaves[k].aval for k in linear]
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]
        found = jax.linear_transpose(_of_some(part, leaves, linear), *shapes)(given)
    else:
        primals = leaves[: part.call.num_arguments]
        found = separate_p.bind(*primals, *given, part=pull)
    own = dict(zip(linear, found, strict=True))
    return [own.get(k) for k in range(len(leaves))]


ad.primitive_jvps[separate_p] = _jvp
ad.primitive_transposes[separate_p] = _transpose
batching.primitive_batchers[separate_p] = _batch
mlir.register_lowering(separate_p, mlir.lower_fun(_impl, multiple_results=True))
