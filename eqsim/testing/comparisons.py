"""Requirements of the laws of the conformance kit: equal trees, equal shapes, finite values,
unchanged programs, and derivatives that agree with finite differences.

`tree_allclose` and `check_gradients` are also for tests outside the kit. The file reads in
this order: comparison of trees; requirements, which raise `AssertionError` with what
differs; comparison of forward mode, reverse mode and central differences.
"""

import collections
import contextlib
import dataclasses
import functools as ft
import io
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from .._errors import is_key


class Comparison:
    """Result of a comparison, true or false, with the differences, which pytest prints
    when an `assert` fails.

    **Arguments:**

    - `differences`: one line for each difference; empty if the trees are close.
    """

    def __init__(self, differences: list[str]):
        self.differences = differences

    def __bool__(self):
        return not self.differences

    def __repr__(self):
        return "equal" if self else " | ".join(self.differences)


def tree_allclose(
    x: Any, y: Any, *, rtol: float | int = 1e-8, atol: float | int = 1e-8
) -> Comparison:
    r"""Compare structure, shapes, dtypes and values of two trees.

    Values are close if $|x - y| \le \mathrm{atol} + \mathrm{rtol}\,|y|$; NaN is equal
    to NaN. Leaves that are not floating point must be equal.

    **Arguments:**

    - `x`, `y`: trees of arrays, numbers and other leaves.
    - `rtol`, `atol`: relative and absolute tolerance.

    **Returns:** a `Comparison`, for `assert`.
    """
    x_leaves, x_structure = jtu.tree_flatten_with_path(x)
    y_leaves, y_structure = jtu.tree_flatten_with_path(y)
    if x_structure != y_structure:
        return Comparison([f"structures differ: {x_structure} != {y_structure}"])
    pairs = zip(x_leaves, y_leaves, strict=True)
    named = ((leaf_name(path), a, b) for (path, a), (_, b) in pairs)
    found = (_difference(name, a, b, rtol, atol) for name, a, b in named)
    return Comparison([line for line in found if line])


def same_shapes(x: Any, y: Any) -> Comparison:
    """Compare structure, shapes and dtypes of two trees, which a compiled loop requires
    to be equal.

    **Arguments:**

    - `x`, `y`: trees of arrays, or results of `equinox.filter_eval_shape`; leaves that
        are not arrays must be equal.
    """
    x_leaves, x_structure = jtu.tree_flatten_with_path(x)
    y_leaves, y_structure = jtu.tree_flatten_with_path(y)
    if x_structure != y_structure:
        return Comparison([f"structures differ: {x_structure} != {y_structure}"])
    differences = []
    for (path, a), (_, b) in zip(x_leaves, y_leaves, strict=True):
        one, other = describe(a), describe(b)
        if one != other:
            differences.append(f"{leaf_name(path)}: {one} != {other}")
    return Comparison(differences)


def describe(leaf: Any) -> str:
    """Describe type and shape of an array, or any other leaf."""
    if not (eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)):
        return f"{leaf!r}, not an array"
    # Python numbers have weak types, which loops and program caches distinguish from
    # array types.
    weak = " of weak type" if leaf.weak_type else ""
    return f"{leaf.dtype}{list(leaf.shape)}{weak}"


def leaf_name(path: Any) -> str:
    """Return the path of a leaf in its tree, as a Python expression."""
    return jtu.keystr(path) or "value"


def _difference(name: str, x: Any, y: Any, rtol: float | int, atol: float | int) -> str:
    if is_key(x) and is_key(y) and x.dtype == y.dtype:
        x, y = jr.key_data(x), jr.key_data(y)
    if not (eqx.is_array_like(x) and eqx.is_array_like(y)):
        return "" if x is y or x == y else f"{name}: {x!r} != {y!r}"
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype}{x.shape} != {y.dtype}{y.shape}"
    if not np.issubdtype(x.dtype, np.inexact):
        return "" if np.array_equal(x, y) else f"{name}: {x} != {y}"
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(close):
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return (
        f"{name}: {np.sum(~close)} of {x.size} differ, the first at {at}: {x[at]} != "
        f"{y[at]}; largest difference {np.max(np.abs(x - y))}"
    )


# --- Requirements ---


class NotApplicable(Exception):
    """A check has no meaning for an object.

    **Arguments:**

    - `reason`: reason, in words.
    - `blocked`: true if the reason is that another check fails.
    """

    def __init__(self, reason: str, blocked: bool = False):
        self.reason, self.blocked = reason, blocked

    def __str__(self) -> str:
        return self.reason


def require(condition: Any, message: str) -> None:
    """Raise `AssertionError` unless the condition is true."""
    if not condition:
        raise AssertionError(message)


def require_equal(what: str, x: Any, y: Any, tolerance: float = 0.0) -> None:
    """Raise `AssertionError` unless two trees are equal up to `tolerance`, relative to
    values above one."""
    comparison = tree_allclose(x, y, rtol=tolerance, atol=tolerance)
    require(comparison, f"{what}: {comparison}")


def rounding(tree: Any) -> float:
    """Return the relative error that a different order of operations may cause: the
    square root of the precision, $3 \\cdot 10^{-4}$ or $10^{-8}$."""
    precision = [
        float(jnp.finfo(x.dtype).eps)
        for x in jtu.tree_leaves(tree)
        if eqx.is_inexact_array(x)
    ]
    return max(precision, default=0.0) ** 0.5


def require_finite(what: str, tree: Any) -> None:
    """Raise `AssertionError` if a value in a tree is NaN or infinite."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if eqx.is_inexact_array(leaf) and not np.all(np.isfinite(leaf)):
            raise AssertionError(f"{what}{leaf_name(path)} is {leaf}")


@contextlib.contextmanager
def double_precision() -> Iterator[Callable[[Any], Any]]:
    """Enable double precision in JAX within the context; yield a function that converts
    the arrays of a tree."""
    with jax.enable_x64(True):
        yield lambda tree: in_precision(tree, jnp.float64)


def in_precision(tree: Any, dtype: Any) -> Any:
    """Return a tree whose floating-point arrays are converted to another precision."""

    def convert(x):
        if eqx.is_inexact_array(x):
            return jnp.asarray(np.asarray(x), dtype)
        return x if is_key(x) or not eqx.is_array(x) else jnp.asarray(np.asarray(x))

    return jtu.tree_map(convert, tree)


def moved(tree: Any, factor: float) -> Any:
    """Return a tree whose floating-point arrays are scaled: other values, and the same
    zeros."""
    # A Python number does not change a type, not even a weak one.
    return jtu.tree_map(lambda x: x * factor if eqx.is_inexact_array(x) else x, tree)


def require_arrays(what: str, tree: Any) -> None:
    """Raise `AssertionError` if a leaf is a Python number, or any other constant of
    compiled programs."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if isinstance(leaf, bool | int | float | complex | np.generic):
            raise AssertionError(
                f"{what}{leaf_name(path)} is the number {leaf!r} of "
                f"{'Python' if type(leaf).__module__ == 'builtins' else 'NumPy'}, every "
                "value of which compiles another program"
            )


def require_no_static_float(subject: eqx.Module) -> None:
    """Raise `AssertionError` if a static field of a module is a `float`."""
    for field in dataclasses.fields(subject):
        value = vars(subject).get(field.name)
        if field.metadata.get("static", False) and isinstance(value, float):
            raise AssertionError(
                f"the field `{field.name}` is static and contains {value!r}, every value of "
                "which compiles another program"
            )


def require_round_trip(what: str, tree: Any) -> None:
    """Raise `AssertionError` unless a tree is unchanged after it is saved by
    `equinox.tree_serialise_leaves` and loaded into a tree of zeros."""
    for path, leaf in jtu.tree_leaves_with_path(tree):
        if not (eqx.is_array_like(leaf) or callable(leaf)):
            raise AssertionError(
                f"{what}{leaf_name(path)} is {leaf!r}, which cannot be saved: it is neither "
                "an array nor static"
            )
    data = jtu.tree_map(lambda x: jr.key_data(x) if is_key(x) else x, tree)
    zeros = jtu.tree_map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, data)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, data)
    file.seek(0)
    require_equal(what, eqx.tree_deserialise_leaves(file, zeros), data)


def require_rebuild(subject: Any, build: Callable[[], Any] | None) -> None:
    """Raise `AssertionError` unless two objects that are built alike have the same
    hashable structure; `NotApplicable` if it is unknown how to build the object."""
    hash(jtu.tree_structure(subject))
    if build is None:
        build = type(subject)
        try:
            first = build()
        except TypeError as error:
            raise NotApplicable(
                f"`{build.__name__}` cannot be built without arguments; pass `build`"
            ) from error
    else:
        first = build()
    one, other = jtu.tree_structure(first), jtu.tree_structure(build())
    require(
        one == other,
        "two of them have different structures, so they do not share compiled programs: "
        f"{one} != {other}",
    )


_traced = collections.Counter()


def counted_jit(fn: Callable) -> Callable:
    """Apply `equinox.filter_jit`, and count how often a function is traced, and thus
    compiled."""

    @ft.wraps(fn)
    def traced(*args):
        _traced[fn.__name__] += 1
        return fn(*args)

    return eqx.filter_jit(traced)


@contextlib.contextmanager
def no_trace(fn: Callable, what: str) -> Iterator[None]:
    """Raise `AssertionError` if a function of `counted_jit` is traced within the
    context."""
    before = _traced[fn.__name__]
    yield
    again = _traced[fn.__name__] - before
    require(again == 0, f"`{fn.__name__.strip('_')}` was compiled again for {what}")


def same_program(fn: Callable, *args: Any) -> bool:
    """Test if tracing a function again gives the same program."""
    fresh = lambda: eqx.filter_jit(lambda *args: fn(*args)).lower(*args).as_text()
    return fresh() == fresh()


def require_precision(shapes: Callable[[Any], dict[str, Any]]) -> None:
    """Raise `AssertionError` unless results have the precision of the robot, with and
    without `jax_enable_x64`.

    **Arguments:**

    - `shapes`: function of a precision that returns shapes of results by name.
    """
    for x64, dtype in ((False, "float32"), (True, "float32"), (True, "float64")):
        # Types are read within the context: without x64, JAX reads float64 as float32.
        with jax.enable_x64(x64):
            found = _float_types(shapes(dtype))
        for where, got in found.items():
            require(
                got == dtype,
                f"{where} is {got} for a robot in {dtype}, "
                f"{'with' if x64 else 'without'} `jax_enable_x64`",
            )


def _float_types(trees: dict[str, Any]) -> dict[str, Any]:
    """Return types of floating-point arrays and of shapes of them, by name and path."""
    out = {}
    for name, tree in trees.items():
        for path, leaf in jtu.tree_leaves_with_path(tree):
            if eqx.is_array_like(leaf) or isinstance(leaf, jax.ShapeDtypeStruct):
                dtype = jnp.result_type(leaf)
                if jnp.issubdtype(dtype, jnp.inexact):
                    out[f"`{name}`: {jtu.keystr(path)}"] = dtype
    return out


def row_of(batch: Any, k: int) -> Any:
    """Return one row of a batch of trees."""
    return jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, batch)


# --- Derivatives ---


def check_gradients(
    fn: Callable,
    *args: Any,
    order: int = 1,
    eps: float | int = 1e-6,
    rtol: float | int = 1e-5,
    atol: float | int = 1e-7,
    seed: int = 0,
) -> dict[str, float]:
    """Check that forward mode, reverse mode and central differences agree.

    Every floating-point array in `args` is varied separately along a random direction,
    by `eps` times its largest absolute value (or by `eps` if all entries are zero), so
    that a large derivative cannot hide an error in a small one. Double precision is
    required.

    **Arguments:**

    - `fn`: function of pytrees; only their floating-point arrays are compared.
    - `order`: order of derivatives to check; 2 also checks the derivatives of both
        modes.
    - `eps`: half the distance between the points of a central difference.
    - `rtol`, `atol`: tolerances, relative to and added to the largest entry of an
        output array.
    - `seed`: seed of the directions.

    **Returns:** the largest derivative with respect to each array, by name, so that a
    test can assert which ones are nonzero.

    **Raises:** `AssertionError` with the name of the array whose derivative is wrong;
    `TypeError` if an array is not in double precision.
    """
    function = Function.of(fn, *args)
    largest = compare(function, eps=eps, rtol=rtol, atol=atol, seed=seed)
    if order > 1:
        rng = np.random.default_rng(seed)
        cotangents = [_direction(rng, y, 1.0) for y in function.value(function.leaves)]
        ones = [_direction(rng, x, 1.0) for x in function.leaves]
        options: dict[str, Any] = dict(order=order - 1, seed=seed + 1)
        options |= dict(eps=eps, rtol=rtol, atol=atol)
        check_gradients(
            lambda *xs: function.push(list(xs), ones), *function.leaves, **options
        )
        check_gradients(
            lambda *xs: function.pull(list(xs), cotangents), *function.leaves, **options
        )
    return largest


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of floating-point arrays with its derivatives. Equal functions of
    arguments of the same structure share compiled programs.

    - `leaves`, `names`: the arrays, and their paths in the arguments.
    - `value`, `push`, `pull`: results, forward mode and reverse mode, as functions of
        such lists of arrays, and of tangents or cotangents.
    """

    fn: Callable
    leaves: list[jax.Array]
    names: list[str]
    value: Callable
    push: Callable
    pull: Callable

    @staticmethod
    def of(fn: Callable, *args: Any) -> "Function":
        """Create the function at some arguments."""
        paths, structure = jtu.tree_flatten_with_path(_to_jax(args))
        names, leaves = zip(*((leaf_name(path), x) for path, x in paths), strict=True)
        kinds = tuple(_kind(x) for x in leaves)
        pick = lambda kind: [x for x, k in zip(leaves, kinds, strict=True) if k == kind]
        statics, fixed = tuple(pick("static")), pick("array")
        try:
            programs = _programs(fn, structure, kinds, statics)
        except TypeError:  # Something in it cannot be hashed.
            programs = _programs.__wrapped__(fn, structure, kinds, statics)
        with_fixed = [ft.partial(program, fixed) for program in programs]
        where = [name for name, kind in zip(names, kinds) if kind == "moving"]
        return Function(fn, pick("moving"), where, *with_fixed)

    def at(self, *args: Any) -> "Function":
        """Return the same programs at other arguments."""
        return Function.of(self.fn, *args)


def _kind(leaf: Any) -> str:
    if eqx.is_inexact_array(leaf):
        return "moving"
    return "array" if eqx.is_array(leaf) else "static"


@ft.lru_cache(maxsize=8)
def _programs(fn, structure, kinds, statics) -> tuple[Callable, Callable, Callable]:
    def value(fixed, moving):
        rest = {
            "moving": iter(moving),
            "array": iter(fixed),
            "static": iter(statics),
        }
        args = jtu.tree_unflatten(structure, [next(rest[kind]) for kind in kinds])
        return jtu.tree_leaves(eqx.filter(fn(*args), eqx.is_inexact_array))

    def push(fixed, moving, tangents):
        return jax.jvp(lambda x: value(fixed, x), (moving,), (tangents,))[1]

    def pull(fixed, moving, cotangents):
        return jax.vjp(lambda x: value(fixed, x), moving)[1](cotangents)[0]

    return jax.jit(value), jax.jit(push), jax.jit(pull)


def compare(
    function: Function,
    prefix: str = "",
    *,
    kinks: bool = False,
    eps: float | int = 1e-6,
    rtol: float | int = 1e-5,
    atol: float | int = 1e-7,
    seed: int = 0,
) -> dict[str, float]:
    """Do the same as `check_gradients` for compiled derivatives.

    **Arguments:**

    - `prefix`: prefix of the names of the arrays to check.
    - `kinks`: true to accept any derivative between the two one-sided ones, which are
        equal for a smooth function. A jump is an error: its second difference does not
        shrink with `eps`.
    """
    rng = np.random.default_rng(seed)
    here, largest = function.value(function.leaves), {}
    cotangents = [_direction(rng, y, 1.0) for y in here]
    pulled = function.pull(function.leaves, cotangents)
    for i, name in enumerate(function.names):
        scale = float(np.max(np.abs(function.leaves[i]), initial=0.0)) or 1.0
        tangents = [jnp.zeros_like(x) for x in function.leaves]
        tangents[i] = _direction(rng, function.leaves[i], scale)
        if not name.startswith(prefix):
            continue
        pushed = function.push(function.leaves, tangents)
        first, second = _differences(function, here, tangents, eps)
        bends: list[Any] = [0.0 for _ in first]
        if kinks:
            bends = [x / (2 * eps) for x in second]
            _, nearer = _differences(function, here, tangents, eps / 8)
            for k, (a, b) in enumerate(zip(second, nearer, strict=True)):
                _assert_shrinks(f"output {k} by {name}", a, b, here[k])
        for k, (a, b, bend) in enumerate(zip(pushed, first, bends, strict=True)):
            what = f"output {k} by {name}: forward mode against differences"
            _assert_close(what, a, b, rtol, atol + bend)
        forward = [np.sum(c * t) for c, t in zip(cotangents, pushed, strict=True)]
        size = max((float(np.max(np.abs(t), initial=0.0)) for t in pushed), default=0.0)
        reverse = np.sum(pulled[i] * tangents[i])
        what = f"all outputs by {name}: reverse mode against forward mode"
        _assert_close(what, reverse, np.sum(forward), rtol, atol + rtol * size)
        largest[name] = size / scale
    return largest


def _differences(function: Function, here, tangents, eps: float | int):
    """Central differences along tangents, and magnitudes of second differences."""
    plus, minus = (
        function.value([x + s * t for x, t in zip(function.leaves, tangents)])
        for s in (eps, -eps)
    )
    first = [(b - c) / (2 * eps) for b, c in zip(plus, minus, strict=True)]
    second = [
        np.abs(b - 2.0 * a + c) for a, b, c in zip(here, plus, minus, strict=True)
    ]
    return first, second


def _assert_shrinks(what: str, second: Any, nearer: Any, here: Any) -> None:
    """At a kink, second differences shrink with the step; at a jump, they do not."""
    rounding = 1e-10 * (1.0 + np.max(np.abs(np.asarray(here)), initial=0.0))
    jumps = np.asarray(nearer) > 0.5 * np.asarray(second) + rounding
    if np.any(jumps):
        at = tuple(int(i) for i in np.argwhere(np.atleast_1d(jumps))[0])
        raise AssertionError(
            f"{what}\n  at {at}: the function jumps by about "
            f"{np.atleast_1d(nearer)[at]:.3g}, so it has no derivative here"
        )


def _to_jax(args: tuple) -> tuple:
    # Convert NumPy numbers to JAX arrays, which the annotations of signatures require.
    numbers = (float, np.floating, np.ndarray)
    to_jax = lambda x: jnp.asarray(x) if isinstance(x, numbers) else x
    args = jtu.tree_map(to_jax, args)
    moving = jtu.tree_leaves(eqx.filter(args, eqx.is_inexact_array))
    if any(x.dtype != jnp.float64 for x in moving):
        raise TypeError("Finite differences need double precision in all arguments.")
    return args


def _direction(rng: np.random.Generator, like: jax.Array, scale: float) -> jax.Array:
    return jnp.asarray(scale * rng.standard_normal(like.shape))


def _assert_close(what: str, x: Any, y: Any, rtol: float | int, atol: Any) -> None:
    x, y = np.asarray(x), np.asarray(y)
    bound = np.broadcast_to(atol + rtol * np.max(np.abs(y), initial=0.0), x.shape)
    error = np.abs(x - y)
    if not np.all(error <= bound):  # also if one is NaN
        excess = np.nan_to_num(error - bound, nan=np.inf)
        at = tuple(int(i) for i in np.unravel_index(np.argmax(excess), error.shape))
        raise AssertionError(
            f"{what}\n  at {at}: {x[at]} against {y[at]}; the difference "
            f"{error[at]:.3g} exceeds {bound[at]:.3g}"
        )
