"""Environments for Stable-Baselines3, which only this module imports."""

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
    """A vector environment of Gymnasium for Stable-Baselines3.

    The environments share one program, so attributes and methods of single environments
    do not exist.

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
                "The autoreset mode of `env` must be SameStep, because "
                f"Stable-Baselines3 expects resets within a step, got {mode}. Pass "
                '`autoreset_mode="SameStep"`.'
            )
        self.env = env
        self._actions: np.ndarray | None = None
        super().__init__(
            env.num_envs, env.single_observation_space, env.single_action_space
        )

    def reset(self) -> np.ndarray:
        """Start an episode in all environments, with the seeds and options that were
        set."""
        seeds = None if all(s is None for s in self._seeds) else self._seeds
        options = _together(self._options)
        obs, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        self.reset_infos = [_of_one(infos, k) for k in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions; `step_wait` takes the step."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Return observations, rewards, flags, and an info for each environment.

        After the end of an episode, `terminal_observation` is its last observation, and
        `TimeLimit.truncated` is true if it was truncated.
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
        """Close the environments."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of all environments, once for each index."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments.

        **Raises:** `ValueError` if `indices` does not contain all environments.
        """
        if len(set(self._get_indices(indices))) < self.num_envs:
            raise ValueError(
                "`indices` must be left out, because all environments share one "
                f"program and {attr_name!r}, got {indices}."
            )
        setattr(self.env, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: Any = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Raise an error, because there are no single environments.

        **Raises:** `AttributeError`.
        """
        raise AttributeError(
            f"{method_name!r} with {method_args}, {method_kwargs} cannot be called for "
            f"environments {indices}, because all environments share one program. Call "
            "methods of `env`, the vector environment."
        )

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None
    ) -> list[bool]:
        """Return False: wrappers of single environments are not possible."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return an image of each environment."""
        return self.env.render() or [None] * self.num_envs  # type: ignore[return-value]


def _of_one(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the infos of one environment."""
    out = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if mask is not None and mask[index]:
            inner = isinstance(values, dict)
            out[name] = _of_one(values, index) if inner else values[index]
    return out


def _together(options: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Combine the reset options of single environments to vectors with a leading
    axis."""
    if not any(options):
        return None
    if any(set(one) != set(options[0]) for one in options):
        names = [sorted(one) for one in options]
        raise ValueError(
            f"Reset options must have the same names for all environments, got {names}."
        )
    return {name: np.stack([one[name] for one in options]) for name in options[0]}
