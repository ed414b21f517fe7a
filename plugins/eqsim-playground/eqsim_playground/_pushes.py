"""Pushes of a robot at random times."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._task import between, number


class PushState(eqx.Module):
    """The push of an episode.

    **Arguments:**

    - `wait`: control steps between pushes.
    - `duration`: duration of a push, s.
    - `speed`: change of velocity that scales the force, m/s.
    - `direction`: direction of the current push, a horizontal unit vector.
    - `since`: control steps since the last push.
    - `applied`: control steps of the current push so far.
    """

    wait: Int[Array, ""]
    duration: Float[Array, ""]
    speed: Float[Array, ""]
    direction: Float[Array, "3"]
    since: Int[Array, ""]
    applied: Int[Array, ""]

    @property
    def pushing(self) -> Bool[Array, ""]:
        """Return true while a push is due or acts."""
        return self.since >= self.wait


class Pushes(eqx.Module):
    r"""Horizontal forces on the trunk at random times.

    A push of duration $T$ has the force $\tfrac{1}{2} \sin(\pi t / T)\, m v / T$, with
    the mass $m$ of the robot, in a direction that is uniform in the circle. Speed $v$,
    duration and the time between pushes are uniform in their ranges, and drawn once per
    episode.

    **Arguments:**

    - `speed`: range of $v$, m/s.
    - `duration`: range of $T$, s.
    - `wait`: range of the time between pushes, s.
    """

    speed: Float[Array, "2"] = number((0.0, 3.0))
    duration: Float[Array, "2"] = number((0.05, 0.2))
    wait: Float[Array, "2"] = number((1.0, 3.0))

    def first(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> PushState:
        """Draw the pushes of an episode; `dt` is the control step, s."""
        key_wait, key_duration, key_speed = jr.split(key, 3)
        zero = jnp.zeros((), jnp.int32)
        return PushState(
            wait=_steps(between(key_wait, self.wait), dt),
            duration=between(key_duration, self.duration),
            speed=between(key_speed, self.speed),
            direction=jnp.zeros(3, self.speed.dtype),
            since=zero,
            applied=zero,
        )

    def force(
        self,
        key: PRNGKeyArray,
        state: PushState,
        mass: Float[Array, ""],
        dt: Float[Array, ""],
    ) -> tuple[PushState, Float[Array, "3"]]:
        """Return the state after a control step, and the force during it, N.

        **Arguments:**

        - `mass`: mass of the robot, kg.
        - `dt`: control step, s.
        """
        pushing, duration = state.pushing, state.duration
        time = state.applied.astype(duration.dtype) * dt
        size = 0.5 * jnp.sin(jnp.pi * time / duration) * mass * state.speed / duration
        force = jnp.where(pushing, size * state.direction, 0.0)
        over = state.applied >= _steps(duration, dt)
        since = jnp.where(pushing, jnp.where(over, 0, state.since), state.since + 1)
        starts = ~pushing & (since >= state.wait)
        angle = jr.uniform(key, (), duration.dtype, 0.0, 2.0 * jnp.pi)
        circle = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)])
        direction = jnp.where(starts, circle, state.direction)
        applied = jnp.where(pushing, state.applied + 1, state.applied)
        applied = jnp.where(starts, 0, applied)
        new = PushState(state.wait, duration, state.speed, direction, since, applied)
        return new, force


def _steps(time: Float[Array, ""], dt: Float[Array, ""]) -> Int[Array, ""]:
    return jnp.round(time / dt).astype(jnp.int32)
