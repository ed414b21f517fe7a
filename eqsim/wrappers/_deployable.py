"""The deployment of a task inside wrappers."""

from ..envs import AbstractEnv, check_deployment, Deployable, Deployment
from ._actions import ScaleAction
from ._observations import (
    NormalizeObservation,
    Pixels,
    SelectObservation,
    StackObservation,
)
from ._wrapper import nested_envs
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
    *wrappers, task = nested_envs(env)
    if not isinstance(task, Deployable):
        raise ValueError(
            f"`{type(task).__name__}` does not say how its policies are deployed. Give it "
            "a method `deployment() -> eqsim.envs.Deployment`."
        )
    for wrapper in wrappers:
        if isinstance(wrapper, _CHANGES):
            raise ValueError(
                f"`{type(wrapper).__name__}` changes what policies observe or command, so "
                f"the deployment of `{type(task).__name__}` does not hold. Train without "
                "this wrapper."
            )
    found = task.deployment()
    repeats = round(float(env.dt) / float(task.dt))
    found = found._replace(period=repeats * found.period)
    check_deployment(found)
    return found
