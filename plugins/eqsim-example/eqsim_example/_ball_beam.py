"""A ball on a beam."""

import pathlib
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractPipeline, AbstractTask, Generalized, State, System


def number(value: Any) -> Any:
    """Convert a Python number to an array of the default precision.

    The array is not weakly typed, unlike that of `jnp.asarray(value)`, because
    replacing a weakly typed array recompiles. Everything else is returned unchanged:
    arrays, traced values, and the placeholders of tree transformations.
    """
    return jnp.asarray(value, float) if isinstance(value, int | float) else value


_FILE = pathlib.Path(__file__).with_name("ball_beam.xml")


def _robot(sys: System | None) -> System:
    return eqsim.load_mjcf(_FILE) if sys is None else sys


def _physics(pipeline: AbstractPipeline | None) -> AbstractPipeline:
    return Generalized() if pipeline is None else pipeline


class BallBeam(AbstractTask):
    r"""A ball on a beam that is tilted by a motor, to be kept in the middle.

    The ball slides along the beam at the height $a$ above its axis. With its position
    $r$, the tilt $\theta$, its mass $m$, the inertia $I$ of both about the axis at $r =
    0$, the damping $d$ of either joint, and the torque $\tau$,

    $$(I + m r^2)\,\ddot\theta + m a\,\ddot r + 2 m r \dot r \dot\theta
    = \tau - d_\theta \dot\theta + m g (r \cos\theta + a \sin\theta),$$

    $$m\,(\ddot r + a\,\ddot\theta - r\,\dot\theta^2) = m g \sin\theta - d_r \dot r.$$

    The equilibrium in the middle is unstable. When the beam is tilted, the ball first
    moves in the opposite direction.

    Observation: $r$ (m), $\theta$ (rad), and their rates.

    Reward: `near`, $1 - (r / 0.5)^2$, and `ctrl`, minus the weighted square of the
    action. The episode terminates when the ball falls off: $|r| > 0.5$ m.

    **Arguments:**

    - `sys`: the robot; by default the one of this package.
    - `pipeline`: the physics; by default `eqsim.Generalized()`.
    - `frame_skip`: time steps per control step.
    - `ctrl_cost_weight`: weight of the reward term `ctrl`.
    - `reset_noise_scale`: half width of the uniform noise of the initial state: of the
        position, in units of half the beam, and of all rates; one third of it for the
        tilt.

    ??? cite "Reference"
        Hauser, Sastry, Kokotovic, *Nonlinear control via approximate input-output
        linearization: the ball and beam example*, 1992.
    """

    sys: System = eqx.field(converter=_robot, default=None)
    pipeline: AbstractPipeline = eqx.field(converter=_physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=number, default=0.01)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=number, default=0.3)

    def initial(self, key: PRNGKeyArray) -> State:
        ref = self.sys.joints.ref
        noise = self.reset_noise_scale * jr.uniform(key, (4,), ref.dtype, -1.0, 1.0)
        tilt, place, rates = noise[0] / 3.0, noise[1] * 0.5, noise[2:]
        return self.pipeline.init(self.sys, jnp.stack([tilt, place]), rates)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q[::-1], state.qd[::-1]])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "near": 1.0 - (new.q[1] / 0.5) ** 2,
            "ctrl": -self.ctrl_cost_weight * jnp.sum(action**2),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        # In this form, NaN terminates the episode.
        return ~(jnp.abs(state.q[1]) <= 0.5)
