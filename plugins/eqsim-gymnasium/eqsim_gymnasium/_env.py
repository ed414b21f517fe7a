"""Single and vector environments of eqsim for Gymnasium."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from eqsim import AbstractEnv, DomainRandomization, System
from eqsim.bridges import carries_over, check_count, CompiledEnv, Randomizer
from eqsim.render import Camera, camera_for, images
from eqsim.wrappers import episode_robot, nested_envs

from ._build import (
    action_space,
    build,
    checked,
    metadata,
    observation_space,
    RENDER_MODES,
    start,
    words,
)
from ._program import (
    chain,
    chains,
    final_infos,
    Report,
    reset,
    resets,
    resets_where,
    single_infos,
    step,
    steps,
    steps_or_reset,
    steps_then_reset,
    vector_infos,
)


class AbstractRunning:
    """Base class of single and vector environments: an environment of eqsim, and its state."""

    eqsim_env: AbstractEnv
    _picture: tuple[Camera | None, int, int]
    _now: Any

    @property
    def state(self) -> Any:
        """The state of eqsim's environment; of a vector environment with a leading axis.

        **Raises:** `gymnasium.error.ResetNeeded` before the first reset.
        """
        return self._running().state

    def _running(self) -> Any:
        if self._now is None:
            raise gymnasium.error.ResetNeeded("`reset` must be called first.")
        return self._now

    def _last(self, seed: Any) -> Any:
        """Return the state on which a curriculum depends; None without one, and for a new
        seed."""
        fresh = seed is not None or self._now is None
        return None if fresh or not carries_over(self.eqsim_env) else self._now.state

    def _draw(self, sys: System, q: Any) -> np.ndarray:
        """Return images; the first one chooses the camera."""
        camera, width, height = self._picture
        camera = camera_for(self.eqsim_env.sys) if camera is None else camera
        self._picture = camera, width, height
        return images(sys, q, camera, width=width, height=height)


class EqsimEnv(AbstractRunning, gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment of eqsim for Gymnasium.

    Reset and step are compiled, and their results are NumPy arrays and Python numbers.
    The speed of a single environment is limited by Python. For training, use
    `EqsimVectorEnv`, which computes the same.

    The environment has no time limit; `gymnasium.make` adds one. `info` has the keys of
    version 5 of Gymnasium's MuJoCo environments, such as `x_position` and
    `reward_forward`; other environments report each reward term as `reward_<term>`.
    Skill-discovery environments also report their `descriptor`.

    A seed starts a sequence of random keys that each reset continues, as specified by
    Gymnasium. `reset` accepts the options of `eqsim.ResetOptions`: `q`, `qd`, with
    `randomize` `sys` and `context`, and `patch` and `start` of environments that have
    them. A curriculum goes on from episode to episode, until `reset` gets a seed.

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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        given = start(self.eqsim_env, options)
        key = self._key
        if seed is not None or key is None:
            key = self._program(chain, words(self.np_random))
        self._now, report = self._program(reset, key, given, self._last(seed))
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
        env = self.eqsim_env
        sys, q = episode_robot(env, self.state), env.physics(self.state).q
        return self._draw(sys, q).copy()


class EqsimVectorEnv(
    AbstractRunning, gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]
):
    """A vector environment for Gymnasium, stepped by one compiled program.

    With equal seeds, the results equal those of a `gymnasium.vector.SyncVectorEnv` of
    `EqsimEnv`s, in each autoreset mode:

    - `NEXT_STEP`: after the end of an episode the next step resets instead of acting;
        its reward is 0.
    - `SAME_STEP`: the observation already belongs to the new episode; `final_obs` and
        `final_info` in `infos` are those of the old one.
    - `DISABLED`: `reset(options={"reset_mask": mask})` resets the environments in the
        mask. Environments whose episode has ended must not be stepped.

    Reset options apply to all environments; `q`, `qd`, `context` and `patch` may have one
    row per environment instead. With seed `s`, environment `i` has the seed `s + i`.

    **Arguments:** as for `EqsimEnv`, and

    - `num_envs`: number of environments.
    - `max_episode_steps`: time limit, in steps; None or -1 for none. An episode that
        terminates in its last step is both terminated and truncated, as with
        Gymnasium's `TimeLimit`.
    - `autoreset_mode`: a `gymnasium.vector.AutoresetMode` or its value, `"NextStep"`,
        `"SameStep"` or `"Disabled"`.

    **Raises:** as `EqsimEnv`, and `ValueError` if a number is not positive.

    !!! example

        ```python
        envs = gymnasium.make_vec("eqsim_gymnasium:eqsim/Ant-v0", num_envs=1024)
        ```
    """

    def __init__(
        self,
        env: AbstractEnv | str,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        randomize: Randomizer | str | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera: Camera | None = None,
        **options: Any,
    ):
        check_count("num_envs", num_envs)
        self.eqsim_env = build(env, randomize, render_mode, options)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = metadata(self.eqsim_env)
        self.metadata["autoreset_mode"] = self.autoreset_mode
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_action_space = action_space(self.eqsim_env)
        self.single_observation_space = observation_space(self.eqsim_env)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._limit = _limit(max_episode_steps)
        self._picture = camera, width, height
        self._program = CompiledEnv(self.eqsim_env)
        self._now = self._key = self._seen = None
        self._over = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None))
        given = start(self.eqsim_env, options, self.num_envs)
        everyone = np.ones(self.num_envs, bool)
        key = self._seeded(seed, everyone if mask is None else mask)
        if mask is None:
            mask = everyone
            self._now, report = self._program(resets, key, given, self._last(seed))
            seen = report.obs, report.state_infos
        else:
            now = self._running()._replace(key=key)
            args = now, self._seen, mask, given, self._last(seed)
            self._now, seen = self._program(resets_where, *args)
        self._key, self._seen = self._now.key, seen
        self._over = self._over & ~mask
        obs, infos = jax.device_get(seen)
        return np.array(obs), vector_infos(infos, {}, mask, mask)

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        space = self.action_space
        actions = checked(actions, space.shape or (), space.dtype)
        over, args = self._over, (self._running(), actions, self._limit)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._now, report = self._program(steps_or_reset, *args, over)
        elif self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._now, report = self._program(steps_then_reset, *args)
        else:
            self._refuse_over()
            self._now, report = self._program(steps, *args)
        self._key, self._seen = self._now.key, (report.obs, report.state_infos)
        return self._told(jax.device_get(report), acted=~over)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return an image of each environment, or None without a render mode.

        **Raises:** `eqsim.render.NoOpenGL` if OpenGL is not available.
        """
        if self.render_mode is None:
            return None
        env, sys = self.eqsim_env, self.eqsim_env.sys
        if any(isinstance(held, DomainRandomization) for held in nested_envs(env)):
            sys = eqx.filter_vmap(lambda state: episode_robot(env, state))(self.state)
        q = eqx.filter_vmap(lambda state: env.physics(state).q)(self.state)
        return tuple(np.array(self._draw(sys, q)))

    def _told(self, report: Report, acted: np.ndarray) -> tuple:
        terminated, truncated = np.array(report.terminated), np.array(report.truncated)
        done = terminated | truncated
        infos, told = {}, acted
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos, told = final_infos(report, done), ~done
        else:
            self._over = done
        everyone = np.ones_like(done)
        infos |= vector_infos(report.state_infos, report.step_infos, everyone, told)
        reward = np.array(report.reward, np.float64)
        return np.array(report.obs), reward, terminated, truncated, infos

    def _refuse_over(self) -> None:
        if np.any(self._over):
            ended = ", ".join(map(str, np.flatnonzero(self._over)[:10]))
            raise gymnasium.error.ResetNeeded(
                f"Episodes of environments {ended} have ended, and autoreset is disabled. "
                'Call `reset(options={"reset_mask": terminated | truncated})` first.'
            )

    def _mask(self, mask: Any) -> np.ndarray | None:
        if mask is None:
            return None
        shape = (self.num_envs,)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(
                '`options["reset_mask"]` must be a NumPy array of booleans, got '
                f"{mask!r}."
            )
        if mask.shape != shape or not np.any(mask):
            raise ValueError(
                f'`options["reset_mask"]` must have shape {shape} and at least one '
                f"True value, got {mask}."
            )
        return mask

    def _seeded(self, seed: int | Sequence[int | None] | None, mask: np.ndarray) -> Any:
        """Return the sequences of keys, restarted for environments with a seed in the
        mask."""
        if seed is None and self._key is not None:
            return self._key
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, int | np.integer):
            seeds = [int(seeds) + k for k in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"`seed` must be one number, or one for each of the {self.num_envs} "
                f"environments, got {len(seeds)}."
            )
        super().reset(seed=next((s for s in seeds if s is not None), None))
        drawn = np.stack([words(seeding.np_random(seed)[0]) for seed in seeds])
        new = self._program(chains, drawn)
        if self._key is None:
            return new
        return jnp.where(mask & [s is not None for s in seeds], new, self._key)


def _limit(steps: int | None) -> np.ndarray | None:
    if steps is None or steps == -1:
        return None
    check_count("max_episode_steps", steps, or_none="no limit, as -1")
    return np.asarray(steps, np.int32)
