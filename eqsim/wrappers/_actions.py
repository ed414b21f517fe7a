"""Wrappers that change actions."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._errors import check_count, check_key
from ..envs import AbstractEnv, check_action, Timestep
from ..model import State
from ..spatial import clamp
from ._wrapper import AbstractStateful, AbstractWrapper, check_env, Lifetime, Options


class ActionRepeat(AbstractWrapper):
    """Repeats each action for several control steps, or until the episode ends.

    Rewards are summed; everything else is that of the last step taken.

    **Arguments:**

    - `env`: the environment.
    - `repeat`: number of control steps per action.

    **Raises:** `ValueError` if `repeat` is not positive, or `env` resets itself.
    """

    env: AbstractEnv
    repeat: int = eqx.field(static=True)

    def __check_init__(self):
        check_count("ActionRepeat.repeat", self.repeat)

    lifetime = Lifetime.EPISODE

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt * self.repeat

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self.env.action_range

    def physics(self, state: Any) -> State:
        return self.env.physics(state)

    def reset(self, key: PRNGKeyArray, options: Options = None) -> tuple[Any, Timestep]:
        return self.env.reset(key, options)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        check_action(self, action)
        summed = lambda t: (t.reward, t.terms)

        def again(now, _):
            def go():
                state, timestep = self.env.step(now[0], action)
                total = jtu.tree_map(jnp.add, summed(now[1]), summed(timestep))
                return state, eqx.tree_at(summed, timestep, total)

            return lax.cond(now[1].done, lambda: now, go), None

        first = self.env.step(state, action)
        return lax.scan(again, first, length=self.repeat - 1)[0]


class AbstractConversion(AbstractWrapper):
    """A wrapper that converts actions from a different range to that of the robot."""

    @abc.abstractmethod
    def convert(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        """Convert an action to an action of the robot."""

    lifetime = Lifetime.NONE

    @property
    def dt(self) -> Float[Array, ""]:
        return self.env.dt

    def physics(self, state: Any) -> State:
        return self.env.physics(state)

    def reset(self, key: PRNGKeyArray, options: Options = None) -> tuple[Any, Timestep]:
        return self.env.reset(key, options)

    def step(self, state: Any, action: Float[Array, " nu"]) -> tuple[Any, Timestep]:
        check_action(self, action)
        return self.env.step(state, self.convert(action))

    def _limits(self, action: Float[Array, " nu"]) -> Float[Array, "2 nu"]:
        """Return lower and upper limits of the robot's action."""
        return self.env.action_range.astype(action.dtype).T

    def _between(self, low: float, high: float) -> Float[Array, "nu 2"]:
        """Return the same limits for every actuator."""
        row = jnp.asarray([low, high], self.env.action_range.dtype)
        return jnp.broadcast_to(row[None], (self.sys.nu, 2))


class ClipAction(AbstractConversion):
    """Clips actions to the robot's action range.

    The range is that of `env.sys`, also with `DomainRandomization`. The derivative with
    respect to entries outside the range is zero.
    """

    env: AbstractEnv

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self._between(-jnp.inf, jnp.inf)

    def convert(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        low, high = self._limits(action)
        return clamp(action, low, high)


def check_scalable(
    name: str, env: AbstractEnv, hint: str = "", *, unlimited: bool = False
) -> None:
    """Raise `ValueError` unless actions can be scaled to the action range of an
    environment: each lower bound is below the upper one, and their difference is a finite
    number. Skipped for traced ranges.

    **Arguments:**

    - `name`: name of the agent or wrapper in the message.
    - `hint`: another remedy than to limit the actuator in the model.
    - `unlimited`: True to accept infinite bounds, which are not scaled.
    """
    with jax.ensure_compile_time_eval():
        span = env.action_range
    if isinstance(span, Tracer) or span.ndim > 2:
        return
    span = np.asarray(span)
    with np.errstate(over="ignore", invalid="ignore"):
        width = span[:, 1] - span[:, 0]
    fine = np.isfinite(width) | (unlimited & np.isinf(span).any(axis=1))
    kind = "finite or unlimited" if unlimited else "finite"
    for k in np.flatnonzero(~(fine & (width > 0.0))):
        raise ValueError(
            f"`{name}` scales actions, which needs a {kind} range of positive width, but "
            f"that of actuator {env.sys.actuators.ctrl_names[k]!r} is {span[k].tolist()}. "
            f"Limit it in the model (`ctrlrange`){hint}."
        )


class ScaleAction(AbstractConversion):
    r"""Rescales actions from [-1, 1] to the robot's action range.

    $u = l + \tfrac{1}{2} (a + 1) (h - l)$, also for actions outside [-1, 1]. The range
    is that of `env.sys`, also with `DomainRandomization`.

    **Raises:** `ValueError` if the range of an actuator is infinite or empty, see
    `check_scalable`.
    """

    env: AbstractEnv

    def __check_init__(self):
        check_env(self, self.env)
        check_scalable("ScaleAction", self.env)

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        return self._between(-1.0, 1.0)

    def convert(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        low, high = self._limits(action)
        return low + 0.5 * (action + 1.0) * (high - low)


class DelayState(eqx.Module):
    """State of `DelayAction`. `pending`: the latest actions, oldest first. `delay`:
    delay of this episode, in control steps."""

    inner: Any
    pending: Float[Array, "longest nu"]
    delay: Int[Array, ""]


class DelayAction(AbstractStateful):
    """Delays actions by some control steps. Until the first action arrives, the robot
    receives zeros.

    **Arguments:**

    - `env`: the environment.
    - `delay`: delay in control steps; if `shortest` is given, the longest delay.
    - `shortest`: shortest delay; the delay of each episode is then drawn uniformly from
        `shortest` to `delay`.

    **Raises:** `ValueError` unless `0 <= shortest <= delay` and `1 <= delay`, or if
    `env` resets itself.
    """

    env: AbstractEnv
    delay: int = eqx.field(static=True)
    shortest: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_count("DelayAction.delay", self.delay)
        none = "a constant delay"
        check_count("DelayAction.shortest", self.shortest, 0, or_none=none)
        if self.shortest is not None and self.shortest > self.delay:
            raise ValueError(
                f"`DelayAction.shortest` must be at most `delay` ({self.delay}), got "
                f"{self.shortest}."
            )

    lifetime = Lifetime.EPISODE

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[DelayState, Timestep]:
        check_key(key)
        key_reset, key = jr.split(key)
        inner, timestep = self.env.reset(key_reset, options)
        shortest = self.delay if self.shortest is None else self.shortest
        delay = jr.randint(key, (), shortest, self.delay + 1)
        dtype = self.env.physics(inner).q.dtype
        pending = jnp.zeros((self.delay, self.sys.nu), dtype)
        return DelayState(inner, pending, delay), timestep

    def step(
        self, state: DelayState, action: Float[Array, " nu"]
    ) -> tuple[DelayState, Timestep]:
        check_action(self, action)
        action = action.astype(state.pending.dtype)
        recent = jnp.concatenate([state.pending, action[None]])
        now = lax.dynamic_index_in_dim(recent, self.delay - state.delay, keepdims=False)
        inner, timestep = self.env.step(state.inner, now)
        return DelayState(inner, recent[1:], state.delay), timestep
