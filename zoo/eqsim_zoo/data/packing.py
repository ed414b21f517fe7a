"""Recorded steps in host memory: their fields, storage of shared observations, names, and
validation."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped


class Steps(NamedTuple):
    """Fields of `Transition` as NumPy arrays, with actions in physical units.

    - `obs`, `action`, `reward`: observation before the step, its action and reward.
    - `next_obs`: observation after the step.
    - `terminated`, `truncated`: true if the episode ended in the step, or was cut off
        after it.
    """

    obs: Any
    action: Float[np.ndarray, "*steps nu"]
    reward: Float[np.ndarray, "*steps"]
    next_obs: Any
    terminated: Bool[np.ndarray, "*steps"]
    truncated: Bool[np.ndarray, "*steps"]

    @property
    def done(self) -> Bool[np.ndarray, "*steps"]:
        """True at the last step of each episode."""
        return self.terminated | self.truncated


def flatten(steps: Steps, kept: Bool[np.ndarray, "rows time"]) -> Steps:
    """Flatten steps by environment; the last kept step of each one is truncated unless it
    is terminated.

    **Arguments:**

    - `steps`: steps with axes (environment, time).
    - `kept`: mask of the steps to keep.
    """
    left = np.cumsum(kept[:, ::-1], axis=1)[:, ::-1]
    cut = kept & (left == 1) & ~steps.terminated
    steps = steps._replace(truncated=steps.truncated | cut)
    return jtu.tree_map(lambda x: x[kept], steps)


class _Same:
    """An array compared by identity, so that it can be a static field."""

    def __init__(self, array: np.ndarray):
        self.array = array


class HostArray(eqx.Module):
    """An array in host memory whose rows are fetched to the device on access."""

    _held: _Same = eqx.field(static=True)

    @staticmethod
    def of(array: Any) -> "HostArray":
        """Copy an array to the host; a NumPy array is not copied."""
        return HostArray(_Same(np.asarray(array)))

    @property
    def array(self) -> np.ndarray:
        """The array, in NumPy."""
        return self._held.array

    def take(self, index: Int[Array, "*n"]) -> Shaped[Array, "..."]:
        """Return rows by index, on the device. Compiled programs fetch them by a callback."""
        array = self.array
        shape = jax.ShapeDtypeStruct((*index.shape, *array.shape[1:]), array.dtype)
        fetch = lambda i: np.take(array, np.asarray(i), axis=0, mode="clip")
        return jax.pure_callback(fetch, shape, index, vmap_method="expand_dims")


def is_host(x: Any) -> bool:
    """Return whether `x` is a `HostArray`."""
    return isinstance(x, HostArray)


def take(tree: Any, index: Int[Array, "*n"]) -> Any:
    """Return rows of each array by index."""

    def rows(x):
        if is_host(x):
            return x.take(index)
        return jnp.take(x, index, axis=0, mode="clip")

    return jtu.tree_map(rows, tree, is_leaf=is_host)


def to_device(tree: Any) -> Any:
    """Move all arrays to the device."""
    whole = lambda x: jnp.asarray(x.array if is_host(x) else x)
    return jtu.tree_map(whole, tree, is_leaf=is_host)


class Packed(NamedTuple):
    """Arrays of a `Dataset` in NumPy."""

    frames: Any
    at: Int[np.ndarray, " steps"]
    action: np.ndarray
    reward: np.ndarray
    terminated: Bool[np.ndarray, " steps"]
    last: Int[np.ndarray, " steps"]


def pack(steps: Steps) -> Packed:
    """Store each observation once; the last step ends a trajectory.

    Where the next observation of a step differs from the observation of the step after
    it, both are stored.
    """
    number = len(steps.reward)
    over = np.asarray(steps.terminated) | np.asarray(steps.truncated)
    over[-1] = True
    follows = ~over[:-1]
    for now, then in zip(jtu.tree_leaves(steps.obs), jtu.tree_leaves(steps.next_obs)):
        # Bytes are compared, as zero has two signs.
        follows &= (_bytes(now[1:]) == _bytes(then[:-1])).all(axis=1)
    breaks = np.append(~follows, True)
    at = np.arange(number) + np.append(0, np.cumsum(breaks)[:-1])

    def frames(obs, next_obs):
        out = np.empty((number + int(breaks.sum()), *obs.shape[1:]), obs.dtype)
        out[at], out[at[breaks] + 1] = obs, next_obs[breaks]
        return out

    ends = np.flatnonzero(over)
    last = ends[np.searchsorted(ends, np.arange(number))]
    return Packed(
        jtu.tree_map(frames, steps.obs, steps.next_obs),
        at,
        steps.action,
        steps.reward,
        steps.terminated,
        last,
    )


def _bytes(x: np.ndarray) -> np.ndarray:
    """Return the bytes of each row."""
    size = int(np.prod(x.shape[1:]))
    return np.ascontiguousarray(x).reshape(len(x), size).view(np.uint8)


def check_packed(packed: Packed) -> None:
    """Raise `ValueError` unless the arrays form a dataset."""
    number = packed.reward.shape[0] if packed.reward.ndim == 1 else 0
    if not number:
        raise ValueError(
            f"`reward` has shape {packed.reward.shape}; expected (steps,) with at least one "
            "step."
        )
    names = (
        ("at", np.signedinteger),
        ("terminated", np.bool_),
        ("last", np.signedinteger),
    )
    for name, kind in names:
        x = packed._asdict()[name]
        if x.shape != (number,) or not np.issubdtype(x.dtype, kind):
            raise ValueError(
                f"`{name}` has shape {x.shape} and type {x.dtype}; expected ({number},) and "
                f"{kind.__name__}, as there are {number} rewards."
            )
    if packed.action.ndim != 2 or len(packed.action) != number:
        raise ValueError(
            f"`action` has shape {packed.action.shape}; expected ({number}, nu), as there "
            f"are {number} rewards."
        )
    sizes = {np.shape(x)[:1] for x in jtu.tree_leaves(packed.frames)}
    fits = len(sizes) == 1 and packed.at[0] >= 0 and np.all(np.diff(packed.at) > 0)
    if not fits or (int(packed.at[-1]) + 1,) >= min(sizes):
        raise ValueError(
            f"`at` must increase and lie within the frames, of which there are "
            f"{sorted(sizes)}."
        )
    steps = np.arange(number)
    inside = np.all((packed.last >= steps) & (packed.last < number))
    own = packed.last == steps
    if not inside or not np.all(own[packed.last]) or np.any(packed.terminated & ~own):
        raise ValueError(
            "`last` must be the index of the last step of each trajectory, and only that "
            "step can be terminated."
        )
    # Steps of one trajectory share their last step.
    if np.any(np.diff(packed.last)[~own[:-1]] != 0):
        raise ValueError("`last` differs between steps of one trajectory.")


# Trees of arrays by name, as in files.


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """Return an array under `name`, those of a dictionary under `name/KEY`.

    **Raises:** `ValueError` if `tree` is neither an array nor a dictionary of arrays.
    """
    if isinstance(tree, np.ndarray):
        return {name: tree}
    if not isinstance(tree, dict) or not tree:
        raise ValueError(
            f"`{name}` is {type(tree).__name__}; files hold an array or a dictionary of "
            "arrays."
        )
    out = {}
    for key, value in tree.items():
        if not isinstance(key, str) or not key or "/" in key:
            raise ValueError(
                f"`{name}` has the key {key!r}; keys in files are names without `/`."
            )
        out |= flat(f"{name}/{key}", value)
    return out


def nested(name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """Invert `flat`; return an empty dictionary if no array has that name."""
    if name in arrays:
        return arrays[name]
    rest = [key[len(name) + 1 :] for key in arrays if key.startswith(f"{name}/")]
    keys = sorted({key.partition("/")[0] for key in rest})
    return {key: nested(f"{name}/{key}", arrays) for key in keys}


# Validation.


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
