import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..io import load_mjcf
from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import physics, square_cost, uniform_start
from ._task import AbstractTask


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
