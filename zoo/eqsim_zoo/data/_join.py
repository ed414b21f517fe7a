"""Joining datasets and scaling their rewards."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from ._about import About
from ._dataset import Dataset, from_packed
from ._pack import pack


def joined(parts: Sequence[Dataset], about: About | None = None) -> Dataset:
    """Join several datasets into one, on the device.

    **Arguments:**

    - `parts`: datasets to join.
    - `about`: metadata; by default that of the first dataset, with the sources of all.

    **Raises:** `ValueError` if `parts` is empty, or observations or bounds differ.
    """
    if not parts:
        raise ValueError("`parts` is empty; expected at least one dataset.")
    bounds = [np.asarray(part.bounds) for part in parts]
    for k, other in enumerate(bounds):
        if other.shape != bounds[0].shape or not np.array_equal(other, bounds[0]):
            raise ValueError(
                f"Dataset {k} has action bounds {other.tolist()}, but the first has "
                f"{bounds[0].tolist()}. Only datasets of the same actuators can be joined."
            )
    whole = [part.steps() for part in parts]
    seen = [_shapes(steps.obs) for steps in whole]
    for k, other in enumerate(seen):
        if other != seen[0]:
            raise ValueError(
                f"Dataset {k} has observations {other}, but the first has {seen[0]}."
            )
    steps = jtu.tree_map(lambda *x: np.concatenate(x), *whole)
    return from_packed(pack(steps), bounds[0], about or _about(parts))


def _shapes(obs: Any) -> dict[str, tuple]:
    leaves = jtu.tree_leaves_with_path(obs)
    return {
        jtu.keystr(path) or "obs": (x.shape[1:], x.dtype.name) for path, x in leaves
    }


def _about(parts: Sequence[Dataset]) -> About:
    """Return the metadata of the first dataset, with the sources of all, and with its
    environment if all agree."""
    first = parts[0].about
    sources = tuple(source for part in parts for source in part.about.sources)
    same = all(part.about.env == first.env for part in parts)
    return first._replace(env=first.env if same else None, sources=sources)


def with_scaled_rewards(data: Dataset) -> Dataset:
    r"""Scale rewards by $1000 / (\max R - \min R)$, with the returns $R$ of trajectories.

    **Raises:** `ValueError` if all trajectories have the same return.

    ??? cite "Reference"
        Kostrikov, Nair, Levine, *Offline reinforcement learning with implicit Q-learning*,
        2022, appendix B.
    """
    returns = data.returns()
    span = float(returns.max() - returns.min())
    if not span > 0.0:
        raise ValueError(
            f"All {len(returns)} trajectories have the return {returns[0]:.6g}, so rewards "
            "cannot be scaled by the range of returns."
        )
    return eqx.tree_at(lambda d: d.reward, data, data.reward * (1000.0 / span))
