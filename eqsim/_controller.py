"""Policies with memory, such as model predictive control."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from .model import State


class AbstractController(eqx.Module):
    """A policy that reads the state of the robot and carries memory from step to step.

    `eqsim.rollout` takes one in place of `(obs, key) -> action`: it calls `init` where a
    rollout begins and `act` at every control step. Its memory is not reset where an
    episode ends within a rollout.
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
