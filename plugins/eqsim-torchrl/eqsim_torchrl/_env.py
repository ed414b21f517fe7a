"""Environments of eqsim for TorchRL."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Composite
from torchrl.envs import EnvBase

import eqsim
from eqsim import AbstractEnv
from eqsim.bridges import carries_over, Randomizer
from eqsim.render import Camera

from ._arrays import jax_device
from ._build import (
    action_spec,
    action_table,
    build,
    flags_spec,
    Names,
    observation_spec,
    parameters_of,
    rows,
    unbounded,
)
from ._functions import AbstractTensorEnv
from ._program import Pictures, Program, Where
from ._state import (
    EnvState,
    flags_after_reset,
    state_in,
    stepped,
)


class EqsimWrapper(AbstractTensorEnv):
    r"""An environment of eqsim for TorchRL, or a batch of environments of any rank.

    Inputs of a step are actions; outputs are observations, rewards and flags. The state
    is stored in this object as tensors, `state`, or in the tensordict.

    With `requires_grad`, outputs are functions of the previous actions, the initial
    state and `parameters`, which PyTorch differentiates. Forward and backward passes
    are each compiled once. A step stores only its arguments for the backward pass. A
    `reset` detaches the state from the previous graph, for the environments that it
    resets; `detach` does so for all, and so does a step from a tensordict whose
    `observation` is detached, as after `tensordict.detach()`.

    Environments that differ only in the values of arrays share compiled programs, if
    `parameters` and `randomize` are the same functions.

    `copy.deepcopy` and `pickle` copy the environment with its state, its parameters and
    its seed, without the graph. A copy within the process shares the compiled programs;
    an unpickled one compiles them on first use. `pickle` requires `parameters` and
    `randomize` to be module-level functions; `cloudpickle` also supports lambdas.

    **Arguments:**

    - `env`: the environment, without auto-reset. A curriculum goes on from episode to
        episode, until a seed is set.
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
    available_envs = Names()

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
                "`categorical_action_encoding` must be used with `discrete_actions`. "
                "Pass a table of actions."
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
        self.model_parameters = parameters_of(
            env, self._wheres, self.device, requires_grad
        )
        self._seen = [] if from_pixels and pixels_only else ["observation"]
        self._seen += ["pixels"] if from_pixels else []
        self._make_specs()

    @property
    def state(self) -> EnvState:
        """The current state. `env.reset(state=state)` returns to it.

        **Raises:** `RuntimeError` before the first reset.
        """
        if self._state is None:
            raise RuntimeError("`env.reset()` must be called first.")
        return self._state

    @property
    def slices(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        """Position of each array of a state in its `numbers`, and its shape."""
        return self._program.packing.slices()

    @property
    def traces(self) -> int:
        """Number of times that the step of environments of equal structure was compiled."""
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

    def _compile(self) -> None:
        """Create the compiled programs on the device."""
        wheres, place = [*self._wheres.values()], jax_device(self.device)
        number = rows(self.batch_size)
        self._program = Program(self.eqsim_env, number, wheres, self._table, place)
        self._pictures = Pictures(self._program, **self._picture)

    def _make_specs(self) -> None:
        batch, device, program = self.batch_size, self.device, self._program
        obs = observation_spec(
            program,
            self._seen,
            self._pictures.shape,
            self._in_tensordict,
            batch,
            device,
        )
        if self._in_tensordict:
            self.state_spec = Composite(
                state=obs["state"].clone(), shape=batch, device=device
            )
        self.observation_spec = obs
        reward = jax.ShapeDtypeStruct((1,), program.timestep.reward.dtype)
        self.reward_spec = unbounded(reward, batch, device)
        spec = action_spec(
            self.eqsim_env, self._table, self._categorical, batch, device
        )
        self.action_spec = spec
        self._action_shape = tuple(spec.shape)[len(batch) :]
        self._action_type = torch.int32 if self._categorical else program.number
        self.full_done_spec = flags_spec(batch, device)

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            # So that `torch.manual_seed` is sufficient.
            seed = int(torch.randint(2**62, ()))
        if not 0 <= seed < 2**63:
            raise ValueError(f"`seed` must satisfy 0 <= seed < 2^63, got {seed}.")
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
                "The only option of `reset` is `state`, an `EnvState`, got "
                f"{', '.join(kwargs)}."
            )
        mask = None if tensordict is None else tensordict.get("_reset", None)
        partly = mask is not None and not mask.all()
        if state is not None and partly:
            raise ValueError(
                "`_reset` must be left out with `state`, which replaces the states of "
                "all environments."
            )
        if set_state:
            state = self._given(tensordict)
        found = []
        if state is not None:
            # A copy, because users may write to theirs.
            self._state = EnvState(*(x.clone() for x in self._checked(state)))
        else:
            # A curriculum goes on after an episode; a seed restarts it.
            goes_on = self._state is not None and self._count > 0
            goes_on = goes_on and carries_over(self.eqsim_env)
            if not (partly or goes_on):
                new = self._call(self._program.begin, (), self._next_seed())
            else:
                held = tensordict is not None and self._in_tensordict
                held = held and tensordict.get("state", None) is not None
                old = self._given(tensordict) if held else self.state
                everyone = torch.ones(self._program.rows, dtype=torch.bool)
                mask = everyone.to(self.device) if mask is None else mask
                args = *self._rows(old), mask.reshape(self._program.rows)
                new = self._call(self._program.reset, args, self._next_seed())
            numbers, words, obs, *found = map(self._unrows, new)
            self._state = EnvState(numbers, words, obs)
        shape, allowed = (*self.batch_size, 1), self._allow_done_after_reset
        flags = flags_after_reset(
            tensordict, mask, found if allowed else (), shape, self.device
        )
        return self._out(self.state, **flags)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        state = (
            self._given(tensordict) if self._in_tensordict else self._cut(tensordict)
        )
        action = self._action(tensordict.get("action"))
        flat = action.reshape(self._program.rows, *action.shape[self.batch_dims :])
        out = self._call(self._program.step, self._rows(state)[:2], flat)
        numbers, words, obs, reward, terminated, truncated = map(self._unrows, out)
        new = EnvState(numbers, words, obs)
        told = reward, terminated, truncated
        mask = tensordict.get("_step", None)
        if mask is not None:
            mask = mask.reshape(self.batch_size)
            new, told = stepped(mask, (new, told), state, tensordict)
        self._state, (reward, terminated, truncated) = new, told
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
        return self._checked(state_in(tensordict))

    def _cut(self, tensordict: TensorDictBase) -> EnvState:
        """Return the current state, detached if the user has detached the observation in
        the tensordict, for truncated backpropagation."""
        state, seen = self.state, tensordict.get("observation", None)
        cut = seen is not None and not seen.requires_grad and torch.is_grad_enabled()
        if cut and state.obs.requires_grad:
            self.detach()
        return self.state

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


_NOT_NEEDED = {
    "cache_clear_frequency": "a program is compiled once, and no cache grows: leave it out",
    "num_workers": "a batch is one program: pass a larger `batch_size`; for processes use "
    "`torchrl.envs.ParallelEnv`",
    "camera_id": "pass `camera`, an `eqsim.render.Camera`",
    "render_kwargs": "pass `camera`, `width` and `height`",
}
"""Options of TorchRL's `BraxEnv` without a counterpart."""


class EqsimEnv(EqsimWrapper):
    """An environment of eqsim by name, as an `EqsimWrapper`.

    `EqsimEnv.available_envs` lists all names, including those of plugins.

    **Arguments:**

    - `name`: name of the environment, for instance `"ant"`.
    - `pipeline`: a pipeline, or a name such as `"spring"`; by default that of the
        environment.
    - `env_options`: options of the environment, as a dictionary, see `eqsim.make`.
    - `options`: options of `EqsimWrapper`.

    **Raises:** `TypeError` for an option of `BraxEnv` that has no counterpart;
    `ValueError` or `TypeError` if an option is invalid.

    !!! example

        ```python
        env = EqsimEnv("ant", batch_size=[64], pipeline="spring", episode_length=1000)
        ```
    """

    def __init__(
        self,
        name: str,
        *,
        pipeline: Any = None,
        env_options: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        for option in _NOT_NEEDED.keys() & options.keys():
            raise TypeError(
                f"`EqsimEnv` has no option `{option}`: {_NOT_NEEDED[option]}."
            )
        env = eqsim.make(name, pipeline=pipeline, **(env_options or {}))
        super().__init__(env, _name=name, **options)
        self.env_name = name
