from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..envs import AbstractEnv, Timestep
from ..render import Camera, camera_for, draw
from ..render._draw import check_picture
from ._randomization import robot
from ._wrapper import AbstractReport, check_env


class Pixels(AbstractReport):
    """Observations are pictures, `(height, width, 3)` of `uint8`, instead of what `env`
    observes, or, unless `only`, a dictionary of both: `pixels` and `state`.

    MuJoCo draws them on the host: a batch goes there in one call, picture by picture
    (see `eqsim.render.draw` for what they show). The robot drawn is that of the present
    episode, whether `DomainRandomization` is inside or outside.

    Derivatives of a picture are zero. Rewards keep theirs. `AutoReset` around it draws
    a second picture per step, of a reset; with `pool=reset_pool(...)` it does not.

    **Arguments:**

    - `env`: the environment.
    - `width`, `height`: of the picture, in pixels.
    - `camera`: by default `eqsim.render.camera_for(env.sys)`.
    - `only`: whether what `env` observes is left out.

    **Raises:** `ValueError` if a size is not positive, `camera` names no link, `env`
    resets itself, or `camera` is left out where the numbers of the robot are not known;
    `eqsim.render.NoOpenGL` if there is nothing to draw with.
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
        check_picture(self.sys, self.camera, self.width, self.height)

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        sys, q = robot(self.env, state), self.physics(state).q
        picture = draw(sys, q, self.camera, self.width, self.height)
        obs = picture if self.only else {"pixels": picture, "state": timestep.obs}
        return eqx.tree_at(lambda t: t.obs, timestep, obs)
