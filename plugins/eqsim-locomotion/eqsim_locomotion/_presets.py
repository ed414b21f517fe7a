"""Settings of PPO with which robots learn to walk on two CPU cores."""

from typing import Any


def ppo_settings() -> dict[str, Any]:
    """Return settings as keyword arguments of `eqsim_zoo.PPO`.

    Small batches and networks, as updates would otherwise take longer than the simulation;
    the learning rate is adapted to the divergence of the policy.
    """
    return {
        "num_envs": 256,
        "unroll_length": 24,
        "num_minibatches": 4,
        "num_epochs": 4,
        "policy_hidden": (128, 64),
        "value_hidden": (128, 64),
        "learning_rate": 1e-3,
        "target_kl": 0.015,
        "discount": 0.97,
        "entropy_cost": 3e-3,
        "max_grad_norm": 1.0,
        "initial_log_std": -0.3,
        "normalize_values": True,
    }
