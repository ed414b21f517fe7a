import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import forward
from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import length, model, physics, square_cost
from ._task import AbstractTask


class Pusher(AbstractTask):
    """An arm with seven joints that learns to push a cylinder to a goal.

    Observation: coordinates (7, rad) and velocities (7, rad/s) of the arm; positions of
    its tip, the cylinder and the goal (3 each, m); 23 entries.

    Reward, a weighted sum: `near`, minus the distance from tip to cylinder (m);
    `distance`, minus the distance from cylinder to goal (m); `ctrl`, minus the sum of
    squares of the action. Episodes never terminate.

    Initial state: the arm at its reference pose, with uniform velocities in [-0.005,
    0.005]; the cylinder uniform in a rectangle of 0.3 m by 0.4 m beside the goal, at
    least 0.17 m away from it.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `pusher_v5.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `reward_near_weight`, `reward_dist_weight`, `reward_control_weight`: weights of
        the reward terms.

    ??? cite "Reference"
        Brockman et al., *OpenAI Gym*, 2016. Gymnasium: `Pusher-v5`.
    """

    sys: System = eqx.field(converter=model("pusher_v5.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    reward_near_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)
    reward_dist_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    reward_control_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        key_place, key_qd = jr.split(key)
        ref = self.sys.joints.ref
        rates = jr.uniform(key_qd, (self.sys.nv,), ref.dtype, -0.005, 0.005)
        place = _place(key_place, ref.dtype)
        q = jnp.concatenate([ref[:-4], place, jnp.zeros_like(place)])
        return self.pipeline.init(self.sys, q, rates.at[-4:].set(0.0))

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q[:7], state.qd[:7], *self._places(state)])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        tip, cylinder, goal = self._places(new)
        return {
            "near": -self.reward_near_weight * length(cylinder - tip),
            "distance": -self.reward_dist_weight * length(cylinder - goal),
            "ctrl": square_cost(self.reward_control_weight, action),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)

    def _places(self, state: State) -> list[Float[Array, "3"]]:
        """Return the positions of the tip, the cylinder and the goal."""
        pos = forward(self.sys, state.q).pos
        names = "tips_arm", "object", "goal"
        return [pos[self.sys.link(name).index] for name in names]


def _place(key: PRNGKeyArray, dtype) -> Float[Array, "2"]:
    """Draw the initial position of the cylinder, until it is far enough from the
    goal."""
    low, high = jnp.array([-0.3, -0.2], dtype), jnp.array([0.0, 0.2], dtype)

    def draw(carry):
        key, _ = carry
        key, own = jr.split(key)
        return key, jr.uniform(own, (2,), dtype, low, high)

    close = lambda carry: jnp.sum(carry[1] ** 2) <= 0.17**2
    return lax.while_loop(close, draw, draw((key, low)))[1]
