"""Images of environments, drawn on the host."""

from collections.abc import Sequence

import jax
import numpy as np
import torch

from eqsim.render import Camera, camera_for, images

from ._arrays import to_jax
from ._program import Program


class Pictures:
    """Draws images of environments from their states.

    **Arguments:**

    - `program`: program of the environments.
    - `camera`, `width`, `height`: camera and size of an image.
    """

    def __init__(
        self, program: Program, camera: Camera | None, width: int, height: int
    ):
        self.shape = jax.ShapeDtypeStruct((height, width, 3), np.uint8)
        self._camera, self._size = camera, {"width": width, "height": height}
        self._program = program

    def __reduce__(self) -> tuple[type, tuple]:
        return Pictures, (self._program, self._camera, *self._size.values())

    def __call__(
        self, state: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Draw an image of each environment.

        **Raises:** `eqsim.render.NoOpenGL` if OpenGL is not available.
        """
        args = [*map(to_jax, state)], [*map(to_jax, parameters)]
        sys, q = self._program.poses(self._program.step.fixed, *args)
        if self._camera is None:
            self._camera = camera_for(jax.tree_util.tree_map(lambda x: x[0], sys))
        return torch.from_numpy(np.array(images(sys, q, self._camera, **self._size)))
