import math
import os

import numpy as np
from jaxtyping import UInt8


def write_gif(
    path: str | os.PathLike,
    images: UInt8[np.ndarray, "time height width 3"],
    dt: float,
) -> None:
    """Write images as a looping GIF animation.

    **Arguments:**

    - `images`: images from `eqsim.render.images`.
    - `dt`: time between two images, s. GIF times are multiples of 0.01 s, and viewers
        show at most 50 images per second, so some images of faster sequences are
        dropped.

    **Raises:** `ImportError` if Pillow is not installed, which is part of the extra
    `cli`.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Writing a GIF needs Pillow. Run `pip install 'eqsim[cli]'`."
        ) from error
    every = max(1, math.ceil(0.02 / dt - 1e-6))
    frames = [Image.fromarray(x).quantize(64) for x in images[::every]]
    frames[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=10 * round(100 * dt * every),
        loop=0,
    )
