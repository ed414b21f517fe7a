"""Observations: one vector, an image, or a dictionary of both.

Kinds of observations and their checks; `Features`, which makes one vector of an observation;
running statistics, by which the vectors of an observation are normalized; and
`acts_on_batches`, by which the method `act` of an agent takes observations with batch axes.
"""

import functools as ft
import math
from collections.abc import Callable
from typing import Any, cast, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from .hyperparameters import cast_floats, float_type
from .parallel import replicate


# Kinds of observations.

_ARRAYS = jax.Array | jax.ShapeDtypeStruct | np.ndarray
_SAME = "Pass one observation of the environment in which the agent was created."


def named(obs: Any) -> dict[str, Any]:
    """Return the parts of an observation by name; a single array is called `obs`."""
    return obs if isinstance(obs, dict) else {"obs": obs}


def is_image(shape: tuple[int, ...]) -> bool:
    """Return true if an array of that shape, of one observation, is an image: (height,
    width, channels)."""
    return len(shape) == 3


def is_vector(obs: Any) -> bool:
    """Return true if an observation is one vector of floating-point numbers."""
    if not isinstance(obs, _ARRAYS) or len(obs.shape) != 1:
        return False
    return jnp.issubdtype(obs.dtype, jnp.floating)


def check_vector(name: str, x: Any, size: int) -> None:
    """Raise `ValueError` unless an input has `size` entries on its last axis.

    **Arguments:**

    - `name`: name of the input in the message.
    """
    is_array = isinstance(x, jax.Array | np.ndarray)
    if not is_array or x.shape[-1:] != (size,):
        found = f"shape {x.shape}" if is_array else f"a `{type(x).__name__}`"
        raise ValueError(
            f"{name} must be a vector of {size} numbers, got {found}. {_SAME}"
        )


def check_parts(setting: str, obs: Any, names: tuple[str, ...]) -> None:
    """Raise `ValueError` for names of parts that an observation does not have.

    **Arguments:**

    - `setting`: name of the setting in the message.
    """
    known = sorted(obs) if isinstance(obs, dict) else []
    for part in names:
        if part not in known:
            shown = f"has the parts {known}" if known else "is a single array"
            raise ValueError(
                f"`{setting}` names {part!r}, but the observation {shown}."
            )


def used_parts(obs: Any, parts: tuple[str, ...]) -> dict[str, Any]:
    """Return the parts of an observation that have one of the names; all without names."""
    return {k: x for k, x in named(obs).items() if not parts or k in parts}


def check_kinds(parts: dict[str, Any], images: bool) -> None:
    """Raise `ValueError` if a part of an observation is neither a vector nor an image, or
    is an image and there is no encoder of `images`."""
    for name, x in sorted(parts.items()):
        if is_vector(x):
            continue
        if not isinstance(x, _ARRAYS) or not is_image(x.shape):
            shown = (
                f"shape {x.shape} and type {x.dtype}" if isinstance(x, _ARRAYS) else x
            )
            raise ValueError(
                "The parts of an observation must be real vectors or images (height, "
                f"width, channels), but {name!r} has {shown}."
            )
        if not images:
            raise ValueError(
                f"The observation {name!r} is an image of shape {x.shape}, which needs "
                "an encoder. Set `inputs=eqsim_zoo.vision.Images()`."
            )


def check_same_parts(
    obs: dict[str, Any], shapes: tuple[tuple[str, tuple[int, ...]], ...], every: bool
) -> None:
    """Raise `ValueError` unless an observation has the parts with which networks were
    created.

    **Arguments:**

    - `obs`: parts of an observation, by name.
    - `shapes`: names and shapes of the parts that networks use.
    - `every`: true if there must be no other parts.
    """
    known, wrong = dict(shapes), ""
    for name, shape in shapes:
        if name not in obs:
            wrong = f"{name!r} is missing"
        elif jnp.shape(obs[name])[-len(shape) :] != shape:
            wrong = f"{name!r} has shape {jnp.shape(obs[name])}"
    others = [name for name in obs if every and name not in known]
    if wrong or others:
        raise ValueError(
            f"`obs` must have the parts {known} (shapes by name), but "
            f"{wrong or f'{others[0]!r} is none of them'}. {_SAME}"
        )


# From an observation to the input of a network.


class Features(eqx.Module):
    """Map an observation to one vector: its vectors, and the features of its images, in the
    order of their names.

    **Arguments:**

    - `encoders`: network of each image, by name; empty without images.
    - `parts`: names of the parts of a dictionary that are used; all if empty.
    - `shapes`: names and shapes of the used parts, which are checked.
    """

    encoders: dict[str, Any]
    parts: tuple[str, ...] = eqx.field(static=True)
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    @staticmethod
    def create(
        obs: Any,
        parts: tuple[str, ...] = (),
        encoder: Callable[[int, tuple[int, ...]], Any] | None = None,
    ) -> "Features":
        """Create the map.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `parts`: names of the parts that are used; all if empty.
        - `encoder`: `(number of the part, shape) -> network` of an image.

        **Raises:** `ValueError` if a part that is used is an image and there is no
        encoder, or is neither a vector nor an image.
        """
        used = sorted(used_parts(obs, parts).items())
        check_kinds(dict(used), images=encoder is not None)
        networks = {}
        for k, (name, x) in enumerate(used):
            if encoder is not None and is_image(x.shape):
                networks[name] = encoder(k, tuple(x.shape))
        return Features(networks, parts, tuple((k, tuple(x.shape)) for k, x in used))

    def __call__(self, obs: Any) -> Float[Array, " features"]:
        every = named(obs)
        check_same_parts(every, self.shapes, not self.parts)
        keep = lambda x: x
        seen = [self.encoders.get(name, keep)(every[name]) for name, _ in self.shapes]
        return seen[0] if len(seen) == 1 else jnp.concatenate(seen)

    def size(self, obs: Any) -> int:
        """Return the number of features of observations like `obs`."""
        zeros = lambda x: jnp.zeros(x.shape, x.dtype)
        return jax.eval_shape(self, jtu.tree_map(zeros, obs)).shape[0]


# Running statistics.

ObservationStatistics: TypeAlias = RunningStatistics | dict[str, RunningStatistics]
_Statistics = TypeVar("_Statistics", bound=ObservationStatistics | None)

LIMIT = 10.0
"""Bound of normalized observations."""


def init_statistics(obs: Any) -> Any:
    """Return statistics of one observation with mean 0 and variance 1.

    **Arguments:**

    - `obs`: a vector, an image, or a dictionary of both, of which shapes and types matter.

    **Returns:** `RunningStatistics` for a vector; else those of each vector, by name.
    """
    return _initial(obs) if is_vector(obs) else init_observation_statistics(obs)


def _initial(obs: Any, dtype: Any = None) -> RunningStatistics:
    none = jnp.zeros(obs.shape, dtype or obs.dtype)
    return RunningStatistics(jnp.ones((), none.dtype), none, none + 1.0)


def init_observation_statistics(
    obs: Any, dtype: Any = None
) -> dict[str, RunningStatistics]:
    """Return initial statistics of the vectors of an observation, by name.

    **Arguments:**

    - `dtype`: type of the statistics; by default that of each vector.
    """
    vectors = {k: x for k, x in named(obs).items() if not is_image(x.shape)}
    return {k: _initial(x, dtype) for k, x in vectors.items()}


def observation_statistics(obs: Any) -> dict[str, RunningStatistics]:
    """Return the statistics of the vectors of many observations, along the first axis.

    ??? cite "Reference"
        Fujimoto, Gu, *A minimalist approach to offline reinforcement learning*, 2021,
        section 5.
    """
    found = {}
    for name, rows in named(obs).items():
        if is_image(rows.shape[1:]):
            continue
        mean = jnp.mean(rows, axis=0)
        # A second pass, as the sum of a million numbers is not exact.
        mean = mean + jnp.mean(rows - mean[None], axis=0)
        spread = jnp.sum((rows - mean[None]) ** 2, axis=0)
        count = jnp.full((), rows.shape[0], rows.dtype)
        found[name] = RunningStatistics(count, mean, spread)
    return found


def update_statistics(
    statistics: _Statistics,
    obs: Any,
    valid: Bool[Array, " rows"] | None = None,
) -> _Statistics:
    """Merge observations into running statistics (Chan, Golub, LeVeque 1979); None stays
    None.

    **Arguments:**

    - `obs`: observations along the first axis.
    - `valid`: true for rows that count; all by default.
    """
    if isinstance(statistics, dict):
        rows = named(obs)
        new = {k: _updated(each, rows[k], valid) for k, each in statistics.items()}
    elif isinstance(statistics, RunningStatistics):
        new = _updated(statistics, obs, valid)
    else:
        new = None
    return cast(_Statistics, new)


def _updated(
    statistics: RunningStatistics,
    obs: Float[Array, "rows nobs"],
    valid: Bool[Array, " rows"] | None,
) -> RunningStatistics:
    weight = jnp.ones(obs.shape[0], obs.dtype)
    if valid is not None:
        weight = weight * valid.astype(obs.dtype)
    count = jnp.sum(weight)
    mean = weight @ obs / jnp.maximum(count, 1.0)
    new = RunningStatistics(count, mean, weight @ (obs - mean[None]) ** 2)
    pair = lambda x, y: jnp.stack([x, y])
    return replicate(jtu.tree_map(pair, statistics, new).merged())


def normalize(statistics: ObservationStatistics | None, obs: Any) -> Any:
    """Subtract the mean and divide by the standard deviation, clipped to `LIMIT`, all
    vectors of one observation. Without statistics, return the observation unchanged.

    **Raises:** `ValueError` if a vector has another size than its statistics.
    """
    if statistics is None:
        return obs
    if isinstance(statistics, RunningStatistics):
        return _normalized(statistics, obs, "`obs`")
    scaled = lambda k, x: _normalized(statistics[k], x, f"`obs[{k!r}]`")
    one = lambda k, x: scaled(k, x) if k in statistics else x
    if not isinstance(obs, dict):
        return one("obs", obs)
    return {k: one(k, x) for k, x in obs.items()}


def _normalized(
    statistics: RunningStatistics, x: Any, name: str
) -> Float[Array, "..."]:
    check_vector(name, x, statistics.mean.shape[-1])
    return jnp.clip(statistics.normalize(x), -LIMIT, LIMIT)


def denormalize(
    statistics: RunningStatistics, x: Float[Array, " nobs"]
) -> Float[Array, " nobs"]:
    """Invert `normalize`, within `LIMIT`."""
    # The difference of two, as the small number in the root is not ours.
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    slope = statistics.normalize(one) - statistics.normalize(zero)
    return statistics.mean + x / slope


# Actions for batches of observations.


def acts_on_batches(act: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of the method `act` of an agent, which computes one action, so that it also
    takes observations with leading batch axes, and numbers of the agent have the
    floating-point type of the state.

    Images are recognized by the `Features` in the state; every other observation is a
    vector. With a key, each observation of a batch has a key of its own. The state needs
    the field `key`.

    !!! example

        ```python
        @blocks.acts_on_batches
        def act(self, state, obs, *, key=None):
            return blocks.scale_action(state.bounds, state.learner.model(obs))
        ```

    The method raises `ValueError` if the observation is a single number, its parts have
    different batch axes, or the state is that of several members.
    """

    @ft.wraps(act)
    def batched(
        self: Any, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
        name = f"`{type(self).__name__}.act`"
        self = cast_floats(self, float_type(state))
        _check_single(name, state)
        parts, batch = _parts(name, state, obs)
        if not batch:
            return act(self, state, obs, key=key)
        flat = lambda x: jnp.reshape(x, (-1, *jnp.shape(x)[len(batch) :]))
        rows = {part: flat(x) for part, x in parts.items()}
        one = lambda row, key: act(
            self, state, row if isinstance(obs, dict) else row["obs"], key=key
        )
        keys = None if key is None else jr.split(key, math.prod(batch))
        found = jax.vmap(one, in_axes=(0, None if key is None else 0))(rows, keys)
        return found.reshape(*batch, *found.shape[1:])

    return batched


def _check_single(name: str, state: Any) -> None:
    if state.key.ndim:
        raise ValueError(
            f"{name} needs the state of one member, got that of {state.key.size} members. "
            "Select one with `result.members.pick(state, member)`, or map over all of "
            "them with `eqx.filter_vmap`."
        )


def _parts(name: str, state: Any, obs: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the parts of an observation that networks see, by name, and their batch
    axes."""
    is_map = lambda x: isinstance(x, Features)
    found = [x for x in jtu.tree_leaves(state, is_leaf=is_map) if is_map(x)]
    parts = named(obs)
    if found and all(x.parts for x in found):
        used = {part for x in found for part in x.parts}
        parts = {part: x for part, x in parts.items() if part in used}
    images = {part for x in found for part in x.encoders}
    batch = {}
    for part, x in parts.items():
        rank, shape = 3 if part in images else 1, jnp.shape(x)
        if len(shape) < rank:
            kind = "an image (height, width, channels)" if rank == 3 else "a vector"
            raise ValueError(
                f"{name}: the observation {part!r} must be {kind}, or a batch of them, "
                f"got shape {shape}."
            )
        batch[part] = shape[: len(shape) - rank]
    if len({*batch.values()}) > 1:
        raise ValueError(
            f"{name}: the parts of an observation must have the same batch axes, got "
            f"{batch}."
        )
    return parts, next(iter(batch.values()), ())
