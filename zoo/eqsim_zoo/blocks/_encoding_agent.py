"""Base class of online agents that observe vectors, images, or dictionaries of both."""

from collections.abc import Callable
from typing import Any

from jaxtyping import PRNGKeyArray

from eqsim import AbstractOnlineAgent

from ._encoding import (
    AbstractAugmentation,
    AbstractEncoder,
    check_image_settings,
    check_kinds,
    check_parts,
    encoded_network,
    used_parts,
)
from ._hyperparameters import static


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
