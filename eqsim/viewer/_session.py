"""History and playback of a simulation or a recording."""

import time
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..envs import ResetOptions
from ._physics import Mode, replace, reset, Robots, Setup, step


MOST_MOMENTS = 2000
"""Moments of a simulation that are kept."""

# Seconds that one call of `tick` may simulate.
_BUDGET = 0.1


class Moment(NamedTuple):
    """Robots at one time, s."""

    time: float
    robots: Robots


class Session:
    """A simulation with its history, or a recording. Nothing in it draws.

    If `simulates` is true, the simulation continues from the current moment, and later
    moments are dropped; otherwise the moments are played in a loop.

    **Arguments:**

    - `setup`: environment, sliders, policy and random parameters.
    - `values`: numbers of the sliders.
    - `key`: a key of `jax.random.key`.
    - `count`: number of robots.
    - `recorded`: moments of a recording; by default one moment after a reset.
    """

    def __init__(
        self,
        setup: Setup,
        values: Float[np.ndarray, " nslider"],
        key: PRNGKeyArray,
        count: int,
        recorded: list[Moment] | None = None,
    ):
        self.setup, self.values, self.count = setup, np.array(values, float), count
        self.initial_values = self.values.copy()
        self.simulates = recorded is None
        self.playing, self.speed, self.restarts = True, 1.0, True
        self.mode = Mode.SLIDERS if setup.policy is None else Mode.POLICY
        self.ctrl = np.zeros(setup.env.sys.nu)
        self.dt = round(float(setup.env.dt), 6)
        self._key, self._draws, self._debt = key, 0, 0.0
        self.history = recorded or [Moment(0.0, self._reset(None))]
        self.index = 0

    @property
    def moment(self) -> Moment:
        """The moment that is shown."""
        return self.history[self.index]

    @property
    def parameters(self) -> Any:
        """Numbers of the sliders, as an argument of the compiled functions."""
        return jnp.asarray(self.values, self.setup.env.sys.dt.dtype)

    def tick(self, seconds: float) -> bool:
        """Let time pass, and return true if the moment is another one.

        **Arguments:**

        - `seconds`: time since the last call, s. A simulation that is slower than that
            falls behind, and does not catch up.
        """
        if not self.playing:
            return False
        before, end = self.moment, time.monotonic() + _BUDGET
        self._debt += seconds * self.speed
        while self._debt >= self._spacing() and time.monotonic() < end:
            self._debt -= self._spacing()
            self.advance()
        self._debt = min(self._debt, self._spacing())
        return self.moment is not before

    def advance(self) -> None:
        """Advance by one moment."""
        if not self.simulates:
            self.index = (self.index + 1) % len(self.history)
            return
        del self.history[self.index + 1 :]
        now = self.moment
        new = self._step(now.robots)
        self.history.append(Moment(round(now.time + self.dt, 6), new))
        if len(self.history) > MOST_MOMENTS:
            del self.history[0]
        self.index = len(self.history) - 1

    def seek(self, when: float) -> None:
        """Pause at the moment that is nearest to a time, s."""
        times = [moment.time for moment in self.history]
        self.index = int(np.argmin(np.abs(np.array(times) - when)))
        self.playing, self._debt = False, 0.0

    def reset(self, keyframe: str | None = None) -> None:
        """Start again.

        **Arguments:**

        - `keyframe`: name of a keyframe of the robot; by default the first state of the
            environment. Its controls become those of the sliders.
        """
        options = None
        if keyframe is not None:
            key = self.setup.env.sys.keyframe(keyframe)
            options = ResetOptions(key.q, key.qd)
            self.ctrl = np.array(key.ctrl, float)
        if self.simulates:
            self.history = [Moment(0.0, self._reset(options))]
        self.index, self._debt = 0, 0.0

    def _spacing(self) -> float:
        if self.simulates or self.index + 1 >= len(self.history):
            return self.dt
        return max(self.history[self.index + 1].time - self.moment.time, 1e-6)

    def _reset(self, options: ResetOptions | None) -> Robots:
        return reset(self.setup, self.parameters, self._keys(), options)

    def _step(self, robots: Robots) -> Robots:
        dtype = robots.action.dtype
        new = step(
            self.setup,
            self.parameters,
            robots,
            jnp.asarray(self.ctrl, dtype),
            jnp.asarray(self.mode.value, jnp.int32),
            self._keys(),
        )
        # An environment that resets itself reports the end of the last episode.
        if self.restarts and new.timestep.final_obs is None:
            done = np.asarray(new.timestep.done)
            if done.any():
                new = replace(new, self._reset(None), jnp.asarray(done))
        return new

    def _keys(self) -> Any:
        self._draws += 1
        return jr.split(jr.fold_in(self._key, self._draws), self.count)
