"""A task of your own: a pendulum whose motor is too weak to lift it in one go."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import eqsim


MODEL = """
<mujoco model="pendulum">
  <option timestep="0.01"/>
  <worldbody>
    <body pos="0 0 1">
      <joint name="hinge" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="0.2"/>
      <geom type="sphere" pos="0 0 -0.5" size="0.05" mass="0.5"/>
      <site name="tip" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="torque" joint="hinge" gear="1.5" ctrlrange="-1 1"/>
  </actuator>
</mujoco>"""


class SwingUp(eqsim.AbstractTask):
    """A pendulum that learns to swing up and to balance.

    **Arguments:**

    - `sys`: the robot; by default the pendulum of this module.
    - `pipeline`: the physics; by default `eqsim.Generalized()`.
    - `frame_skip`: number of time steps per control step.
    - `ctrl_cost_weight`: weight of the reward term `ctrl`.
    """

    sys: eqsim.System
    pipeline: eqsim.AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    ctrl_cost_weight: Float[Array, ""]

    def __init__(self, sys=None, pipeline=None, frame_skip=5, ctrl_cost_weight=0.05):
        self.sys = eqsim.load_mjcf(MODEL) if sys is None else sys
        self.pipeline = eqsim.Generalized() if pipeline is None else pipeline
        self.frame_skip = frame_skip
        self.ctrl_cost_weight = jnp.asarray(ctrl_cost_weight, self.sys.dt.dtype)

    def initial(self, key: PRNGKeyArray) -> eqsim.State:
        """Draw a state near the lowest point, at rest."""
        dtype = self.sys.dt.dtype
        q = jr.uniform(key, (self.sys.nq,), dtype, -0.2, 0.2)
        return self.pipeline.init(self.sys, q, jnp.zeros(self.sys.nv, dtype))

    def observe(
        self, state: eqsim.State, action: Float[Array, " nu"]
    ) -> dict[str, Float[Array, "..."]]:
        return {
            "angle": jnp.concatenate([jnp.cos(state.q), jnp.sin(state.q)]),
            "velocity": state.qd,
        }

    def rewards(
        self, state: eqsim.State, action: Float[Array, " nu"], new: eqsim.State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "height": self._height(new) / 0.5,
            "ctrl": -self.ctrl_cost_weight * jnp.sum(action**2),
        }

    def terminated(self, state: eqsim.State) -> Bool[Array, ""]:
        # In this form, NaN terminates the episode.
        return ~(jnp.abs(state.qd[0]) <= 20.0)

    def _height(self, state: eqsim.State) -> Float[Array, ""]:
        """Return the height of the tip above the hinge, m."""
        sites = eqsim.kinematics.site_poses(self.sys, state.q)
        return sites.pos[self.sys.site("tip").index, 2] - 1.0
