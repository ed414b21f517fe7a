"""Integers and booleans, conversions between types, and literal operands."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from jax import lax
from kernels.harness import assert_close, assert_same, Kernel
from kernels.test_elementwise import (
    all_pairs,
    DTYPES,
    EXACT_BINARY,
    EXACT_UNARY,
    flushed,
    FUNCTIONS,
    FUNCTIONS_OF_TWO,
    special,
)


INTEGERS = tuple("i1 i2 i4 i8 u1 u2 u4 u8".split())
ALL = ("?", *INTEGERS, "f4", "f8")

UNARY = {
    "neg": lax.neg,
    "abs": jnp.abs,
    "sign": lax.sign,
    "not": lax.bitwise_not,
    "clz": lax.clz,
    "square": lax.square,
    "cube": lambda x: lax.integer_pow(x, 3),
    "div by 7": lambda x: lax.div(x, jnp.asarray(7, x.dtype)),
    "rem by 7": lambda x: lax.rem(x, jnp.asarray(7, x.dtype)),
    "div by 0": lambda x: lax.div(x, jnp.asarray(0, x.dtype)),
    "rem by 0": lambda x: lax.rem(x, jnp.asarray(0, x.dtype)),
    "div by max": lambda x: lax.div(x, jnp.asarray(jnp.iinfo(x.dtype).max, x.dtype)),
    "shift by 3": lambda x: lax.shift_left(x, jnp.asarray(3, x.dtype)),
}
BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
    "eq": lax.eq,
    "ne": lax.ne,
    "clamp": lambda x, y: lax.clamp(jnp.asarray(3, x.dtype), x, y),
    "floor_divide": lambda x, y: jnp.floor_divide(x, jnp.maximum(y, 1)),
}


def borders(dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    around = [info.min, info.min + 1, info.max - 1, info.max]
    counts = [info.bits - 1, info.bits, info.bits + 1]
    negative = [-1, -2, -7] if info.min else []
    return np.array([0, 1, 2, 3, 7, *around, *counts, *negative], dtype)


@ft.cache
def operations(dtype) -> Kernel:
    unary, binary = UNARY.values(), BINARY.values()
    return Kernel(lambda x, y: (*(f(x) for f in unary), *(f(x, y) for f in binary)))


def check(dtype, x, y) -> None:
    kernel = operations(dtype)
    assert_same(kernel(x, y), kernel.by_xla(x, y), [*UNARY, *BINARY], (x, y))


# Kernels beside XLA; `test_operations.py` checks the same operations in one program.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_integers(dtype, data):
    """Overflow, division by zero and shifts by too much are defined, as in XLA."""
    x, y = all_pairs(borders(dtype))
    more = [data.draw(hnp.arrays(dtype, 30, fill=st.nothing())) for _ in range(2)]
    check(dtype, np.concatenate([x, more[0]]), np.concatenate([y, more[1]]))


def test_booleans():
    def function(x, y):
        both = x & y, x | y, x ^ y, ~x, lax.max(x, y), lax.min(x, y), x == y, x != y
        return *both, lax.select(x, x, y), lax.select(x, y, ~y)

    x, y = all_pairs(np.array([False, True]))
    kernel = Kernel(function)
    assert_same(kernel(x, y), kernel.by_xla(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_integer_exponents(dtype):
    """Of an argument, of a literal, and larger than what is multiplied out."""

    def function(x, n):
        yield lax.pow(x, n)
        yield lax.pow(x, n.astype(np.uint8))
        yield lax.pow(x, jnp.int8(3))
        yield lax.pow(x, jnp.full_like(n, 12))
        yield lax.integer_pow(x, -7)
        yield lax.integer_pow(x, 19)

    x, n = all_pairs(np.arange(-4, 5))
    args = x.astype(dtype) / 2, n.astype(np.int32)
    kernel = Kernel(lambda *xs: tuple(function(*xs)))
    assert_close(kernel(*args), kernel.by_xla(*args))


def test_conversions():
    """Between all types: floats saturate, integers wrap around, NaN becomes 0."""
    generator, size, columns = np.random.default_rng(0), 48, []
    powers = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
    floats = [0, 0.5, 1.5, 2.7, 1e5, 1e9, 1e18, 1e30, 3e38, 16777217, *powers]
    floats = [*floats, *(x - 1 for x in powers[:4]), np.inf]
    floats = np.resize([*floats, *(-x for x in floats), np.nan], size)
    for dtype in ALL:
        if dtype == "?":
            columns.append(np.arange(size) % 2 == 0)
        elif dtype[0] == "f":
            columns.append(floats.astype(dtype))
        else:
            info, own = np.iinfo(dtype), borders(dtype)
            more = generator.integers(info.min, info.max, size - len(own), dtype)
            columns.append(np.concatenate([own, more]))
    pairs = [(k, dtype) for k in range(len(ALL)) for dtype in ALL]
    kernel = Kernel(
        lambda *xs: tuple(lax.convert_element_type(xs[k], t) for k, t in pairs)
    )
    names = [f"{ALL[k]} to {dtype}" for k, dtype in pairs]
    assert_same(kernel(*columns), kernel.by_xla(*columns), names, columns)


# Literals are computed while compiling, by other code than what is compiled.


def check_folded(dtype, tables, values) -> None:
    """Each operation on literals gives what it gives on arguments."""
    one = np.zeros(1, dtype)
    unary, binary = tables
    (x, y), arguments = values, all_pairs(values[1])

    def of_literals(_):
        found = [f(jnp.asarray(x)) for f in unary.values()]
        pairs = [jnp.asarray(z) for z in all_pairs(y)]
        return (*found, *(f(*pairs) for f in binary.values()))

    compiled = Kernel(lambda x: tuple(f(x) for f in unary.values()))(x)
    compiled += Kernel(lambda *xs: tuple(f(*xs) for f in binary.values()))(*arguments)
    folded = [flushed(z[0]) for z in Kernel(of_literals)(one)]
    names = [*unary, *binary]
    for name, a, b in zip(names, folded, map(flushed, compiled), strict=True):
        if name in FUNCTIONS or name in FUNCTIONS_OF_TWO:
            rtol = 20 * np.finfo(a.dtype).eps
            np.testing.assert_allclose(a, b, rtol, rtol, err_msg=name)
        else:
            assert_same([a], [b], [name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_literal_floats(dtype):
    unary = EXACT_UNARY | {name: entry[0] for name, entry in FUNCTIONS.items()}
    binary = EXACT_BINARY | {name: entry[0] for name, entry in FUNCTIONS_OF_TWO.items()}
    x = special(dtype)
    check_folded(dtype, (unary, binary), (x, x[::4]))


@pytest.mark.parametrize("dtype", ("i1", "i8", "u4", "u8"))
def test_literal_integers(dtype):
    x = borders(dtype)
    check_folded(dtype, (UNARY, BINARY), (x, x))


def test_literal_conversions():
    values = {"i4": borders("i4"), "u8": borders("u8"), "f8": special(np.float64)}

    def convert(x):
        return tuple(lax.convert_element_type(x, dtype) for dtype in ALL)

    for dtype, x in values.items():
        folded = Kernel(lambda _, x=x: convert(jnp.asarray(x)))(np.zeros(1, dtype))
        names = [f"{dtype} to {other}" for other in ALL]
        with np.errstate(over="ignore"):
            assert_same([z[0] for z in folded], Kernel(convert)(x), names, (x,))


def test_one_literal():
    """Zeros and ones are absorbed; a literal zero times anything is zero."""
    x = special(np.float32)
    zero, one, two = (jnp.float32(k) for k in (0, 1, 2))

    def function(x):
        first = x + zero, x - zero, x * one, x / one, x * -one, x / two, x * two
        return *first, zero + x, one * x, lax.pow(x, two), x > zero, lax.max(x, x)

    kernel = Kernel(function)
    got, expected = kernel(x), kernel.by_xla(x)
    signless = lambda found: [np.where(z == 0, np.abs(z), z) for z in found]
    assert_same(signless(got), signless(expected))
    (product,) = Kernel(lambda x: (zero * x,))(x)
    assert not product.any()


def test_division_by_a_literal():
    """Becomes a product with the inverse, also where that is denormal or infinite."""
    literals = (3.0, 7e-3, 3e38, 1e-38, np.float32(2e-45), 1e30)
    x = special(np.float32)
    kernel = Kernel(lambda x: tuple(x / jnp.float32(k) for k in literals))
    with np.errstate(all="ignore"):
        exact = [x / np.float32(k) for k in literals[:4]]
        for a, b in zip(kernel(x)[:4], exact, strict=True):
            np.testing.assert_allclose(flushed(a), flushed(b), 2e-7, 1.2e-38)


def test_iota():
    def function(x):
        flat = [lax.iota(dtype, 300) for dtype in ("i1", "u1", "i8", "f4")]
        return *flat, lax.broadcasted_iota("i4", (3, 4), 1), x

    kernel = Kernel(function)
    x = np.zeros(3, np.float32)
    assert_same(kernel(x), kernel.by_xla(x))


def test_select_among_many():
    def function(k, a, b, c):
        return lax.select_n(k, a, b, c), lax.select_n(k > 0, a, b)

    generator = jax.random.key(0)
    k = jax.random.randint(generator, (20, 5), 0, 3, np.int32)
    columns = [
        jax.random.normal(key, (20, 5)) for key in jax.random.split(generator, 3)
    ]
    kernel = Kernel(function)
    assert_same(kernel(k, *columns), kernel.by_xla(k, *columns))
