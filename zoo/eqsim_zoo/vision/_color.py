r"""Colors, brighter or duller or turned. Images are between 0 and 1; so are results.

The first three blend an image $x$ with another $y$: $f x + (1 - f) y$ for a factor
$f \ge 0$, which leaves the image as it is for $f = 1$.

??? cite "Reference"
    torchvision, *transforms.functional*: `adjust_brightness`, `adjust_contrast`,
    `adjust_saturation`, `adjust_hue`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._layers import Maps


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
