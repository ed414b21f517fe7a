"""Environments for Stable-Baselines3, which is imported by this module only."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        "`eqsim_gymnasium.sb3` needs Stable-Baselines3. Run "
        "`pip install 'eqsim-gymnasium[sb3]'`."
    ) from error


class SB3VecEnv(VecEnv):
    """Many environments of Gymnasium as those of Stable-Baselines3.

    The environments share one program, so there is no single one whose attributes could
    be set or whose methods could be called.

    **Arguments:**

    - `env`: an `EqsimVectorEnv` with `autoreset_mode="SameStep"`, or a wrapper of
        Gymnasium around it.

    **Raises:** `ValueError` for another autoreset mode.

    !!! example

        ```python
        name = "eqsim_gymnasium:eqsim/Ant-v0"
        envs = gymnasium.make_vec(name, num_envs=64, autoreset_mode="SameStep")
        model = stable_baselines3.PPO("MlpPolicy", SB3VecEnv(envs))
        ```
    """

    def __init__(self, env: VectorEnv):
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"`env` has the autoreset mode {mode}, but Stable-Baselines3 expects resets "
                'within the step: make it with `autoreset_mode="SameStep"`.'
            )
        self.env = env
        self._actions: np.ndarray | None = None
        super().__init__(
            env.num_envs, env.single_observation_space, env.single_action_space
        )

    def reset(self) -> np.ndarray:
        """Begins an episode everywhere, with the seeds and options that were set."""
        seeds = None if all(s is None for s in self._seeds) else self._seeds
        options = _together(self._options)
        obs, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        self.reset_infos = [_of_one(infos, k) for k in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Takes the actions; `step_wait` acts."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Observations, rewards, ends of episodes, and an info for each environment.

        After an end, `terminal_observation` is what the episode ended with, and
        `TimeLimit.truncated` whether it was cut off.
        """
        obs, rewards, terminated, truncated, infos = self.env.step(self._actions)
        final_obs = infos.pop("final_obs", None)
        final_info = infos.pop("final_info", {})
        told: list[dict[str, Any]] = []
        for k, end in enumerate(terminated | truncated):
            info = _of_one(infos, k)
            info["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
            if end:
                info |= _of_one(final_info, k)
                info["terminal_observation"] = final_obs[k]
            told.append(info)
        return obs, rewards.astype(np.float32), terminated | truncated, told

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of all environments, once for each index."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of all environments together.

        **Raises:** `ValueError` if `indices` are not all of them.
        """
        if len(set(self._get_indices(indices))) < self.num_envs:
            raise ValueError(
                f"`indices` are {indices}, but the environments share one program, and so "
                f"{attr_name!r}: leave `indices` out."
            )
        setattr(self.env, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: Any = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Not possible: there is no single environment.

        **Raises:** `AttributeError`.
        """
        raise AttributeError(
            f"{method_name!r} with {method_args}, {method_kwargs} for {indices}: the "
            "environments share one program, so that none has methods of its own. Call those "
            "of `env`, the vector environment."
        )

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None
    ) -> list[bool]:
        """Always False: wrappers around a single environment are impossible here."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of each environment."""
        return self.env.render() or [None] * self.num_envs  # type: ignore[return-value]


def _of_one(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """Of the infos of many environments, those of one."""
    out = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if mask is not None and mask[index]:
            inner = isinstance(values, dict)
            out[name] = _of_one(values, index) if inner else values[index]
    return out


def _together(options: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Reset options of each environment, as vectors with an axis in front."""
    if not any(options):
        return None
    if any(set(one) != set(options[0]) for one in options):
        names = [sorted(one) for one in options]
        raise ValueError(
            f"Reset options differ in their names: {names}. All environments need the same."
        )
    return {name: np.stack([one[name] for one in options]) for name in options[0]}
