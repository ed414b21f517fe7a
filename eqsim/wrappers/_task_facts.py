"""Optional methods of tasks, inside wrappers: deployment, reflection, tracking, progress."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..envs import (
    AbstractEnv,
    check_deployment,
    Deployable,
    Deployment,
    Reflection,
    Symmetric,
    TracksCommands,
)
from ._actions import ScaleAction
from ._episodes import DomainRandomization, episode_robot
from ._observations import (
    NormalizeObservation,
    Pixels,
    SelectObservation,
    StackObservation,
)
from ._wrapper import (
    AbstractCarryOver,
    AbstractStateful,
    AbstractWrapper,
    nested_envs,
)
from .skills import Reach, Skills


# Wrappers after which a policy observes or commands other quantities than the task says.
_CHANGES = (
    NormalizeObservation,
    Pixels,
    Reach,
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
    if found.reference is not None and repeats != 1:
        raise ValueError(
            f"The policy tracks a motion, but each action is repeated {repeats} times. "
            "Choose `frame_skip` of the task instead of `ActionRepeat`."
        )
    found = found._replace(period=repeats * found.period)
    check_deployment(found)
    return found


def reflection_of(env: AbstractEnv) -> Reflection:
    """Return the `reflection()` of the task of an environment.

    **Raises:** `ValueError` if the task has no method `reflection`, its action range is not
    symmetric, or a wrapper changes what a policy observes or what its actions mean. Traced
    ranges are not checked.
    """
    task = _unchanged(env, "reflection")
    if not isinstance(task, Symmetric):
        raise ValueError(
            f"`{type(task).__name__}` has no reflection. Give it a method "
            "`reflection() -> eqsim.envs.Reflection`."
        )
    found = task.reflection()
    index, nu = found.action.index, env.sys.nu
    if len(index) != nu:
        raise ValueError(
            f"The reflection of `{type(task).__name__}` is that of {len(index)} actions, but "
            f"the robot has {nu} controls. Map each of them."
        )
    with jax.ensure_compile_time_eval():
        bounds = task.action_range
    if isinstance(bounds, Tracer):
        return found
    bounds, sign = np.asarray(bounds), np.array(found.action.sign)[:, None]
    other = bounds[np.array(index)]
    other = np.where(sign > 0, other, -other[:, ::-1])
    for k in np.flatnonzero(~np.isclose(other, bounds).all(axis=1)):
        names = env.sys.actuators.ctrl_names
        raise ValueError(
            f"The action range of `{type(task).__name__}` is not symmetric: that of "
            f"{names[k]!r} is {bounds[k].tolist()}, and that of {names[index[k]]!r} in the "
            f"mirror {other[k].tolist()}. Make them equal."
        )
    return found


def tracking_of(
    env: AbstractEnv, state: Any
) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]] | None:
    """Return the targets and values of the task of an environment, see
    `eqsim.envs.TracksCommands`, with the robot of the episode; None if it tracks no
    commands.

    **Arguments:**

    - `state`: state of the environment.
    """
    sys = episode_robot(env, state)
    while isinstance(env, AbstractWrapper):
        if isinstance(env, AbstractStateful):
            state = state.inner
        env = env.env
    if not isinstance(env, TracksCommands):
        return None
    if sys is env.sys:
        return env.tracking(state)
    task: Any = eqx.tree_at(lambda task: task.sys, env, sys)
    return task.tracking(state)


def progress_of(env: AbstractEnv, state: Any) -> dict[str, Float[Array, ""]]:
    """Return the numbers that training reports: those of wrappers (`progress`), and
    absolute differences between the next targets of the task and its values.

    **Arguments:**

    - `state`: state of the environment.
    """
    found, layer, inner = {}, env, state
    while isinstance(layer, AbstractWrapper):
        if isinstance(layer, AbstractCarryOver):
            found |= layer.progress(inner)
        if isinstance(layer, AbstractStateful):
            inner = inner.inner
        layer = layer.env
    for name, (target, value) in (tracking_of(env, state) or {}).items():
        what, comma, unit = name.partition(",")
        found[f"{what} error{comma}{unit}"] = jnp.abs(target - value)
    return found


def _unchanged(env: AbstractEnv, what: str) -> AbstractEnv:
    """Return the task inside wrappers, none of which changes what policies see and do."""
    *wrappers, task = nested_envs(env)
    for wrapper in wrappers:
        adds = isinstance(wrapper, DomainRandomization) and wrapper.observe_context
        if adds or isinstance(wrapper, _CHANGES):
            raise ValueError(
                f"`{type(wrapper).__name__}` changes what policies observe or command, so "
                f"the {what} of `{type(task).__name__}` does not hold. Train without "
                "this wrapper."
            )
    return task
