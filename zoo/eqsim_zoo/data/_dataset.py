"""Datasets of recorded steps."""

import hashlib
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..blocks import Transition, unscale
from ._about import About
from ._checks import check_steps
from ._host import HostArray, is_host, take, to_device
from ._pack import pack, Packed
from ._steps import Steps


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
        action = unscale(self.bounds, take(self.action, index))
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

    def whole(self, length: int) -> Bool[np.ndarray, " trajectories"]:
        """Return a mask of complete trajectories: those that terminated or have at least
        `length` steps. Others were cut off where the recording stopped."""
        ends = self.ends()
        return np.asarray(self.terminated)[ends] | (np.diff(ends, prepend=-1) >= length)

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
