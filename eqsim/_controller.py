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
    """A policy that reads the state of the robot and has a memory.

    `eqsim.rollout` accepts a controller in place of `(obs, key) -> action`. It calls
    `init` at the start of a rollout and `act` in every control step. With `AutoReset`,
    it also calls `init` at the start of every new episode.
    """

    @abc.abstractmethod
    def init(self, state: State, key: PRNGKeyArray) -> Any:
        """Compute the memory before the first step.

        **Arguments:**

        - `state`: the first state of the robot.
        - `key`: key of `jax.random.key`.

        **Returns:** arrays in any structure, which are passed to `act`.
        """

    @abc.abstractmethod
    def act(
        self, memory: Any, state: State, obs: Any, key: PRNGKeyArray
    ) -> tuple[Any, Float[Array, " nu"]]:
        """Compute an action.

        **Arguments:**

        - `memory`: memory from `init` or from the last call.
        - `state`: state of the robot.
        - `obs`: observation of the environment.
        - `key`: key, different in every step.

        **Returns:** the new memory and the action.
        """


def renewed(
    controller: AbstractController,
    env: AbstractEnv,
    memory: Any,
    state: Any,
    timestep: Timestep,
    key: PRNGKeyArray,
) -> Any:
    """Compute the memory after a step, initialized again if `AutoReset` started an
    episode.

    **Arguments:**

    - `controller`, `env`: the controller and its environment.
    - `memory`: memory after the step.
    - `state`, `timestep`: results of the step of the environment.
    - `key`: key for `init`.
    """
    if timestep.final_obs is None:
        return memory
    begins = timestep.done | timestep.first
    # `vmap` executes both sides of a branch, and `init` may be expensive. The loop
    # body runs only if an environment of the batch starts an episode.
    none = jnp.zeros_like(begins)
    begin = lambda _: (none, controller.init(env.physics(state), key))
    return lax.while_loop(lambda now: now[0], begin, (begins, memory))[1]
