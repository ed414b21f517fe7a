import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward

from ._models import as_array
from ._task import AbstractEndlessTask, model, physics


class Pendulum(AbstractEndlessTask):
    """A pole on a weak motor that learns to swing up and balance.

    Observation: `orientation`, cosine and sine of the angle from upright; `velocity`
    (rad/s); 3 entries.

    Reward: 1 while the cosine is at least `cosine`, else 0.

    Initial state: the angle uniform in the circle, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `pendulum.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `cosine`: smallest cosine that counts as upright; by default that of 8 degrees.

    ??? cite "Reference"
        `dm_control.suite.pendulum`.
    """

    sys: System = eqx.field(converter=model("pendulum.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    cosine: Float[Array, ""] = eqx.field(
        converter=as_array, default=math.cos(math.radians(8.0))
    )

    def initial(self, key: PRNGKeyArray) -> State:
        ref = self.sys.joints.ref
        q = jr.uniform(key, ref.shape, ref.dtype, -jnp.pi, jnp.pi)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        rot = forward(self.sys, state.q).rot[0]
        orientation = jnp.stack([rot[2, 2], rot[0, 2]])
        return {"orientation": orientation, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        upright = forward(self.sys, state.q).rot[0, 2, 2] >= self.cosine
        return upright.astype(state.q.dtype)


def pendulum_swingup(**options: Any) -> Pendulum:
    """Create `Pendulum`. **Arguments:** its options."""
    return Pendulum(**options)
