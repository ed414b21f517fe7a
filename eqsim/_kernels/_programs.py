"""From a function of one environment to a call of its kernel on a batch.

`call` finds the layout of a batch, and gets the kernel of a program for it: from memory, from
the store on disk, or from the compiler (`_passes.py`, `_compile.py`). Functions that kernels
call are compiled in the background. `note` and `fallbacks` record what XLA compiles instead.
"""

import concurrent.futures
import contextlib
import dataclasses
import gc
import itertools
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._assumptions import pattern_of
from ._callees import Callee, SYMBOL
from ._compile import (
    CompileError,
    define,
    key_of,
    Loaded,
    machine,
    object_code,
    object_code_apart,
    store,
    stored,
)
from ._graph import Graph, LANE, LOOP
from ._llvm import LLVMModule
from ._passes import (
    callee_module,
    elements,
    Function,
    kernel_module,
    Layout,
    translated,
)
from ._translation import dtype_of, Unsupported


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one environment, and how a batch maps over it.

    **Arguments:**

    - `name`: used in messages.
    - `trace`: returns the function without batch axes.
    - `shapes`: shape and type of each argument without batch axes.
    - `key`: hashable; equal for programs whose functions are equal.
    - `patterns`: assumptions about each argument, valid if the batch shares it.
    """

    name: str
    trace: Callable[[], Function]
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    key: Any
    patterns: tuple[bytes | None, ...] = ()


# Fallbacks.


_LOG = logging.getLogger("eqsim.kernels")


def enabled() -> bool:
    """Return whether kernels are used; `EQSIM_KERNELS=off` switches them off."""
    text = os.environ.get("EQSIM_KERNELS", "on").lower()
    if text not in ("on", "off"):
        raise ValueError(f"`EQSIM_KERNELS` must be `on` or `off`, got {text!r}.")
    return text == "on"


_FALLBACKS: dict[str, str] = {}
_RECORDS: list[dict[str, str]] = []


def fallbacks() -> dict[str, str]:
    """Return the functions that XLA compiles instead, and the reasons."""
    return dict(_FALLBACKS)


@contextlib.contextmanager
def recorded_fallbacks() -> Iterator[dict[str, str]]:
    """Record fallbacks within a context: function and reason."""
    record: dict[str, str] = {}
    _RECORDS.append(record)
    try:
        yield record
    finally:
        _RECORDS.remove(record)


def note(name: str, reason: str) -> None:
    """Record, and log once, that a function falls back to XLA."""
    for record in _RECORDS:
        record[name] = reason
    if _FALLBACKS.get(name) != reason:
        _FALLBACKS[name] = reason
        _LOG.warning("eqsim: XLA compiles `%s` instead of a kernel: %s.", name, reason)


# Batches.


def call(
    program: Program,
    leaves: Sequence,
    nbatch: int,
    out: Sequence,
    summed: Sequence[tuple[int, ...]],
) -> list:
    """Call the kernel of a program on a batch.

    **Arguments:**

    - `leaves`: arguments with `nbatch` trailing batch axes, of size one where shared.
    - `out`: shapes and types of the results, with all batch axes.
    - `summed`: batch axes along which each result is a sum.

    **Raises:** `Unsupported` or `CompileError` if there is no kernel for it.
    """
    groups = _groups(leaves, nbatch, out, summed)
    if len(groups) > _MOST_GROUPS:
        return _call_with_common_axes(program, leaves, nbatch, out, summed)
    sizes = [size for size, _ in groups]
    if 0 in sizes:
        raise Unsupported("the batch is empty")
    own = [
        [leaf.shape[leaf.ndim - nbatch + axes[0]] != 1 for _, axes in groups]
        for leaf in leaves
    ]
    sums = [[axes[0] in s for _, axes in groups] for s in summed]
    width = machine().width(_main_type(program.shapes))
    order = _order(program.shapes, own, sizes, width)
    bits = {group: bit for group, (bit, _) in order.items()}
    nest = tuple(bit for bit, _ in sorted(order.values(), key=lambda x: x[1]))
    dep = lambda flags: sum(bits[g] for g, flag in enumerate(flags) if flag)
    everything = sum(bits.values())
    total = [bool(groups) and all(flags) for flags in sums]
    layout = Layout(
        nest,
        width if LANE in nest else 1,
        tuple(map(dep, own)),
        tuple(0 if t else everything for t in total),
        tuple(total),
        assumed(program, [not any(flags) for flags in own]),
    )
    kernel = _kernel(program, layout, out, nbatch)
    by_bit = {bit: sizes[group] for group, bit in bits.items()}
    axes = np.array([by_bit.get(LANE, 1), by_bit.get(LOOP, 1)], np.int32)
    swap = bits.get(0) == LANE and bits.get(1) == LOOP
    given = [
        _packed(leaf, nbatch, flags, sizes, swap)
        for leaf, flags in zip(leaves, own, strict=True)
    ]
    pairs = zip(given, kernel.reads, strict=True)
    found = kernel(axes, [x for x, read in pairs if read and x.size])
    return _unpacked(found, out, nbatch, layout, groups, sums, swap)


def _main_type(shapes) -> str:
    """Return the type of most numbers, which determines how many fit into a vector."""
    double = any(dtype == np.float64 for _, dtype in shapes)
    return "f8" if double else "f4"


def _groups(leaves, nbatch: int, out, summed) -> list[tuple[int, list[int]]]:
    """Return the size and the numbers of the axes of the batch. Neighbors that every
    argument and result either has or lacks together are merged."""
    found: list[tuple[int, list[int], tuple]] = []
    for axis in range(nbatch):
        has = [leaf.shape[leaf.ndim - nbatch + axis] for leaf in leaves]
        has += [x.shape[len(x.shape) - nbatch + axis] for x in out]
        size = next((n for n in has if n != 1), 1)
        if size == 1:
            continue
        pattern = tuple(n != 1 for n in has) + tuple(axis in s for s in summed)
        if found and found[-1][2] == pattern:
            found[-1][1].append(axis)
            found[-1] = (found[-1][0] * size, found[-1][1], pattern)
        else:
            found.append((size, [axis], pattern))
    return [(size, axes) for size, axes, _ in found]


_MOST_GROUPS = 2
"""Loops over the batch in a kernel."""


def _call_with_common_axes(program, leaves, nbatch: int, out, summed) -> list:
    """Repeat arguments along missing axes until two loops cover the batch, and sum
    afterwards. Neighbors are joined where that needs the least memory."""
    leaves, start = list(leaves), lambda x: len(x.shape) - nbatch
    sizes = [
        max(x.shape[start(x) + axis] for x in (*leaves, *out)) for axis in range(nbatch)
    ]
    full = [jax.ShapeDtypeStruct((*x.shape[: start(x)], *sizes), x.dtype) for x in out]
    alone = [()] * len(full)
    while len(groups := _groups(leaves, nbatch, full, alone)) > _MOST_GROUPS:
        choices = []
        for (_, one), (_, two) in itertools.pairwise(groups):
            shapes = [_joint_shape(x, sizes, (*one, *two)) for x in leaves]
            choices.append((sum(map(math.prod, shapes)), shapes))
        pairs = zip(leaves, min(choices)[1], strict=True)
        leaves = [jnp.broadcast_to(leaf, shape) for leaf, shape in pairs]
    found = call(program, leaves, nbatch, full, alone)
    return [
        jnp.sum(x, tuple(start(x) + k for k in axes), keepdims=True) if axes else x
        for x, axes in zip(found, summed, strict=True)
    ]


def _joint_shape(leaf, sizes: list[int], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an argument that has all of some axes if it has one of them."""
    start, shape = leaf.ndim - len(sizes), list(leaf.shape)
    if any(shape[start + axis] != 1 for axis in axes):
        for axis in axes:
            shape[start + axis] = sizes[axis]
    return tuple(shape)


_SCALAR_COST = 0.35
"""Time of an operation on one number, beside that on a vector."""


def _order(shapes, own, sizes, width: int) -> dict[int, tuple[int, int]]:
    """Return `LANE` or `LOOP` for each group of axes, and its place in the nest of
    loops.

    What only depends on the outer axis is computed once for all passes of the inner
    one: the outer axis is that with more arguments of its own.
    """
    if len(sizes) < 2:
        return {group: (LANE, 0) for group in range(len(sizes))}
    alone = [0, 0]
    for (shape, _), flags in zip(shapes, own, strict=True):
        if sum(flags) == 1:
            alone[flags.index(True)] += math.prod(shape)
    outer = 0 if alone[0] >= alone[1] else 1
    inner = 1 - outer
    many, few = sizes[outer], sizes[inner]
    by_outer = -(-many // width) * (1 + few)
    by_inner = many * (_SCALAR_COST + -(-few // width))
    if by_outer <= by_inner:
        return {outer: (LANE, 0), inner: (LOOP, 1)}
    return {outer: (LOOP, 0), inner: (LANE, 1)}


def _packed(leaf, nbatch: int, flags, sizes, swap: bool):
    """Return an argument as `[rows, loops, lanes]`, without the axes that it lacks."""
    rows = math.prod(leaf.shape[: leaf.ndim - nbatch])
    shape = [rows, *(n for n, flag in zip(sizes, flags, strict=True) if flag)]
    leaf = leaf.reshape(shape)
    return jnp.swapaxes(leaf, 1, 2) if swap and len(shape) == 3 else leaf


def _unpacked(found, out, nbatch: int, layout, groups, sums, swap: bool) -> list:
    """Return the results in the shapes that the caller expects."""
    found, results = iter(found), []
    sizes = [size for size, _ in groups]
    for shape, total, flags in zip(out, layout.summed, sums, strict=True):
        if not math.prod(shape.shape):
            results.append(jnp.zeros(shape.shape, shape.dtype))
            continue
        x = next(found)
        if not total and groups:
            x = jnp.swapaxes(x, 1, 2) if swap else x
            if any(flags):
                axis = 1 + flags.index(True)
                x = jnp.sum(x.reshape(x.shape[0], *sizes), axis)
        results.append(x.reshape(shape.shape))
    return results


# Kernels.


class _Kernel:
    """A registered kernel. `reads` are flags of the arguments that it has."""

    def __init__(self, target: str, reads, layout: Layout, out):
        self.target, self.reads, self.layout, self.out = target, reads, layout, out

    def __call__(self, axes, leaves) -> list:
        lanes, loops = int(axes[0]), int(axes[1])
        results = []
        for (rows, dtype), dep in zip(self.out, self.layout.results, strict=True):
            if not rows:
                continue
            size = [rows]
            size += [loops] if dep & LOOP else []
            size += [lanes] if dep & LANE else []
            results.append(jax.ShapeDtypeStruct(tuple(size), dtype))
        return list(jax.ffi.ffi_call(self.target, results)(jnp.asarray(axes), *leaves))


_KERNELS: dict[Any, _Kernel | Exception] = {}


def _kernel(program: Program, layout: Layout, out, nbatch: int) -> _Kernel:
    """Return the kernel of a program, which is made once per process and layout."""
    key = program.key, program.shapes, layout, jax.config.read("jax_enable_x64")
    found = _KERNELS.get(key)
    if found is None:
        try:
            found = _make(program, layout, out, nbatch)
        except (Unsupported, CompileError) as error:
            found = error
        _KERNELS[key] = found
    if isinstance(found, Exception):
        # A copy: an exception that is raised again keeps the frames of all callers.
        raise type(found)(*found.args)
    return found


def _make(program: Program, layout: Layout, out, nbatch: int) -> _Kernel:
    target, reads = loaded(program, layout)
    rows = [(math.prod(x.shape[: len(x.shape) - nbatch]), x.dtype) for x in out]
    return _Kernel(target, reads, layout, rows)


# Machine code.


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Pause Python's cyclic garbage collector within a context. Building a program allocates
    about a million objects in use, which it would scan repeatedly."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


_LOCK = threading.Lock()
_LOADED: dict[str, Loaded] = {}


@without_collection()
def loaded(program: Program, layout: Layout) -> tuple[str, tuple[bool, ...]]:
    """Return the name under which XLA finds the kernel of a program, and flags of the
    arguments that it has."""
    function = program.trace()
    key = key_of(function.fingerprint, repr(layout))
    target = f"eqsim_{key}"
    with _LOCK:
        if target not in _LOADED:
            kernel = _load(key, lambda: kernel_module(function, layout, cost_of))
            if any(x and read for x, read in zip(layout.assumed, function.reads)):
                kernel.otherwise(_without_assumptions(program, layout))
            _LOADED[target] = kernel
            pointer = jax.ffi.pycapsule(kernel.pointer)
            jax.ffi.register_ffi_target(target, pointer, platform="cpu")
    return target, function.reads


def _without_assumptions(program: Program, layout: Layout) -> Callable[[], int]:
    """Return a function that compiles the same kernel without assumptions and returns
    its address, or zero if that fails. XLA's threads call it."""
    general = dataclasses.replace(layout, assumed=(None,) * len(layout.assumed))
    double = bool(jax.config.read("jax_enable_x64"))

    def make() -> int:
        try:
            with jax.enable_x64(double):
                return _LOADED[loaded(program, general)[0]].address
        except Exception:
            _LOG.exception("eqsim: `%s` cannot be compiled.", program.name)
            return 0

    return make


def _load(key: str, make: Callable[[], LLVMModule]) -> Loaded:
    """Return the machine code under a key: from the cache, or compiled now."""
    code = stored(key)
    if code is not None:
        try:
            return _linked(code)
        except CompileError:
            code = None
    code = object_code(make())
    store(key, code)
    return _linked(code)


def _linked(code: bytes) -> Loaded:
    link({name.decode() for name in re.findall(SYMBOL, code)})
    return Loaded(code)


# Machine code of functions that kernels call.


@dataclasses.dataclass
class _Code:
    """A function of this process.

    - `cost`: number of operations, those of loops twice.
    - `code`: the cost, a line, and the objects.
    """

    cost: int
    code: concurrent.futures.Future[bytes]
    loaded: Loaded | None = None


_CALLEE_LOCK = threading.RLock()
_KNOWN: dict[str, _Code] = {}
_COMPILERS = concurrent.futures.ThreadPoolExecutor(2, "eqsim-callees")


def cost_of(callee: Callee) -> int:
    """Return the number of operations of a function, whose machine code is made in the
    background."""
    symbol = callee.symbol
    with _CALLEE_LOCK:
        found = _KNOWN.get(symbol) or _from_disk(symbol)
        if found is None:
            module, cost = callee_module(callee, cost_of)
            found = _Code(cost, _COMPILERS.submit(_compiled, symbol, module, cost))
        _KNOWN[symbol] = found
    return found.cost


def link(symbols: Iterable[str]) -> None:
    """Let kernels find functions.

    **Raises:** `CompileError` if a function is neither known nor on disk.
    """
    with _CALLEE_LOCK:
        for symbol in symbols:
            found = _KNOWN.get(symbol) or _from_disk(symbol)
            if found is None:
                raise CompileError(f"the function {symbol} is not known")
            if found.loaded is None:
                code = found.code.result()
                found.loaded = Loaded(code[code.index(b"\n") + 1 :], symbol)
                define(symbol, found.loaded.address)
            _KNOWN[symbol] = found


def _from_disk(symbol: str) -> _Code | None:
    code = stored(symbol)
    if code is None:
        return None
    done = concurrent.futures.Future()
    done.set_result(code)
    return _Code(int(code[: code.index(b"\n")]), done)


def _compiled(symbol: str, module: LLVMModule, cost: int) -> bytes:
    code = b"%d\n%s" % (cost, object_code_apart(module))
    store(symbol, code)
    return code


# Assumptions about arguments and results.


def assumed(program: Program, shared) -> tuple[bytes | None, ...]:
    """Return the assumptions about each argument; `shared` is true for arguments that the
    batch shares."""
    patterns = program.patterns or (None,) * len(program.shapes)
    found = []
    for pattern, (shape, _), one in zip(patterns, program.shapes, shared, strict=True):
        fits = pattern is not None and len(pattern) == math.prod(shape)
        found.append(pattern if fits and one else None)
    return tuple(found)


def resulting_patterns(program: Program) -> tuple[bytes | None, ...]:
    """Derive patterns of the results of a program from those of its arguments.

    **Raises:** `Unsupported` if there is no kernel for it.
    """
    function, graph = program.trace(), Graph()
    known = assumed(program, [True] * len(program.shapes))
    *_, results = translated(graph, function, (0,) * len(known), known)
    found = []
    for aval, value in zip(function.results, results, strict=True):
        numbers = [graph.value.get(node, np.nan) for node in elements(graph, value)]
        floats = dtype_of(aval)[0] == "f"
        found.append(pattern_of(np.array(numbers, np.float64)) if floats else None)
    return tuple(found)
