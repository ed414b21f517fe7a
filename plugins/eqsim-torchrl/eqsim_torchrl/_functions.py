"""Steps and rollouts of environments as functions of tensors."""

import abc
from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs import EnvBase

from eqsim.bridges import check_count

from ._operator import Operator
from ._policies import apply, plan_of
from ._program import Program
from ._state import (
    check_action_type,
    check_actions,
    check_first_observation,
    check_state,
    EnvState,
    trajectory,
)


class AbstractTensorEnv(EnvBase):
    """An environment whose programs are functions of tensors: `transition` and
    `unroll`."""

    requires_grad: bool
    model_parameters: nn.ParameterDict
    _program: Program
    _table: np.ndarray | None
    _categorical: bool
    _seen: list[str]
    _action_shape: tuple[int, ...]
    _action_type: torch.dtype

    @property
    @abc.abstractmethod
    def state(self) -> EnvState:
        """The current state."""

    def transition(
        self, state: EnvState, action: torch.Tensor
    ) -> tuple[EnvState, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Take one step as a pure function of tensors, for `torch.func`; the state of
        this environment does not change.

        **Returns:** the new state; reward, terminated and truncated, each with a
        trailing axis of size one.
        """
        state, action = self._checked(state), self._action(action)
        flat = action.reshape(self._program.rows, *action.shape[self.batch_dims :])
        # `torch.func` and `torch.compile` need the operator, also without
        # `requires_grad`.
        out = self._program.step(*self._rows(state)[:2], flat, *self._shared())
        numbers, words, obs, *told = map(self._unrows, out)
        return EnvState(numbers, words, obs), *told

    def unroll(
        self,
        actions: torch.Tensor | nn.Module,
        length: int | None = None,
        *,
        state: EnvState | None = None,
    ) -> tuple[TensorDict, EnvState]:
        """Take many steps in one compiled program, from the current state, which does
        not change. Episodes are neither reset nor stopped: steps after `done` continue
        the simulation. The backward pass stores the state of every step, and recomputes
        everything else.

        **Arguments:**

        - `actions`: actions with an axis of steps after the batch axes; or a policy, a
            network supported by `from_torch`, which acts on observations.
        - `length`: number of steps, with a policy.
        - `state`: initial state; by default `self.state`.

        **Returns:** a tensordict with that axis of steps, as returned by `rollout`, but
        without images and states: `action`, `observation` and flags, and in `next`
        observation, reward and flags; and the last state.

        **Raises:** `ValueError` if shapes are wrong, the length is missing, only images
        are observed, or derivatives are needed with respect to a state on which the
        first observation of a policy does not depend; `TypeError` for an unsupported
        network.
        """
        if "observation" not in self._seen:
            raise ValueError(
                "`unroll` returns no images, but only images are observed. Pass "
                "`pixels_only=False`, or call `rollout`."
            )
        state = self.state if state is None else self._checked(state)
        if isinstance(actions, nn.Module):
            out, actions = self._under(actions, length, state)
        else:
            if length is not None:
                raise ValueError(
                    "`length` must be left out with `actions`, which determine it."
                )
            steps = actions.shape[self.batch_dims : self.batch_dims + 1]
            if steps == (0,):
                raise ValueError("`actions` must have at least one step, got none.")
            cast = self._action(actions, tuple(steps))
            flat = cast.reshape(self._program.rows, *cast.shape[self.batch_dims :])
            out = self._call(self._program.unroll, self._rows(state)[:2], flat)
            out = [*map(self._unrows, out)]
            # Values between the rows of a table have derivatives, so they are not
            # rounded.
            real = actions.is_floating_point()
            actions = cast if real else actions.to(self.device, self.action_spec.dtype)
        return trajectory(state, actions, out, self.batch_dims)

    def _action(self, action: torch.Tensor, steps: tuple[int, ...] = ()):
        """Check an action, and convert it to the type of the environment."""
        expected = (*self.batch_size, *steps, *self._action_shape)
        rows = None if self._table is None else len(self._table)
        check_action_type(action, expected, rows, self._categorical)
        # A cast has a derivative, and so has a one-hot row of numbers.
        cast = action.to(self.device, self._action_type)
        if self._categorical:
            check_actions(action, rows)
        else:
            check_actions(cast)
        return cast

    def _checked(self, state: EnvState) -> EnvState:
        return check_state(state, self._program, self.batch_size, self.device)

    def _shared(self) -> list[torch.Tensor]:
        return list(self.model_parameters.values())

    def _call(self, operator: Operator, args: Sequence[torch.Tensor], last) -> tuple:
        given = [*args, last, *self._shared()]
        if self.requires_grad:
            return operator(*given)
        return operator.run(given)

    def _under(self, policy: nn.Module, length: int | None, state: EnvState):
        if length is None:
            raise ValueError(
                "`length` must be the number of steps if a policy is given, got None."
            )
        check_count("length", length)
        if self._table is not None:
            raise ValueError(
                "Actions must be continuous for `unroll` with a policy, but "
                "`discrete_actions` makes them integers. Pass a sequence of actions, "
                "or leave `discrete_actions` out."
            )
        if self.requires_grad and torch.is_grad_enabled():
            check_first_observation(state)
        plan, weights = plan_of(policy)
        act = lambda weights, obs: apply(plan, weights, obs)
        operator = self._program.under(act, plan, length)
        weights = [x.to(self.device, self._action_type) for x in weights]
        given = [*self._rows(state), *weights, *self._shared()]
        found = operator(*given) if self.requires_grad else operator.run(given)
        *out, actions = map(self._unrows, found)
        return out, actions

    def _rows(self, state: EnvState) -> list[torch.Tensor]:
        number = self._program.rows
        return [x.reshape(number, *x.shape[self.batch_dims :]) for x in state]

    def _unrows(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(*self.batch_size, *x.shape[1:])
