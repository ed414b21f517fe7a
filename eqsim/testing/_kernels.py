"""Check that physics is compiled by the kernel compiler."""

from collections.abc import Callable

import equinox as eqx

from .._kernels import recorded_fallbacks


def check_kernels(fn: Callable, *args) -> None:
    """Check that all physics in a function compiles to kernels on the CPU.

    Physics that the kernel compiler does not support is compiled by XLA: with the same
    results up to rounding, but many times slower.

    **Arguments:**

    - `fn`: a function that `eqx.filter_jit` can compile. It is lowered, not run.
    - `args`: its arguments.

    **Raises:** `AssertionError` with the name of each function that XLA compiles, and
    the reason.
    """
    with recorded_fallbacks() as notes:
        # A new function object, because a function that has been lowered is not lowered
        # again.
        eqx.filter_jit(lambda *xs: fn(*xs)).lower(*args)
    lines = [f"`{name}`: {reason}" for name, reason in notes.items()]
    assert not lines, "XLA compiles instead of kernels: " + "; ".join(lines)
