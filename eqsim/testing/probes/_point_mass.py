"""A point mass in the plane, for agents that discover skills."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...envs import AbstractTask
from ...io import load_mjcf
from ...model import State, System
from ...pipelines import AbstractPipeline
from ...wrappers import TorsoPosition
from ._probe import default_pipeline


_POINT = """
<mujoco model="point mass">
  <option gravity="0 0 0" timestep=".1"/>
  <worldbody>
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0" damping="100"/>
      <joint name="y" type="slide" axis="0 1 0" damping="100"/>
      <geom type="sphere" size=".05" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="x" joint="x" gear="100" ctrllimited="true" ctrlrange="-1 1"/>
    <motor name="y" joint="y" gear="100" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>"""


def _point(sys: System | None) -> System:
    return load_mjcf(_POINT) if sys is None else sys


class PointMass(AbstractTask):
    r"""A mass of $m = 1$ kg in the plane, driven by two motors against strong damping,
    so that the action is almost its velocity: with damping $d = 100$ Ns/m, gear $g =
    100$ N and time step $h = 0.1$ s,

    $$v' = \frac{v + h\,g\,u / m}{1 + h\,d / m}, \qquad x' = x + h\,v'.$$

    It starts at rest at the origin. Observation: position (m) and velocity (m/s).
    Reward: `distance`, minus the squared distance to (1, 0). Episodes never terminate.

    **Arguments:**

    - `sys`, `pipeline`, `frame_skip`: robot, physics and time steps per control step.
    """

    sys: System = eqx.field(converter=_point, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=default_pipeline, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        zero = jnp.zeros_like(self.sys.joints.ref)
        return self.pipeline.init(self.sys, zero, zero)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"distance": -((new.q[0] - 1.0) ** 2) - new.q[1] ** 2}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


def point_mass(limit: float = 1.0) -> TorsoPosition:
    """Create `PointMass` with its position as the descriptor.

    It moves by one meter per second, so episodes of about 10 steps reach all points of
    a disk with radius 1 m.

    **Arguments:**

    - `limit`: limit of the descriptor, m.
    """
    return TorsoPosition(PointMass(), limit)
