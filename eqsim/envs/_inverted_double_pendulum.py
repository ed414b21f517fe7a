import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import forward
from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ..spatial import clamp
from ._parts import model, normal_start, physics, reward_if
from ._task import AbstractTask


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
