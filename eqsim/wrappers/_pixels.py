from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..envs import AbstractEnv, Timestep
from ..render import Camera, camera_for, draw
from ..render.drawing import check_image
from ._randomization import robot
from ._wrapper import AbstractReport, check_env


class Pixels(AbstractReport):
    """Replaces observations by images, `(height, width, 3)` of `uint8`. With
    `only=False`, the observation is a dictionary of `pixels`, the image, and `state`,
    the observation of `env`.

    MuJoCo draws images on the host. A batch is transferred in one call and drawn image
    by image; see `eqsim.render.draw`. The robot is that of the current episode, also
    with `DomainRandomization`, inside or outside.

    Derivatives of images are zero; derivatives of rewards are not affected. With
    `AutoReset`, a second image per step is drawn for the reset, unless
    `pool_resets` computes resets in advance.

    **Arguments:**

    - `env`: the environment.
    - `width`, `height`: size of the image in pixels.
    - `camera`: the camera; by default `eqsim.render.camera_for(env.sys)`.
    - `only`: true to exclude the observation of `env`.

    **Raises:** `ValueError` if a size is not positive, `camera` follows an unknown
    link, `env` resets itself, or `camera` is not given while the robot is traced;
    `eqsim.render.NoOpenGL` if OpenGL is not available.
    """

    env: AbstractEnv
    width: int = eqx.field(static=True)
    height: int = eqx.field(static=True)
    camera: Camera = eqx.field(static=True)
    only: bool = eqx.field(static=True)

    def __init__(
        self,
        env: AbstractEnv,
        width: int = 64,
        height: int = 64,
        camera: Camera | None = None,
        only: bool = True,
    ):
        check_env(self, env)
        self.env, self.width, self.height = env, width, height
        self.camera = camera_for(env.sys) if camera is None else camera
        self.only = only

    def __check_init__(self):
        check_image(self.sys, self.camera, self.width, self.height)

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        sys, q = robot(self.env, state), self.physics(state).q
        picture = draw(sys, q, self.camera, self.width, self.height)
        obs = picture if self.only else {"pixels": picture, "state": timestep.obs}
        return eqx.tree_at(lambda t: t.obs, timestep, obs)
