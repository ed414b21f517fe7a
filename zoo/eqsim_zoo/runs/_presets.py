"""Presets: tested runs by the names of agent and environment."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .fields import unknown
from .run import Run


def _balance(steps: int | float = 200_000) -> Run:
    settings = {
        "learning_rate": 1e-3,
        "anneal_steps": steps,
        "reward_scale": 0.1,
        "entropy_cost": 0.0,
    }
    return Run("ppo", "inverted_pendulum", steps, settings=settings)


def _locomotion(env: str, steps: int | float) -> Run:
    settings = {
        "unroll_length": 32,
        "num_epochs": 6,
        "num_minibatches": 16,
        "learning_rate": 1e-3,
        "anneal_steps": steps,
        "reward_scale": 0.1,
        "entropy_cost": 0.0,
    }
    return Run("ppo", env, steps, settings=settings)


def _walk(env: str, steps: int | float) -> Run:
    """Return settings for legged robots: small batches and networks, as updates would
    otherwise take longer than the simulation."""
    settings = {
        "num_envs": 256,
        "unroll_length": 24,
        "num_minibatches": 4,
        "policy_hidden": (128, 64),
        "value_hidden": (128, 64),
        "learning_rate": 1e-3,
        "target_kl": 0.015,
        "discount": 0.98,
        "entropy_cost": 3e-3,
        "max_grad_norm": 1.0,
        "initial_log_std": -0.3,
        "normalize_values": True,
        "symmetric": True,
    }
    return Run("ppo", env, steps, pool_size=2048, settings=settings)


def _walk_annealed(env: str, steps: int | float) -> Run:
    """Return settings for quadrupeds that seldom fall: the learning rate decreases to zero,
    and commands, after which robots fall, change more often."""
    run = _walk(env, steps)
    settings = {**run.settings, "anneal_steps": steps}
    options = {"commands": {"mean_time": 2.0}}
    return dataclasses.replace(run, settings=settings, options=options)


def _track(env: str, steps: int | float) -> Run:
    """Return settings for humanoids that track a motion: actions are small changes of its
    angles, and no motion is symmetric. Batches are small, because `target_kl` limits
    the policy change per batch. Episodes start in a frame that depends on the last one, so that
    resets cannot be computed in advance."""
    run = _walk(env, steps)
    changes = {
        "num_envs": 128,
        "num_minibatches": 2,
        "policy_hidden": (256, 128),
        "value_hidden": (256, 128),
        "target_kl": 0.03,
        "entropy_cost": 1e-3,
        "initial_log_std": -1.5,
        "symmetric": False,
    }
    settings = {**run.settings, **changes}
    return dataclasses.replace(run, pool_size=0, settings=settings)


def _track_through_physics(env: str, steps: int | float) -> Run:
    """Return settings for humanoids that track a motion, by gradients: windows of 0.64 s,
    as long as a robot takes to fall."""
    settings = {
        "num_envs": 32,
        "horizon": 32,
        "num_epochs": 8,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "anneal_steps": steps,
    }
    return Run("shac", env, steps, pool_size=0, settings=settings)


# Steps by default of legged robots, on the floor and on rough terrain.
_WALKERS = {
    **dict.fromkeys(("a1", "anymal_c", "barkour"), 2_800_000),
    "spot": 5_600_000,
    **dict.fromkeys(("apollo", "berkeley_humanoid", "g1"), 7_500_000),
    **dict.fromkeys(("h1", "op3", "t1"), 7_500_000),
}
_ANNEALED_WALKERS = dict.fromkeys(("go1", "go2"), 4_200_000)
_TRACKERS = {"g1": 3_000_000, "h1": 2_000_000}
_CLIMBERS = {"go1": 6_000_000, "h1": 10_000_000}


def _legged(make: Callable[..., Run], env: str, default: int) -> Callable[..., Run]:
    """Return the preset of a legged robot, by default with so many steps."""
    return lambda steps=default: make(env, steps)


def _balance_off_policy(steps: int | float = 40_000) -> Run:
    settings = {
        "unroll_length": 1,
        "num_updates": 8,
        "actor_hidden": (64, 64),
        "critic_hidden": (64, 64),
        "random_steps": 1000,
        "learning_rate": 1e-3,
        "temperature_learning_rate": 1e-3,
        "reward_scale": 0.1,
    }
    return Run("sac", "inverted_pendulum", steps, settings=settings)


def _hop_through_physics(steps: int | float = 500_000) -> Run:
    settings = {
        "num_envs": 16,
        "anneal_steps": steps,
        "reward_scale": 0.1,
        "entropy_cost": 0.005,
        "critic_learning_rate": 2e-4,
    }
    return Run("shac", "hopper", steps, settings=settings)


# For the ant: contact forces are most of the observation but do not depend on skills. It
# moves about 10 m in 100 steps.
_BLIND = {"include_cfrc_ext_in_observation": False, "limit": 10.0}

# Sized for two CPU cores.
_DIRECTIONS = {
    "sac.num_envs": 64,
    "sac.unroll_length": 4,
    "sac.num_updates": 48,
    "sac.capacity": 2**18,
    "sac.actor_hidden": (128, 128),
    "sac.critic_hidden": (128, 128),
    "sac.learning_rate": 1e-3,
    "sac.temperature_learning_rate": 1e-3,
    "sac.discount": 0.97,
    "sac.target_entropy": 0.0,
    "sac.normalize_observations": True,
    "hidden": (128, 128),
    "learning_rate": 1e-3,
    "omit_input_dynamics_dim": 2,
    "random_skills": 0,
    "identity_covariance": False,
    "std_range": (0.5, 10.0),
}


def _skills(steps: int | float, length: int, skills: str, settings: dict) -> Run:
    return Run(
        "dads",
        "ant_omni",
        steps,
        episode_length=length,
        skills=skills,
        options=_BLIND,
        settings=settings,
    )


def _five_directions(steps: int | float = 1_000_000) -> Run:
    return _skills(steps, 100, "one_hot:5", _DIRECTIONS)


def _any_direction(steps: int | float = 1_000_000) -> Run:
    """Return a preset with continuous skills as in the paper: each is compared with 100
    others and resampled within an episode, as a planner would change it."""
    skills = "uniform:2,resample_probability=0.02,least_steps=10"
    return _skills(steps, 200, skills, _DIRECTIONS | {"random_skills": 100})


def _as_qdax(steps: int | float = 1_000_000) -> Run:
    """Return the settings of the example of QDax: 62 updates per step of 250
    environments."""
    settings = {
        "sac.num_envs": 250,
        "sac.unroll_length": 1,
        "sac.num_updates": 62,
        "sac.capacity": 1_000_000,
        "sac.random_steps": 0.0,
        "sac.discount": 0.97,
        "sac.target_entropy": -0.5,
        "omit_input_dynamics_dim": 2,
    }
    return _skills(steps, 100, "one_hot:5", settings)


def _as_published(steps: int | float = 5_000_000) -> Run:
    """Return the settings of the off-policy code of the second paper for the ant."""
    settings = {
        "sac.num_envs": 20,
        "sac.unroll_length": 25,
        "sac.num_updates": 64,
        "sac.capacity": 10_000,
        "sac.actor_hidden": (512, 512),
        "sac.critic_hidden": (512, 512),
        "sac.discount": 0.99,
        "sac.initial_temperature": 0.1,
        "sac.temperature_learning_rate": 0.0,
        "hidden": (512, 512),
        "omit_input_dynamics_dim": 2,
        "dynamics_update_freq": 0,
        "dynamics_updates": 8,
        "random_skills": 100,
        "importance_weights": True,
    }
    return _skills(steps, 200, "uniform:2", settings)


_TABLE: dict[tuple[str, ...], Callable[..., Run]] = {
    ("ppo", "inverted_pendulum"): _balance,
    ("ppo", "hopper"): lambda steps=2_000_000: _locomotion("hopper", steps),
    ("ppo", "half_cheetah"): lambda steps=3_000_000: _locomotion("half_cheetah", steps),
    ("ppo", "ant"): lambda steps=3_000_000: _locomotion("ant", steps),
    **{
        ("ppo", f"{k}_velocity"): _legged(_walk, f"{k}_velocity", n)
        for k, n in _WALKERS.items()
    },
    **{
        ("ppo", f"{k}_velocity"): _legged(_walk_annealed, f"{k}_velocity", n)
        for k, n in _ANNEALED_WALKERS.items()
    },
    **{
        ("ppo", f"{k}_velocity_rough"): _legged(_walk, f"{k}_velocity_rough", n)
        for k, n in _CLIMBERS.items()
    },
    **{
        ("ppo", f"{k}_motion"): _legged(_track, f"{k}_motion", n)
        for k, n in _TRACKERS.items()
    },
    ("sac", "inverted_pendulum"): _balance_off_policy,
    ("shac", "hopper"): _hop_through_physics,
    ("shac", "h1_motion"): _legged(_track_through_physics, "h1_motion", 950_000),
    ("dads", "ant_omni"): _five_directions,
    ("dads", "ant_omni", "continuous"): _any_direction,
    ("dads", "ant_omni", "qdax"): _as_qdax,
    ("dads", "ant_omni", "original"): _as_published,
}


def presets() -> Mapping[tuple[str, ...], Callable[..., Run]]:
    """Return all presets as functions, by the names of agent and environment, and a third
    name for alternatives, such as published settings. A preset takes the number of `steps`;
    a learning rate that reaches zero does so at their end."""
    return MappingProxyType(_TABLE)


def find_preset(
    agent: str, env: str, name: str | None = None, *, steps: int | float | None = None
) -> Run | None:
    """Return the preset for an agent in an environment; None if there is none.

    **Arguments:**

    - `agent`, `env`: names. A package prefix, as in `eqsim:ant`, is ignored.
    - `name`: name of an alternative; by default the main preset.
    - `steps`: number of control steps; by default that of the preset.

    **Raises:** `ValueError` if there is no alternative of that name, or `steps` is not a
    positive integer.
    """
    pair = agent.rpartition(":")[2], env.rpartition(":")[2]
    key = pair if name is None else (*pair, name)
    if name is not None and key not in _TABLE:
        known = [key[2] for key in _TABLE if key[:2] == pair and len(key) == 3]
        raise ValueError(unknown(f"{' on '.join(pair)} has no preset", name, known))
    make = _TABLE.get(key)
    if make is None:
        return None
    return make() if steps is None else make(steps)
