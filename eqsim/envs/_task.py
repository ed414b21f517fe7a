import abc
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._errors import check_count, check_key, check_type
from .._loops import scan
from ..model import State
from ._env import AbstractEnv, check_action, ResetOptions, same_robot_options, Timestep


_FROM_RESET = "Pass the first of the two values that `reset` or `step` returned."


class AbstractTask(AbstractEnv):
    """A task: a robot, a pipeline, observations, rewards and a termination condition.

    Subclasses have the fields `sys`, `pipeline` and `frame_skip`, and implement `initial`,
    `observe`, `rewards` and `terminated`; `reset` and `step` are implemented here. A
    control step takes `frame_skip` time steps of `sys.dt`, in every pipeline. The state is
    the state of the robot. Time limits are those of `TimeLimit`, not of the task.
    """

    frame_skip: eqx.AbstractVar[int]

    def __check_init__(self):
        check_count("frame_skip", self.frame_skip)

    @abc.abstractmethod
    def initial(self, key: PRNGKeyArray) -> State:
        """Draw an initial state."""

    @abc.abstractmethod
    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> PyTree[Shaped[Array, "..."]]:
        """Compute the observation of a state: a vector, or a dictionary of vectors and
        images (height, width, channels).

        **Arguments:**

        - `action`: action in this state, on which forces depend; zero at a reset.
        """

    @abc.abstractmethod
    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        """Compute the reward terms of the transition from `state` to `new`, by name. The
        reward is their sum."""

    @abc.abstractmethod
    def terminated(self, state: State) -> Bool[Array, ""]:
        """Test if the episode terminates in a state."""

    @property
    def dt(self) -> Float[Array, ""]:
        return self.sys.dt * self.frame_skip

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        actuators = self.sys.actuators
        limited = jnp.asarray(actuators.ctrl_limited, bool)[:, None]
        endless = jnp.asarray([-jnp.inf, jnp.inf], actuators.ctrl_range.dtype)
        return jnp.where(limited, actuators.ctrl_range, endless[None])

    def physics(self, state: State) -> State:
        return state

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[State, Timestep]:
        check_key(key)
        options = same_robot_options(self, options)
        state = self.initial(key)
        if options.q is not None or options.qd is not None:
            q = state.q if options.q is None else options.q
            qd = state.qd if options.qd is None else options.qd
            state = self.pipeline.init(self.sys, q, qd)
        return self.begin(state)

    def begin(self, state: State) -> tuple[State, Timestep]:
        """Start an episode in a given state; return that state and its timestep."""
        rest = jnp.zeros(self.sys.nu, state.q.dtype)
        shapes = jax.eval_shape(self.rewards, state, rest, state)
        terms = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}
        return state, self._report(state, rest, terms, True)

    def step(self, state: State, action: Float[Array, " nu"]) -> tuple[State, Timestep]:
        check_type("state", state, State, "a state of the robot", _FROM_RESET)
        check_action(self, action)
        new = self.transition(state, action)
        terms = self.rewards(state, action, new)
        return new, self._report(new, action, terms, False)

    def transition(self, state: State, action: Float[Array, " nu"]) -> State:
        """Compute the state after one control step."""
        step = lambda state, _: (self.pipeline.step(self.sys, state, action), None)
        return scan(step, state, length=self.frame_skip)[0]

    def _report(self, state: State, action, terms: dict, first: bool) -> Timestep:
        flag = lambda value: jnp.full((), value, bool)
        return Timestep(
            self.observe(state, action),
            jnp.sum(jnp.stack(list(terms.values()))),
            self.terminated(state),
            flag(False),
            terms,
            flag(first),
        )


@runtime_checkable
class TracksCommands(Protocol):
    """A task that tracks commands."""

    def tracking(
        self, state: Any
    ) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
        """Return pairs by name with unit: the target of the next step, and the value in
        this state. A target is compared with the value after the step."""
        ...
