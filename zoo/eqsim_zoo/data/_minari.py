"""Import of Minari datasets."""

import importlib
from typing import Any

import jax.tree_util as jtu
import numpy as np

from ._about import About
from ._dataset import Dataset
from ._steps import Steps


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
