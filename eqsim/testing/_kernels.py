"""Whether the physics of a function runs as kernels."""

from collections.abc import Callable

import equinox as eqx

from .._kernels import recorded_fallbacks


def check_kernels(fn: Callable, *args) -> None:
    """Check that all physics in a function compiles to kernels on the CPU.

    Physics that the kernel compiler cannot compile is compiled by XLA instead: with the
    same results to rounding, but many times slower.

    **Arguments:**

    - `fn`: a function that `eqx.filter_jit` can compile. It is lowered, not run.
    - `args`: its arguments.

    **Raises:** `AssertionError` that names each function of the physics that XLA
    compiles, with the reason.
    """
    with recorded_fallbacks() as notes:
        # A new function: what has been lowered before would not be lowered again.
        eqx.filter_jit(lambda *xs: fn(*xs)).lower(*args)
    lines = [f"`{name}`: {reason}" for name, reason in notes.items()]
    assert not lines, "XLA compiles instead of kernels: " + "; ".join(lines)
