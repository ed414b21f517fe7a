"""Environments: their interface, as `rollout` and wrappers use it, and tasks.

`AbstractEnv` has `reset` and `step`; `AbstractTask` writes both once for tasks that supply
observations, reward terms and a termination condition.
"""

import abc
import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._errors import check_count, check_key, check_shape, check_type
from .._loops import scan
from ..model import State, System
from ..pipelines import AbstractPipeline


class ResetOptions(eqx.Module):
    """A given initial state. Parts that are None are drawn at random.

    **Arguments:**

    - `q`: coordinates.
    - `qd`: velocities.
    - `sys`: robot of this episode, for environments with a different robot in each
        episode, such as `DomainRandomization`.
    - `context`: randomized parameters of the robot as one vector, for the same
        environments.
    - `patch`: row (level of difficulty) and column of the terrain to start on, for
        environments with `TerrainCurriculum`.
    - `start`: start of the episode for tasks that define one, such as the frame of a
        reference motion, or the value that an `AbstractCarryOver` passes on.
    """

    q: Float[Array, " nq"] | None = None
    qd: Float[Array, " nv"] | None = None
    sys: System | None = None
    context: Float[Array, " ncontext"] | None = None
    patch: Int[Array, "2"] | None = None
    start: PyTree[Shaped[Array, "..."]] | None = None


def reset_options(options: ResetOptions | Mapping[str, Any] | None) -> ResetOptions:
    """Convert a dictionary to `ResetOptions`; options that already are one are
    returned.

    **Raises:** `ValueError` if a name is unknown.
    """
    if isinstance(options, ResetOptions):
        return options
    known = [field.name for field in fields(ResetOptions)]
    for name in options or {}:
        if name not in known:
            mujoco = {"qpos": ["q"], "qvel": ["qd"]}.get(name)
            close = mujoco or difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"There is no reset option {name!r}.{hint} Options: {', '.join(known)}."
            )
    return ResetOptions(**(options or {}))


def check_start(sys: System, options: ResetOptions) -> None:
    """Raise `ValueError` unless coordinates and velocities fit the robot."""
    if options.q is not None:
        check_shape("options.q", options.q, {"nq": sys.nq})
    if options.qd is not None:
        check_shape("options.qd", options.qd, {"nv": sys.nv})


def same_robot_options(
    env: Any, options: ResetOptions | Mapping[str, Any] | None
) -> ResetOptions:
    """Return the reset options for an environment with the same robot in every episode.

    **Raises:** `ValueError` if an option is unknown or selects another robot, or if
    coordinates and velocities do not fit the robot.
    """
    options = reset_options(options)
    for name, value in (("sys", options.sys), ("context", options.context)):
        if value is not None:
            raise ValueError(
                f"`options.{name}`: the robot of `{type(env).__name__}` is the same in "
                "every episode. Wrap it in `eqsim.DomainRandomization`, or change "
                "`env.sys` with `eqx.tree_at`."
            )
    if options.patch is not None:
        raise ValueError(
            f"`options.patch`: `{type(env).__name__}` has no terrain of several patches. "
            "Wrap it in `eqsim.wrappers.TerrainCurriculum`."
        )
    if options.start is not None:
        raise ValueError(
            f"`options.start`: `{type(env).__name__}` has no such option. Pass `q` and `qd`."
        )
    check_start(env.sys, options)
    return options


class Timestep(eqx.Module):
    """Results of a reset or a step.

    **Arguments:**

    - `obs`: observation: arrays in any structure, such as a dictionary of an image and
        a vector.
    - `reward`: sum of `terms`.
    - `terminated`: true if the task has ended, successfully or not.
    - `truncated`: true if the episode was cut off. Set by a time limit, never by a
        task.
    - `terms`: reward terms, by name.
    - `first`: true if this is the start of an episode rather than the result of an
        action. Set by `reset`, and by `AutoReset` when it resets in a separate step.
    - `final_obs`: with `AutoReset`, the observation after the action, before any reset.
        It equals `obs` unless an episode has ended.
    - `descriptor`: with a skill-discovery wrapper, the features that distinguish
        skills.
    """

    obs: PyTree[Shaped[Array, "..."]]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    terms: dict[str, Float[Array, ""]]
    first: Bool[Array, ""]
    final_obs: PyTree[Shaped[Array, "..."]] | None = None
    descriptor: Float[Array, " ndescriptor"] | None = None

    @property
    def done(self) -> Bool[Array, "..."]:
        """True if the episode is over, by termination or truncation."""
        return self.terminated | self.truncated


class AbstractEnv(eqx.Module):
    """A task, or a wrapper around another environment: a robot that is stepped by
    actions.

    Its state may be any pytree; `physics` returns the state of the robot in it. Derive
    new tasks from `AbstractTask`, which implements `reset` and `step`.
    """

    if TYPE_CHECKING:
        # A field would become an argument of every wrapper.
        @property
        def sys(self) -> System:
            """The robot."""
            ...

        @property
        def pipeline(self) -> AbstractPipeline:
            """The physics."""
            ...

    else:
        sys: eqx.AbstractVar[System]
        pipeline: eqx.AbstractVar[AbstractPipeline]

    @property
    @abc.abstractmethod
    def dt(self) -> Float[Array, ""]:
        """Duration of a control step, s."""

    @property
    @abc.abstractmethod
    def action_range(self) -> Float[Array, "nu 2"]:
        """Lower and upper bound of each entry of an action; infinite if there is
        none."""

    @property
    def action_size(self) -> int:
        """Number of entries of an action."""
        return self.sys.nu

    @property
    def observation_size(self) -> int:
        """Number of entries of an observation of one environment (traces `reset`).

        **Raises:** `ValueError` if observations are not vectors.
        """
        shape = observation_array(self, "`observation_size`").shape
        if len(shape) != 1:
            raise ValueError(
                f"`observation_size` needs observations that are vectors, got shape {shape}."
            )
        return shape[0]

    @abc.abstractmethod
    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        """Draw an initial state, and return it with its timestep, whose rewards are
        zero.

        **Arguments:**

        - `key`: key of `jax.random.key`, or of the older `jax.random.PRNGKey`.
        - `options`: a given initial state, as `ResetOptions` or as a dictionary.

        **Raises:** `ValueError` if an option is unknown, has the wrong shape, or is not
        supported by this environment.
        """

    @abc.abstractmethod
    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        """Take one control step.

        **Arguments:**

        - `state`: state from `reset` or from an earlier step.
        - `action`: action, constant during the control step.

        **Returns:** the new state and its timestep.

        **Raises:** `ValueError` if the action has the wrong shape, or if it is not
        finite. The latter is not checked for traced values.
        """

    @abc.abstractmethod
    def physics(self, state: Any) -> State:
        """Return the state of the robot, given the state of the environment."""


def observation_array(env: AbstractEnv, user: str) -> jax.ShapeDtypeStruct:
    """Return shape and type of the observations of one environment (traces `reset`).

    **Arguments:**

    - `user`: name of the function that needs them, for the error.

    **Raises:** `ValueError` if they are not single arrays.
    """
    obs = eqx.filter_eval_shape(lambda env: env.reset(jr.key(0))[1].obs, env)
    if not isinstance(obs, jax.ShapeDtypeStruct):
        paths = [jtu.keystr(path) for path, _ in jtu.tree_leaves_with_path(obs)]
        raise ValueError(
            f"{user} needs observations of one array each, but those of "
            f"`{type(env).__name__}` have the parts {', '.join(paths)}. Leave out the wrapper "
            "that adds parts, or return one array."
        )
    return obs


def check_action(env: AbstractEnv, action: Any) -> None:
    """Raise `ValueError` unless the action has the right shape and finite values."""
    check_shape("action", action, {"nu": env.sys.nu})
    if not isinstance(action, Tracer) and not np.all(np.isfinite(action)):
        raise ValueError(f"`action` must be finite, got {action}.")


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
        action = jnp.asarray(action, state.q.dtype)
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
