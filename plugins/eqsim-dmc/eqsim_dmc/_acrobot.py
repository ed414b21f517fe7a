from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward
from eqsim.spatial import safe_sqrt

from ._models import site
from ._task import AbstractEndlessTask, index, model, physics
from ._tolerance import tolerance


class Acrobot(AbstractEndlessTask):
    """Two poles, driven at the elbow, to be swung up until the tip reaches a target.

    Observation: `orientations`, sines, then cosines of the angles of upper and lower
    arm from upright; `velocity` (rad/s); 6 entries.

    Reward: `tolerance` of the distance from tip to target (m), with bounds 0 and
    `radius`, and margin 1 m, or 0 if sparse.

    Initial state: both angles uniform in the circle, at rest.

    **Arguments:**

    - `sys`: the robot; by default the suite's `acrobot.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `sparse`: true to reward only success.
    - `target`: position of the target in the world, m; `radius`: its radius, m; by
        default those of the file.
    - `tip`: position of the tip in the frame of the lower arm, m; by default that of
        the file.

    ??? cite "Reference"
        Coulom, *Reinforcement learning using neural networks, with applications to motor
        control*, 2002. `dm_control.suite.acrobot`.
    """

    sys: System = eqx.field(converter=model("acrobot.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    sparse: bool = eqx.field(static=True, default=False)
    target: Float[Array, "3"] = eqx.field(
        converter=site("acrobot.xml", "target"), default=None
    )
    radius: Float[Array, ""] = eqx.field(
        converter=site("acrobot.xml", "target", size=True), default=None
    )
    tip: Float[Array, "3"] = eqx.field(
        converter=site("acrobot.xml", "tip"), default=None
    )

    def initial(self, key: PRNGKeyArray) -> State:
        ref = self.sys.joints.ref
        q = jr.uniform(key, ref.shape, ref.dtype, -jnp.pi, jnp.pi)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        rot = forward(self.sys, state.q).rot
        orientations = jnp.concatenate([rot[:, 0, 2], rot[:, 2, 2]])
        return {"orientations": orientations, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        arm = index(self.sys.links.names, "lower_arm", "link")
        poses = forward(self.sys, state.q)
        gap = self.target - poses.pos[arm] - poses.rot[arm] @ self.tip
        distance = safe_sqrt(jnp.sum(gap**2))
        margin = 0.0 if self.sparse else 1.0
        return tolerance(distance, (0.0, self.radius), margin)


def acrobot_swingup(**options: Any) -> Acrobot:
    """Create `Acrobot`. **Arguments:** its other options."""
    return Acrobot(sparse=False, **options)


def acrobot_swingup_sparse(**options: Any) -> Acrobot:
    """Create `Acrobot` with sparse rewards. **Arguments:** its other options."""
    return Acrobot(sparse=True, **options)
