"""Ranges of hyperparameters by name, the same for all agents."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jax.core import Tracer


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
