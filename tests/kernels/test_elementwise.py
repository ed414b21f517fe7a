"""Element-wise operations on floats are those of XLA.

What is exact is compared bit for bit, also at NaN, infinities and signed zeros. XLA runs
with denormal numbers flushed to zero, or not, operation by operation: results that are
denormal count as zero, and functions are not compared at denormal arguments.
"""

import functools as ft
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from helpers import examples
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from jax import lax
from kernels.harness import assert_same, Kernel, same


DTYPES = (np.float32, np.float64)
EVEN, AWAY = lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO

EXACT_UNARY = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round_even": lambda x: lax.round(x, EVEN),
    "round_away": lambda x: lax.round(x, AWAY),
    "is_finite": lax.is_finite,
    "sqrt": lax.sqrt,
    "square": lax.square,
    "cube": lambda x: lax.integer_pow(x, 3),
    "inverse": lambda x: lax.integer_pow(x, -1),
    "isnan": jnp.isnan,
    "not": lambda x: jnp.logical_not(x > 0),
    "copy": lambda x: lax.optimization_barrier(jnp.copy(x)),
    "relu": lambda x: lax.select(x > 0, x, jnp.zeros_like(x)),
}
EXACT_BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "nextafter": lax.nextafter,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
    "eq": lax.eq,
    "ne": lax.ne,
    "clamp": lambda x, y: lax.clamp(jnp.asarray(-1, x.dtype), x, y),
    "select_n": lambda x, y: lax.select_n((x > y).astype(np.int32) * 2, x, y, x + y),
    "and": lambda x, y: (x > 0) & (y > 0),
    "or": lambda x, y: (x > 0) | (y > 0),
    "xor": lambda x, y: (x > 0) ^ (y > 0),
}
# How many units in the last place a function may be away from the exact value, or from
# what XLA computes. Beside their zeros, sine, cosine and lgamma may be further away.
FUNCTIONS = {
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x), 2),
    "cbrt": (lax.cbrt, np.cbrt, 2),
    "exp": (lax.exp, np.exp, 2),
    "exp2": (lax.exp2, np.exp2, 2),
    "expm1": (lax.expm1, np.expm1, 2),
    "log": (lax.log, np.log, 2),
    "log1p": (lax.log1p, np.log1p, 2),
    "logistic": (lax.logistic, lambda x: 1 / (1 + np.exp(-x)), 4),
    "sin": (lax.sin, np.sin, 2),
    "cos": (lax.cos, np.cos, 2),
    "tan": (lax.tan, np.tan, 2),
    "asin": (lax.asin, np.arcsin, 2),
    "acos": (lax.acos, np.arccos, 2),
    "atan": (lax.atan, np.arctan, 2),
    "sinh": (lax.sinh, np.sinh, 3),
    "cosh": (lax.cosh, np.cosh, 3),
    "tanh": (lax.tanh, np.tanh, 3),
    "asinh": (lax.asinh, np.arcsinh, 3),
    "acosh": (lax.acosh, np.arccosh, 3),
    "atanh": (lax.atanh, np.arctanh, 3),
    "erf": (lax.erf, np.vectorize(math.erf), 3),
    "erfc": (lax.erfc, np.vectorize(math.erfc), 8),
    "lgamma": (lax.lgamma, scipy.special.gammaln, 8),
}
FUNCTIONS_OF_TWO = {
    "pow": (lax.pow, np.power, 3),
    "atan2": (lax.atan2, np.arctan2, 3),
}


def special(dtype) -> np.ndarray:
    """Numbers at which operations have borders."""
    info = np.finfo(dtype)
    half = np.nextafter(dtype(0.5), dtype(0))
    odd = 2.0 ** (info.nmant) + 1
    positive = [0, 0.5, half, 1, 1.5, 2, 2.5, 3, 7, odd, 1e4, 1e6, 1e20, 88, 709]
    positive += [info.tiny, info.max, info.eps, np.inf, np.pi, np.pi / 2, 1e3 * np.pi]
    positive = np.array(positive, dtype)
    return np.concatenate([positive, -positive, np.array([np.nan], dtype)])


def denormals(dtype) -> np.ndarray:
    info = np.finfo(dtype)
    small = np.array([info.smallest_subnormal, info.tiny / 3], dtype)
    return np.concatenate([small, -small])


def numbers(dtype, size: int):
    width = 8 * np.dtype(dtype).itemsize
    elements = st.floats(width=width) | st.floats(-30, 30, width=width)
    return hnp.arrays(dtype, size, elements=elements, fill=st.nothing())


def flushed(x: np.ndarray) -> np.ndarray:
    """`x` with denormal numbers as zeros of their sign."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x)


def all_pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(x, len(x)), np.tile(x, len(x))


@ft.cache
def exact_unary(dtype) -> Kernel:
    return Kernel(lambda x: tuple(f(x) for f in EXACT_UNARY.values()))


@ft.cache
def exact_binary(dtype) -> Kernel:
    return Kernel(lambda x, y: tuple(f(x, y) for f in EXACT_BINARY.values()))


def check_exact(kernel: Kernel, names, *args) -> None:
    got, expected = (list(map(flushed, f(*args))) for f in (kernel, kernel.by_xla))
    assert_same(got, expected, list(names), args)


# Kernels beside XLA; `test_operations.py` checks the same operations in one program.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_exact(dtype, data):
    x, y = all_pairs(np.concatenate([special(dtype), denormals(dtype)]))
    x, y = (np.concatenate([own, data.draw(numbers(dtype, 40))]) for own in (x, y))
    check_exact(exact_unary(dtype), EXACT_UNARY, x)
    check_exact(exact_binary(dtype), EXACT_BINARY, x, y)


@ft.cache
def functions(dtype) -> Kernel:
    return Kernel(lambda x: tuple(f(x) for f, _, _ in FUNCTIONS.values()))


@ft.cache
def functions_of_two(dtype) -> Kernel:
    return Kernel(lambda x, y: tuple(f(x, y) for f, _, _ in FUNCTIONS_OF_TWO.values()))


def distance(x: np.ndarray, y: np.ndarray, dtype, least: float) -> np.ndarray:
    """Distance in units in the last place of `y`, or of `least`; zero where both are the
    same special number, infinite where only one is special."""
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    info = np.finfo(dtype)
    unit = np.maximum(np.abs(y), max(least, info.tiny)) * info.eps
    ordinary = np.isfinite(x) & np.isfinite(y)
    both = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(both, 0, np.where(ordinary, np.abs(x - y) / unit, np.inf))


def check_functions(kernel: Kernel, table, *args) -> None:
    """Near the result of XLA, or near the exact one."""
    dtype = args[0].dtype
    pairs = zip(kernel(*args), kernel.by_xla(*args), strict=True)
    for (name, (_, exact, most)), (got, xla) in zip(table.items(), pairs, strict=True):
        double = dtype == np.float32 or name in ("erf", "erfc", "lgamma")
        least = {"sin": 1e-3, "cos": 1e-3, "lgamma": 1.0}.get(name, 0.0)
        with np.errstate(all="ignore"):
            reference = exact(*(x.astype("f8" if double else "g") for x in args))
            reference = flushed(reference.astype(dtype))
            far = np.minimum(
                distance(flushed(got), reference, dtype, least),
                distance(flushed(got), flushed(xla), dtype, least),
            )
        wrong = far > most
        given = [x[wrong][:4].tolist() for x in args]
        shown = [x[wrong][:4].tolist() for x in (got, xla, reference)]
        assert not wrong.any(), f"{name}{given}: {shown}, {far[wrong][:4]} units"


# Kernels beside XLA; `test_operations.py` checks the same operations in one program.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_functions(dtype, data):
    draw = lambda: flushed(data.draw(numbers(dtype, 40)))
    x, y = (np.concatenate([own, draw()]) for own in all_pairs(special(dtype)))
    check_functions(functions(dtype), FUNCTIONS, x)
    check_functions(functions_of_two(dtype), FUNCTIONS_OF_TWO, x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_turns(dtype):
    """Near the zeros of sine and cosine, and for large angles."""
    turns = np.arange(-5000, 5000) * (np.pi / 2)
    angles = np.concatenate([turns, np.logspace(2, 20, 500), -np.logspace(2, 6, 500)])
    kernel = Kernel(lambda x: (lax.sin(x), lax.cos(x)))
    table = {name: FUNCTIONS[name] for name in ("sin", "cos")}
    check_functions(kernel, table, angles.astype(dtype))


def test_zeros_keep_their_sign():
    zeros = np.array([0.0, -0.0], np.float32)
    odd = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf")
    odd += ("expm1", "log1p", "cbrt")
    found = dict(zip(FUNCTIONS, functions(np.float32)(zeros), strict=True))
    for name in odd:
        assert same(found[name], zeros).all(), name


def test_results_do_not_depend_on_other_lanes():
    """Large angles take another way through sine and cosine, and exponents other than 1
    and 2 another one through powers: their neighbors must not follow."""

    def function(x, y):
        return lax.sin(x), lax.cos(x), lax.pow(x, y), lax.exp(x), lax.tanh(x)

    kernel = Kernel(function)
    generator = np.random.default_rng(0)
    x = generator.uniform(0.1, 10, 4096).astype(np.float32)
    for exponent in (1, 2, 0.7):
        y = np.full_like(x, exponent)
        alone = kernel(x, y)
        disturbed, other = x.copy(), y.copy()
        disturbed[::2], other[::2] = 1e6, 3.3
        together = kernel(disturbed, other)
        assert_same([a[1::2] for a in together], [a[1::2] for a in alone])
