"""Filters of images."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._layers import Maps


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
