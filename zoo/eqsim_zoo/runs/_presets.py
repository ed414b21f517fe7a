"""Tested settings by agent and environment."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from eqsim import AbstractOnlineAgent
from eqsim.bridges import check_count

from ..agents.dads import DADS
from ..agents.ppo import PPO
from ..agents.sac import SAC
from ..agents.shac import SHAC
from ._settings import unknown


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings for training an agent in an environment.

    **Arguments:**

    - `agent`: agent with its hyperparameters.
    - `steps`: control steps, summed over all environments.
    - `episode_length`: maximum number of control steps of an episode.
    - `pipeline`: name of the pipeline; by default that of the environment.
    - `skills`: prior of skills, for agents that learn skills; see `Recipe`.
    - `options`: options of the environment, as in `eqsim.make`.
    """

    agent: AbstractOnlineAgent
    steps: int
    episode_length: int = 1000
    pipeline: str | None = None
    skills: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_count("steps", self.steps)
        check_count("episode_length", self.episode_length)

    def with_steps(self, steps: int | float) -> "Preset":
        """Return the preset for another number of steps. If the learning rate reaches
        zero at the end of this preset, it does so at the end of the returned one.

        **Raises:** `ValueError` if `steps` is not a positive integer.
        """
        if not 1 <= steps < 2**53 or steps % 1:
            raise ValueError(f"`steps` must be a positive integer, got {steps}.")
        agent = self.agent
        if vars(agent).get("anneal_steps") == self.steps:
            agent = dataclasses.replace(agent, anneal_steps=float(steps))
        return dataclasses.replace(self, agent=agent, steps=int(steps))


def _balance() -> Preset:
    steps = 200_000
    agent = PPO(
        learning_rate=1e-3, anneal_steps=steps, reward_scale=0.1, entropy_cost=0.0
    )
    return Preset(agent, steps=steps)


def _run(steps: int) -> Preset:
    """Return a preset for locomotion."""
    agent = PPO(
        unroll_length=32,
        num_epochs=6,
        num_minibatches=16,
        learning_rate=1e-3,
        anneal_steps=steps,
        reward_scale=0.1,
        entropy_cost=0.0,
    )
    return Preset(agent, steps=steps)


def _balance_off_policy() -> Preset:
    agent = SAC(
        unroll_length=1,
        num_updates=8,
        actor_hidden=(64, 64),
        critic_hidden=(64, 64),
        random_steps=1000,
        learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        reward_scale=0.1,
    )
    return Preset(agent, steps=40_000)


def _hop_through_physics() -> Preset:
    steps = 500_000
    agent = SHAC(
        num_envs=16,
        anneal_steps=steps,
        reward_scale=0.1,
        entropy_cost=0.005,
        critic_learning_rate=2e-4,
    )
    return Preset(agent, steps=steps)


# For the ant: contact forces are most of the observation but do not depend on skills. It
# moves about 10 m in 100 steps.
_BLIND = {"include_cfrc_ext_in_observation": False, "limit": 10.0}


def _directions(random_skills: int) -> DADS:
    """Return `DADS` for the ant, sized for two CPU cores."""
    sac = SAC(
        num_envs=64,
        unroll_length=4,
        num_updates=48,
        capacity=2**18,
        actor_hidden=(128, 128),
        critic_hidden=(128, 128),
        learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        discount=0.97,
        target_entropy=0.0,
        normalize_observations=True,
    )
    return DADS(
        sac=sac,
        hidden=(128, 128),
        learning_rate=1e-3,
        omit_input_dynamics_dim=2,
        random_skills=random_skills,
        identity_covariance=False,
        std_range=(0.5, 10.0),
    )


def _five_directions() -> Preset:
    agent = _directions(random_skills=0)
    return Preset(agent, 1_000_000, 100, skills="one_hot:5", options=_BLIND)


def _any_direction() -> Preset:
    """Return a preset with continuous skills as in the paper: each is compared with 100
    others and resampled within an episode, as a planner would change it."""
    agent = _directions(random_skills=100)
    skills = "uniform:2,resample_probability=0.02,least_steps=10"
    return Preset(agent, 1_000_000, 200, skills=skills, options=_BLIND)


def _as_qdax() -> Preset:
    """Return the settings of the example of QDax: 62 updates per step of 250
    environments."""
    sac = SAC(
        num_envs=250,
        unroll_length=1,
        num_updates=62,
        capacity=1_000_000,
        random_steps=0.0,
        discount=0.97,
        target_entropy=-0.5,
    )
    agent = DADS(sac=sac, omit_input_dynamics_dim=2)
    return Preset(agent, 1_000_000, 100, skills="one_hot:5", options=_BLIND)


def _as_published() -> Preset:
    """Return the settings of the off-policy code of the second paper for the ant."""
    sac = SAC(
        num_envs=20,
        unroll_length=25,
        num_updates=64,
        capacity=10_000,
        actor_hidden=(512, 512),
        critic_hidden=(512, 512),
        discount=0.99,
        initial_temperature=0.1,
        temperature_learning_rate=0.0,
    )
    agent = DADS(
        sac=sac,
        hidden=(512, 512),
        omit_input_dynamics_dim=2,
        dynamics_update_freq=0,
        dynamics_updates=8,
        random_skills=100,
        importance_weights=True,
    )
    return Preset(agent, 5_000_000, 200, skills="uniform:2", options=_BLIND)


# Functions, as agents hold arrays and this module must not initialize a device on import.
_TABLE: dict[tuple[str, str], Callable[[], Preset]] = {
    ("ppo", "inverted_pendulum"): _balance,
    ("ppo", "hopper"): lambda: _run(2_000_000),
    ("ppo", "half_cheetah"): lambda: _run(3_000_000),
    ("ppo", "ant"): lambda: _run(3_000_000),
    ("sac", "inverted_pendulum"): _balance_off_policy,
    ("shac", "hopper"): _hop_through_physics,
    ("dads", "ant_omni"): _five_directions,
}
_VARIANTS: dict[tuple[str, str, str], Callable[[], Preset]] = {
    ("dads", "ant_omni", "continuous"): _any_direction,
    ("dads", "ant_omni", "qdax"): _as_qdax,
    ("dads", "ant_omni", "original"): _as_published,
}


def presets() -> Mapping[tuple[str, str], Callable[[], Preset]]:
    """Return all presets as factories, by the names of agent and environment."""
    return MappingProxyType(_TABLE)


def variants() -> Mapping[tuple[str, str, str], Callable[[], Preset]]:
    """Return alternative presets, such as published ones, as factories, by the names of
    agent, environment and preset."""
    return MappingProxyType(_VARIANTS)


def find_preset(agent: str, env: str, name: str | None = None) -> Preset | None:
    """Return the preset for an agent in an environment; None if there is none.

    **Arguments:**

    - `agent`, `env`: names. A package prefix, as in `eqsim:ant`, is ignored.
    - `name`: name of a variant; by default the main preset.

    **Raises:** `ValueError` if there is no variant of that name.
    """
    pair = agent.rpartition(":")[2], env.rpartition(":")[2]
    if name is None:
        make = _TABLE.get(pair)
        return None if make is None else make()
    known = [key[2] for key in _VARIANTS if key[:2] == pair]
    if name not in known:
        raise ValueError(unknown(f"{' on '.join(pair)} has no preset", name, known))
    return _VARIANTS[(*pair, name)]()
