"""Agents that see images: `Images` creates their networks with encoders, and augments."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from ..blocks.hyperparameters import static
from ..blocks.networks import AbstractInputs, check_inputs, FeaturesNetwork
from ..blocks.observations import Features, is_image, is_vector, named


# From 0 to 255 in bytes, or from 0 to 1.
Image: TypeAlias = (
    UInt8[Array, "height width channels"] | Float[Array, "height width channels"]
)
Encoder: TypeAlias = Callable[[Image], Float[Array, " outputs"]]


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


class Images(AbstractInputs):
    """Observations with images: a network sees the features of each image and the vectors,
    in the order of their names.

    Pass it as `inputs` of an agent: `PPO(inputs=vision.Images(vision.SmallCNN()))`.

    **Arguments:** those of `AbstractInputs`, and

    - `encoder`: image encoder, such as `eqsim_zoo.vision.SmallCNN()`; each network has its
        own, unless it is `shared`.
    - `shared`: true if the other networks use the encoder of the critic, which alone trains
        it; all then see the same parts.
    - `augmentations`: image augmentations in their order, drawn for each row of a batch.
    """

    encoder: AbstractEncoder
    shared: bool = static(False)
    augmentations: tuple[AbstractAugmentation, ...] = ()
    actor_parts: tuple[str, ...] = static(())
    critic_parts: tuple[str, ...] = static(())

    def __check_init__(self):
        if not isinstance(self.encoder, AbstractEncoder):
            raise ValueError(
                "`Images.encoder` must be an encoder, such as "
                f"`eqsim_zoo.vision.Impala()`, got {self.encoder!r}."
            )
        fine = isinstance(self.augmentations, tuple)
        if not fine or not all(
            isinstance(x, AbstractAugmentation) for x in self.augmentations
        ):
            raise ValueError(
                "`Images.augmentations` must be a tuple, such as "
                f"`(eqsim_zoo.vision.RandomCrop(4),)`, got {self.augmentations!r}."
            )
        if self.shared and self.actor_parts != self.critic_parts:
            raise ValueError(
                "With a shared encoder, `Images.actor_parts` and `critic_parts` must be "
                f"equal, got {self.actor_parts} and {self.critic_parts}."
            )

    @property
    def off_policy_settings(self) -> tuple[str, ...]:
        return ("shared",) * self.shared + ("augmentations",) * bool(self.augmentations)

    def check(self, name: str, obs: Any) -> None:
        check_inputs(name, self, obs, images=True)
        shapes = {k: x.shape for k, x in named(obs).items()}
        if not any(is_image(shape) for shape in shapes.values()):
            raise ValueError(
                f"`{name}.inputs` is `Images`, but the observation has no image (height, "
                f"width, channels); its shapes are {shapes}. Leave it out, or wrap the "
                "environment in `eqsim.wrappers.Pixels`."
            )

    def critic(self, key, obs, make, dtype):
        return self._network(key, obs, make, dtype, self.critic_parts)

    def actor(self, key, obs, make, dtype, critic=None):
        if self.shared and critic is not None:
            return make(key, critic.features.size(obs))
        return self._network(key, obs, make, dtype, self.actor_parts)

    def policy(self, actor: Any, critic: Any) -> Callable[[Any], Any]:
        return FeaturesNetwork(critic.features, actor) if self.shared else actor

    def actor_inputs(self, critic: Any, obs: Any) -> Any:
        return jax.vmap(critic.features)(obs) if self.shared else obs

    def augment(self, obs: Any, key: PRNGKeyArray) -> Any:
        if not self.augmentations:
            return obs
        change = lambda obs, key: augment(self.augmentations, obs, key)
        return jax.vmap(change)(obs, jr.split(key, jtu.tree_leaves(obs)[0].shape[0]))

    def _network(self, key, obs, make, dtype, parts) -> Any:
        if is_vector(obs):
            return make(key, obs.shape[0])
        key_encoder, key = jr.split(key)
        create = lambda k, shape: self.encoder.create(
            jr.fold_in(key_encoder, k), shape, dtype
        )
        features = Features.create(obs, parts, create)
        return FeaturesNetwork(features, make(key, features.size(obs)))


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
