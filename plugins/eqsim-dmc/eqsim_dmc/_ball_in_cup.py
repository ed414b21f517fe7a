from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import forward, site_poses

from ._starts import draw_without_contact
from ._task import AbstractEndlessTask, index, model, physics


class BallInCup(AbstractEndlessTask):
    """A cup that learns to catch a ball on a string, in the plane of x and z.

    Observation: `position` of cup and ball (m), `velocity` (m/s); 8 entries.

    Reward: 1 while the ball is inside the box `target` in the cup, else 0.

    Initial state: the cup at its reference; the ball uniform in a rectangle below and
    around it, redrawn until nothing touches; at rest. The string may be taut.

    **Arguments:**

    - `sys`: the robot; by default the suite's `ball_in_cup.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018. `dm_control.suite.ball_in_cup`.
    """

    sys: System = eqx.field(converter=model("ball_in_cup.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=10)

    def initial(self, key: PRNGKeyArray) -> State:
        q = draw_without_contact(_pose, key, self.sys)
        return self.pipeline.init(self.sys, q)

    def parts(
        self, state: State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {"position": state.q, "velocity": state.qd}

    def reward(self, state: State, action: Float[Array, " nu"]) -> Float[Array, ""]:
        sys, poses = self.sys, forward(self.sys, state.q)
        target = index(sys.sites.names, "target", "site")
        link, geom = (
            index(sys.links.names, "ball", "link"),
            index(sys.geoms.names, "ball", "shape"),
        )
        away = site_poses(sys, state.q).pos[target] - poses.pos[link]
        room = sys.sites.size[target] - sys.geoms.size[geom, 0]
        inside = (jnp.abs(away) < room)[jnp.array([0, 2])]
        return jnp.all(inside).astype(state.q.dtype)


def _pose(key: PRNGKeyArray, sys: System):
    """Return coordinates with the ball at a random position in its rectangle."""
    low, high = jnp.asarray([-0.2, 0.2]), jnp.asarray([0.2, 0.5])
    place, q = jr.uniform(key, (2,), sys.joints.ref.dtype, low, high), sys.joints.ref
    for name, value in zip(("ball_x", "ball_z"), place):
        joint = index(sys.joints.names, name, "joint")
        q = q.at[sys.joints.q_starts[joint]].set(value)
    return q, sys, q


def ball_in_cup_catch(**options: Any) -> BallInCup:
    """Create `BallInCup`. **Arguments:** its options."""
    return BallInCup(**options)
