"""Settings that are known to work, by agent and environment."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from eqsim import AbstractOnlineAgent

from ._ppo import PPO
from ._sac import SAC
from ._shac import SHAC


@dataclasses.dataclass(frozen=True)
class Preset:
    """How to train an agent in an environment.

    **Arguments:**

    - `agent`: with all its hyper-parameters.
    - `steps`: control steps, in all environments together.
    - `episode_length`: control steps of an episode, at most.
    - `pipeline`: name of the physics; by default what the environment chooses.
    """

    agent: AbstractOnlineAgent
    steps: int
    episode_length: int = 1000
    pipeline: str | None = None

    def __post_init__(self):
        if self.steps < 1 or self.episode_length < 1:
            raise ValueError(
                f"A preset of {self.steps} steps in episodes of {self.episode_length}: "
                "both must be positive."
            )


def _balance() -> Preset:
    agent = PPO(learning_rate=1e-3, reward_scale=0.1, entropy_cost=0.0)
    return Preset(agent, steps=200_000)


def _run(steps: int) -> Preset:
    """For robots that run."""
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
    steps = 300_000
    agent = SHAC(num_envs=16, anneal_steps=steps, reward_scale=0.1)
    return Preset(agent, steps=steps)


# Functions, as an agent holds arrays, and importing this must not start a device.
_TABLE: dict[tuple[str, str], Callable[[], Preset]] = {
    ("ppo", "inverted_pendulum"): _balance,
    ("ppo", "hopper"): lambda: _run(2_000_000),
    ("ppo", "half_cheetah"): lambda: _run(3_000_000),
    ("ppo", "ant"): lambda: _run(3_000_000),
    ("sac", "inverted_pendulum"): _balance_off_policy,
    ("shac", "hopper"): _hop_through_physics,
}


def presets() -> Mapping[tuple[str, str], Callable[[], Preset]]:
    """All presets: functions that make one, by the names of agent and environment."""
    return MappingProxyType(_TABLE)


def find_preset(agent: str, env: str) -> Preset | None:
    """The preset for an agent in an environment; None without one.

    **Arguments:**

    - `agent`, `env`: names; that of a package before them, as in `eqsim:ant`, is left
        out.
    """
    make = _TABLE.get((agent.rpartition(":")[2], env.rpartition(":")[2]))
    return None if make is None else make()
