"""What a task tells inside wrappers: its deployment, its reflection, how it follows commands."""

from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..envs import (
    AbstractEnv,
    check_deployment,
    Commanded,
    Deployable,
    Deployment,
    Reflection,
    Symmetric,
)
from ._actions import ScaleAction
from ._observations import (
    NormalizeObservation,
    Pixels,
    SelectObservation,
    StackObservation,
)
from ._wrapper import AbstractStateful, AbstractWrapper, nested_envs
from .skills import Skills


# Wrappers after which a policy observes or commands other quantities than the task says.
_CHANGES = (
    NormalizeObservation,
    Pixels,
    ScaleAction,
    SelectObservation,
    Skills,
    StackObservation,
)


def deployment_of(env: AbstractEnv) -> Deployment:
    """Return what a controller outside the simulator needs to know of an environment: the
    `deployment()` of its task, with the control period of the wrapped environment.

    **Raises:** `ValueError` if the task has no method `deployment`, or a wrapper changes
    what a policy observes or what its actions mean.
    """
    task = _unchanged(env, "deployment")
    if not isinstance(task, Deployable):
        raise ValueError(
            f"`{type(task).__name__}` does not say how its policies are deployed. Give it "
            "a method `deployment() -> eqsim.envs.Deployment`."
        )
    found = task.deployment()
    repeats = round(float(env.dt) / float(task.dt))
    found = found._replace(period=repeats * found.period)
    check_deployment(found)
    return found


def reflection_of(env: AbstractEnv) -> Reflection:
    """Return the `reflection()` of the task of an environment.

    **Raises:** `ValueError` if the task has no method `reflection`, its action range is not
    symmetric (inside a transformation this is not known), or a wrapper changes what a policy
    observes or what its actions mean.
    """
    task = _unchanged(env, "reflection")
    if not isinstance(task, Symmetric):
        raise ValueError(
            f"`{type(task).__name__}` does not say what its reflection is. Give it a method "
            "`reflection() -> eqsim.envs.Reflection`."
        )
    found = task.reflection()
    bounds = env.action_range
    if isinstance(bounds, Tracer):
        return found
    low, high = np.asarray(bounds).T
    index, sign = np.array(found.action.index), np.array(found.action.sign)
    other = np.where(sign > 0, low[index], -high[index])
    if not np.allclose(other, low, equal_nan=False):
        k = int(np.argmax(~np.isclose(other, low)))
        names = env.sys.actuators.ctrl_names
        raise ValueError(
            f"The action range of `{type(task).__name__}` is not symmetric: that of "
            f"{names[k]!r} is {low[k]:g} to {high[k]:g}, and the reflection of that of "
            f"{names[index[k]]!r} begins at {other[k]:g}. Make the ranges mirror images."
        )
    return found


def following_of(
    env: AbstractEnv, state: Any
) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]] | None:
    """Return what the task of an environment is asked for and does, see
    `eqsim.envs.Commanded`; None if it follows no commands.

    **Arguments:**

    - `state`: state of the environment.
    """
    while isinstance(env, AbstractWrapper):
        if isinstance(env, AbstractStateful):
            state = state.inner
        env = env.env
    return env.following(state) if isinstance(env, Commanded) else None


def _unchanged(env: AbstractEnv, what: str) -> AbstractEnv:
    """Return the task inside wrappers, none of which changes what policies see and do."""
    *wrappers, task = nested_envs(env)
    for wrapper in wrappers:
        if isinstance(wrapper, _CHANGES):
            raise ValueError(
                f"`{type(wrapper).__name__}` changes what policies observe or command, so "
                f"the {what} of `{type(task).__name__}` does not hold. Train without "
                "this wrapper."
            )
    return task
