"""Validation of recorded steps."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .packing import Steps


def check_steps(
    steps: Steps, bounds: Any, clip: bool
) -> tuple[Steps, Float[np.ndarray, "nu 2"]]:
    """Validate steps; return them in JAX's default float type, with the bounds of actions.

    **Raises:** `ValueError` if types, shapes or values are invalid.
    """
    steps = Steps(
        observations("obs", steps.obs),
        _real("action", (), steps.action),
        _real("reward", (), steps.reward),
        observations("next_obs", steps.next_obs),
        np.asarray(steps.terminated, bool),
        np.asarray(steps.truncated, bool),
    )
    _check_shapes(steps)
    for name in ("obs", "action", "reward", "next_obs"):
        check_finite(name, steps._asdict()[name])
    limits = limits_of(bounds, steps.action)
    return steps._replace(action=inside(steps.action, limits, clip)), limits


def numbers(name: str, tree: Any) -> Any:
    """Return arrays of real numbers in JAX's default float type.

    **Raises:** `ValueError` if an array is not real.
    """
    return jtu.tree_map_with_path(lambda path, x: _real(name, path, x), tree)


def observations(name: str, tree: Any) -> Any:
    """Return arrays like `numbers`, but keep images as `uint8`."""
    is_bytes = lambda x: np.asarray(x).dtype == np.uint8
    kept = lambda path, x: np.asarray(x) if is_bytes(x) else _real(name, path, x)
    return jtu.tree_map_with_path(kept, tree)


def _real(name: str, path: Any, x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind not in "biuf":
        raise ValueError(
            f"`{name}{jtu.keystr(path)}` has type {x.dtype}; expected real numbers."
        )
    return x.astype(jnp.result_type(float), copy=False)


def _check_shapes(steps: Steps) -> None:
    if steps.reward.ndim != 1 or not len(steps.reward):
        raise ValueError(
            f"`reward` has shape {steps.reward.shape}; expected (steps,) with at least one "
            "step."
        )
    if not jtu.tree_leaves(steps.obs):
        raise ValueError(f"`obs` is {steps.obs}; expected at least one array.")
    if jtu.tree_structure(steps.obs) != jtu.tree_structure(steps.next_obs):
        raise ValueError(
            f"`obs` is {jtu.tree_structure(steps.obs)}, but `next_obs` is "
            f"{jtu.tree_structure(steps.next_obs)}; expected the same structure."
        )
    number, axes = len(steps.reward), {"action": 2, "terminated": 1, "truncated": 1}
    for name in ("obs", "next_obs", *axes):
        for path, x in jtu.tree_leaves_with_path(steps._asdict()[name]):
            if x.shape[:1] != (number,) or x.ndim != axes.get(name, x.ndim):
                shape = f"({number}, nu)" if name == "action" else f"{number} rows"
                raise ValueError(
                    f"`{name}{jtu.keystr(path)}` has shape {x.shape}, but there are "
                    f"{number} rewards; expected {shape}."
                )
    pairs = zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs))
    for now, then in pairs:
        if now.shape != then.shape or now.dtype != then.dtype:
            raise ValueError(
                f"`obs` has shape {now.shape} and type {now.dtype}, but `next_obs` has "
                f"{then.shape} and {then.dtype}; expected the same."
            )


def check_finite(name: str, tree: Any) -> None:
    """Raise `ValueError` with the first row that is not finite."""
    for path, x in jtu.tree_leaves_with_path(tree):
        if x.dtype == np.uint8:
            continue
        bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"`{name}{jtu.keystr(path)}` is not finite in {int(bad.sum())} of {len(x)} "
                f"rows, first in row {first}: {x[first]}. Leave out those trajectories."
            )


def limits_of(
    bounds: Any, action: Float[np.ndarray, "n nu"]
) -> Float[np.ndarray, "nu 2"]:
    """Return the bounds of actions, by default -1 and 1.

    **Raises:** `ValueError` if they are not finite, not ordered or of the wrong shape.
    """
    size = action.shape[1]
    limits = np.tile([-1.0, 1.0], (size, 1))
    limits = limits if bounds is None else np.asarray(bounds, np.float64)
    fine = limits.shape == (size, 2) and np.all(np.isfinite(limits))
    if not fine or not np.all(limits[:, 0] < limits[:, 1]):
        raise ValueError(
            f"`bounds` are {limits.tolist()}; expected a finite lower and upper bound for "
            f"each of the {size} entries of an action."
        )
    return limits.astype(action.dtype)


def inside(
    action: Float[np.ndarray, "n nu"], limits: Float[np.ndarray, "nu 2"], clip: bool
) -> Float[np.ndarray, "n nu"]:
    """Return actions within their bounds.

    **Raises:** `ValueError` if an action is outside, unless `clip` is true.
    """
    low, high = limits.T
    outside = ((action < low) | (action > high)).any(axis=1)
    if not outside.any():
        return action
    if not clip:
        first = int(np.argmax(outside))
        raise ValueError(
            f"`action` is outside its bounds in {int(outside.sum())} of {len(outside)} "
            f"rows, first in row {first}: {action[first]}, with bounds "
            f"{limits.tolist()}. Pass the `bounds` of the actuators, or `clip=True`."
        )
    return np.clip(action, low, high)


def check_fits(data: Any, env: Any) -> None:
    """Raise `ValueError` unless a dataset has the observations and actions of an
    environment.

    **Arguments:**

    - `data`: a `Dataset`.
    - `env`: an environment.
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
            f"The dataset has observations {recorded}, but `{type(env).__name__}` has "
            f"{seen}. Train without an environment (`env=None`), or pass the one that was "
            "recorded."
        )
    nu = data.bounds.shape[0]
    if nu != env.sys.nu:
        raise ValueError(
            f"The dataset has actions of size {nu}, but those of `{type(env).__name__}` "
            f"have size {env.sys.nu}. Pass the environment that was recorded."
        )
    bounds, known = np.asarray(data.bounds), np.asarray(env.action_range)
    if not np.allclose(bounds, known, rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"The dataset has action bounds {bounds.tolist()}, but "
            f"`{type(env).__name__}` has {known.tolist()}. Load the dataset with the bounds "
            "of the environment."
        )
