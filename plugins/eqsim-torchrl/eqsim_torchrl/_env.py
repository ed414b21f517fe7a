"""Environments of eqsim for TorchRL."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn
from torchrl.data import Composite
from torchrl.envs import EnvBase

from eqsim import AbstractEnv
from eqsim.bridges import Randomizer
from eqsim.render import Camera

from ._arrays import jax_device, to_torch
from ._build import action_table, build
from ._operator import Operator
from ._pictures import Pictures
from ._policies import apply, plan_of
from ._program import Program, Where
from ._specs import action_spec, flags_spec, rows, state_spec, unbounded
from ._state import (
    check_actions,
    check_first_observation,
    check_state,
    EnvState,
    trajectory,
)


class EqsimWrapper(EnvBase):
    r"""An environment of eqsim for TorchRL, or a batch of environments of any rank.

    Inputs of a step are actions; outputs are observations, rewards and flags. The state
    is stored in this object as tensors, `state`, or in the tensordict.

    With `requires_grad`, outputs are functions of the previous actions, the initial
    state and `parameters`, which PyTorch differentiates. Forward and backward passes
    are each compiled once. A step stores only its arguments for the backward pass. A
    `reset` detaches the state from the previous graph, for the environments that it
    resets; `detach` does so for all.

    `copy.deepcopy` and `pickle` copy the environment with its state, its parameters and
    its seed, without the graph. A copy within the process shares the compiled programs;
    an unpickled one compiles them on first use. `pickle` requires `parameters` and
    `randomize` to be module-level functions; `cloudpickle` also supports lambdas.

    **Arguments:**

    - `env`: the environment, without auto-reset.
    - `batch_size`: batch size, of any rank.
    - `device`: device of the tensors and of the computation, which JAX must support. By
        default the CPU.
    - `requires_grad`: true to compute derivatives.
    - `parameters`: functions by name that return an array of the environment, such as
        `lambda env: env.sys.gravity`. The arrays become `torch.nn.Parameter`s of this
        module, shared by the batch. If `randomize` changes such an array, the parameter
        is its input at a reset: derivatives pass through that reset, and end where the
        state is detached or given.
    - `frame_skip`: number of control steps per action, within the compiled step;
        rewards are summed.
    - `episode_length`: number of control steps (or actions, with `frame_skip`) after
        which an episode is `truncated`.
    - `randomize`: domain randomization: a function `(key, sys) -> sys`, or with
        `EqsimEnv` the name of a preset.
    - `discrete_actions`: table of actions, whose rows are selected by integers; or
        number of values per actuator, from which a table is made.
    - `categorical_action_encoding`: true to encode a discrete action as an integer,
        false for a one-hot vector, through which derivatives pass.
    - `state_in_tensordict`: true to store the state in the tensordict, under `"state"`,
        so that a step depends only on the tensordict, as planners require; rollouts
        then contain all states.
    - `from_pixels`, `pixels_only`: true to observe images, under `"pixels"`, and to
        observe only images. Images have no derivatives.
    - `camera`, `width`, `height`: camera and size of the images.
    - `allow_done_after_reset`: true if an episode may be done after its reset, as for
        `EnvBase`; otherwise a reset sets no flags.

    **Raises:** `ValueError` or `TypeError` if an option is invalid.

    !!! example

        ```python
        env = EqsimWrapper(eqsim.make("ant"), batch_size=[64], requires_grad=True)
        ```
    """

    _has_frame_skip = True

    def __init__(
        self,
        env: AbstractEnv,
        *,
        batch_size: Sequence[int] = (),
        device: torch.device | str | int | None = None,
        requires_grad: bool = False,
        parameters: Mapping[str, Where] | None = None,
        frame_skip: int = 1,
        episode_length: int | None = None,
        randomize: Randomizer | str | None = None,
        discrete_actions: int | Sequence[Sequence[float]] | None = None,
        categorical_action_encoding: bool = False,
        state_in_tensordict: bool = False,
        from_pixels: bool = False,
        pixels_only: bool = True,
        camera: Camera | None = None,
        width: int = 64,
        height: int = 64,
        allow_done_after_reset: bool = False,
        _name: str = "",
    ):
        device = torch.device("cpu" if device is None else device)
        super().__init__(
            device=device,
            batch_size=torch.Size(batch_size),
            allow_done_after_reset=allow_done_after_reset,
        )
        env = build(env, _name, randomize, frame_skip, episode_length)
        table = action_table(env, discrete_actions)
        if categorical_action_encoding and table is None:
            raise ValueError(
                "`categorical_action_encoding` is for actions that are integers: pass "
                "`discrete_actions`, a table of actions."
            )
        self.eqsim_env, self.requires_grad = env, requires_grad
        self.frame_skip = frame_skip
        self._in_tensordict = state_in_tensordict
        self._supports_set_state = state_in_tensordict
        self._state: EnvState | None = None
        self._table, self._categorical = table, categorical_action_encoding
        self._seed: int | None = None
        self._count = 0
        self._wheres = dict(parameters or {})
        self._picture = {"camera": camera, "width": width, "height": height}
        self._compile()
        self._add_parameters()
        self._seen = [] if from_pixels and pixels_only else ["observation"]
        self._seen += ["pixels"] if from_pixels else []
        self._make_specs()

    @property
    def state(self) -> EnvState:
        """The current state. `env.reset(state=state)` returns to it.

        **Raises:** `RuntimeError` before the first reset.
        """
        if self._state is None:
            raise RuntimeError("There is no state yet. Call `env.reset()` first.")
        return self._state

    @property
    def slices(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        """Position of each array of a state in its `numbers`, and its shape."""
        return self._program.packing.slices()

    @property
    def traces(self) -> int:
        """Number of times that the step was compiled."""
        return self._program.step.traces

    def to(self, device: torch.device | str | int) -> "EqsimWrapper":
        """Move to another device, with the state, which is detached from the previous
        graph. Everything is recompiled there.

        **Raises:** `ValueError` if JAX does not support the device.
        """
        jax_device(torch.device(device))
        before = self.device
        EnvBase.to(self, device)
        if self.device != before:
            self.detach()
            self._compile()
            if self._state is not None:
                self._state = EnvState(*(x.to(self.device) for x in self._state))
        return self

    def detach(self) -> None:
        """Detach the state from the graph of previous steps."""
        if self._state is not None:
            self._state = EnvState(*(x.detach() for x in self._state))

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
                raise ValueError("`length` is that of `actions`: leave it out.")
            steps = actions.shape[self.batch_dims : self.batch_dims + 1]
            if steps == (0,):
                raise ValueError("`actions` have no steps: at least one is expected.")
            cast = self._action(actions, tuple(steps))
            flat = cast.reshape(self._program.rows, *cast.shape[self.batch_dims :])
            out = self._call(self._program.unroll, self._rows(state)[:2], flat)
            out = [*map(self._unrows, out)]
            # Values between the rows of a table have derivatives, so they are not
            # rounded.
            real = actions.is_floating_point()
            actions = cast if real else actions.to(self.device, self.action_spec.dtype)
        return trajectory(state, actions, out, self.batch_dims)

    def _compile(self) -> None:
        """Create the compiled programs on the device."""
        wheres, place = [*self._wheres.values()], jax_device(self.device)
        number = rows(self.batch_size)
        self._program = Program(self.eqsim_env, number, wheres, self._table, place)
        self._pictures = Pictures(self._program, **self._picture)

    def _add_parameters(self) -> None:
        self.model_parameters = nn.ParameterDict()
        for name, where in self._wheres.items():
            value = where(self.eqsim_env)
            if not isinstance(value, jax.Array) or not jax.numpy.issubdtype(
                value.dtype, jax.numpy.floating
            ):
                raise TypeError(
                    f"`parameters[{name!r}]` finds {value!r}: an array of floating point "
                    "numbers in the environment is expected."
                )
            tensor = to_torch(value).clone().to(self.device)
            self.model_parameters[name] = nn.Parameter(tensor, self.requires_grad)

    def _make_specs(self) -> None:
        batch, device = self.batch_size, self.device
        timestep, env = self._program.timestep, self.eqsim_env
        obs = Composite(shape=batch, device=device)
        if "observation" in self._seen:
            obs["observation"] = unbounded(timestep.obs, batch, device)
        if "pixels" in self._seen:
            obs["pixels"] = unbounded(self._pictures.shape, batch, device)
        if self._in_tensordict:
            packing = self._program.packing
            obs["state"] = state_spec(packing, timestep.obs, batch, device)
            self.state_spec = Composite(
                state=obs["state"].clone(), shape=batch, device=device
            )
        self.observation_spec = obs
        reward = jax.ShapeDtypeStruct((1,), timestep.reward.dtype)
        self.reward_spec = unbounded(reward, batch, device)
        spec = action_spec(env, self._table, self._categorical, batch, device)
        self.action_spec = spec
        self._action_shape = tuple(spec.shape)[len(batch) :]
        self._action_type = torch.int32 if self._categorical else self._program.number
        self.full_done_spec = flags_spec(batch, device)

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            # So that `torch.manual_seed` is sufficient.
            seed = int(torch.randint(2**62, ()))
        if not 0 <= seed < 2**63:
            raise ValueError(f"The seed is {seed}: 0 <= seed < 2^63 is expected.")
        self._seed, self._count = seed, 0

    def _next_seed(self) -> torch.Tensor:
        if self._seed is None:
            self._set_seed(None)
        assert self._seed is not None
        words = self._seed & 0x7FFFFFFF, self._seed >> 31, self._count
        self._count += 1
        low = [x & 0x7FFFFFFF for x in words] + [self._seed >> 62]
        return torch.tensor(low, dtype=torch.int32, device=self.device)

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        state: EnvState | None = None,
        set_state: bool = False,
        **kwargs: Any,
    ) -> TensorDictBase:
        if kwargs:
            raise TypeError(
                f"`reset` got {', '.join(kwargs)}: the only option is `state`, an `EnvState`."
            )
        mask = None if tensordict is None else tensordict.get("_reset", None)
        partly = mask is not None and not mask.all()
        if state is not None and partly:
            raise ValueError(
                "`state` is that of all environments, but `_reset` leaves some out."
            )
        if set_state:
            state = self._given(tensordict)
        found = []
        if state is not None:
            # A copy, because users may write to theirs.
            self._state = EnvState(*(x.clone() for x in self._checked(state)))
        else:
            if not partly:
                new = self._call(self._program.begin, (), self._next_seed())
            else:
                held = self._in_tensordict and tensordict.get("state", None) is not None
                old = self._given(tensordict) if held else self.state
                args = *self._rows(old), mask.reshape(self._program.rows)
                new = self._call(self._program.reset, args, self._next_seed())
            numbers, words, obs, *found = map(self._unrows, new)
            self._state = EnvState(numbers, words, obs)
        flags = self._flags_after_reset(tensordict, mask, found)
        return self._out(self.state, **flags)

    def _flags_after_reset(
        self,
        tensordict: TensorDictBase | None,
        mask: torch.Tensor | None,
        found: Sequence[torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        """Return the flags of environments that are not reset; new episodes have flags
        only if that is allowed.

        - `found`: terminated and truncated of new episodes, if there are any.
        """
        shape, names = (*self.batch_size, 1), ("done", "terminated", "truncated")
        no = torch.zeros(shape, dtype=torch.bool, device=self.device)
        flags = {name: no.clone() for name in names}
        if found and self._allow_done_after_reset:
            terminated, truncated = found
            flags = dict(zip(names, (terminated | truncated, terminated, truncated)))
        if tensordict is None or mask is None:
            return flags
        stay = ~mask.reshape(shape)
        return {name: flags[name] | (tensordict.get(name, no) & stay) for name in names}

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        state = self._given(tensordict) if self._in_tensordict else self.state
        action = self._action(tensordict.get("action"))
        flat = action.reshape(self._program.rows, *action.shape[self.batch_dims :])
        out = self._call(self._program.step, self._rows(state)[:2], flat)
        numbers, words, obs, reward, terminated, truncated = map(self._unrows, out)
        new = EnvState(numbers, words, obs)
        mask = tensordict.get("_step", None)
        if mask is not None:
            # Environments that take no step keep their state.
            mask = mask.reshape(self.batch_size)
            pick = lambda x, y: torch.where(
                mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), x, y
            )
            new = EnvState(*map(pick, new, state))
            reward = pick(reward, torch.zeros_like(reward))
            no = torch.zeros_like(terminated)
            terminated = pick(terminated, tensordict.get("terminated", no))
            truncated = pick(truncated, tensordict.get("truncated", no))
        self._state = new
        done = terminated | truncated
        return self._out(
            new, reward=reward, done=done, terminated=terminated, truncated=truncated
        )

    def _out(self, state: EnvState, **rest: torch.Tensor) -> TensorDictBase:
        made: dict[str, Any] = dict(rest)
        if "observation" in self._seen:
            # A copy, because users may write to theirs.
            made["observation"] = state.obs.clone()
        if "pixels" in self._seen:
            pictures = self._pictures(self._rows(state)[:2], self._shared())
            made["pixels"] = self._unrows(pictures.to(self.device))
        if self._in_tensordict:
            made["state"] = {k: x.clone() for k, x in state._asdict().items()}
        return TensorDict(made, self.batch_size, device=self.device)

    def _given(self, tensordict: TensorDictBase | None) -> EnvState:
        """Return the state in a tensordict."""
        if tensordict is None or tensordict.get("state", None) is None:
            raise KeyError(
                "The tensordict has no `state`, which goes with it here. Pass what `reset` "
                "or a step has returned."
            )
        held = tensordict.get("state")
        for name in EnvState._fields:
            if held.get(name, None) is None:
                raise KeyError(
                    f"The `state` of the tensordict has no `{name}`. Pass all of what `reset` "
                    "or a step has returned."
                )
        return self._checked(EnvState(*map(held.get, EnvState._fields)))

    def _checked(self, state: EnvState) -> EnvState:
        return check_state(state, self._program, self.batch_size, self.device)

    def _action(self, action: torch.Tensor, steps: tuple[int, ...] = ()):
        """Check an action, and convert it to the type of the environment."""
        expected = (*self.batch_size, *steps, *self._action_shape)
        if tuple(action.shape) != expected:
            raise ValueError(
                f"Actions have shape {tuple(action.shape)}, but {expected} is expected: "
                f"batch size{', steps' if steps else ''} and the shape of an action."
            )
        if self._table is None and not action.is_floating_point():
            raise TypeError(
                f"Actions have type {action.dtype}: floating point numbers are expected."
            )
        if self._categorical and action.is_floating_point():
            raise TypeError(f"Actions have type {action.dtype}: integers are expected.")
        # A cast has a derivative, and so has a one-hot row of numbers.
        cast = action.to(self.device, self._action_type)
        if self._categorical:
            check_actions(action, len(self._table))
        else:
            check_actions(cast)
        return cast

    def _shared(self) -> list[torch.Tensor]:
        return list(self.model_parameters.values())

    def _call(self, operator: Operator, args: Sequence[torch.Tensor], last) -> tuple:
        given = [*args, last, *self._shared()]
        if self.requires_grad:
            return operator(*given)
        return operator.run(given)

    def _under(self, policy: nn.Module, length: int | None, state: EnvState):
        if length is None or length < 1:
            raise ValueError(
                f"`length` is {length}: with a policy, the number of steps is expected."
            )
        if self._table is not None:
            raise ValueError(
                "`unroll` with a policy needs continuous actions, but here they are "
                "integers. Pass a sequence of actions, or leave `discrete_actions` out."
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

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for `copy.deepcopy` and `pickle`."""
        copied = super().__getstate__()
        if self._state is not None:
            # PyTorch does not copy tensors with a graph.
            copied["_state"] = EnvState(*(x.detach() for x in self._state))
        return copied

    def __repr__(self) -> str:
        name = type(self.eqsim_env).__name__
        return (
            f"{type(self).__name__}(env={name}, batch_size={tuple(self.batch_size)}, "
            f"device={self.device}, requires_grad={self.requires_grad})"
        )
