"""Wrappers that change observations: statistics and normalization, stacks, selections and
noise, images, and what only a simulation knows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from .._errors import check_count, check_key, check_numbers
from ..envs import AbstractEnv, check_action, Timestep
from ..model import State, System
from ..model.arrays import as_array
from ..render import Camera, camera_for, draw
from ..render.drawing import check_image
from ._episodes import episode_robot
from ._wrapper import (
    AbstractReport,
    AbstractStateful,
    check_env,
    Lifetime,
    Options,
    vector_size,
)


class RunningStatistics(eqx.Module):
    r"""Running mean and variance of observations (Chan, Golub and LeVeque 1979).

    Initially, those of one observation of mean 0 and variance 1.

    **Arguments:**

    - `count`: number of observations.
    - `mean`: mean of each entry.
    - `square`: sum of squared deviations from the mean, per entry.
    """

    count: Float[Array, "*batch"]
    mean: Float[Array, "*batch nobs"]
    square: Float[Array, "*batch nobs"]

    @property
    def variance(self) -> Float[Array, "*batch nobs"]:
        """Variance of each entry."""
        return self.square / self.count[..., None]

    def with_one(self, obs: Float[Array, " nobs"]) -> "Statistics":
        r"""Add one observation.

        The count stops at $1/(8 \epsilon)$, with $\epsilon$ the machine epsilon ($2^{20}$
        in single precision); from then on, older observations are forgotten
        exponentially. Rounding would otherwise lose single observations: in single
        precision, $2^{24} + 1 = 2^{24}$.
        """
        limit = 0.125 / jnp.finfo(self.count.dtype).eps
        share = jnp.minimum(1.0, (limit - 1.0) / self.count)
        count = share * self.count + 1.0
        off = obs - self.mean
        mean = self.mean + off / count
        square = share[..., None] * self.square + off * (obs - mean)
        return RunningStatistics(count, mean, square)

    def merged(self) -> "Statistics":
        """Merge a batch of statistics into one, for example those of all environments
        of a rollout."""
        axes = tuple(range(self.count.ndim))
        count = jnp.sum(self.count, axes)
        mean = jnp.sum(self.mean * self.count[..., None], axes) / count
        off = self.mean - mean.reshape((1,) * len(axes) + (-1,))
        square = jnp.sum(self.square + self.count[..., None] * off**2, axes)
        return RunningStatistics(count, mean, square)

    def normalize(self, obs: Float[Array, " nobs"]) -> Float[Array, " nobs"]:
        r"""Compute $(o - \mathrm{mean}) / \sqrt{\mathrm{variance} + 10^{-8}}$."""
        return (obs - self.mean) / jnp.sqrt(self.variance + 1e-8)


class NormalizedState(eqx.Module):
    """State of `NormalizeObservation`. `statistics`: statistics of the observations so
    far; None if they are frozen."""

    inner: Any
    statistics: RunningStatistics | None


class NormalizeObservation(AbstractStateful):
    """Normalizes observations by their running mean and standard deviation.

    Each environment of a batch has its own statistics. To share and freeze them, use
    `NormalizeObservation(env, state.statistics.merged(), frozen=True)`.

    **Arguments:**

    - `env`: the environment, including `AutoReset`, unless the statistics are frozen.
    - `statistics`: initial statistics; by default those of no observations.
    - `frozen`: true to keep the statistics fixed.

    **Raises:** `ValueError` if observations are not floating-point vectors, or if
    `statistics` does not fit them.
    """

    env: AbstractEnv
    statistics: RunningStatistics | None = None
    frozen: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_env(self, self.env)
        shape = vector_size(self, self.env)
        if self.statistics is not None and self.statistics.mean.shape != (shape,):
            raise ValueError(
                f"`statistics.mean` has shape {self.statistics.mean.shape}, but observations "
                f"have shape ({shape},). Merge statistics of a batch with `merged()`."
            )
        if self.frozen and self.statistics is None:
            raise ValueError("`frozen` statistics must be given: pass `statistics`.")

    @property
    def lifetime(self) -> Lifetime:
        """How long the statistics are kept."""
        return Lifetime.NONE if self.frozen else Lifetime.RUN

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[NormalizedState, Timestep]:
        inner, timestep = self.env.reset(key, options)
        statistics = self.statistics
        if self.frozen:
            return self._report(inner, None, timestep)
        if statistics is None:
            obs = timestep.obs
            none = jnp.zeros_like(obs)
            statistics = RunningStatistics(jnp.ones((), obs.dtype), none, none + 1.0)
        return self._report(inner, statistics, timestep)

    def step(
        self, state: NormalizedState, action: Float[Array, " nu"]
    ) -> tuple[NormalizedState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        return self._report(inner, state.statistics, timestep)

    def _report(self, inner, statistics: RunningStatistics | None, timestep: Timestep):
        kept = None
        if statistics is not None:
            kept = statistics = statistics.with_one(timestep.obs)
        else:
            statistics = self.statistics
        assert statistics is not None, "frozen statistics are given"
        timestep = eqx.tree_at(
            observations,
            timestep,
            replace_fn=lambda x: None if x is None else statistics.normalize(x),
            is_leaf=lambda x: x is None,
        )
        return NormalizedState(inner, kept), timestep


class StackedState(eqx.Module):
    """State of `StackObservation`. `frames`: the latest observations, oldest first,
    along the first axis."""

    inner: Any
    frames: PyTree[Shaped[Array, "..."]]


class StackObservation(AbstractStateful):
    """Stacks the latest observations, oldest first.

    Vectors are concatenated, images are concatenated along their last axis, and
    dictionaries are stacked entry by entry. At the start of an episode, its first
    observation is repeated.

    **Arguments:**

    - `env`: the environment.
    - `number`: number of observations, including the current one.

    **Raises:** `ValueError` if `number` is not positive, or `env` resets itself.
    """

    env: AbstractEnv
    number: int = eqx.field(static=True)

    def __check_init__(self):
        check_count("StackObservation.number", self.number)

    lifetime = Lifetime.EPISODE

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[StackedState, Timestep]:
        inner, timestep = self.env.reset(key, options)
        copies = lambda x: jnp.broadcast_to(x[None], (self.number, *x.shape))
        return _stacked(inner, jtu.tree_map(copies, timestep.obs), timestep)

    def step(
        self, state: StackedState, action: Float[Array, " nu"]
    ) -> tuple[StackedState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        later = lambda old, new: jnp.concatenate([old[1:], new[None]])
        frames = jtu.tree_map(later, state.frames, timestep.obs)
        return _stacked(inner, frames, timestep)


def _stacked(inner, frames, timestep: Timestep) -> tuple[StackedState, Timestep]:
    obs = jtu.tree_map(lambda x: jnp.concatenate(list(x), axis=-1), frames)
    timestep = eqx.tree_at(lambda t: t.obs, timestep, obs)
    return StackedState(inner, frames), timestep


class SelectObservation(AbstractReport):
    """Keeps some entries of observations, such as positions without velocities, for
    tasks in which the state is only partially observed.

    **Arguments:**

    - `env`: the environment, whose observation is a vector.
    - `indices`: indices of the entries, in the order of the new observation.

    **Raises:** `ValueError` if the observation is not a vector, an index is out of
    range or occurs twice, there is no index, or `env` resets itself.
    """

    env: AbstractEnv
    indices: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def __check_init__(self):
        check_env(self, self.env)
        size = vector_size(self, self.env)
        known = all(0 <= index < size for index in self.indices)
        if not (self.indices and known and len({*self.indices}) == len(self.indices)):
            raise ValueError(
                f"`SelectObservation.indices` must be different integers from 0 to "
                f"{size - 1}, at least one, got {self.indices}."
            )

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        obs = timestep.obs[np.asarray(self.indices)]
        return eqx.tree_at(lambda t: t.obs, timestep, obs)


class NoisyState(eqx.Module):
    """State of `NoisyObservation`. `key`: key for the next noise. `bias`: bias of this
    episode."""

    inner: Any
    key: PRNGKeyArray
    bias: Float[Array, " nobs"]


class NoisyObservation(AbstractStateful):
    """Adds normal noise to observations: independent noise in each step, and a constant
    bias in each episode.

    **Arguments:**

    - `env`: the environment.
    - `noise`, `bias`: standard deviations; one number, or one per entry of the
        observation. Array leaves, which can change without recompiling.

    **Raises:** `ValueError` if the shapes do not fit, a standard deviation is negative,
    or `env` resets itself.
    """

    env: AbstractEnv
    noise: Float[Array, "..."] = eqx.field(converter=as_array)
    bias: Float[Array, "..."] = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        check_env(self, self.env)
        size = vector_size(self, self.env)
        for name, value in (("noise", self.noise), ("bias", self.bias)):
            if value.shape not in ((), (size,)):
                raise ValueError(
                    f"`NoisyObservation.{name}` must be one number, or one for each of "
                    f"the {size} entries of the observation, got shape {value.shape}."
                )
            check_numbers(
                f"NoisyObservation.{name}", value, lambda x: x >= 0.0, "at least 0"
            )

    lifetime = Lifetime.EPISODE

    def reset(
        self, key: PRNGKeyArray, options: Options = None
    ) -> tuple[NoisyState, Timestep]:
        check_key(key)
        key_reset, key_bias, key = jr.split(key, 3)
        inner, timestep = self.env.reset(key_reset, options)
        obs = timestep.obs
        bias = self.bias.astype(obs.dtype) * jr.normal(key_bias, obs.shape, obs.dtype)
        return self._report(NoisyState(inner, key, bias), timestep)

    def step(
        self, state: NoisyState, action: Float[Array, " nu"]
    ) -> tuple[NoisyState, Timestep]:
        check_action(self, action)
        inner, timestep = self.env.step(state.inner, action)
        return self._report(NoisyState(inner, state.key, state.bias), timestep)

    def _report(self, state: NoisyState, timestep: Timestep):
        key_noise, key = jr.split(state.key)
        obs = timestep.obs
        noise = self.noise.astype(obs.dtype) * jr.normal(
            key_noise, obs.shape, obs.dtype
        )
        timestep = eqx.tree_at(lambda t: t.obs, timestep, obs + state.bias + noise)
        return NoisyState(state.inner, key, state.bias), timestep


def observations(timestep: Timestep) -> tuple[Any, Any]:
    """Return all fields of a timestep that are observations."""
    return timestep.obs, timestep.final_obs


class Pixels(AbstractReport):
    """Replaces observations by images, `(height, width, 3)` of `uint8`. With
    `only=False`, the observation is a dictionary of `pixels`, the image, and `state`,
    the observation of `env`.

    MuJoCo draws images on the host. A batch is transferred in one call and drawn image
    by image; see `eqsim.render.draw`. The robot is that of the current episode, also
    with `DomainRandomization`, inside or outside.

    Derivatives of images are zero; derivatives of rewards are not affected. With
    `AutoReset`, a second image per step is drawn for the reset, unless
    `pool_resets` computes resets in advance.

    **Arguments:**

    - `env`: the environment.
    - `width`, `height`: size of the image in pixels.
    - `camera`: the camera; by default `eqsim.render.camera_for(env.sys)`.
    - `only`: true to exclude the observation of `env`.

    **Raises:** `ValueError` if a size is not positive, `camera` follows an unknown
    link, `env` resets itself, or `camera` is not given while the robot is traced;
    `eqsim.render.NoOpenGL` if OpenGL is not available.
    """

    env: AbstractEnv
    width: int = eqx.field(static=True)
    height: int = eqx.field(static=True)
    camera: Camera = eqx.field(static=True)
    only: bool = eqx.field(static=True)

    def __init__(
        self,
        env: AbstractEnv,
        width: int = 64,
        height: int = 64,
        camera: Camera | None = None,
        only: bool = True,
    ):
        check_env(self, env)
        self.env, self.width, self.height = env, width, height
        self.camera = camera_for(env.sys) if camera is None else camera
        self.only = only

    def __check_init__(self):
        check_image(self.sys, self.camera, self.width, self.height)

    def report(
        self, state: Any, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        sys, q = episode_robot(self.env, state), self.physics(state).q
        picture = draw(sys, q, self.camera, self.width, self.height)
        obs = picture if self.only else {"pixels": picture, "state": timestep.obs}
        return eqx.tree_at(lambda t: t.obs, timestep, obs)


class PrivilegedObservation(AbstractReport):
    """Adds an observation that is known in simulation only, such as true velocities, or the
    parameters of a randomized robot.

    The observation is a dictionary of `obs`, that of `env`, and `privileged`; if that of
    `env` is a dictionary, `privileged` is added to it. Critics may learn from it while
    actors do not see it, see `actor_parts` of the agents of `eqsim_zoo`.

    **Arguments:**

    - `env`: the environment.
    - `observe`: `(sys, state) -> vector`, where `sys` is the robot of the current episode,
        also with `DomainRandomization`, and `state` that of its physics. A function of a
        module, so that two environments share compiled programs.

    **Raises:** `ValueError` if `env` resets itself, or its observation already has a
    part called `privileged`.

    ??? cite "Reference"
        Pinto et al., *Asymmetric actor critic for image-based robot learning*, 2018,
        section 4.
    """

    env: AbstractEnv
    observe: Callable[[System, State], Float[Array, " nprivileged"]] = eqx.field(
        static=True
    )

    def __check_init__(self):
        check_env(self, self.env)

    def report(
        self, state, action: Float[Array, " nu"], timestep: Timestep
    ) -> Timestep:
        known = self.observe(episode_robot(self.env, state), self.physics(state))
        obs = timestep.obs if isinstance(timestep.obs, dict) else {"obs": timestep.obs}
        if "privileged" in obs:
            raise ValueError(
                "The observation already has a part `privileged`: wrap the environment in "
                "one `PrivilegedObservation`."
            )
        new = {**obs, "privileged": known}
        return eqx.tree_at(lambda t: t.obs, timestep, new)
