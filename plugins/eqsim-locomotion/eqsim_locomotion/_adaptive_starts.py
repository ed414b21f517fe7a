"""Starts of episodes where a robot often fails to track its reference."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, ResetOptions, Timestep
from eqsim.bridges import check_count, check_key
from eqsim.envs import check_action, reset_options
from eqsim.model.arrays import as_array
from eqsim.wrappers import AbstractCarryOver, AbstractStateful, Lifetime, nested_envs

from ._legged import check_numbers
from ._tracking import MotionTracking


class AdaptiveStartsState(eqx.Module):
    """State of `AdaptiveStarts`.

    - `inner`: state of the inner environment.
    - `failures`: share of the last visits to each bin in which the robot failed.
    - `first`: bin in which the episode started.
    - `failed`: true if the episode has terminated.
    """

    inner: Any
    failures: Float[Array, " bins"]
    first: Int[Array, ""]
    failed: Bool[Array, ""]


class AdaptiveStarts(AbstractCarryOver):
    r"""Starts episodes of `MotionTracking` more often before frames in which the robot
    fails, and truncates them at the last frame of the reference.

    The reference has bins of equal length. Each environment keeps the share $r_i$ of visits
    to bin $i$ in which the robot failed, over about the last $1 / \beta$ visits: after an
    episode from bin $a$ to $b$, $r_i \leftarrow (1 - \beta) r_i + \beta f_i$ for $a \le i
    \le b$, with $f_i = 1$ in the bin of a failure, else 0. `AutoReset` passes these shares
    to the next episode, which starts in bin $s$ with the probability

    $p_s = \frac{\lambda}{n} + (1 - \lambda) \frac{w_s}{\sum_i w_i}, \quad
    w_s = \frac{\sum_u \alpha^u r_{s+u}}{\sum_u \alpha^u}, \quad 0 \le u < n - s,$

    so that episodes also start in the bins before a failure.

    `progress` reports the mean of $1 - r$ as `survival`.

    **Arguments:**

    - `env`: `MotionTracking`, or wrappers of one episode about it.
    - `bins`: number of bins, less than that of frames; by default one for each second, and
        two if possible.
    - `uniform`: share $\lambda$ of uniform starts.
    - `lookahead`: decay $\alpha$.
    - `rate`: $\beta$.

    `reset` accepts the option `start`: a frame, or what `next_options` returns.

    **Raises:** `ValueError` if the task is another one, or a number is out of its range.

    ??? cite "Reference"
        Liao et al., *BeyondMimic*, 2025, section III-D, with failures counted by visit, as
        each environment has its own.
    """

    env: AbstractEnv
    bins: int = eqx.field(static=True)
    uniform: Float[Array, ""]
    lookahead: Float[Array, ""]
    rate: Float[Array, ""]

    def __init__(
        self,
        env: AbstractEnv,
        *,
        bins: int | None = None,
        uniform: Any = 0.1,
        lookahead: Any = 0.8,
        rate: Any = 0.1,
    ):
        self.env = env
        motion = self._task().motion
        intervals = motion.frames - 1
        if bins is None:
            if isinstance(motion.period, Tracer):
                raise ValueError(
                    "`bins` must be given for a motion of traced `period`."
                )
            seconds = round(intervals * float(motion.period))
            bins = min(max(seconds, 2), intervals)
        check_count("bins", bins)
        if bins > intervals:
            raise ValueError(
                "`bins` must be at most the number of frames minus one, "
                f"{intervals}, got {bins}."
            )
        self.bins = bins
        shares = ("uniform", uniform), ("lookahead", lookahead), ("rate", rate)
        for name, value in shares:
            accepted = lambda x: (x >= 0.0) & (x <= 1.0)
            check_numbers(name, value, accepted, "between 0 and 1")
        self.uniform, self.lookahead = as_array(uniform), as_array(lookahead)
        self.rate = as_array(rate)

    def __check_init__(self):
        self._task()

    lifetime = Lifetime.EPISODE

    def _task(self) -> MotionTracking:
        *_, task = nested_envs(self.env)
        if not isinstance(task, MotionTracking):
            raise ValueError(
                "`AdaptiveStarts` needs the reference of a `MotionTracking`, got "
                f"`{type(task).__name__}`."
            )
        return task

    def _frame(self, state: Any) -> Int[Array, ""]:
        """Return the frame of the reference in a state of `env`."""
        for layer in nested_envs(self.env):
            if isinstance(layer, AbstractStateful):
                state = state.inner
        return state.frame

    def _bin(self, state: Any) -> Int[Array, ""]:
        intervals = self._task().motion.frames - 1
        return jnp.minimum(self._frame(state) * self.bins // intervals, self.bins - 1)

    def _first(self, index: Int[Array, ""]) -> Int[Array, ""]:
        """Return the first frame of a bin."""
        return -(-index * (self._task().motion.frames - 1) // self.bins)

    def probabilities(self, failures: Float[Array, " bins"]) -> Float[Array, " bins"]:
        """Return the probability of a start in each bin."""
        dtype = failures.dtype
        ahead = jnp.arange(self.bins)[None] - jnp.arange(self.bins)[:, None]
        power = jnp.power(self.lookahead, jnp.maximum(ahead, 0).astype(dtype))
        kernel = jnp.where(ahead >= 0, power, 0.0)
        weights = kernel @ failures / jnp.sum(kernel, axis=1)
        total = jnp.sum(weights)
        known = total > 1e-6
        share = jnp.where(known, weights / jnp.where(known, total, 1.0), 1 / self.bins)
        return self.uniform / self.bins + (1.0 - self.uniform) * share

    def reset(
        self, key: PRNGKeyArray, options: Any = None
    ) -> tuple[AdaptiveStartsState, Timestep]:
        check_key(key)
        options = reset_options(options)
        key_reset, key_bin, key_frame = jr.split(key, 3)
        dtype = self.rate.dtype
        given, failures = options.start, jnp.ones(self.bins, dtype)
        if isinstance(given, CarriedFailures):
            given, failures = None, given.failures
        if given is None:
            chance = self.probabilities(failures)
            start = jnp.sum(jnp.cumsum(chance)[:-1] < jr.uniform(key_bin, (), dtype))
            first, after = self._first(start), self._first(start + 1)
            given = jr.randint(key_frame, (), first, after, jnp.int32)
        options = eqx.tree_at(
            lambda o: o.start, options, given, is_leaf=lambda x: x is None
        )
        inner, timestep = self.env.reset(key_reset, options)
        no = jnp.zeros((), bool)
        return AdaptiveStartsState(inner, failures, self._bin(inner), no), timestep

    def step(
        self, state: AdaptiveStartsState, action: Float[Array, " nu"]
    ) -> tuple[AdaptiveStartsState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        ended = self._frame(inner) >= self._task().motion.frames - 1
        truncated = timestep.truncated | (ended & ~timestep.terminated)
        timestep = eqx.tree_at(lambda t: t.truncated, timestep, truncated)
        new = AdaptiveStartsState(
            inner, state.failures, state.first, timestep.terminated
        )
        return new, timestep

    def progress(self, state: AdaptiveStartsState) -> dict[str, Float[Array, ""]]:
        """Return the share of bins that the robot gets through."""
        return {"survival": 1.0 - jnp.mean(state.failures)}

    def next_options(
        self, key: PRNGKeyArray, state: AdaptiveStartsState
    ) -> ResetOptions:
        last = self._bin(state.inner)
        each = jnp.arange(self.bins, dtype=last.dtype)
        visited = (each >= state.first) & (each <= last)
        fell = ((each == last) & state.failed).astype(state.failures.dtype)
        new = state.failures + self.rate * (fell - state.failures)
        failures = jnp.where(visited, new, state.failures)
        return ResetOptions(start=CarriedFailures(failures))


class CarriedFailures(eqx.Module):
    """Failure shares that `AdaptiveStarts` passes to the next episode."""

    failures: Float[Array, " bins"]
