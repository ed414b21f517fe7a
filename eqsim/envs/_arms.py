"""Arms on a table: the reacher and the pusher."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import forward
from ..model import State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ._env import AbstractTask
from .gymnasium_parts import length, model, physics, square_cost


class Reacher(AbstractTask):
    """A planar arm with two links that learns to reach a target with its fingertip.

    Observation: cosines, then sines of the two angles; position of the target (m);
    velocities of the two angles; vector from target to fingertip along x and y (m); 10
    entries.

    Reward, a weighted sum: `distance`, minus the distance from fingertip to target (m),
    and `ctrl`, minus the sum of squares of the action. Episodes never terminate.

    Initial state: angles within 0.1 rad of the reference, the target in a disk with
    radius 0.2 m, velocities of the angles within 0.005 rad/s, all uniform.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `reacher.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `reward_dist_weight`, `reward_control_weight`: weights of the reward terms.

    ??? cite "Reference"
        Brockman et al., *OpenAI Gym*, 2016. Gymnasium: `Reacher-v5`.
    """

    sys: System = eqx.field(converter=model("reacher.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    reward_dist_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    reward_control_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def initial(self, key: PRNGKeyArray) -> State:
        keys, ref = jr.split(key, 4), self.sys.joints.ref
        uniform = lambda key, shape, low, high: jr.uniform(
            key, shape, ref.dtype, low, high
        )
        # The square root makes the distribution uniform in the disk.
        radius = 0.2 * jnp.sqrt(uniform(keys[0], (), 0.0, 1.0))
        angle = uniform(keys[1], (), -jnp.pi, jnp.pi)
        goal = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        turned = ref[:-2] + uniform(keys[2], ref[:-2].shape, -0.1, 0.1)
        rates = uniform(keys[3], (self.sys.nv,), -0.005, 0.005)
        q, qd = jnp.concatenate([turned, goal]), rates.at[-2:].set(0.0)
        return self.pipeline.init(self.sys, q, qd)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        theta = state.q[:2]
        return jnp.concatenate(
            [
                jnp.cos(theta),
                jnp.sin(theta),
                state.q[2:],
                state.qd[:2],
                self._gap(state)[:2],
            ]
        )

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "distance": -self.reward_dist_weight * length(self._gap(new)),
            "ctrl": square_cost(self.reward_control_weight, action),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)

    def _gap(self, state: State) -> Float[Array, "3"]:
        """Return the vector from target to fingertip."""
        pos = forward(self.sys, state.q).pos
        tip, target = (self.sys.link(name).index for name in ("fingertip", "target"))
        return pos[tip] - pos[target]


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
