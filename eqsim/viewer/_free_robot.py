import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..envs import AbstractTask
from ..envs._gymnasium import physics
from ..model import State, System
from ..pipelines import AbstractPipeline


def single(sys: System) -> System:
    """Return the robot unchanged.

    **Raises:** `ValueError` if it is a batch.
    """
    if sys.dt.ndim:
        raise ValueError(
            f"`robot` must be a single robot, got a batch of shape {sys.dt.shape}. "
            "Pass the function that creates the others as `randomize`."
        )
    return sys


class FreeRobot(AbstractTask):
    """A robot without a task: episodes start at the reference pose and never end.

    **Arguments:**

    - `sys`, `pipeline`: the robot and its physics.
    - `frame_skip`: time steps in a control step.
    """

    sys: System = eqx.field(converter=single)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"none": jnp.zeros((), state.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


def free_robot(sys: System, pipeline: AbstractPipeline | None = None) -> FreeRobot:
    """Return a robot without a task whose control step takes about 10 ms."""
    skip = max(1, round(0.01 / float(single(sys).dt)))
    return FreeRobot(sys=sys, pipeline=pipeline, frame_skip=skip)
