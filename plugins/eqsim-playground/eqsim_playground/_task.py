"""Base class and common parts of MuJoCo Playground's tasks."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from eqsim import (
    AbstractEnv,
    AbstractPipeline,
    Generalized,
    ResetOptions,
    scan,
    State,
    System,
    Timestep,
)
from eqsim.bridges import check_count, check_key
from eqsim.envs import check_action, same_robot_options
from eqsim.model.arrays import as_array
from eqsim.spatial import positive_part


Observation = PyTree[Float[Array, "..."]]


class AbstractPlaygroundTask(AbstractEnv):
    """A task of MuJoCo Playground.

    Actions are in [-1, 1], and the task scales them to servo targets. The state
    contains that of the robot as `robot`, a key, and the memory of the task: the last
    action, a command, times. Playground truncates episodes after a number of control
    steps: wrap the task in `eqsim.TimeLimit`.
    """

    frame_skip: eqx.AbstractVar[int]
    weights: eqx.AbstractVar[eqx.Module]

    def __check_init__(self):
        check_count("frame_skip", self.frame_skip)
        with_sensors(self.pipeline)

    @property
    @abc.abstractmethod
    def term_names(self) -> tuple[str, ...]:
        """Names of the reward terms."""

    @abc.abstractmethod
    def initial(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Draw coordinates and velocities of an initial state."""

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, robot: State) -> tuple[Any, Observation]:
        """Start an episode in a state of the robot.

        **Returns:** the state of the task, and its observation.
        """

    @abc.abstractmethod
    def advance(
        self, state: Any, action: Float[Array, " nu"]
    ) -> tuple[Any, Observation, dict[str, Float[Array, ""]], Bool[Array, ""]]:
        """Take one control step.

        **Returns:** the new state of the task, its observation, the reward terms, and
        true if the episode terminates.
        """

    @property
    def dt(self) -> Float[Array, ""]:
        """Duration of a control step, s."""
        return self.sys.dt * self.frame_skip

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        """Bounds -1 and 1 for each actuator."""
        bounds = jnp.asarray([[-1.0, 1.0]], self.sys.dt.dtype)
        return jnp.broadcast_to(bounds, (self.sys.nu, 2))

    def physics(self, state: Any) -> State:
        """Return the state of the robot."""
        return state.robot

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[Any, Timestep]:
        """Draw an initial state; `options` may contain `q` and `qd`."""
        check_key(key)
        options = same_robot_options(self, options)
        key_start, key_task = jr.split(key)
        q, qd = self.initial(key_start)
        q = q if options.q is None else options.q
        qd = qd if options.qd is None else options.qd
        state, obs = self.begin(key_task, self.pipeline.init(self.sys, q, qd))
        terms = {name: jnp.zeros((), self.sys.dt.dtype) for name in self.term_names}
        return state, _report(obs, terms, _flag(False), True)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        """Take one control step."""
        check_action(self, action)
        state, obs, terms, terminated = self.advance(state, action)
        return state, _report(obs, terms, terminated, False)


def _report(obs, terms: dict, terminated, first: bool) -> Timestep:
    total = jnp.sum(jnp.stack(list(terms.values())))
    return Timestep(obs, total, terminated, _flag(False), terms, _flag(first))


def _flag(value: bool) -> Bool[Array, ""]:
    return jnp.full((), value, bool)


def hold(
    task: AbstractPlaygroundTask,
    robot: State,
    ctrl: Float[Array, " nu"],
    external: Float[Array, "nlink 6"] | None = None,
    sys: System | None = None,
    length: int | None = None,
) -> State:
    """Step the robot with constant controls and forces.

    **Arguments:**

    - `external`: external wrenches, see `eqsim.AbstractPipeline.step`.
    - `sys`: the robot, if it is not `task.sys`.
    - `length`: number of time steps; by default those of a control step.
    """
    robot_of = task.sys if sys is None else sys

    def step(robot, _):
        return task.pipeline.step(robot_of, robot, ctrl, external), None

    return scan(step, robot, length=task.frame_skip if length is None else length)[0]


def weighted(
    weights: eqx.Module, values: dict[str, Float[Array, ""]], factor: Any
) -> dict[str, Float[Array, ""]]:
    """Return the weighted reward terms, `weights.name * values["name"] * factor`, of
    weights that are not None.

    **Raises:** `ValueError` if a weight is not None and has no term.
    """
    names = weight_names(weights)
    if missing := [name for name in names if name not in values]:
        raise ValueError(
            f"This task has no reward terms {', '.join(missing)}. Set their weights to "
            "None."
        )
    given = vars(weights)
    return {
        name: given[name] * x * factor for name, x in values.items() if name in names
    }


def weight_names(weights: eqx.Module) -> tuple[str, ...]:
    """Return the names of the weights that are not None."""
    return tuple(name for name, x in vars(weights).items() if x is not None)


def acceleration(
    task: AbstractPlaygroundTask,
    robot: State,
    ctrl: Float[Array, " nu"],
    external: Float[Array, "nlink 6"] | None = None,
) -> dict[str, Float[Array, ""]]:
    """Compute the term `dof_acc` of a legged robot, if it has a weight."""
    if "dof_acc" not in weight_names(task.weights):
        return {}
    solved = with_sensors(task.pipeline).solve(task.sys, robot, ctrl, external)
    return {"dof_acc": jnp.sum(solved.qdd[6:] ** 2)}


def clipped(terms: dict[str, Float[Array, ""]]) -> dict[str, Float[Array, ""]]:
    """Add the term `clip`, with which a sum of terms that is negative becomes 0."""
    total = jnp.sum(jnp.stack(list(terms.values())))
    return {**terms, "clip": positive_part(-total)}


def with_sensors(pipeline: AbstractPipeline) -> Generalized:
    """Return a pipeline that supports sensors.

    **Raises:** `ValueError` if it is not `Generalized`, the only pipeline with sensors.
    """
    if not isinstance(pipeline, Generalized):
        raise ValueError(
            f"This task reads sensors, which `{type(pipeline).__name__}` does not have. "
            "Pass `pipeline=eqsim.Generalized()`."
        )
    return pipeline


def physics(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    """Convert None to the default pipeline, `Generalized()`."""
    return Generalized() if pipeline is None else pipeline


def number(default: float | tuple[float, ...] | None) -> Any:
    """Return a field for an array with a default value."""
    return eqx.field(converter=as_array, default=default)


def default_of(kind: Callable[..., Any], *args: Any, **numbers: Any) -> Any:
    """Return a field whose default is `kind(*args, **numbers)`."""
    return eqx.field(default_factory=lambda: kind(*args, **numbers))


def noise(
    key: PRNGKeyArray, values: Float[Array, " n"], scale: Float[Array, ""]
) -> Float[Array, " n"]:
    """Return values with uniform noise from `-scale` to `scale`."""
    draw = jr.uniform(key, values.shape, values.dtype, -1.0, 1.0)
    return values + scale * draw


def between(
    key: PRNGKeyArray, bounds: Float[Array, "2"], shape: tuple[int, ...] = ()
) -> Float[Array, "*shape"]:
    """Draw values uniformly between two bounds."""
    low, high = bounds
    return low + (high - low) * jr.uniform(key, shape, bounds.dtype)


def index(names: tuple[str, ...], name: str, kind: str) -> int:
    """Return the index of a name.

    **Raises:** `ValueError` if it does not exist.
    """
    if name not in names:
        raise ValueError(
            f"This task needs a {kind} {name!r}, but the robot has {', '.join(names)}. "
            "Rename one, or start from the robot of Playground's file."
        )
    return names.index(name)


def of_model(make: Callable[[], System]) -> Callable[[System | None], System]:
    """Return a converter of None to the result of a function."""
    return lambda sys: make() if sys is None else sys
