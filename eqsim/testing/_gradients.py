"""Comparison of derivatives: forward mode, reverse mode and central differences."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ._compare import leaf_name


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
