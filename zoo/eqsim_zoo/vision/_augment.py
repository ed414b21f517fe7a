"""Random changes of images that do not change what is to be done."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks import check_positive, static
from ..blocks._encoding import AbstractAugmentation, Image
from ._color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
)
from ._filters import gaussian_blur, solarize
from ._layers import Maps, to_numbers


class RandomCrop(AbstractAugmentation):
    """Repeats the outermost pixels around the image, and cuts out one of its size.

    **Arguments:**

    - `padding`: rows and columns on each side; the image moves by as many at most.

    ??? cite "Reference"
        Kostrikov, Yarats, Fergus, *Image augmentation is all you need: regularizing deep
        reinforcement learning from pixels*, 2020; also Laskin et al.,
        *Reinforcement learning with augmented data*, 2020.
    """

    padding: int = static(4)

    def __check_init__(self):
        check_positive(self, "padding")

    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        around, places = (self.padding, self.padding), 2 * self.padding + 1
        wide = jnp.pad(image, (around, around, (0, 0)), mode="edge")
        row, column = jr.randint(key, (2,), 0, places)
        start = (row, column, jnp.zeros_like(row))
        return jax.lax.dynamic_slice(wide, start, image.shape)


class RandomFlip(AbstractAugmentation):
    """Mirrors left and right.

    **Arguments:**

    - `probability`: probability of the transformation.
    """

    probability: float = eqx.field(static=True, converter=float, default=0.5)

    def __check_init__(self):
        _check_probability(self.probability)

    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        flips = jr.bernoulli(key, self.probability)
        return jnp.where(flips, image[:, ::-1], image)


class ColorJitter(AbstractAugmentation):
    r"""Other light and other colors, see `adjust_brightness`, `adjust_contrast`,
    `adjust_saturation` and `adjust_hue`.

    The first three have factors between $\max(0, 1 - b)$ and $1 + b$ for an argument $b$,
    the last has turns between $-b$ and $b$. They follow one another in this order, which
    torchvision draws at random, and bytes are rounded once, at the end.

    Images have three channels; one, where saturation and hue do nothing; or several
    frames of three, which change in the same way.

    **Arguments:**

    - `brightness`, `contrast`, `saturation`: largest difference of the factors from one.
    - `hue`: largest rotation of the hue, at most 0.5.

    ??? cite "Reference"
        torchvision, *transforms.ColorJitter*.
    """

    brightness: float = eqx.field(static=True, converter=float, default=0.0)
    contrast: float = eqx.field(static=True, converter=float, default=0.0)
    saturation: float = eqx.field(static=True, converter=float, default=0.0)
    hue: float = eqx.field(static=True, converter=float, default=0.0)

    def __check_init__(self):
        least = min(self.brightness, self.contrast, self.saturation, self.hue)
        if least < 0.0 or self.hue > 0.5:
            raise ValueError(
                f"The settings of {self} must not be negative, and the hue must be at "
                "most 0.5."
            )

    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        height, width, channels = image.shape
        if channels != 1 and channels % 3:
            raise ValueError(
                "`ColorJitter` needs images with 1 channel or a multiple of 3 "
                f"channels, got {channels}."
            )

        def change(x):
            frames = x.reshape(height, width, -1, 1 if channels == 1 else 3)
            each = lambda frame: self._change(frame, key)
            return jax.vmap(each, 2, 2)(frames).reshape(image.shape)

        return _as_numbers(change, image)

    def _change(self, frame: Maps, key: PRNGKeyArray) -> Maps:
        keys = jr.split(key, 4)
        frame = adjust_brightness(frame, _factor(keys[0], self.brightness, frame.dtype))
        frame = adjust_contrast(frame, _factor(keys[1], self.contrast, frame.dtype))
        if frame.shape[-1] == 1:
            return frame
        factor = _factor(keys[2], self.saturation, frame.dtype)
        turns = jr.uniform(keys[3], (), frame.dtype, -self.hue, self.hue)
        return adjust_hue(adjust_saturation(frame, factor), turns)


class RandomBlur(AbstractAugmentation):
    r"""Blurs the image, see `gaussian_blur`.

    **Arguments:**

    - `least_std`, `largest_std`: bounds of the standard deviation in pixels, which is
        drawn uniformly.
    - `radius`: radius of the filter in pixels.
    - `probability`: probability of the transformation.

    ??? cite "Reference"
        Chen et al., *A simple framework for contrastive learning of visual
        representations*, 2020, appendix A.
    """

    least_std: float = eqx.field(static=True, converter=float, default=0.1)
    largest_std: float = eqx.field(static=True, converter=float, default=2.0)
    radius: int = static(4)
    probability: float = eqx.field(static=True, converter=float, default=0.5)

    def __check_init__(self):
        check_positive(self, "radius")
        _check_probability(self.probability)
        if not 0.0 < self.least_std <= self.largest_std < math.inf:
            raise ValueError(
                "`RandomBlur` needs 0 < `least_std` <= `largest_std`, got "
                f"{self.least_std} and {self.largest_std}."
            )

    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        key_std, key = jr.split(key)

        def change(x):
            bounds = self.least_std, self.largest_std
            return gaussian_blur(
                x, jr.uniform(key_std, (), x.dtype, *bounds), self.radius
            )

        blurs = jr.bernoulli(key, self.probability)
        return jnp.where(blurs, _as_numbers(change, image), image)


class RandomSolarize(AbstractAugmentation):
    """Inverts bright pixels, see `solarize`.

    **Arguments:**

    - `threshold`: least value that is inverted, of images between 0 and 1.
    - `probability`: probability of the transformation.

    ??? cite "Reference"
        Grill et al., *Bootstrap your own latent: a new approach to self-supervised
        learning*, 2020, appendix B.
    """

    threshold: float = eqx.field(static=True, converter=float, default=0.5)
    probability: float = eqx.field(static=True, converter=float, default=0.2)

    def __check_init__(self):
        _check_probability(self.probability)
        if not 0.0 <= self.threshold <= 1.0:
            raise ValueError(
                "`RandomSolarize.threshold` must be between 0 and 1, got "
                f"{self.threshold}."
            )

    def __call__(self, image: Image, key: PRNGKeyArray) -> Image:
        change = lambda x: solarize(x, jnp.asarray(self.threshold, x.dtype))
        inverts = jr.bernoulli(key, self.probability)
        return jnp.where(inverts, _as_numbers(change, image), image)


def _as_numbers(change: Callable[[Maps], Maps], image: Image) -> Image:
    """Change an image as numbers between 0 and 1; bytes are rounded once, at the end."""
    is_bytes = image.dtype == jnp.uint8
    x = change(to_numbers(image, jnp.float32 if is_bytes else image.dtype))
    return jnp.round(255.0 * x).astype(jnp.uint8) if is_bytes else x


def _check_probability(probability: float) -> None:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"A probability must be between 0 and 1, got {probability}.")


def _factor(key: PRNGKeyArray, far: float, dtype: Any) -> Float[Array, ""]:
    return jr.uniform(key, (), dtype, max(0.0, 1.0 - far), 1.0 + far)
