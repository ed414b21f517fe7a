"""Whether recorded steps can be learned from."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from ._steps import Steps


def check_steps(
    steps: Steps, bounds: Any, clip: bool
) -> tuple[Steps, Float[np.ndarray, "nu 2"]]:
    """Steps whose numbers are in the type that JAX computes with, and the bounds of
    actions.

    **Raises:** `ValueError` if something can not be learned from.
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
    """Arrays of real numbers in the type that JAX computes with.

    **Raises:** `ValueError` if there is something else.
    """
    return jtu.tree_map_with_path(lambda path, x: _real(name, path, x), tree)


def observations(name: str, tree: Any) -> Any:
    """`numbers`, but that pictures stay in bytes."""
    is_bytes = lambda x: np.asarray(x).dtype == np.uint8
    kept = lambda path, x: np.asarray(x) if is_bytes(x) else _real(name, path, x)
    return jtu.tree_map_with_path(kept, tree)


def _real(name: str, path: Any, x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind not in "biuf":
        raise ValueError(
            f"`{name}{jtu.keystr(path)}` has type {x.dtype}: real numbers are expected."
        )
    return x.astype(jnp.result_type(float), copy=False)


def _check_shapes(steps: Steps) -> None:
    if steps.reward.ndim != 1 or not len(steps.reward):
        raise ValueError(
            f"`reward` has shape {steps.reward.shape}: one number for each step is "
            "expected, and at least one step."
        )
    if not jtu.tree_leaves(steps.obs):
        raise ValueError(f"`obs` is {steps.obs}: at least one array is expected.")
    if jtu.tree_structure(steps.obs) != jtu.tree_structure(steps.next_obs):
        raise ValueError(
            f"`obs` is {jtu.tree_structure(steps.obs)}, but `next_obs` is "
            f"{jtu.tree_structure(steps.next_obs)}: they are alike."
        )
    number, axes = len(steps.reward), {"action": 2, "terminated": 1, "truncated": 1}
    for name in ("obs", "next_obs", *axes):
        for path, x in jtu.tree_leaves_with_path(steps._asdict()[name]):
            if x.shape[:1] != (number,) or x.ndim != axes.get(name, x.ndim):
                shape = f"({number}, nu)" if name == "action" else f"{number} rows"
                raise ValueError(
                    f"`{name}{jtu.keystr(path)}` has shape {x.shape}, but there are "
                    f"{number} rewards: {shape} are expected."
                )
    pairs = zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs))
    for now, then in pairs:
        if now.shape != then.shape or now.dtype != then.dtype:
            raise ValueError(
                f"`obs` has shape {now.shape} and type {now.dtype}, but `next_obs` "
                f"{then.shape} and {then.dtype}."
            )


def check_finite(name: str, tree: Any) -> None:
    """Raises `ValueError` if there is a number that is not finite, with its row."""
    for path, x in jtu.tree_leaves_with_path(tree):
        if x.dtype == np.uint8:
            continue
        bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"`{name}{jtu.keystr(path)}` is not finite in {int(bad.sum())} of {len(x)} "
                f"rows, first in row {first}: {x[first]}. Leave those trajectories out."
            )


def limits_of(
    bounds: Any, action: Float[np.ndarray, "n nu"]
) -> Float[np.ndarray, "nu 2"]:
    """Bounds of actions, by default -1 and 1.

    **Raises:** `ValueError` if they are not finite, or none of these actions.
    """
    size = action.shape[1]
    limits = np.tile([-1.0, 1.0], (size, 1))
    limits = limits if bounds is None else np.asarray(bounds, np.float64)
    fine = limits.shape == (size, 2) and np.all(np.isfinite(limits))
    if not fine or not np.all(limits[:, 0] < limits[:, 1]):
        raise ValueError(
            f"`bounds` are {limits.tolist()}: a lower and a higher finite number are "
            f"expected for each of the {size} entries of an action."
        )
    return limits.astype(action.dtype)


def inside(
    action: Float[np.ndarray, "n nu"], limits: Float[np.ndarray, "nu 2"], clip: bool
) -> Float[np.ndarray, "n nu"]:
    """Actions between their bounds.

    **Raises:** `ValueError` if one is not, unless it is to be moved there (`clip`).
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
            f"{limits.tolist()}. Pass the `bounds` of the robot, or `clip=True`."
        )
    return np.clip(action, low, high)


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
