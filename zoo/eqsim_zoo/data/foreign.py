"""Dataset layouts of other projects, recognized by the names of their arrays."""

import importlib
from collections.abc import Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Bool

from .dataset import About, Dataset
from .packing import flatten, nested, Steps


_EXPECTED = (
    "`observations`, `actions`, `rewards` and `next_observations`, with `terminals`, "
    "`masks` or both (D4RL, jaxrl_m); or `observations`, `actions`, `rewards`, `terminals` "
    "and `timeouts` (D4RL); or `observations`, `actions` and `terminals`, "
    "which marks the last observation of each trajectory, without `timeouts`, "
    "`dones_float` and `valids` (OGBench); or the output of `eqsim rollout`"
)
_ROLLOUT = {"rewards", "next_observations", "terminated", "truncated", "valid"}
_ENDS = ("terminals", "timeouts", "dones_float")


def foreign_steps(arrays: Mapping[str, np.ndarray]) -> Steps:
    """Return steps in the order of the file, with actions in physical units; see
    `load_data`.

    **Raises:** `ValueError` if the layout is unknown or the lengths of arrays differ.
    """
    names = {name.partition("/")[0] for name in arrays}
    if {"observations", "actions"} <= names:
        if _ROLLOUT <= names:
            return _of_rollout(arrays)
        if {"rewards", "next_observations"} <= names and names & {"terminals", "masks"}:
            return _of_steps(arrays, names)
        if {"rewards", "terminals", "timeouts"} <= names:
            return _of_rows(arrays)
        others = {"next_observations", "timeouts", "dones_float", "valids"}
        if "terminals" in names and not names & others:
            return _of_frames(arrays, names)
    raise ValueError(
        f"Unknown layout with arrays {', '.join(sorted(names)) or '(none)'}; expected "
        f"{_EXPECTED}."
    )


def _of_steps(arrays: Mapping[str, np.ndarray], names: set[str]) -> Steps:
    obs, then = nested("observations", arrays), nested("next_observations", arrays)
    action, reward = arrays["actions"], arrays["rewards"]
    flags = {name: _flags(name, arrays) for name in (*_ENDS, "masks") if name in names}
    _check_lengths(
        {"observations": obs, "next_observations": then, "actions": action}
        | {"rewards": reward, **flags}
    )
    terminated = ~flags["masks"] if "masks" in flags else flags["terminals"]
    ends = [flags[name] for name in _ENDS if name in flags]
    if not set(flags) & {"timeouts", "dones_float"} and (
        "masks" not in flags or "terminals" not in flags
    ):
        ends = [*ends, _breaks(obs, then)]
    truncated = np.any(ends, axis=0) & ~terminated
    return Steps(obs, action, reward, then, terminated, truncated)


def _of_rows(arrays: Mapping[str, np.ndarray]) -> Steps:
    """Return steps of rows without next observations, as `qlearning_dataset` of D4RL
    does."""
    obs = nested("observations", arrays)
    action, reward = arrays["actions"], arrays["rewards"]
    terminated, timeout = (_flags(name, arrays) for name in ("terminals", "timeouts"))
    _check_lengths(
        {"observations": obs, "actions": action, "rewards": reward}
        | {"terminals": terminated, "timeouts": timeout}
    )
    if not len(timeout):
        raise ValueError("`timeouts` is empty; expected at least two rows.")
    dropped = timeout.copy()
    dropped[-1] = True
    at = np.flatnonzero(~dropped)
    then = np.where(terminated[at], at, at + 1)
    rows = lambda tree, index: jtu.tree_map(lambda x: x[index], tree)
    truncated = dropped[at + 1] & ~terminated[at]
    steps = rows(obs, at), action[at], reward[at], rows(obs, then)
    return Steps(*steps, terminated[at], truncated)


def _of_frames(arrays: Mapping[str, np.ndarray], names: set[str]) -> Steps:
    obs, action = nested("observations", arrays), arrays["actions"]
    last = _flags("terminals", arrays)
    given: dict[str, Any] = {"observations": obs, "actions": action, "terminals": last}
    given |= {"rewards": arrays["rewards"]} if "rewards" in names else {}
    given |= {"masks": _flags("masks", arrays)} if "masks" in names else {}
    _check_lengths(given)
    if not len(last):
        raise ValueError("`terminals` is empty; expected at least two frames.")
    last[-1] = True
    alone = last & np.append(True, last[:-1])
    if alone.any():
        raise ValueError(
            f"{int(alone.sum())} trajectories have no step, the first in row "
            f"{int(np.argmax(alone))}. `terminals` is 1 at the last frame of a trajectory, "
            "and a trajectory has at least two frames."
        )
    at = np.flatnonzero(~last)
    rows = lambda tree, index: jtu.tree_map(lambda x: x[index], tree)
    reward = given["rewards"][at] if "rewards" in names else np.zeros(len(at))
    terminated = ~given["masks"][at] if "masks" in names else np.zeros(len(at), bool)
    truncated = last[at + 1] & ~terminated
    frames = rows(obs, at), action[at], reward, rows(obs, at + 1)
    return Steps(*frames, terminated, truncated)


def _of_rollout(arrays: Mapping[str, np.ndarray]) -> Steps:
    names = "observations", "actions", "rewards", "next_observations"
    flags = {name: arrays[name] for name in ("terminated", "truncated", "valid")}
    given = {name: nested(name, arrays) for name in names} | flags
    shape = flags["valid"].shape
    arrays = {name: x for name, x in arrays.items() if name.split("/")[0] in given}
    for name, x in arrays.items():
        if len(shape) != 2 or x.shape[:2] != shape:
            raise ValueError(
                f"`{name}` has shape {x.shape}; expected the axes (environment, step) of "
                f"`valid`, {shape}, first."
            )
    for name, x in flags.items():
        if x.dtype != bool:
            raise ValueError(f"`{name}` has type {x.dtype}; expected booleans.")
    *_, valid = flags.values()
    parts = [given[name] for name in (*names, "terminated", "truncated")]
    return flatten(Steps(*parts), valid)


def _flags(name: str, arrays: Mapping[str, np.ndarray]) -> Bool[np.ndarray, " rows"]:
    x = arrays[name]
    if x.ndim != 1 or x.dtype.kind not in "biuf" or not np.all((x == 0) | (x == 1)):
        raise ValueError(
            f"`{name}` has shape {x.shape} and type {x.dtype}; expected a vector of zeros "
            "and ones."
        )
    return x.astype(bool)


def _check_lengths(given: dict[str, Any]) -> None:
    number = len(given["actions"]) if given["actions"].ndim else 0
    for name, tree in given.items():
        for path, x in jtu.tree_leaves_with_path(tree):
            if x.ndim == 0 or len(x) != number:
                raise ValueError(
                    f"`{name}{jtu.keystr(path)}` has shape {x.shape}, but `actions` has "
                    f"{number} rows."
                )


def _breaks(obs: Any, then: Any) -> Bool[np.ndarray, " rows"]:
    """Return a mask of steps whose next observation differs from that of the next row."""
    pairs = [*zip(jtu.tree_leaves(obs), jtu.tree_leaves(then))]
    broken = np.zeros(len(pairs[0][0]), bool)
    for now, after in pairs:
        if now.shape != after.shape:
            raise ValueError(
                f"`observations` has shape {now.shape}, but `next_observations` has "
                f"{after.shape}."
            )
        differs = now[1:] != after[:-1]
        broken[:-1] |= differs.any(axis=tuple(range(1, now.ndim)))
    return broken


def from_minari(
    source: Any,
    *,
    download: bool = False,
    clip: bool = False,
    bounds: Any = None,
    about: About | None = None,
) -> Dataset:
    """Convert a Minari dataset. Episodes without a final flag count as truncated.

    **Arguments:**

    - `source`: a `minari.MinariDataset`, or its name, such as `D4RL/pen/human-v2`; names
        need the extra `minari`.
    - `download`: true to download a dataset that is not stored locally.
    - `clip`: true to clip actions to the bounds.
    - `bounds`: lower and upper bounds of actions; by default those of the action space.
    - `about`: metadata; by default that of Minari: environment, name and the two returns
        by which scores are normalized.

    **Raises:** `ImportError` without Minari; `FileNotFoundError` if there is no dataset of
    that name; `ValueError` if steps are invalid, see `Dataset.create`.

    ??? cite "Reference"
        Younis et al., *Minari*, 2024, doi 10.5281/zenodo.13767625.
    """
    # Installed with Minari.
    from gymnasium.spaces import Box

    data = _load(source, download) if isinstance(source, str) else source
    parts = [_steps(episode) for episode in data.iterate_episodes()]
    if not parts:
        raise ValueError(f"{source!r} has no episodes; expected at least one.")
    steps = jtu.tree_map(lambda *x: np.concatenate(x), *parts)
    space = data.action_space
    if bounds is None and isinstance(space, Box):
        bounds = np.stack([space.low.ravel(), space.high.ravel()], axis=1)
    about = _about(data) if about is None else about
    return Dataset.of(steps, bounds=bounds, clip=clip, about=about)


def _load(name: str, download: bool) -> Any:
    try:
        minari = importlib.import_module("minari")
    except ImportError as error:
        raise ImportError(
            "Datasets of Minari by name need the package minari. Run `pip install "
            "'eqsim-zoo[minari]'`."
        ) from error
    return minari.load_dataset(name, download=download)


def _steps(episode: Any) -> Steps:
    """Convert one episode, which has one observation more than steps."""
    number = len(episode.rewards)
    as_numpy = lambda tree: jtu.tree_map(np.asarray, tree)
    observations = as_numpy(episode.observations)
    lengths = {len(x) for x in jtu.tree_leaves(observations)}
    if not number or lengths != {number + 1}:
        raise ValueError(
            f"Episode {episode.id} has {number} rewards and {sorted(lengths)} observations; "
            "expected at least one reward, and one observation more than rewards."
        )
    terminated = np.asarray(episode.terminations, bool)
    truncated = np.asarray(episode.truncations, bool) & ~terminated
    truncated[-1] = ~terminated[-1]
    return Steps(
        jtu.tree_map(lambda x: x[:-1], observations),
        np.asarray(episode.actions),
        np.asarray(episode.rewards),
        jtu.tree_map(lambda x: x[1:], observations),
        terminated,
        truncated,
    )


def _about(data: Any) -> About:
    said = data.storage.metadata
    env = None if data.env_spec is None else data.env_spec.id
    scores = said.get("ref_min_score"), said.get("ref_max_score")
    returns = (None if score is None else float(score) for score in scores)
    return About(env, (data.spec.dataset_id,), *returns)
