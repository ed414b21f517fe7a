"""Policies with memory, such as model predictive control."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .envs import AbstractEnv, Timestep
from .model import State


class AbstractController(eqx.Module):
    """A policy that reads the state of the robot and carries memory from step to step.

    `eqsim.rollout` takes one in place of `(obs, key) -> action`: it calls `init` where a
    rollout begins and `act` at every control step. Below `AutoReset`, it also calls
    `init` where a new episode begins within the rollout.
    """

    @abc.abstractmethod
    def init(self, state: State, key: PRNGKeyArray) -> Any:
        """Compute the memory before the first step.

        **Arguments:**

        - `state`: the first state of the robot.
        - `key`: a key of `jax.random.key`.

        **Returns:** arrays in any structure, which `act` keeps.
        """

    @abc.abstractmethod
    def act(
        self, memory: Any, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " nu"]]:
        """Compute an action.

        **Arguments:**

        - `memory`: from `init` or the last call.
        - `state`: state of the robot.
        - `obs`: observation of the environment.
        - `key`: a new key at every step.

        **Returns:** new memory and the action.
        """


def renewed(
    controller: AbstractController,
    env: AbstractEnv,
    memory: Any,
    state: Any,
    timestep: Timestep,
    key: PRNGKeyArray,
) -> Any:
    """Compute the memory after a step, begun anew where `AutoReset` began an episode.

    **Arguments:**

    - `controller`, `env`: the controller and its environment.
    - `memory`: memory after the step.
    - `state`, `timestep`: results of the step of the environment.
    - `key`: a key for `init`.
    """
    if timestep.final_obs is None:
        return memory
    begins = timestep.done | timestep.first
    # `vmap` turns a branch into both of its sides, and a first plan is dear. A loop runs
    # only while an environment of the batch begins an episode.
    none = jnp.zeros_like(begins)
    begin = lambda _: (none, controller.init(env.physics(state), key))
    return lax.while_loop(lambda now: now[0], begin, (begins, memory))[1]
