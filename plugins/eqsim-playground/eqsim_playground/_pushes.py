"""Pushes of a robot at random times."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import State

from ._task import between, number


class AbstractPushes(eqx.Module):
    """Pushes of a robot."""

    @abc.abstractmethod
    def first(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Any:
        """Draw the pushes of an episode; `dt` is the control step, s."""

    @abc.abstractmethod
    def apply(
        self,
        key: PRNGKeyArray,
        state: Any,
        robot: State,
        mass: Float[Array, ""],
        dt: Float[Array, ""],
    ) -> tuple[Any, State, Float[Array, "3"] | None]:
        """Push the robot for a control step.

        **Arguments:**

        - `state`: the pushes of the episode, see `first`.
        - `robot`: the state of the robot before the step.
        - `mass`: mass of the robot, kg.
        - `dt`: control step, s.

        **Returns:** the new state of the pushes, the state of the robot after an impulse,
        and the force on the trunk during the step, N, or None.
        """


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


class Pushes(AbstractPushes):
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

    def apply(
        self,
        key: PRNGKeyArray,
        state: PushState,
        robot: State,
        mass: Float[Array, ""],
        dt: Float[Array, ""],
    ) -> tuple[PushState, State, Float[Array, "3"]]:
        """Return the force of a push, see `AbstractPushes.apply`."""
        new, force = self.force(key, state, mass, dt)
        return new, robot, force


class KickState(eqx.Module):
    """The kicks of an episode.

    **Arguments:**

    - `wait`: control steps between kicks.
    - `since`: control steps since the last kick.
    """

    wait: Int[Array, ""]
    since: Int[Array, ""]


class Kicks(AbstractPushes):
    """Sudden changes of the horizontal velocity of the root, in a direction that is uniform
    in the circle. The time between them is drawn once per episode.

    **Arguments:**

    - `speed`: range of the change of velocity, m/s.
    - `wait`: range of the time between kicks, s.
    """

    speed: Float[Array, "2"] = number((0.1, 2.0))
    wait: Float[Array, "2"] = number((5.0, 10.0))

    def first(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> KickState:
        """Draw the time between kicks; `dt` is the control step, s."""
        return KickState(_steps(between(key, self.wait), dt), jnp.zeros((), jnp.int32))

    def apply(
        self,
        key: PRNGKeyArray,
        state: KickState,
        robot: State,
        mass: Float[Array, ""],
        dt: Float[Array, ""],
    ) -> tuple[KickState, State, None]:
        """Change the velocity if a kick is due, see `AbstractPushes.apply`."""
        del mass, dt
        key_speed, key_angle = jr.split(key)
        due = state.since + 1 >= state.wait
        speed = jnp.where(due, between(key_speed, self.speed), 0.0)
        angle = jr.uniform(key_angle, (), speed.dtype, 0.0, 2.0 * jnp.pi)
        kick = speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        kicked = eqx.tree_at(lambda s: s.qd, robot, robot.qd.at[:2].add(kick))
        since = jnp.where(due, 0, state.since + 1)
        return KickState(state.wait, since), kicked, None


def _steps(time: Float[Array, ""], dt: Float[Array, ""]) -> Int[Array, ""]:
    return jnp.round(time / dt).astype(jnp.int32)
