"""Observations of offline agents: vectors, images, or dictionaries of both."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..blocks import init_statistics, normalize
from . import AbstractEncoder


def named(obs: Any) -> dict[str, Any]:
    """An observation by name; of a single array that is `obs`."""
    return obs if isinstance(obs, dict) else {"obs": obs}


def is_image(shape: tuple[int, ...]) -> bool:
    """Return true if an array of that shape, of one observation, is an image: (height,
    width, channels)."""
    return len(shape) == 3


def check_image_settings(name: str, obs: Any, settings: dict[str, Any]) -> None:
    """Raise `ValueError` for image settings of an agent that observes no images.

    **Arguments:**

    - `name`: name of the agent.
    - `settings`: image settings by name; empty ones are not set.
    """
    shapes = {k: x.shape for k, x in named(obs).items()}
    if any(is_image(shape) for shape in shapes.values()):
        return
    for setting, value in settings.items():
        if value:
            raise ValueError(
                f"`{name}.{setting}` is {value!r}, which is for images (height, width, "
                f"channels), and the observation has none; its shapes: {shapes}. Leave it "
                "out, or wrap the environment in `eqsim.wrappers.Pixels`."
            )


class Encoders(eqx.Module):
    """Map an observation to one vector: its vectors, and the features of its images, in the
    order of their names.

    **Arguments:**

    - `networks`: network of each image, by name.
    """

    networks: dict[str, Any]

    @staticmethod
    def create(
        key: PRNGKeyArray, obs: Any, encoder: AbstractEncoder | None, dtype: Any
    ) -> "Encoders":
        """Create networks.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `encoder`: encoder of images.

        **Raises:** `ValueError` if it holds images, and there is no encoder, or if it
        holds arrays that are neither vectors nor images.
        """
        networks = {}
        for k, (name, x) in enumerate(sorted(named(obs).items())):
            if len(x.shape) == 1 and jnp.issubdtype(x.dtype, jnp.floating):
                continue
            if not is_image(x.shape):
                raise ValueError(
                    f"The observation {name!r} has shape {x.shape} and type {x.dtype}: "
                    "vectors of real numbers, and images (height, width, channels), are "
                    "expected."
                )
            if encoder is None:
                raise ValueError(
                    f"The observation {name!r} is an image of shape {x.shape}: an agent "
                    "needs an `encoder` for it, such as `eqsim_zoo.vision.Impala()`."
                )
            networks[name] = encoder.create(jr.fold_in(key, k), x.shape, dtype)
        return Encoders(networks)

    def __call__(self, obs: Any) -> Float[Array, " features"]:
        parts = named(obs)
        seen = [
            self.networks[name](parts[name]) if name in self.networks else parts[name]
            for name in sorted(parts)
        ]
        return seen[0] if len(seen) == 1 else jnp.concatenate(seen)


class EncodedNetwork(eqx.Module):
    """A network after `senses`.

    **Arguments:**

    - `senses`: from observations to vectors.
    - `network`: network that takes the features.
    """

    senses: Encoders
    network: Any

    def __call__(self, obs: Any, *args: Any) -> Any:
        return self.network(self.senses(obs), *args)


def init_observation_statistics(obs: Any, dtype: Any) -> dict[str, Statistics]:
    """Return the initial statistics of the vectors of an observation."""
    vectors = {k: x for k, x in named(obs).items() if not is_image(x.shape)}
    return {k: init_statistics(jnp.zeros(x.shape, dtype)) for k, x in vectors.items()}


def observation_statistics(obs: Any) -> dict[str, Statistics]:
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
        found[name] = Statistics(count, mean, spread)
    return found


def normalize_observations(statistics: dict[str, Statistics] | None, obs: Any) -> Any:
    """An observation with its vectors normalized; as it is without statistics."""
    if statistics is None:
        return obs
    one = lambda k, x: normalize(statistics[k], x) if k in statistics else x
    if not isinstance(obs, dict):
        return one("obs", obs)
    return {k: one(k, x) for k, x in obs.items()}


def encoded_size(senses: Encoders, obs: Any) -> int:
    """Return the number of outputs of `senses`."""
    zeros = lambda x: jnp.zeros(x.shape, x.dtype)
    return jax.eval_shape(senses, jtu.tree_map(zeros, obs)).shape[0]
