"""Whether recorded steps can be learned from."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool, Float

from .._replay import Transition


def check_steps(
    steps: Transition, bounds: Any, clip: bool
) -> tuple[Transition, Float[np.ndarray, "nu 2"]]:
    """Steps whose numbers are in the type that JAX computes with, and the bounds of
    actions.

    **Raises:** `ValueError` if something can not be learned from.
    """
    number = _number(steps)
    steps = _typed(steps)
    _check_shapes(steps, number)
    names = ("obs", steps.obs), ("action", steps.action), ("reward", steps.reward)
    for name, tree in (*names, ("next_obs", steps.next_obs)):
        _check_finite(name, tree)
    size = steps.action.shape[1]
    limits = np.tile([-1.0, 1.0], (size, 1)) if bounds is None else np.asarray(bounds)
    fine = limits.shape == (size, 2) and np.all(np.isfinite(limits))
    if not fine or not np.all(limits[:, 0] < limits[:, 1]):
        raise ValueError(
            f"`bounds` are {limits.tolist()}: a lower and a higher finite number are "
            f"expected for each of the {size} entries of an action."
        )
    limits = limits.astype(steps.action.dtype)
    return _inside(steps, limits, clip), limits


def _number(steps: Transition) -> int:
    if np.ndim(steps.reward) != 1 or not len(steps.reward):
        raise ValueError(
            f"`reward` has shape {np.shape(steps.reward)}: one number for each step is "
            "expected, and at least one step."
        )
    return len(steps.reward)


def _typed(steps: Transition) -> Transition:
    real = jnp.result_type(float)

    def typed(x):
        # Pictures stay in bytes.
        return x if x.dtype == np.uint8 else np.asarray(x).astype(real)

    flag = lambda x: np.asarray(x).astype(bool)
    return Transition(
        jtu.tree_map(typed, steps.obs),
        np.asarray(steps.action).astype(real),
        np.asarray(steps.reward).astype(real),
        jtu.tree_map(typed, steps.next_obs),
        flag(steps.terminated),
        flag(steps.truncated),
    )


def _check_shapes(steps: Transition, number: int) -> None:
    if steps.action.ndim != 2:
        raise ValueError(
            f"`action` has shape {steps.action.shape}: (steps, nu) is expected."
        )
    if jtu.tree_structure(steps.obs) != jtu.tree_structure(steps.next_obs):
        raise ValueError(
            f"`obs` is {jtu.tree_structure(steps.obs)}, but `next_obs` is "
            f"{jtu.tree_structure(steps.next_obs)}: they are alike."
        )
    names = "obs", "action", "next_obs", "terminated", "truncated"
    for name in names:
        for path, x in jtu.tree_leaves_with_path(vars(steps)[name]):
            if x.ndim == 0 or len(x) != number:
                raise ValueError(
                    f"`{name}{jtu.keystr(path)}` has shape {x.shape}, but there are "
                    f"{number} rewards: the first axis is that of steps."
                )
    pairs = zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs))
    for now, then in pairs:
        if now.shape != then.shape or now.dtype != then.dtype:
            raise ValueError(
                f"`obs` has shape {now.shape} and type {now.dtype}, but `next_obs` "
                f"{then.shape} and {then.dtype}."
            )


def _check_finite(name: str, tree: Any) -> None:
    for path, x in jtu.tree_leaves_with_path(tree):
        bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"`{name}{jtu.keystr(path)}` is not finite in {int(bad.sum())} of {len(x)} "
                f"steps, first in step {first}: {x[first]}. Leave those trajectories out."
            )


def _inside(
    steps: Transition, limits: Float[np.ndarray, "nu 2"], clip: bool
) -> Transition:
    low, high = limits.T
    outside: Bool[np.ndarray, " n"] = (
        (steps.action < low) | (steps.action > high)
    ).any(axis=1)
    if not outside.any():
        return steps
    if not clip:
        first = int(np.argmax(outside))
        raise ValueError(
            f"`action` is outside its bounds in {int(outside.sum())} of {len(outside)} "
            f"steps, first in step {first}: {steps.action[first]}, with bounds "
            f"{limits.tolist()}. Pass the `bounds` of the robot, or `clip=True`."
        )
    action = np.clip(steps.action, low, high)
    return jtu.tree_map(
        lambda x: action if x is steps.action else x, steps
    )


def check_fits(data: Any, env: Any) -> None:
    """Raises `ValueError` unless observations and actions of a dataset are those of an
    environment.

    **Arguments:**

    - `data`: a `Dataset`. `env`: an environment.
    """
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    shape = lambda x: (tuple(x.shape), jnp.dtype(x.dtype).name)
    describe = lambda tree: {
        jtu.keystr(path) or "obs": shape(x)
        for path, x in jtu.tree_leaves_with_path(tree)
    }
    row = jax.eval_shape(lambda d: d.rows(jnp.zeros((), d.at.dtype)), data)
    recorded, seen = describe(row.obs), describe(timestep.obs)
    if recorded != seen:
        raise ValueError(
            f"The dataset holds observations {recorded}, but `{type(env).__name__}` shows "
            f"{seen}. Learn without an environment (`env=None`), or in the one that was "
            "recorded."
        )
    nu = data.bounds.shape[0]
    if nu != env.sys.nu:
        raise ValueError(
            f"The dataset holds actions of {nu} numbers, but `{type(env).__name__}` takes "
            f"{env.sys.nu}."
        )
    bounds, known = np.asarray(data.bounds), np.asarray(env.action_range)
    if not np.allclose(bounds, known, rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"The dataset has actions between {bounds.tolist()}, but "
            f"`{type(env).__name__}` takes {known.tolist()}."
        )
