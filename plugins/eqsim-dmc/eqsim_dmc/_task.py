"""Base classes and common parts of the suite's tasks."""

import abc
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, AbstractTask, Generalized, State, System
from eqsim.model import JointKind

from ._models import suite_model
from ._tolerance import tolerance
from .sigmoids import quadratic


class AbstractSuiteTask(AbstractTask):
    """A task of the control suite.

    Its observation has named parts. Its reward has a single term, `task`.
    """

    @abc.abstractmethod
    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        """Return the parts of an observation by their names in the suite, in its order.

        **Arguments:** as for `observe`.
        """

    @abc.abstractmethod
    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        """Compute the reward for reaching a state by an action."""

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        """Concatenate the parts of an observation."""
        return jnp.concatenate(
            [jnp.ravel(x) for x in self.parts(state, action).values()]
        )

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        """Return the single term `task`."""
        return {"task": self.reward(new, action)}


class AbstractEndlessTask(AbstractSuiteTask):
    """A task of the control suite that never terminates, with rewards from 0 to 1.

    The suite truncates episodes after 1,000 control steps: wrap the task in
    `eqsim.TimeLimit(env, 1000)`.
    """

    def terminated(self, state: State) -> Bool[Array, ""]:
        """Return false: episodes never terminate."""
        return jnp.zeros((), bool)


def model(name: str) -> Callable[[System | None], System]:
    """Return a converter with a model of the suite as default."""
    return lambda sys: suite_model(name) if sys is None else sys


def physics(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    """Convert None to the default pipeline, `Generalized()`."""
    return Generalized() if pipeline is None else pipeline


def index(names: tuple[str, ...], name: str, kind: str) -> int:
    """Return the index of a name.

    **Raises:** `ValueError` if it does not exist.
    """
    if name not in names:
        raise ValueError(
            f"This task needs a {kind} {name!r}, but the robot has {', '.join(names)}. "
            "Rename one, or start from the robot of the suite's file."
        )
    return names.index(name)


def random_joints(sys: System, key: PRNGKeyArray) -> Float[Array, " nq"]:
    """Draw coordinates of the suite's random poses: joints with a range uniform within
    it, hinges without a range uniform in the circle, other slides at their reference.
    Free joints keep their position; their quaternions are four uniform numbers from 0
    to 1, scaled to norm 1, so orientations are not uniform.

    **Raises:** `ValueError` if there are ball joints.
    """
    joints = sys.joints
    low, high, free = joints.ref, joints.ref, []
    for joint, (kind, start) in enumerate(zip(joints.kinds, joints.q_starts)):
        if kind is JointKind.SPHERICAL:
            raise ValueError(
                "Initial positions can be drawn for hinges, slides and free joints "
                f"only, but {joints.names[joint]!r} is a ball joint. Pass `options` "
                "with `q` to `reset`."
            )
        if kind is JointKind.FREE:
            free.append(slice(start + 3, start + 7))
            low, high = low.at[free[-1]].set(0.0), high.at[free[-1]].set(1.0)
        elif joints.limited[joint]:
            low = low.at[start].set(joints.range[joint, 0])
            high = high.at[start].set(joints.range[joint, 1])
        elif kind is JointKind.REVOLUTE:
            low, high = low.at[start].set(-jnp.pi), high.at[start].set(jnp.pi)
    q = low + jr.uniform(key, low.shape, low.dtype) * (high - low)
    for quat in free:
        q = q.at[quat].divide(jnp.sqrt(jnp.sum(q[quat] ** 2)))
    return q


def small(action: Float[Array, " nu"]) -> Float[Array, ""]:
    r"""Compute a factor for small actions, from 4/5 to 1: $(4 + \overline{\max(0, 1 -
    u^2)}) / 5$, with the mean over the entries."""
    value = tolerance(action, margin=1.0, sigmoid=quadratic, value_at_margin=0.0)
    return (4.0 + jnp.mean(value)) / 5.0
