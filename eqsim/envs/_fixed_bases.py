"""Tasks of robots on a fixed base: poles on carts, a point mass, and arms on a table."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..io import load_mjcf
from ..kinematics import forward
from ..model import State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ..spatial import clamp
from ._env import AbstractTask
from .gymnasium_parts import (
    finite,
    length,
    model,
    normal_start,
    physics,
    reward_if,
    square_cost,
    uniform_start,
)


class InvertedPendulum(AbstractTask):
    """A cart with a pole to be kept upright (Barto, Sutton, Anderson 1983).

    Observation: position of the cart (m), angle of the pole (rad), and their
    velocities; 4 entries.

    Reward: `healthy`, 1 while the state is finite and the angle is at most 0.2 rad.
    Otherwise, the episode terminates.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `inverted_pendulum.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.

    ??? cite "Reference"
        Barto, Sutton, Anderson, *Neuronlike adaptive elements that can solve difficult
        learning control problems*, 1983. Gymnasium: `InvertedPendulum-v5`.
    """

    sys: System = eqx.field(converter=model("inverted_pendulum.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.01)

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"healthy": 1.0 - self.terminated(new).astype(new.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return ~(finite(state) & (jnp.abs(state.q[1]) <= 0.2))


class InvertedDoublePendulum(AbstractTask):
    r"""A cart with two poles, one on top of the other, to be kept upright.

    Observation: position $x$ of the cart (m); sines, then cosines of the joint angles
    of both poles; velocities of cart and poles, clipped to [-10, 10]; constraint force
    on the cart from the limits of its rail (`constraint_forces`, N), clipped to [-10,
    10]; 9 entries.

    Reward: `healthy`, until the episode terminates; `distance`, $-0.01\,x^2 - (z -
    2)^2$ of the upper tip; `velocity`, $-10^{-3}\,\omega_1^2 - 5 \cdot
    10^{-3}\,\omega_2^2$ of the poles. The episode terminates when the height $z$ of the
    tip is 1 m or less.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `inverted_double_pendulum.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `healthy_reward`: weight of the reward term `healthy`.
    - `pole_length`: distance from the joint of the upper pole to its tip, m.
    - `reset_noise_scale`: noise of the initial state: half width of the uniform noise
        on coordinates, and standard deviation of the normal noise on velocities.

    ??? cite "Reference"
        After Barto, Sutton, Anderson, *Neuronlike adaptive elements that can solve
        difficult learning control problems*, 1983. Gymnasium:
        `InvertedDoublePendulum-v5`.
    """

    sys: System = eqx.field(
        converter=model("inverted_double_pendulum.xml"), default=None
    )
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    healthy_reward: Float[Array, ""] = eqx.field(converter=as_array, default=10.0)
    pole_length: Float[Array, ""] = eqx.field(converter=as_array, default=0.6)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        return normal_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        force = self.pipeline.constraint_forces(self.sys, state, action)
        angles, clip = state.q[1:], lambda x: clamp(x, -10.0, 10.0)
        return jnp.concatenate(
            [
                state.q[:1],
                jnp.sin(angles),
                jnp.cos(angles),
                clip(state.qd),
                clip(force[:1]),
            ]
        )

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        x, z = self._tip(new)
        slow, fast = new.qd[1], new.qd[2]
        return {
            "healthy": reward_if(~self.terminated(new), self.healthy_reward),
            "distance": -0.01 * x**2 - (z - 2.0) ** 2,
            "velocity": -1e-3 * slow**2 - 5e-3 * fast**2,
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return self._tip(state)[1] <= 1.0

    def _tip(self, state: State) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return x and z of the upper tip."""
        link = self.sys.link("pole2").index
        pos, rot = forward(self.sys, state.q)
        tip = pos[link] + self.pole_length * rot[link, :, 2]
        return tip[0], tip[2]


_POINT = """
<mujoco model="point">
  <option timestep="0.1" gravity="0 0 0"/>
  <worldbody>
    <body name="point">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="2" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="slide" gear="3"/></actuator>
</mujoco>"""


def _model(sys: System | None) -> System:
    return load_mjcf(_POINT) if sys is None else sys


class PointMass(AbstractTask):
    r"""A point mass on a rail, to be moved to the origin by a motor; for tests.

    It compiles in under a second, and its step has a closed form. With position $x$,
    velocity $v$, action $u$, mass $m = 2$ kg, gear $g = 3$ N and time step $h = 0.1$ s,

    $$v' = v + h\,\frac{g u}{m}, \qquad
    x' = x + h\,v + s\,h^2\,\frac{g u}{m}, \qquad s = \frac{n + 1}{2 n},$$

    where $n$ is the number of substeps of the pipeline; for `Generalized`, $n = 1$ and
    $s = 1$. The derivatives are

    $$\frac{\partial (x', v')}{\partial (x, v, u)} = \begin{pmatrix}
    1 & h & s\,h^2 g / m \\ 0 & 1 & h\,g / m \end{pmatrix}, \qquad
    \frac{\partial v'}{\partial m} = -\frac{h\,g\,u}{m^2}.$$

    Observation: $x'$ (m) and $v'$ (m/s).

    Reward: `distance`, $-x'^2$, and `ctrl`, minus the weighted square of the action.
    The episode terminates when $|x'| > 1$ m.

    **Arguments:**

    - `sys`: the robot; by default, the point mass and its rail.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `ctrl_cost_weight`: weight of the reward term `ctrl`.
    - `reset_noise_scale`: half width of the uniform noise on position and velocity of
        the initial state.
    """

    sys: System = eqx.field(converter=_model, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "distance": -(new.q[0] ** 2),
            "ctrl": square_cost(self.ctrl_cost_weight, action),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.abs(state.q[0]) > 1.0


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
