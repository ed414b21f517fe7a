"""Random numbers of legged robots: commands, pushes, domain randomization."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import State, System
from eqsim.model.arrays import as_array
from eqsim.randomize import AbstractRandomizer

from ._task import between, index, number


class AbstractCommands(eqx.Module):
    """Velocity commands, redrawn during an episode: forward and lateral velocity, m/s,
    and yaw rate, rad/s."""

    @abc.abstractmethod
    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw the first command of an episode."""

    @abc.abstractmethod
    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw the command after a given one."""

    @abc.abstractmethod
    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Draw the number of control steps until the next command."""


class Commands(AbstractCommands):
    r"""Velocity commands of the Go1, redrawn at random times.

    The first command is uniform in [`-amplitude`, `amplitude`]. Each entry of a later
    command keeps its value with probability `1 - change`; otherwise it is uniform in
    the same range with probability `keep`, and zero else. The time between commands is
    exponentially distributed.

    **Arguments:**

    - `amplitude`: largest forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `keep`: probability that a new entry is not zero.
    - `change`: probability that an entry changes.
    - `mean_time`: mean time between commands, s.
    """

    amplitude: Float[Array, "3"] = number((1.5, 0.8, 1.2))
    keep: Float[Array, "3"] = number((0.9, 0.25, 0.5))
    change: Float[Array, ""] = number(0.5)
    mean_time: Float[Array, ""] = number(5.0)

    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw the first command of an episode."""
        amplitude = self.amplitude
        return amplitude * jr.uniform(key, (3,), amplitude.dtype, -1.0, 1.0)

    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw the command after a given one."""
        key_value, key_keep, key_change = jr.split(key, 3)
        kept = jr.bernoulli(key_keep, self.keep)
        drawn = jnp.where(kept, self.first(key_value), 0.0)
        return jnp.where(jr.bernoulli(key_change, self.change, (3,)), drawn, command)

    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Draw the number of control steps until the next command."""
        time = self.mean_time * jr.exponential(key, (), self.mean_time.dtype)
        return jnp.round(time / dt).astype(jnp.int32)


class UniformCommands(AbstractCommands):
    """Velocity commands of humanoids, redrawn after a fixed time.

    Each entry is uniform between `low` and `high`; with probability `standing`, the whole
    command is zero.

    **Arguments:**

    - `low`, `high`: smallest and largest forward and lateral velocity, m/s, and yaw rate,
        rad/s.
    - `standing`: probability of a command to stand.
    - `time`: time between commands, s.
    """

    low: Float[Array, "3"] = number((-1.0, -0.5, -1.0))
    high: Float[Array, "3"] = number((1.0, 0.5, 1.0))
    standing: Float[Array, ""] = number(0.1)
    # Playground draws a command after more than 500 control steps of 0.02 s.
    time: Float[Array, ""] = number(10.02)

    def first(self, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Draw a command."""
        share = jr.uniform(key, (4,), self.low.dtype)
        drawn = self.low + (self.high - self.low) * share[:3]
        return jnp.where(share[3] < self.standing, 0.0, drawn)

    def new(self, key: PRNGKeyArray, command: Float[Array, "3"]) -> Float[Array, "3"]:
        """Draw a command, which does not depend on the last one."""
        del command
        return self.first(key)

    def steps(self, key: PRNGKeyArray, dt: Float[Array, ""]) -> Int[Array, ""]:
        """Return the number of control steps until the next command."""
        del key
        return jnp.round(self.time / dt).astype(jnp.int32)


def is_moving(
    command: Float[Array, " n"], threshold: Float[Array, ""] | float
) -> Bool[Array, ""]:
    """Test if a command is longer than a threshold."""
    return jnp.sum(command**2) > threshold**2


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


class RandomLegged(AbstractRandomizer):
    """Playground's domain randomization of legged robots, for `eqsim.DomainRandomization`.

    All distributions are uniform. Inverse weights, which Playground does not change,
    are recomputed from the new masses. The defaults are those of the Go1; `random_g1`,
    `random_t1` and `random_berkeley_humanoid` have others.

    **Arguments:**

    - `trunk`: name of the trunk.
    - `floor_friction`: range of the sliding friction of the floor.
    - `frictionloss`, `armature`: ranges of factors of the dry friction and the armature of
        each joint.
    - `trunk_com`: range of the shift of the trunk's center of mass in each direction, m;
        None for no shift.
    - `mass`: range of the factor of the mass of each link; inertias do not change.
    - `trunk_mass`: range of the mass added to the trunk, kg.
    - `zero`: range of the shift of the zero of each joint, rad.
    - `stiffness`: range of the factor of the stiffness of each servo; None for no change.
    - `damping`: range of the factor of the damping of `damped`; None for no change.
    - `damped`: joints whose damping changes.
    """

    trunk: str = eqx.field(static=True, default="trunk")
    floor_friction: Float[Array, "2"] = number((0.4, 1.0))
    frictionloss: Float[Array, "2"] = number((0.9, 1.1))
    armature: Float[Array, "2"] = number((1.0, 1.05))
    trunk_com: Float[Array, "2"] | None = number((-0.05, 0.05))
    mass: Float[Array, "2"] = number((0.9, 1.1))
    trunk_mass: Float[Array, "2"] = number((-1.0, 1.0))
    zero: Float[Array, "2"] = number((-0.05, 0.05))
    stiffness: Float[Array, "2"] | None = number(None)
    damping: Float[Array, "2"] | None = number(None)
    damped: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        if self.damped and self.damping is None:
            raise ValueError(
                f"`damped` {self.damped!r} needs `damping`, the range of the factor, got "
                "None."
            )
        if self.damping is not None and not self.damped:
            raise ValueError("`damping` needs `damped`, names of joints, got ().")

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Return the changed robot.

        **Raises:** `ValueError` if it has no floor, no trunk, or lacks a joint.
        """
        keys = jr.split(key, 9)
        trunk = index(sys.links.names, self.trunk, "link")
        links, joints, count = sys.links, sys.joints, sys.nv - 6
        factors = lambda key, bounds: between(key, bounds, (count,))
        mass = links.mass * between(keys[4], self.mass, (sys.nlink,))
        damping = joints.damping
        if self.damping is not None:
            at = jnp.array([5 + index(joints.names, x, "joint") for x in self.damped])
            damping = damping.at[at].multiply(
                between(keys[8], self.damping, (len(self.damped),))
            )
        gain, bias = sys.actuators.gain, sys.actuators.bias
        if self.stiffness is not None:
            factor = between(keys[7], self.stiffness, (sys.nu,))
            gain = gain.at[:, 0].multiply(factor)
            bias = bias.at[:, 1].multiply(factor)
        com = links.com
        if self.trunk_com is not None:
            com = com.at[trunk].add(between(keys[3], self.trunk_com, (3,)))
        new = {
            "links.com": com,
            "links.mass": mass.at[trunk].add(between(keys[5], self.trunk_mass)),
            "joints.frictionloss": joints.frictionloss.at[6:].multiply(
                factors(keys[1], self.frictionloss)
            ),
            "joints.armature": joints.armature.at[6:].multiply(
                factors(keys[2], self.armature)
            ),
            "joints.ref": joints.ref.at[7:].add(factors(keys[6], self.zero)),
            "joints.damping": damping,
            "actuators.gain": gain,
            "actuators.bias": bias,
            **_floor(sys, between(keys[0], self.floor_friction)),
        }
        return eqx.tree_at(
            lambda s: [_at(s, path) for path in new], sys, [*new.values()]
        )


def _at(sys: System, path: str) -> Any:
    part, _, name = path.partition(".")
    return getattr(getattr(sys, part), name)


def _floor(sys: System, friction: Float[Array, ""]) -> dict[str, Array]:
    """Return the friction of the floor: that of its explicit pairs, if it has some."""
    floor, pairs = index(sys.geoms.names, "floor", "shape"), sys.pairs
    places = [k for k, pair in enumerate(pairs.geoms) if floor in pair]
    if places:
        new = pairs.friction.at[jnp.array(places), :2].set(friction)
        return {"pairs.friction": new}
    return {"geoms.friction": sys.geoms.friction.at[floor, 0].set(friction)}


def random_go1() -> RandomLegged:
    """Return the domain randomization of the Go1."""
    return RandomLegged()


def random_g1() -> RandomLegged:
    """Return the domain randomization of the G1."""
    return RandomLegged("torso_link", frictionloss=as_array((0.5, 2.0)), trunk_com=None)


def random_t1() -> RandomLegged:
    """Return the domain randomization of the T1."""
    return RandomLegged(
        "Trunk",
        floor_friction=as_array((0.2, 0.6)),
        trunk_com=None,
        mass=as_array((0.98, 1.02)),
        stiffness=as_array((0.9, 1.1)),
        damping=as_array((0.5, 2.0)),
        damped=tuple(
            f"{side}_Ankle_{axis}"
            for side in ("Left", "Right")
            for axis in ("Pitch", "Roll")
        ),
    )


def random_berkeley_humanoid() -> RandomLegged:
    """Return the domain randomization of the Berkeley Humanoid."""
    return RandomLegged("torso", trunk_com=None)
