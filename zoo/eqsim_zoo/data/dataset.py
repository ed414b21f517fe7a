"""Metadata of datasets."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, Trajectory

from ..blocks.collecting import Transition
from ..blocks.policies import unscale_action
from .packing import (
    check_steps,
    flatten,
    HostArray,
    is_host,
    pack,
    Packed,
    Steps,
    take,
    to_device,
)


class About(NamedTuple):
    """Metadata of a dataset.

    - `env`: name of the environment; None if unknown.
    - `sources`: descriptions of the policies that acted.
    - `random_return`, `expert_return`: mean returns of a random and of an expert policy, by
        which scores are normalized; None if unknown.
    """

    env: str | None = None
    sources: tuple[str, ...] = ()
    random_return: float | None = None
    expert_return: float | None = None

    def score(self, returns: float) -> float:
        r"""Return the normalized score
        $100\,(R - R_\mathrm{random}) / (R_\mathrm{expert} - R_\mathrm{random})$; NaN if
        both returns are equal.

        **Raises:** `ValueError` if one of the two returns is unknown.

        ??? cite "Reference"
            Fu et al., *D4RL: datasets for deep data-driven reinforcement learning*, 2020,
            section 5.
        """
        if self.random_return is None or self.expert_return is None:
            raise ValueError(
                "A score needs the returns of a random and of an expert policy, but "
                f"`random_return` is {self.random_return} and `expert_return` is "
                f"{self.expert_return}. Record the dataset with both, or set them."
            )
        span = self.expert_return - self.random_return
        return 100.0 * (returns - self.random_return) / (span or float("nan"))


class Dataset(eqx.Module):
    """Steps of many trajectories, one after the other.

    An observation that ends one step and begins the next one is stored once. Two flags
    are distinguished: after a terminated step (`mask` is 0) no value is bootstrapped; a
    terminal step is the last of its trajectory, by termination or truncation.

    **Arguments:**

    - `frames`: observations, a PyTree of arrays with a leading frame axis, on the device
        or as `HostArray`.
    - `at`: index of the frame in which each step begins; it ends in the next frame.
    - `action`: action of each step, in physical units.
    - `reward`: reward of each step.
    - `terminated`: true if the step terminated its episode.
    - `last`: index of the last step of each step's trajectory.
    - `bounds`: lower and upper bounds of actions.
    - `about`: metadata.
    """

    frames: Any
    at: Int[Array, " steps"]
    action: Any
    reward: Float[Array, " steps"]
    terminated: Bool[Array, " steps"]
    last: Int[Array, " steps"]
    bounds: Float[Array, "nu 2"]
    about: About = eqx.field(static=True)

    @staticmethod
    def create(
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        *,
        bounds: Any = None,
        clip: bool = False,
        about: About = About(),
    ) -> "Dataset":
        """Make a dataset from steps in the order in which they were taken.

        **Arguments:**

        - `obs`, `action`, `reward`, `next_obs`: arrays with a leading step axis.
        - `terminated`, `truncated`: true if the step ended its episode, and true if the
            trajectory was cut off after it. The last step always ends a trajectory.
        - `bounds`: lower and upper bounds of actions, (nu, 2); by default -1 and 1.
        - `clip`: true to clip actions to the bounds.
        - `about`: metadata.

        **Raises:** `ValueError` if there are no steps, shapes do not fit, values are not
        finite, or actions are outside the bounds.
        """
        steps = Steps(obs, action, reward, next_obs, terminated, truncated)
        return Dataset.of(steps, bounds=bounds, clip=clip, about=about)

    @staticmethod
    def of(
        steps: Steps,
        *,
        bounds: Any = None,
        clip: bool = False,
        about: About = About(),
    ) -> "Dataset":
        """Make a dataset from `Steps` with one axis, with actions in physical units; see
        `create`."""
        steps, limits = check_steps(steps, bounds, clip)
        return from_packed(pack(steps), limits, about)

    def __len__(self) -> int:
        return self.reward.shape[0]

    @property
    def mask(self) -> Float[Array, " steps"]:
        """Bootstrap mask: 0 where the episode terminated, 1 elsewhere."""
        return 1.0 - self.terminated.astype(self.reward.dtype)

    @property
    def terminal(self) -> Bool[Array, " steps"]:
        """True at the last step of each trajectory."""
        return self.last == jnp.arange(len(self), dtype=self.last.dtype)

    def rows(self, index: Int[Array, "*n"]) -> Transition:
        """Return steps by index, with actions scaled to [-1, 1]."""
        index = jnp.asarray(index, self.at.dtype)
        at, over = self.at[index], self.last[index] == index
        obs, next_obs = take(self.frames, at), take(self.frames, at + 1)
        action = unscale_action(self.bounds, take(self.action, index))
        terminated = self.terminated[index]
        cut = over & ~terminated
        return Transition(obs, action, self.reward[index], next_obs, terminated, cut)

    def sample(self, key: PRNGKeyArray, number: int) -> Transition:
        """Draw steps uniformly with replacement; see `rows`."""
        return self.rows(jr.randint(key, (number,), 0, len(self), self.at.dtype))

    def sample_sequences(
        self, key: PRNGKeyArray, number: int, length: int
    ) -> tuple[Transition, Bool[Array, "number length"]]:
        """Draw sequences of steps, each starting at a uniformly drawn step.

        **Returns:** steps with axes (sequence, time), and a mask of valid steps. After the
        end of a trajectory its last step is repeated and the mask is false.
        """
        first = jr.randint(key, (number,), 0, len(self), self.at.dtype)
        index = first[:, None] + jnp.arange(length, dtype=first.dtype)[None]
        end = self.last[first][:, None]
        return self.rows(jnp.minimum(index, end)), index <= end

    def vectors(self) -> dict[str, Any]:
        """Return the vector observations in which steps begin, by name; a single array is
        named `obs`."""
        named = self.frames if isinstance(self.frames, dict) else {"obs": self.frames}
        shape = lambda x: (x.array if is_host(x) else x).shape
        return {k: take(x, self.at) for k, x in named.items() if len(shape(x)) == 2}

    def digest(self) -> str:
        """Return a hash of the dataset, as hexadecimal text."""
        found, host = hashlib.sha256(), self.on_host()
        for path, x in jtu.tree_leaves_with_path(host, is_leaf=is_host):
            x = x.array if is_host(x) else np.asarray(x)
            found.update(str((jtu.keystr(path), x.shape, x.dtype)).encode())
            found.update(np.ascontiguousarray(x).data)
        return found.hexdigest()[:32]

    def ends(self) -> Int[np.ndarray, " trajectories"]:
        """Return the index of the last step of each trajectory."""
        return np.flatnonzero(np.asarray(self.terminal))

    def spans(self) -> list[range]:
        """Return the range of step indices of each trajectory."""
        ends = self.ends() + 1
        return [range(a, b) for a, b in zip([0, *ends[:-1]], ends)]

    def trajectory(self, number: int) -> Transition:
        """Return all steps of one trajectory; see `rows`."""
        return self.rows(jnp.asarray(self.spans()[number]))

    def returns(self) -> Float[np.ndarray, " trajectories"]:
        """Return the sum of rewards of each trajectory."""
        reward = np.asarray(self.reward, np.float64)
        return np.asarray([reward[span].sum() for span in map(_slice, self.spans())])

    def subset(self, trajectories: Sequence[int] | Int[np.ndarray, " n"]) -> "Dataset":
        """Return a dataset of some trajectories, in the given order, on the host if this
        one is.

        **Raises:** `ValueError` if no trajectories are given.
        """
        if not len(trajectories):
            raise ValueError("`trajectories` is empty; expected at least one index.")
        spans = self.spans()
        chosen = [spans[int(k)] for k in trajectories]
        index = np.concatenate([np.asarray(span) for span in chosen])
        whole = self.on_host()
        steps = whole._steps(index, np.concatenate([_ends(span) for span in chosen]))
        data = from_packed(pack(steps), np.asarray(self.bounds), self.about)
        return data.on_host() if self.is_on_host else data

    def shard(self, number: int, count: int) -> "Dataset":
        """Return every `count`-th trajectory from `number` on: the part of one process in
        distributed training.

        **Raises:** `ValueError` if there are fewer trajectories than shards.
        """
        trajectories = len(self.ends())
        if not 0 <= number < count or trajectories < count:
            raise ValueError(
                f"Shard {number} of {count}, of {trajectories} trajectories: `number` must be "
                "from 0 to `count` - 1, and each shard needs at least one trajectory."
            )
        return self.subset(range(number, trajectories, count))

    @property
    def is_on_host(self) -> bool:
        """True if observations and actions are in host memory."""
        return any(map(is_host, jtu.tree_leaves(self.frames, is_leaf=is_host)))

    def on_host(self) -> "Dataset":
        """Return a copy with observations and actions in host memory. Batches are fetched
        from there during training, by a callback inside compiled programs."""
        moved = lambda tree: jtu.tree_map(
            lambda x: x if is_host(x) else HostArray.of(x), tree, is_leaf=is_host
        )
        return self._with(moved(self.frames), moved(self.action))

    def on_device(self) -> "Dataset":
        """Return a copy with all arrays on the device."""
        return self._with(to_device(self.frames), to_device(self.action))

    def _with(self, frames: Any, action: Any) -> "Dataset":
        where = lambda data: (data.frames, data.action)
        leaf = lambda x: x is self.frames or x is self.action
        return eqx.tree_at(where, self, (frames, action), is_leaf=leaf)

    def _steps(
        self, index: Int[np.ndarray, " n"], ends: Bool[np.ndarray, " n"]
    ) -> Steps:
        """Return recorded steps as NumPy arrays."""
        at = np.asarray(self.at)[index]
        raw = lambda tree, i: jtu.tree_map(lambda x: x.array[i], tree, is_leaf=is_host)
        over = np.asarray(self.terminated)[index]
        return Steps(
            raw(self.frames, at),
            raw(self.action, index),
            np.asarray(self.reward)[index],
            raw(self.frames, at + 1),
            over,
            ends & ~over,
        )

    def steps(self) -> Steps:
        """Return all recorded steps as NumPy arrays, with actions in physical units."""
        return self.on_host()._steps(np.arange(len(self)), np.asarray(self.terminal))


def from_packed(packed: Packed, bounds: Any, about: About) -> Dataset:
    """Return a dataset on the device."""
    index = lambda x: jnp.asarray(x, jnp.int32)
    return Dataset(
        to_device(packed.frames),
        index(packed.at),
        jnp.asarray(packed.action),
        jnp.asarray(packed.reward),
        jnp.asarray(packed.terminated),
        index(packed.last),
        jnp.asarray(bounds, packed.action.dtype),
        about,
    )


def _slice(span: range) -> slice:
    return slice(span.start, span.stop)


def _ends(span: range) -> Bool[np.ndarray, " n"]:
    return np.arange(len(span)) == len(span) - 1


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


def from_trajectory(
    trajectory: Trajectory, env: AbstractEnv, *, about: About = About()
) -> Dataset:
    """Convert a rollout, batched or not, to a dataset.

    Steps that were not taken (`valid` is false) and separate reset steps of `AutoReset`
    (`first` is true) are left out, as are, without `AutoReset`, steps after the end of an
    episode. Episodes that are unfinished at the end of the rollout are truncated.

    **Arguments:**

    - `trajectory`: result of `eqsim.rollout` without `collect`.
    - `env`: environment of the rollout; its action bounds are those of the dataset.
    - `about`: metadata.

    **Raises:** `ValueError` if no step is left, actions are unbounded or outside their
    bounds, or a value is not finite.
    """
    timestep = trajectory.timestep
    restarts = timestep.final_obs is not None
    axes, length = trajectory.valid.ndim, trajectory.valid.shape[-1]

    def rows(tree):
        flat = lambda x: np.asarray(x).reshape(-1, length, *x.shape[axes:])
        return jtu.tree_map(flat, tree)

    steps = Steps(
        rows(trajectory.obs),
        rows(trajectory.action),
        rows(timestep.reward),
        rows(timestep.final_obs if restarts else timestep.obs),
        rows(timestep.terminated),
        rows(timestep.truncated),
    )
    valid, first = rows(trajectory.valid), rows(timestep.first)
    kept = valid & ~first
    if not restarts:
        over = np.logical_or.accumulate(steps.done & kept, axis=1)
        kept[:, 1:] &= ~over[:, :-1]
    return Dataset.of(flatten(steps, kept), bounds=env.action_range, about=about)
