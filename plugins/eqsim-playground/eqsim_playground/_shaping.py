"""Additional reward terms with which humanoids learn to walk in fewer steps."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractEnv, ResetOptions, Timestep
from eqsim.spatial import positive_part, quaternion_matrix, safe_sqrt
from eqsim.wrappers import AbstractStateless, Lifetime

from ._commands import is_moving
from ._humanoids import AbstractHumanoid
from ._joystick import JoystickState
from ._task import number


class HumanoidShaping(AbstractStateless):
    r"""A humanoid of Playground with additional reward terms, for training only. Evaluate
    policies in the task itself.

    Published rewards hardly tell a robot that stands from one that steps, as
    `tracking_lin_vel` vanishes far from the command. With the command $c$, the velocity $v$
    of the root in its axes, and for each foot $i$ phase $\phi_i$ and contact $k_i$, the terms
    times weight and control step are:

    - `progress`: $\min(c_{xy} \cdot v_{xy} / |c_{xy}|,\; |c_{xy}|)$
    - `gait`: share of the feet that touch the floor exactly if $|\phi_i| > \pi / 2$, or
        touch it if the command is to stand
    - `fall`: 1 if the episode terminates; not multiplied by the control step

    The episode also terminates if the vertical component of the vertical axis of the root
    is less than `upright`, or the root is lower than `height`. The observation, including
    its reflection, is that of the task.

    **Arguments:**

    - `env`: a humanoid of Playground.
    - `progress`, `gait`, `fall`: weights of the terms.
    - `upright`: least vertical component of the axis.
    - `height`: least height of the root, m.

    **Raises:** `TypeError` if `env` is not such a humanoid.
    """

    env: AbstractEnv
    progress: Float[Array, ""] = number(1.5)
    gait: Float[Array, ""] = number(1.0)
    fall: Float[Array, ""] = number(-1.0)
    upright: Float[Array, ""] = number(0.5)
    height: Float[Array, ""] = number(0.45)

    # Outside an auto-reset, it would see the state of the next episode.
    lifetime = Lifetime.EPISODE

    def __check_init__(self):
        if not isinstance(self.env, AbstractHumanoid):
            raise TypeError(
                "`HumanoidShaping` must wrap a humanoid of Playground, such as "
                f"`T1Joystick`, got `{type(self.env).__name__}`. Wrap it first."
            )

    def reset(
        self,
        key: PRNGKeyArray,
        options: ResetOptions | Mapping[str, Any] | None = None,
    ) -> tuple[JoystickState, Timestep]:
        """Reset the task; all terms are zero."""
        state, timestep = self.env.reset(key, options)
        zero = jnp.zeros_like(timestep.reward)
        terms = {**timestep.terms, "progress": zero, "gait": zero, "fall": zero}
        return state, dataclasses.replace(timestep, terms=terms)

    def step(
        self, state: JoystickState, action: Float[Array, " nu"]
    ) -> tuple[JoystickState, Timestep]:
        """Take one control step of the task, and add the terms."""
        command = state.command
        state, timestep = self.env.step(state, action)
        assert state.phase is not None
        q, qd = state.robot.q, state.robot.qd
        m = quaternion_matrix((q[3], q[4], q[5], q[6]))
        ahead = m.xx * qd[0] + m.yx * qd[1] + m.zx * qd[2]
        aside = m.xy * qd[0] + m.yy * qd[1] + m.zy * qd[2]
        speed = safe_sqrt(jnp.sum(command[:2] ** 2))
        along = command[0] * ahead + command[1] * aside
        along = along / jnp.where(speed > 0.0, speed, 1.0)
        stands = ~is_moving(command, self.env.targets.still)
        stance = (jnp.abs(state.phase.angle) > 0.5 * jnp.pi) | stands
        agrees = jnp.mean(stance == state.last_contact, dtype=q.dtype)
        fallen = timestep.terminated | (m.zz < self.upright) | (q[2] < self.height)
        added = {
            "progress": self.progress
            * self.dt
            * (speed - positive_part(speed - along)),
            "gait": self.gait * self.dt * agrees,
            "fall": self.fall * fallen.astype(q.dtype),
        }
        return state, dataclasses.replace(
            timestep,
            reward=timestep.reward + jnp.sum(jnp.stack(list(added.values()))),
            terminated=fallen,
            terms={**timestep.terms, **added},
        )
