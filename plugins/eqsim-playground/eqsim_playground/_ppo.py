"""Settings of PPO published by MuJoCo Playground."""

from typing import Any


_JOYSTICK = {
    "num_envs": 8192,
    "unroll_length": 20,
    "num_minibatches": 32,
    "num_epochs": 4,
    "policy_hidden": (512, 256, 128),
    "value_hidden": (512, 256, 128),
    "learning_rate": 3e-4,
    "discount": 0.97,
    "entropy_cost": 1e-2,
    "clip": 0.3,
    "max_grad_norm": 1.0,
}
_HUMANOID = {**_JOYSTICK, "entropy_cost": 5e-3, "clip": 0.2}
_PICK = {
    "num_envs": 2048,
    "unroll_length": 10,
    "num_minibatches": 32,
    "num_epochs": 8,
    "policy_hidden": (32, 32, 32, 32),
    "value_hidden": (256, 256, 256, 256, 256),
    "learning_rate": 1e-3,
    "discount": 0.97,
    "entropy_cost": 2e-2,
    "clip": 0.3,
}
_SETTINGS = {
    "playground_berkeley_humanoid_joystick_flat": _HUMANOID,
    "playground_g1_joystick_flat": _HUMANOID,
    "playground_go1_footstand": _JOYSTICK,
    "playground_go1_getup": _JOYSTICK,
    "playground_go1_handstand": _JOYSTICK,
    "playground_go1_joystick_flat": _JOYSTICK,
    "playground_panda_pick_cube": _PICK,
    "playground_panda_pick_cube_orientation": _PICK,
    "playground_t1_joystick_flat": _HUMANOID,
}


def ppo_settings(env: str) -> dict[str, Any]:
    """Return Playground's settings of PPO as keyword arguments of `eqsim_zoo.PPO`.

    The settings are those for Brax's PPO on a GPU. In Playground, the policy of a legged
    robot observes `state` and its value function `privileged_state`; `eqsim_zoo.PPO` uses
    `state` for both. Brax does not clip gradients for the Panda; `eqsim_zoo.PPO` does.

    **Arguments:**

    - `env`: name of an environment, such as `"playground_go1_joystick_flat"`.

    **Raises:** `ValueError` if there are none for this name.
    """
    if env not in _SETTINGS:
        raise ValueError(f"`env` must be one of {', '.join(_SETTINGS)}, got {env!r}.")
    return dict(_SETTINGS[env])
