"""Base classes and common parts of the tasks, with the reward function of the suite."""

import abc
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import (
    AbstractEnv,
    AbstractPipeline,
    AbstractTask,
    DomainRandomization,
    Generalized,
    State,
    System,
)
from eqsim.model import JointKind
from eqsim.randomize import AbstractRandomizer

from .sigmoids import gaussian, quadratic


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


def physics(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    """Convert None to the default pipeline, `Generalized()`."""
    return Generalized() if pipeline is None else pipeline


def preset(
    make: Callable[..., Any],
    about: str,
    model: Callable[[], System] | None = None,
    edit: Callable[[System], System] | None = None,
    draw: Callable[[], AbstractRandomizer] | None = None,
    **chosen: Any,
) -> Callable[..., AbstractEnv]:
    """Return a function that creates a task from options, and whose signature has them.

    **Arguments:**

    - `make`: the class of the task.
    - `about`: first sentence of its docstring.
    - `model`: default robot, if it is not that of the class.
    - `edit`: change of the robot.
    - `draw`: class of the domain randomization.
    - `chosen`: options. Those of a call replace numbers; a flag is no option of the function.
    """
    fixed = [name for name, value in chosen.items() if isinstance(value, bool)]
    known = {
        name: option.replace(
            kind=option.KEYWORD_ONLY, default=chosen.get(name, option.default)
        )
        for name, option in inspect.signature(make).parameters.items()
        if name not in fixed
    }

    def create(**options: Any) -> AbstractEnv:
        for name in options:
            if name not in known:
                raise TypeError(
                    f"This task has no option {name!r}. Options: {', '.join(known)}."
                )
        given = chosen | options
        if model is not None and given.get("sys") is None:
            given["sys"] = model()
        env = make(**given)
        if edit is not None:
            env = eqx.tree_at(lambda e: e.sys, env, edit(env.sys))
        return env if draw is None else DomainRandomization(env, draw())

    create.__doc__ = f"{about} **Arguments:** options of `{make.__name__}`."
    create.__signature__ = inspect.Signature([*known.values()])
    return create


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


def tolerance(
    x: Float[Array, "..."],
    bounds: tuple[Any, Any] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: Callable[[Array, Any], Array] = gaussian,
    value_at_margin: Any = 0.1,
) -> Float[Array, "..."]:
    r"""Compute how well values lie within bounds, from 0 to 1.

    $1$ for $l \le x \le h$, else $s(d / m)$ with the distance $d$ from the nearer bound,
    the margin $m$ and a sigmoid $s$ with $s(0) = 1$ and $s(1) =$ `value_at_margin`. With
    margin 0 it is 0 outside.

    It can be differentiated with respect to all arguments, in both modes; the
    derivative of a jump (margin 0) is zero.

    **Arguments:**

    - `x`: values of any shape.
    - `bounds`: lower bound $l$ and upper bound $h$, inclusive; may be infinite.
    - `margin`: distance from the bounds, in units of `x`, at which the result is
        `value_at_margin`.
    - `sigmoid`: one of `eqsim_dmc.sigmoids`, or a function `(distance, value at 1)`.
    - `value_at_margin`: value between 0 and 1; 0 is allowed for `cosine`, `linear` and
        `quadratic`.

    **Returns:** values of the shape of `x`.

    **Raises:** `ValueError` if the bounds are in the wrong order, the margin is
    negative, or the sigmoid cannot have `value_at_margin`. Not checked for traced
    values.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018, section 4.
    """
    low, high = bounds
    _check(low, high, margin)
    low, high, margin = (jnp.asarray(b, x.dtype) for b in (low, high, margin))
    below, inside = x < low, (x >= low) & (x <= high)
    distance = jnp.where(below, low - x, x - high)
    # An infinite bound must not enter a sigmoid, not even in the branch that is not
    # taken.
    distance = jnp.where(inside, jnp.zeros_like(x), distance)
    soft = margin > 0.0
    scaled = distance / jnp.where(soft, margin, jnp.ones_like(margin))
    beyond = jnp.where(soft, sigmoid(scaled, value_at_margin), jnp.zeros_like(x))
    return jnp.where(inside, jnp.ones_like(x), beyond)


def _check(low: Any, high: Any, margin: Any) -> None:
    known = lambda *values: not any(isinstance(v, Tracer) for v in values)
    if known(low, high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"`bounds` must be in ascending order, got ({low}, {high}).")
    if known(margin) and not np.all(np.asarray(margin) >= 0.0):
        raise ValueError(f"`margin` must be at least 0, got {margin}.")
