"""Networks for observations that are vectors, images, or dictionaries of both."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from eqsim import AbstractOnlineAgent

from ..blocks.hyperparameters import static


# From 0 to 255 in bytes, or from 0 to 1.
Image: TypeAlias = (
    UInt8[Array, "height width channels"] | Float[Array, "height width channels"]
)
_ARRAYS = jax.Array | jax.ShapeDtypeStruct | np.ndarray
Encoder: TypeAlias = Callable[[Image], Float[Array, " outputs"]]
_SAME = "Pass one observation of the environment in which the agent was created."


class AbstractEncoder(eqx.Module):
    """Configuration of an image encoder: its sizes, independent of the images."""

    @abc.abstractmethod
    def create(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        dtype: Any = jnp.float32,
    ) -> Encoder:
        """Create an untrained network, an `eqx.Module`.

        **Arguments:**

        - `shape`: height, width and channels of an image.
        - `dtype`: type of weights and results. Images are floats between 0 and 1, or
            bytes; networks see them scaled to values from -0.5 to 0.5.

        **Raises:** `ValueError` if the images are too small.
        """


class AbstractAugmentation(eqx.Module):
    """A random change of an image that keeps its shape and type."""

    @abc.abstractmethod
    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        """Return the changed image; equal keys give equal changes."""


def augment(
    augmentations: tuple[AbstractAugmentation, ...], obs: Any, key: PRNGKeyArray
) -> Any:
    """Apply augmentations to the images of one observation, one after the other.

    An array with three axes is an image; other arrays stay as they are. All images see
    the same random numbers: what was equal, such as an observation and its goal, stays
    equal.

    **Arguments:**

    - `obs`: an array, or a PyTree of arrays.

    **Raises:** `ValueError` if an array has more axes, like a batch, or an image has
    neither bytes nor floating-point numbers.
    """
    keys = [jr.fold_in(key, k) for k in range(len(augmentations))]

    def change(x: Any) -> Any:
        if not _checked_image(x):
            return x
        for augmentation, each in zip(augmentations, keys):
            x = augmentation(x, each)
        return x

    return jtu.tree_map(change, obs)


def _checked_image(x: Any) -> bool:
    if jnp.ndim(x) > 3:
        raise ValueError(
            f"An observation has an array of shape {jnp.shape(x)}, but an image has 3 "
            "axes. For a batch, use `jax.vmap`, with a key for each row."
        )
    if jnp.ndim(x) < 3:
        return False
    if x.dtype != jnp.uint8 and not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            "An image must have type uint8 with values from 0 to 255, or a "
            f"floating-point type with values from 0 to 1, got {x.dtype}."
        )
    return True


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
                f"channels), but the observation has none; its shapes are {shapes}. "
                "Leave it out, or wrap the environment in `eqsim.wrappers.Pixels`."
            )


def check_parts(name: str, obs: Any, parts: dict[str, tuple[str, ...]]) -> None:
    """Raise `ValueError` for names of parts that an observation does not have.

    **Arguments:**

    - `name`: name of the agent.
    - `parts`: names by setting; none means all.
    """
    known = sorted(obs) if isinstance(obs, dict) else []
    for setting, names in parts.items():
        unknown = [part for part in names if part not in known]
        if unknown:
            shown = f"has the parts {known}" if known else "is a single array"
            raise ValueError(
                f"`{name}.{setting}` names {unknown[0]!r}, but the observation {shown}."
            )


def used_parts(obs: Any, parts: tuple[str, ...]) -> dict[str, Any]:
    """Return the parts of an observation that have one of the names; all without names."""
    return {k: x for k, x in named(obs).items() if not parts or k in parts}


def check_kinds(parts: dict[str, Any], encoder: AbstractEncoder | None) -> None:
    """Raise `ValueError` if a part of an observation is neither a vector nor an image, or
    is an image and there is no encoder."""
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
        if encoder is None:
            raise ValueError(
                f"The observation {name!r} is an image of shape {x.shape}, which needs "
                "an `encoder`, such as `eqsim_zoo.vision.Impala()`."
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


class Encoders(eqx.Module):
    """Map an observation to one vector: its vectors, and the features of its images, in the
    order of their names.

    **Arguments:**

    - `networks`: network of each image, by name.
    - `parts`: names of the parts of a dictionary that are used; all if empty.
    - `shapes`: names and shapes of the used parts, which are checked; none if empty.
    """

    networks: dict[str, Any]
    parts: tuple[str, ...] = eqx.field(static=True, default=())
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True, default=())

    @staticmethod
    def create(
        key: PRNGKeyArray,
        obs: Any,
        encoder: AbstractEncoder | None,
        dtype: Any,
        parts: tuple[str, ...] = (),
    ) -> "Encoders":
        """Create networks.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `encoder`: encoder of images.
        - `parts`: names of the parts that are used; all if empty.

        **Raises:** `ValueError` if a part that is used is an image and there is no
        encoder, or is neither a vector nor an image.
        """
        networks, used = {}, used_parts(obs, parts)
        check_kinds(used, encoder)
        for k, (name, x) in enumerate(sorted(used.items())):
            if encoder is not None and is_image(x.shape):
                networks[name] = encoder.create(jr.fold_in(key, k), x.shape, dtype)
        shapes = tuple((name, tuple(x.shape)) for name, x in sorted(used.items()))
        return Encoders(networks, parts, shapes)

    def __call__(self, obs: Any) -> Float[Array, " features"]:
        every = named(obs)
        if self.shapes:
            check_same_parts(every, self.shapes, not self.parts)
        seen = [
            self.networks[name](every[name]) if name in self.networks else every[name]
            for name in sorted(self.parts or every)
        ]
        return seen[0] if len(seen) == 1 else jnp.concatenate(seen)


class EncodedNetwork(eqx.Module):
    """A network that takes the features of an observation.

    **Arguments:**

    - `senses`: map from observations to vectors.
    - `network`: network that takes the features.
    """

    senses: Encoders
    network: Any

    def __call__(self, obs: Any, *args: Any) -> Any:
        return self.network(self.senses(obs), *args)


def encoded_size(senses: Encoders, obs: Any) -> int:
    """Return the number of outputs of `senses`."""
    zeros = lambda x: jnp.zeros(x.shape, x.dtype)
    return jax.eval_shape(senses, jtu.tree_map(zeros, obs)).shape[0]


def encoded_network(
    key: PRNGKeyArray,
    obs: Any,
    make: Callable[[PRNGKeyArray, int], Any],
    encoder: AbstractEncoder | None,
    dtype: Any,
    parts: tuple[str, ...] = (),
) -> Any:
    """Create a network for an observation: an `EncodedNetwork`, or `make(key, size)`
    itself for a vector.

    **Arguments:** those of `Encoders.create`, and

    - `make`: `(key, number of features) -> network`.
    """
    if is_vector(obs):
        return make(key, obs.shape[0])
    key_senses, key = jr.split(key)
    senses = Encoders.create(key_senses, obs, encoder, dtype, parts)
    return EncodedNetwork(senses, make(key, encoded_size(senses, obs)))


class Eyes(eqx.Module):
    """Map from observations to the inputs of a network: observations themselves, or their
    features by the encoders `senses`."""

    senses: Encoders | None

    def __call__(self, obs: Any) -> Any:
        return obs if self.senses is None else self.senses(obs)


def eyes(agent: Any, critic: Any) -> Eyes:
    """Return the encoder of the networks other than the critic."""
    return Eyes(critic.senses if agent.shared_encoder else None)


class Through(eqx.Module):
    """A network that takes the features of a shared encoder.

    **Arguments:**

    - `eyes`: the shared encoder.
    - `network`: network that takes the features.
    """

    eyes: Eyes
    network: Any

    def __call__(self, obs: Any) -> Any:
        return self.network(self.eyes(obs))


class AbstractEncodingAgent(AbstractOnlineAgent):
    """An online agent whose observations are vectors, images, or dictionaries of both.

    Actor and critic may see different parts of a dictionary. An actor that acts on a real
    robot then needs only what `actor_parts` names, while the critic learns from
    `privileged` observations of the simulation.

    **Arguments:**

    - `encoder`: image encoder, such as `eqsim_zoo.vision.SmallCNN()`; actor and critic
        each have one.
    - `actor_parts`, `critic_parts`: names of the observations that the network sees; all
        if empty.

    ??? cite "Reference"
        Pinto et al., *Asymmetric actor critic for image-based robot learning*, 2018,
        section 4.
    """

    encoder: AbstractEncoder | None = None
    actor_parts: tuple[str, ...] = static(())
    critic_parts: tuple[str, ...] = static(())

    def __check_init__(self):
        check_encoder(type(self).__name__, self.encoder)

    def check_observation(self, obs: Any) -> None:
        """Raise `ValueError` if the agent cannot observe `obs`: an image setting without
        an image, or the name of a part that does not exist."""
        name, settings = type(self).__name__, ("actor_parts", "critic_parts")
        parts = {setting: vars(self)[setting] for setting in settings}
        check_parts(name, obs, parts)
        for names in parts.values():
            check_kinds(used_parts(obs, names), self.encoder)
        check_image_settings(name, obs, self.image_settings())

    def image_settings(self) -> dict[str, Any]:
        """Return the settings that are only for images, by name."""
        return {"encoder": self.encoder}

    def actor_encoded(
        self, key: PRNGKeyArray, obs: Any, make: Callable, dtype: Any
    ) -> Any:
        """Create the network of the actor, see `encoded_network`."""
        parts = self.actor_parts
        return encoded_network(key, obs, make, self.encoder, dtype, parts)

    def critic_encoded(
        self, key: PRNGKeyArray, obs: Any, make: Callable, dtype: Any
    ) -> Any:
        """Create the network of the critic, see `encoded_network`."""
        parts = self.critic_parts
        return encoded_network(key, obs, make, self.encoder, dtype, parts)


def check_encoder(name: str, encoder: Any) -> None:
    """Raise `ValueError` unless `encoder` is an encoder or None."""
    if not isinstance(encoder, AbstractEncoder | None):
        raise ValueError(
            f"`{name}.encoder` must be None or an encoder, such as "
            f"`eqsim_zoo.vision.Impala()`, got {encoder!r}. Set it in Python."
        )


def check_augmentations(name: str, parts: Any) -> None:
    """Raise `ValueError` unless `parts` is a tuple of augmentations."""
    fine = isinstance(parts, tuple)
    if not fine or not all(isinstance(x, AbstractAugmentation) for x in parts):
        raise ValueError(
            f"`{name}.augmentations` must be a tuple, such as "
            f"`(eqsim_zoo.vision.RandomCrop(4),)`, got {parts!r}. Set it in Python."
        )
