r"""Colors, brighter or duller or turned. Images are between 0 and 1; so are results.

The first three blend an image $x$ with another $y$: $f x + (1 - f) y$ for a factor
$f \ge 0$, which leaves the image as it is for $f = 1$.

??? cite "Reference"
    torchvision, *transforms.functional*: `adjust_brightness`, `adjust_contrast`,
    `adjust_saturation`, `adjust_hue`.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..blocks.hyperparameters import check_positive, static
from .images import AbstractAugmentation, Image
from .layers import Maps, to_numbers


def adjust_brightness(image: Maps, factor: Float[Array, ""]) -> Maps:
    """Blend an image with black."""
    return _blend(image, jnp.zeros_like(image), factor)


def adjust_contrast(image: Maps, factor: Float[Array, ""]) -> Maps:
    """Blend an image with the mean of its gray image. One channel is gray, three are
    colors."""
    gray = _gray(image) if image.shape[-1] == 3 else image
    return _blend(image, jnp.full_like(image, jnp.mean(gray)), factor)


def adjust_saturation(
    image: Float[Array, "height width 3"], factor: Float[Array, ""]
) -> Float[Array, "height width 3"]:
    """Blend an image with its gray image."""
    return _blend(image, _gray(image), factor)


def adjust_hue(
    image: Float[Array, "height width 3"], turns: Float[Array, ""]
) -> Float[Array, "height width 3"]:
    """Rotate the hue of an image. Red becomes green after a third of a turn, and blue
    after two thirds.

    Value $v$ (the largest of the three colors) and chroma $c$ (less the least) stay. With
    the hue $h$ in sixths of a turn, red is $v - c \\min(k, 4 - k)$, the minimum clipped to
    between 0 and 1, for $k = (5 + h) \\bmod 6$; green has 3 and blue 1 instead of 5.
    """
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    value = jnp.max(image, -1)
    chroma = value - jnp.min(image, -1)
    # Gray has no hue: any will do.
    over = jnp.where(chroma > 0.0, chroma, 1.0)
    # Not `red == value`: a compiler may compute the same number twice, and round it
    # differently.
    is_red = (red >= green) & (red >= blue)
    others = (2.0 + (blue - red) / over, 4.0 + (red - green) / over)
    hue = jnp.where(green >= blue, *others)
    hue = jnp.where(is_red, (green - blue) / over, hue) + 6.0 * turns
    start = jnp.array([5.0, 3.0, 1.0], image.dtype)
    k = jnp.mod(start[None, None] + hue[..., None], 6.0)
    return value[..., None] - chroma[..., None] * jnp.clip(
        jnp.minimum(k, 4.0 - k), 0.0, 1.0
    )


def _gray(image: Float[Array, "height width 3"]) -> Float[Array, "height width 1"]:
    """Compute the luma, as in ITU-R BT.601."""
    weights = jnp.array([0.2989, 0.587, 0.114], image.dtype)
    return jnp.sum(image * weights[None, None], -1, keepdims=True)


def _blend(image: Maps, other: Float[Array, "..."], factor: Float[Array, ""]) -> Maps:
    return jnp.clip(factor * image + (1.0 - factor) * other, 0.0, 1.0)


def gaussian_blur(image: Maps, std: Float[Array, ""], radius: int) -> Maps:
    r"""Convolve an image with a normal density in both directions:

    $$y_{ij} = \sum_{k, l = -r}^{r} w_k w_l\, x_{i+k,\,j+l}, \qquad
    w_k = \frac{e^{-k^2 / 2 \sigma^2}}{\sum_{m=-r}^{r} e^{-m^2 / 2 \sigma^2}}.$$

    The outermost pixels are repeated around the image.

    **Arguments:**

    - `image`: the image.
    - `std`: standard deviation $\sigma$ in pixels, positive.
    - `radius`: radius $r$ of the filter in pixels.
    """
    offsets = jnp.arange(-radius, radius + 1, dtype=image.dtype)
    # The largest exponent is 0, so that the sum is at least 1.
    weights = jnp.exp(-0.5 * (offsets / std) ** 2)
    weights = weights / jnp.sum(weights)
    height, width, _ = image.shape
    around = (radius, radius)
    wide = jnp.pad(image, (around, around, (0, 0)), mode="edge")
    places = range(2 * radius + 1)
    mean = lambda shifted: jnp.tensordot(weights, jnp.stack(shifted), 1)
    tall = mean([wide[k : k + height] for k in places])
    return mean([tall[:, k : k + width] for k in places])


def solarize(image: Maps, threshold: Float[Array, ""]) -> Maps:
    r"""Invert bright pixels: $y = 1 - x$ where $x \ge t$, and $y = x$ elsewhere.

    **Arguments:**

    - `image`: an image between 0 and 1.
    - `threshold`: threshold $t$.
    """
    return jnp.where(image >= threshold, 1.0 - image, image)


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
