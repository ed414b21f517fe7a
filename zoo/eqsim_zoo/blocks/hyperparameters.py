"""Hyperparameters: the fields of agents.

Real numbers are arrays, so that `eqx.filter_vmap` can sweep them (`as_scalar`); sizes, shapes
and flags are static (`static`). Checks for `__check_init__` follow, ranges by name of the
field, and schedules. Numbers are created in the default floating-point type; the methods of
agents are decorated with `same_precision`, so that they compute in the type of their state.
"""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from eqsim.bridges import check_count


def as_scalar(x: Any) -> Any:
    """Convert a real number to an array. Anything else is returned unchanged, because
    pytree transformations fill fields with other objects."""
    if isinstance(x, bool):
        raise ValueError(f"Expected a real number, got the boolean {x}.")
    known = int | float | np.number | np.ndarray
    return jnp.asarray(x, jnp.result_type(float)) if isinstance(x, known) else x


def static(default: Any) -> Any:
    """Declare a static field for a size, a shape or a flag. Lists become tuples, and
    integers of NumPy those of Python."""
    return eqx.field(static=True, converter=_hashable, default=default)


def _hashable(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return tuple(map(_hashable, x))
    return int(x) if isinstance(x, np.integer) else x


def same_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a method of an agent, `(state, ...)` or `(key, env)`: in it, real
    numbers of the agent have the floating-point type of the state or the environment."""

    @ft.wraps(method)
    def cast(self: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = float_type(args)
        agent = self if dtype is None else cast_floats(self, dtype)
        return method(agent, *args, **kwargs)

    return cast


def float_type(tree: Any) -> Any:
    """Return the type of the first floating-point array of a PyTree; None without one."""
    arrays = filter(eqx.is_inexact_array, jtu.tree_leaves(tree))
    return next((x.dtype for x in arrays), None)


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Cast real numbers of a PyTree to a type."""
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(cast, tree)


def check_positive(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are positive integers, or tuples of them if their
    default is a tuple."""
    _check_integers(agent, names, 1)


def check_counts(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are integers of at least 0."""
    _check_integers(agent, names, 0)


def _check_integers(agent: eqx.Module, names: tuple[str, ...], least: int) -> None:
    for name in names:
        full, value = f"{type(agent).__name__}.{name}", vars(agent)[name]
        if isinstance(type(agent).__dataclass_fields__[name].default, tuple):
            if not isinstance(value, tuple):
                raise ValueError(
                    f"`{full}` must be a tuple of integers, got {value!r}."
                )
            for k, one in enumerate(value):
                check_count(f"{full}[{k}]", one, least)
        else:
            check_count(full, value, least)


def number_of_steps(name: str, value: Any, least: int = 1) -> int:
    """Return a number of steps, which may be a whole float, such as 1e6.

    **Raises:** `ValueError` if it is not whole, or less than `least`.
    """
    exact = isinstance(value, float | np.floating) and abs(value) < 2**53
    value = int(value) if exact and value == value // 1 else value
    check_count(name, value, least)
    return int(value)


def check_num_levels(agent: Any) -> None:
    """Raise `ValueError` unless `agent.levels` is at least 2, or 0 for continuous
    actions."""
    check_counts(agent, "levels")
    if agent.levels == 1:
        raise ValueError(
            f"`{type(agent).__name__}.levels` must be at least 2, or 0 for continuous "
            "actions, got 1."
        )


def linear_schedule(
    rate: Float[Array, ""], steps: Float[Array, ""], anneal_steps: Float[Array, ""]
) -> Float[Array, ""]:
    """Return a schedule that decreases a rate linearly to zero over `anneal_steps`;
    constant if that is 0."""
    length = jnp.where(anneal_steps > 0.0, anneal_steps, 1.0)
    left = jnp.clip(1.0 - steps / length, 0.0, 1.0)
    return rate * jnp.where(anneal_steps > 0.0, left, 1.0)


def adapted_pace(
    pace: Float[Array, ""], kl: Float[Array, ""], target: Float[Array, ""]
) -> Float[Array, ""]:
    r"""Return the next factor of the learning rate: divided by 1.2 if the divergence exceeds
    $2 \, \mathrm{target}$, multiplied by 1.2 below $\mathrm{target} / 2$, from 1/30 to 30;
    unchanged if `target` is 0.

    ??? cite "Reference"
        Schulman et al., *Proximal policy optimization algorithms*, 2017, section 4, adapts
        the weight of a penalty so; Rudin et al., *Learning to walk in minutes*, 2022,
        table 3, the learning rate.
    """
    step = jnp.where(
        kl > 2.0 * target, 1.0 / 1.2, jnp.where(kl < 0.5 * target, 1.2, 1.0)
    )
    return jnp.where(target > 0.0, jnp.clip(pace * step, 1.0 / 30.0, 30.0), pace)


def cosine_schedule(
    rate: Float[Array, ""], steps: Float[Array, ""], anneal_steps: Float[Array, ""]
) -> Float[Array, ""]:
    """Decrease of a rate to zero along half a cosine; constant if `anneal_steps` is 0."""
    part = linear_schedule(jnp.ones_like(rate), steps, anneal_steps)
    return rate * jnp.where(
        anneal_steps > 0.0, 0.5 * (1.0 - jnp.cos(jnp.pi * part)), 1.0
    )


class _Range(NamedTuple):
    """Accepted values. `text`: description for messages. NaN is never accepted."""

    accepted: Callable
    text: str


_FINITE = _Range(np.isfinite, "finite")
_ANY = _Range(lambda x: x == x, "a number")
_SIZE = _Range(lambda x: (x >= 0.0) & np.isfinite(x), "finite and at least 0")
_BOUND = _Range(lambda x: x > 0.0, "positive")
_SCALE = _Range(lambda x: (x > 0.0) & np.isfinite(x), "finite and positive")
_SHARE = _Range(lambda x: (x >= 0.0) & (x <= 1.0), "in [0, 1]")
_RATE = _Range(lambda x: (x > 0.0) & (x <= 1.0), "in (0, 1]")
_INSIDE = _Range(lambda x: (x > 0.0) & (x < 1.0), "in (0, 1)")

_RANGES: dict[str, _Range] = {
    "actor_learning_rate": _SIZE,
    "adam_epsilon": _SCALE,
    "alpha": _SIZE,
    "anneal_steps": _SIZE,
    "clip": _BOUND,
    "conservative_weight": _SIZE,
    "critic_learning_rate": _SIZE,
    "discount": _SHARE,
    "entropy_cost": _FINITE,
    "expectile": _INSIDE,
    "exploration_noise": _SIZE,
    "gae_decay": _SHARE,
    "importance_clip": _Range(lambda x: x >= 1.0, "at least 1"),
    "initial_log_std": _FINITE,
    "initial_multiplier": _SCALE,
    "initial_temperature": _SCALE,
    "learning_rate": _SIZE,
    "least_std": _SCALE,
    "margin": _Range(lambda x: x >= 0.0, "at least 0"),
    "max_grad_norm": _BOUND,
    "noise": _SIZE,
    "noise_clip": _Range(lambda x: x >= 0.0, "at least 0"),
    "policy_learning_rate": _SIZE,
    "random_steps": _SIZE,
    "reward_scale": _FINITE,
    "slack": _SIZE,
    "std_range": _SCALE,
    "step_size": _SIZE,
    "target_decay": _SHARE,
    "target_entropy": _FINITE,
    "target_kl": _SIZE,
    "target_noise": _SIZE,
    "target_rate": _RATE,
    "target_return": _ANY,
    "task": _FINITE,
    "diversity": _FINITE,
    "td_decay": _SHARE,
    "temperature": _SCALE,
    "temperature_learning_rate": _SIZE,
    "threshold": _FINITE,
    "value_clip": _SIZE,
    "value_cost": _SIZE,
    "warmup_steps": _SIZE,
    "weight_decay": _SIZE,
    "weight_limit": _BOUND,
}


def check_ranges(agent: eqx.Module, *positive: str) -> None:
    """Raise `ValueError` if a real-valued hyperparameter is outside its range.

    The range belongs to the name of the field: a learning rate is at least 0, a
    discount in [0, 1]. Fields without a range, traced values and fields that are no
    numbers are not checked.

    **Arguments:**

    - `agent`: the agent, in its `__check_init__`.
    - `positive`: fields that have to be positive in this agent.
    """
    for name, value in vars(agent).items():
        allowed = _SCALE if name in positive else _RANGES.get(name)
        if allowed is None or isinstance(value, Tracer):
            continue
        if not eqx.is_array_like(value):
            continue
        numbers = np.asarray(value)
        if not np.all(allowed.accepted(numbers)):
            raise ValueError(
                f"`{type(agent).__name__}.{name}` must be {allowed.text}, got "
                f"{numbers.tolist()}."
            )
