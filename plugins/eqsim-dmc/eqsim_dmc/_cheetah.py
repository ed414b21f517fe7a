from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import com_velocity

from ._models import as_array
from ._task import AbstractEndlessTask, model, physics
from ._tolerance import tolerance
from .sigmoids import linear


class Cheetah(AbstractEndlessTask):
    r"""A planar robot with two legs that learns to run along x.

    Observation: `position`, coordinates without x (m, rad); `velocity` (m/s, rad/s); 17
    entries.

    Reward: $\min(1, \max(0, v / s))$ with the velocity $v$ of the center of mass along x
    and `speed` $s$ (m/s).

    Initial state: joints with a range uniform within it, then `settle` time steps
    without control.

    **Arguments:**

    - `sys`: the robot; by default the suite's `cheetah.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `speed`: speed of the full reward, m/s.
    - `settle`: number of time steps before an episode.

    ??? cite "Reference"
        Wawrzyński, *A cat-like robot real-time learning to run*, 2009.
        `dm_control.suite.cheetah`.
    """

    sys: System = eqx.field(converter=model("cheetah.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    speed: Float[Array, ""] = eqx.field(converter=as_array, default=10.0)
    settle: int = eqx.field(static=True, default=200)

    def initial(self, key: PRNGKeyArray) -> State:
        joints = self.sys.joints
        limited = [k for k, flag in enumerate(joints.limited) if flag]
        at = jnp.asarray([joints.q_starts[k] for k in limited], int)
        low, high = joints.range[jnp.asarray(limited, int)].T
        share = jr.uniform(key, low.shape, low.dtype)
        q = joints.ref.at[at].set(low + share * (high - low))
        rest = jnp.zeros(self.sys.nu, q.dtype)
        fall = lambda state, _: (self.pipeline.step(self.sys, state, rest), None)
        start = self.pipeline.init(self.sys, q)
        return eqsim.scan(fall, start, length=self.settle)[0]

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q[1:], "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        return tolerance(
            com_velocity(self.sys, state.q, state.qd)[0],
            (self.speed, jnp.inf),
            self.speed,
            linear,
            0.0,
        )


def cheetah_run(**options: Any) -> Cheetah:
    """Create `Cheetah`. **Arguments:** its options."""
    return Cheetah(**options)
