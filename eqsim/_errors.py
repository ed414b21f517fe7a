"""Error messages: what is wrong, and how to fix it. Checks of arguments and of keys.

Errors are raised at three stages. *Building* a robot: `validate` raises `ValueError`
for wrong values and static facts. *Tracing*: public functions raise `ValueError`, for
instance by `check_shape`. *Running*: `rollout` raises a message of `RESULTS` at its
end.
"""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Key


class RESULTS(eqx.Enumeration):
    """Outcome of a rollout, or of a solver of optimal control or inverse kinematics."""

    successful = ""
    nonfinite_state = (
        "A state became NaN or infinite. Usual causes: (a) a time step that is too "
        "long for the stiffness or damping of the system: reduce `sys.dt`; (b) a mass or "
        "inertia that is zero or negative."
    )
    nonfinite_action = "An action is NaN or infinite. Look at what the policy computes."
    nonfinite_report = (
        "A reward or an observation became NaN or infinite, though the state is finite. "
        "Look at `timestep.terms` of that step."
    )
    max_steps = (
        "The solver took `max_steps` iterations without reaching its tolerance. Increase "
        "`max_steps`, or start from a better guess."
    )
    regularization_limit = (
        "No step decreases the cost, even with the largest regularization. The plan is "
        "the best one so far; rounding errors or a discontinuous cost are usual causes."
    )
    nonfinite_guess = (
        "The first guess has a cost, a state or an action that is not finite. Start from "
        "other actions or a shorter horizon."
    )
    infeasible = (
        "The constraints are violated by more than `constraint_tolerance` after "
        "`max_penalty_steps` updates of the multipliers. They may contradict each other "
        "or the limits of the controls."
    )


def check_shape(name: str, value: Any, dims: dict[str, int]) -> None:
    """Raise `ValueError` unless `value` has the given dimensions and is floating point.

    **Arguments:**

    - `name`: name of the value in the message, for instance `ctrl`.
    - `value`: array to check; any object.
    - `dims`: sizes of the axes by name, for instance `{"nu": 8}`.
    """
    expected = tuple(dims.values())
    names = ", ".join(dims) + ("," if len(dims) == 1 else "")
    if not (eqx.is_array_like(value) or isinstance(value, jax.ShapeDtypeStruct)):
        raise ValueError(
            f"`{name}` must be an array of shape ({names}) = {expected}, got "
            f"{described(value)}. Write `jnp.asarray({name}, float)`."
        )
    shape = jnp.shape(value)
    if shape != expected:
        batched = len(shape) > len(expected) and shape[-len(expected) :] == expected
        hint = " For a batch, wrap the call in `eqx.filter_vmap`." if batched else ""
        raise ValueError(
            f"`{name}` must have shape ({names}) = {expected}, but its shape is "
            f"{shape}.{hint}"
        )
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"`{name}` must be floating point, but is {dtype}. Write "
            f"`jnp.asarray({name}, float)`."
        )


def check_type(
    name: str, value: Any, kind: type | UnionType, expected: str, remedy: str = ""
) -> None:
    """Raise `TypeError` unless a value is an instance of a class.

    **Arguments:**

    - `name`: name of the value in the message, for instance `env`.
    - `expected`: description of accepted values, for instance `an environment`.
    - `remedy`: sentence that says what to do.
    """
    if isinstance(value, kind):
        return
    if isinstance(value, type) and issubclass(value, kind):
        remedy = "Pass an instance, not the class."
    end = f" {remedy}" if remedy else ""
    raise TypeError(f"`{name}` must be {expected}, got {described(value)}.{end}")


def described(value: Any) -> str:
    """Return a short description of a value of a wrong type, for messages."""
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    text = repr(value)
    short = len(text) <= 40 and "\n" not in text
    return text if short else f"an object of class `{type(value).__name__}`"


def check_finite(name: str, value: Any) -> None:
    """Raise `ValueError` unless all values are finite. Skipped for traced values."""
    if not isinstance(value, Tracer) and not np.all(np.isfinite(value)):
        raise ValueError(f"`{name}` must be finite, got {np.asarray(value)}.")


def check_count(name: str, value: Any, least: int = 1, *, or_none: str = "") -> None:
    """Raise `ValueError` unless a value is an integer, of Python or NumPy. Floats are
    refused, also whole ones: `0.3 / 0.1` is less than 3.

    **Arguments:**

    - `name`: name of the value in the message, for instance `frame_skip`.
    - `least`: smallest value.
    - `or_none`: meaning of None, which is accepted as well; empty if it is not.
    """
    if value is None and or_none:
        return
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if value >= least:
            return
    also = f", or None for {or_none}" if or_none else ""
    raise ValueError(
        f"`{name}` must be an integer of at least {least}{also}, got {value!r}."
    )


def check_numbers(name: str, value: Any, accepted: Callable, expected: str) -> None:
    """Raise `ValueError` unless all values are finite and accepted. Skipped for traced
    values.

    **Arguments:**

    - `name`: name of the value in the message.
    - `value`: number or array; anything else passes, such as a traced value.
    - `accepted`: function of an array that returns booleans.
    - `expected`: description of accepted values, for instance `"positive"`.
    """
    if isinstance(value, Tracer) or not eqx.is_array_like(value):
        return
    value = np.asarray(value)
    if not np.all(np.isfinite(value) & accepted(value)):
        raise ValueError(f"`{name}` must be {expected}, got {value.tolist()}.")


def is_key(x: Any) -> bool:
    """Test if `x` is an array of typed random keys (`jax.random.key`), or the shape and
    type of one."""
    known = isinstance(x, jax.Array | jax.ShapeDtypeStruct)
    return known and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def is_legacy_key(x: Any) -> bool:
    """Test if `x` is an array of keys of the older `jax.random.PRNGKey`: rows of 2 or 4
    numbers, depending on the generator."""
    known = isinstance(x, jax.Array | np.ndarray)
    return known and x.dtype == np.uint32 and x.shape[-1:] in ((2,), (4,))


def check_key(key: Any) -> None:
    """Raise an error unless `key` is one random key, of `jax.random.key` or of the older
    `jax.random.PRNGKey`. Traced keys are checked as well.

    **Raises:** `TypeError` if it is not a key; `ValueError` if there are several keys.
    """
    shape = key.shape if isinstance(key, jax.Array | np.ndarray) else None
    older = is_legacy_key(key)
    if shape is None or not (older or is_key(key)):
        seed = key if type(key) is int else 0
        raise TypeError(
            f"`key` must be a random key, got {described(key)}. Write "
            f"`jax.random.key({seed})`."
        )
    batch = shape[:-1] if older else shape
    if batch:
        raise ValueError(
            f"`key` must be one key, got keys of shape {batch}. For a batch, wrap the call "
            "in `eqx.filter_vmap`."
        )


def typed_key(key: Array) -> Key[Array, "..."]:
    """Convert a legacy key (`jax.random.PRNGKey`), or an array of them, to typed keys;
    typed keys are returned."""
    return key if is_key(key) else jr.wrap_key_data(key)


def listed(names: Sequence[str], limit: int = 10) -> str:
    """Return names for a message, the first ones of many."""
    text, left = ", ".join(names[:limit]), len(names) - limit
    return f"{text} and {left} more" if left > 0 else text
