"""A single environment of eqsim for Gymnasium."""

from typing import Any

import gymnasium
import jax
import numpy as np

from eqsim import AbstractEnv
from eqsim.bridges import CompiledEnv, Randomizer
from eqsim.render import Camera, camera_for, images
from eqsim.wrappers import episode_robot

from ._build import build, checked, metadata, RENDER_MODES, start, words
from ._infos import single_infos
from ._program import chain, reset, step
from ._spaces import action_space, observation_space


class EqsimEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment of eqsim for Gymnasium.

    Reset and step are compiled, and their results are NumPy arrays and Python numbers.
    The speed of a single environment is limited by Python. For training, use
    `EqsimVectorEnv`, which computes the same.

    The environment has no time limit; `gymnasium.make` adds one. `info` has the keys of
    version 5 of Gymnasium's MuJoCo environments, such as `x_position` and
    `reward_forward`; other environments report each reward term as `reward_<term>`.
    Skill-discovery environments also report their `descriptor`.

    A seed starts a sequence of random keys that each reset continues, as specified by
    Gymnasium. `reset` accepts the options of `eqsim.ResetOptions`: `q`, `qd`, and with
    `randomize`, `sys` and `context`.

    **Arguments:**

    - `env`: an environment, or a name from `eqsim.ENVS`.
    - `randomize`: function `(key, sys) -> sys` that draws a robot for each episode, or
        a name from `eqsim.randomize.presets`.
    - `render_mode`: None or `"rgb_array"`.
    - `width`, `height`, `camera`: size of images in pixels, and camera, see
        `eqsim.render`.
    - `options`: options of `eqsim.make`, if `env` is a name.

    **Raises:** `ValueError` if the state of `env` is kept over episodes, like that of
    `eqsim.AutoReset`, or for an unknown preset or render mode; `TypeError` for unknown
    options.

    !!! example

        ```python
        env = gymnasium.make("eqsim_gymnasium:eqsim/Ant-v0", pipeline="spring")
        ```
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES)}

    def __init__(
        self,
        env: AbstractEnv | str,
        *,
        randomize: Randomizer | str | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera: Camera | None = None,
        **options: Any,
    ):
        self.eqsim_env = build(env, randomize, render_mode, options)
        self.metadata = metadata(self.eqsim_env)
        self.render_mode = render_mode
        self.action_space = action_space(self.eqsim_env)
        self.observation_space = observation_space(self.eqsim_env)
        self._picture = camera, width, height
        self._program = CompiledEnv(self.eqsim_env)
        self._key = self._now = None

    @property
    def state(self) -> Any:
        """The state of eqsim's environment.

        **Raises:** `gymnasium.error.ResetNeeded` before the first reset.
        """
        return self._running().state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        given = start(self.eqsim_env, options)
        key = self._key
        if seed is not None or key is None:
            key = self._program(chain, words(self.np_random))
        self._now, report = self._program(reset, key, given)
        self._key = self._now.key
        report = jax.device_get(report)
        return np.array(report.obs), single_infos(report)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        space = self.action_space
        action = checked(action, space.shape or (), space.dtype)
        self._now, report = self._program(step, self._running(), action)
        report = jax.device_get(report)
        return (
            np.array(report.obs),
            float(report.reward),
            bool(report.terminated),
            bool(report.truncated),
            single_infos(report),
        )

    def render(self) -> np.ndarray | None:
        """Return an image of the current state, or None without a render mode.

        **Raises:** `eqsim.render.NoOpenGL` if OpenGL is not available.
        """
        if self.render_mode is None:
            return None
        env, (camera, width, height) = self.eqsim_env, self._picture
        camera = camera_for(env.sys) if camera is None else camera
        self._picture = camera, width, height
        sys, q = episode_robot(env, self.state), env.physics(self.state).q
        return images(sys, q, camera, width=width, height=height).copy()

    def _running(self) -> Any:
        if self._now is None:
            raise gymnasium.error.ResetNeeded("`reset` must be called first.")
        return self._now
