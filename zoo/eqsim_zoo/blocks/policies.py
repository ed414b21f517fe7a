"""Distributions of actions, action ranges, and policies.

A policy is a function from observations to a distribution of actions, or to an action.
`scale_action` maps actions between -1 and 1 to the range of the environment, `squash_action`
any numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from eqsim import AbstractEnv
from eqsim.envs import Reflection
from eqsim.spatial import clamp
from eqsim.wrappers import AbstractConversion, check_scalable

from .networks import AbstractInputs, Activation, MLP, SymmetricNetwork
from .observations import normalize, ObservationStatistics


# Distributions.

_LOG_2PI = 1.8378770664093453
_LOG_2 = 0.6931471805599453


class Normal(eqx.Module):
    """Independent normal distributions.

    **Arguments:**

    - `mean`, `log_std`: mean and logarithm of the standard deviation of each number.
    """

    mean: Float[Array, " nu"]
    log_std: Float[Array, " nu"]

    def mode(self) -> Float[Array, " nu"]:
        """Return the most likely value."""
        return self.mean

    def sample(self, key: PRNGKeyArray) -> Float[Array, " nu"]:
        """Draw a reparameterized sample."""
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Float[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the density."""
        z = (x - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (z**2 + _LOG_2PI) - self.log_std)

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        return jnp.sum(self.log_std + 0.5 * (1.0 + _LOG_2PI))


class TanhNormal(eqx.Module):
    r"""Distribution of $\tanh(u)$ for normal $u$.

    Log-densities take $u$, since it cannot be recovered from $\tanh(u)$ near $\pm 1$.

    **Arguments:**

    - `normal`: distribution of $u$.

    ??? cite "Reference"
        Haarnoja et al., *Soft actor-critic: off-policy maximum entropy deep reinforcement
        learning with a stochastic actor*, 2018, appendix C.
    """

    normal: Normal

    def mode(self) -> Float[Array, " nu"]:
        r"""Return $\tanh$ of the mean, which is the median."""
        return jnp.tanh(self.normal.mean)

    def sample_and_log_prob(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, " nu"], Float[Array, ""]]:
        """Draw a sample that is differentiable by the parameters, and compute its
        log-density."""
        u = self.normal.sample(key)
        return jnp.tanh(u), self.log_prob(u)

    def log_prob(self, u: Float[Array, " nu"]) -> Float[Array, ""]:
        r"""Compute the logarithm of the density at $\tanh(u)$: $\log N(u) - \sum \log(1
        - \tanh^2 u)$."""
        return self.normal.log_prob(u) - jnp.sum(log_slope(u))


def log_slope(u: Float[Array, " nu"]) -> Float[Array, " nu"]:
    r"""Compute $\log(1 - \tanh^2 u) = 2 (\log 2 - u - \mathrm{softplus}(-2u))$, which
    is exact for large $u$ as well."""
    return 2.0 * (_LOG_2 - u - jax.nn.softplus(-2.0 * u))


class Categorical(eqx.Module):
    """One of several levels, independently for each actuator.

    **Arguments:**

    - `logits`: logit of each level.
    """

    logits: Float[Array, "nu levels"]

    def mode(self) -> Int[Array, " nu"]:
        """Return the most likely levels."""
        return jnp.argmax(self.logits, axis=-1)

    def sample(self, key: PRNGKeyArray) -> Int[Array, " nu"]:
        """Draw a sample."""
        return jr.categorical(key, self.logits, axis=-1)

    def log_prob(self, x: Int[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability."""
        chosen = jnp.take_along_axis(self._log(), x[:, None], axis=-1)
        return jnp.sum(chosen)

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        log = self._log()
        return -jnp.sum(jnp.exp(log) * log)

    def _log(self) -> Float[Array, "nu levels"]:
        return jax.nn.log_softmax(self.logits, axis=-1)


class NormalMixture(eqx.Module):
    """One of several vectors of independent normal numbers.

    **Arguments:**

    - `logits`: logit of each component.
    - `mean`, `log_std`: mean and log standard deviation of each component.
    """

    logits: Float[Array, " components"]
    mean: Float[Array, "components n"]
    log_std: Float[Array, "components n"]

    def log_prob(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """Compute the logarithm of the density."""
        each = jax.vmap(lambda mean, log_std: Normal(mean, log_std).log_prob(x))
        weights = jax.nn.log_softmax(self.logits)
        return jax.nn.logsumexp(weights + each(self.mean, self.log_std))

    def expectation(self) -> Float[Array, " n"]:
        """Compute the mean over all components."""
        return jax.nn.softmax(self.logits) @ self.mean


# Action ranges.


class Squash(AbstractConversion):
    r"""Wrapper that squashes any numbers $u$: $\tanh(u)$ scaled to the action range where
    that is finite, and clipped where it is not.

    A rollout records $u$, whose density under a normal policy is known.
    """

    env: AbstractEnv

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        bound = jnp.asarray([-jnp.inf, jnp.inf], self.env.action_range.dtype)
        return jnp.broadcast_to(bound[None], (self.sys.nu, 2))

    def convert(self, action: Float[Array, " nu"]) -> Float[Array, " nu"]:
        return squash_action(self.env.action_range, action)


def squash_action(
    bounds: Float[Array, "nu 2"], u: Float[Array, " nu"]
) -> Float[Array, " nu"]:
    """Squash numbers to the action range, see `Squash`."""
    bounds = bounds.astype(u.dtype)
    both, (low, high) = bounded_entries(bounds), bounds.T
    scaled = _scaled(
        jnp.where(both, low, -1.0), jnp.where(both, high, 1.0), jnp.tanh(u)
    )
    return jnp.where(both, scaled, clamp(u, low, high))


def bounded_entries(bounds: Float[Array, "nu 2"]) -> Bool[Array, " nu"]:
    """Return which actions have a finite range, so that `squash_action` applies tanh."""
    return jnp.all(jnp.isfinite(bounds), axis=1)


def squash_log_slope(
    bounded: Bool[Array, " nu"], u: Float[Array, " nu"]
) -> Float[Array, ""]:
    r"""Compute $\sum \log(1 - \tanh^2 u)$ over the actions that are squashed by tanh, by
    which `squash_action` changes log-densities, up to a constant."""
    return jnp.sum(jnp.where(bounded, log_slope(u), 0.0))


def scale_action(
    bounds: Float[Array, "nu 2"], action: Float[Array, " nu"]
) -> Float[Array, " nu"]:
    """Scale an action between -1 and 1 to the action range, which must be finite."""
    low, high = bounds.astype(action.dtype).T
    return _scaled(low, high, action)


def unscale_action(
    bounds: Float[Array, "nu 2"], action: Float[Array, "*rows nu"]
) -> Float[Array, "*rows nu"]:
    """Invert `scale_action`, for one action or several."""
    low, high = bounds.astype(action.dtype).T
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    broadcast = lambda x: jnp.broadcast_to(x, action.shape)
    return jnp.clip((action - broadcast(middle)) / broadcast(half), -1.0, 1.0)


def _scaled(low, high, action):
    return low + 0.5 * (action + 1.0) * (high - low)


def check_action_bounds(
    agent: eqx.Module, env: AbstractEnv, *, unlimited: bool = False
) -> None:
    """Raise `ValueError` unless an agent can scale its actions to the action range, see
    `check_scalable`.

    **Arguments:**

    - `unlimited`: True to accept infinite bounds, as `Squash` does.
    """
    name, bounds = type(agent).__name__, env.action_range
    hint = (
        ", or use an agent that supports unbounded actions: `PPO` without `levels`, or "
        "`SHAC`"
    )
    check_scalable(name, env, "" if unlimited else hint, unlimited=unlimited)
    if unlimited or not isinstance(bounds, Tracer):
        return
    bounds = _without_numbers(env)
    if isinstance(bounds, Tracer):
        return
    for k in np.flatnonzero(~np.all(np.isfinite(bounds), axis=1)):
        raise ValueError(
            f"`{name}` scales actions, which needs a finite range of positive width, but "
            f"actuator {env.sys.actuators.ctrl_names[k]!r} has no limits. Limit it in the "
            f"model (`ctrlrange`){hint}."
        )


def _without_numbers(env: AbstractEnv) -> Float[Array, "nu 2"]:
    """Return the action range with zeros for the numbers of the environment, whose
    values are unknown inside a transformation. Missing limits are still infinite."""
    with jax.ensure_compile_time_eval():
        zero = lambda x: jnp.zeros(x.shape, x.dtype) if eqx.is_inexact_array(x) else x
        return jtu.tree_map(zero, env).action_range


# Policies.

# Logarithms of the least and the largest deviation.
_LEAST, _LARGEST = -5.0, 2.0


class StochasticPolicy(eqx.Module):
    r"""Tanh-normal policy whose mean and standard deviation depend on the observation.

    **Arguments:**

    - `network`: network with two outputs per actuator: the mean, and a number from which
        the standard deviation follows, between $e^{-5}$ and $e^2$.
    """

    network: MLP

    def __call__(self, obs: Float[Array, " features"]) -> TanhNormal:
        return TanhNormal(self.normal(obs))

    def normal(self, obs: Float[Array, " features"]) -> Normal:
        """Return the distribution before squashing."""
        mean, raw = jnp.split(self.network(obs), 2)
        return Normal(mean, bounded_log_std(raw))


def bounded_log_std(raw: Float[Array, "*rows nu"]) -> Float[Array, "*rows nu"]:
    r"""Map numbers to logarithms of standard deviations between $e^{-5}$ and $e^2$."""
    return _LEAST + 0.5 * (_LARGEST - _LEAST) * (jnp.tanh(raw) + 1.0)


def sample_actions(
    policy: Callable[[Any], TanhNormal], obs: Any, key: PRNGKeyArray
) -> tuple[Float[Array, "rows nu"], Float[Array, " rows"]]:
    """Sample an action for each row of observations, with its log-density."""
    keys = jr.split(key, jtu.tree_leaves(obs)[0].shape[0])
    return jax.vmap(lambda obs, key: policy(obs).sample_and_log_prob(key))(obs, keys)


class DeterministicPolicy(eqx.Module):
    r"""Deterministic policy: $\tanh$ of the output of a network."""

    network: MLP

    def __call__(self, obs: Float[Array, " nobs"]) -> Float[Array, " nu"]:
        return jnp.tanh(self.network(obs))


class Explorer(eqx.Module):
    """Policy that explores: samples, or actions with noise, or uniform actions.

    **Arguments:**

    - `policy`: stochastic or deterministic policy, or distribution before squashing.
    - `statistics`: running statistics of observations.
    - `random`: true for uniform actions.
    - `noise`: standard deviation of the noise on deterministic actions, if any.
    """

    policy: Callable[[Any], Any]
    statistics: ObservationStatistics | None
    random: Bool[Array, ""]
    noise: Float[Array, ""] | None = None

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        key, key_random = jr.split(key)
        found = self.policy(normalize(self.statistics, obs))
        if isinstance(found, TanhNormal):
            action, _ = found.sample_and_log_prob(key)
        elif isinstance(found, Normal):
            action = found.sample(key)
        else:
            action = found if self.noise is None else add_noise(found, self.noise, key)
        uniform = jr.uniform(key_random, action.shape, action.dtype, -1.0, 1.0)
        return jnp.where(self.random, uniform, action)


def add_noise(
    action: Float[Array, " nu"], noise: Float[Array, ""], key: PRNGKeyArray
) -> Float[Array, " nu"]:
    """Add normal noise to an action, clipped to -1 and 1."""
    normal = jr.normal(key, action.shape, action.dtype)
    return jnp.clip(action + noise * normal, -1.0, 1.0)


class ActorCritic(eqx.Module):
    """Policy and value networks: a normal policy whose standard deviation does not depend
    on the observation, or a categorical one over levels.

    **Arguments:**

    - `policy`: network from observations to means, or to logits of levels.
    - `log_std`: logarithm of the standard deviation before squashing; empty with levels.
    - `value`: network from observations to values.
    - `levels`: values of each actuator, evenly from -1 to 1; 0 for continuous actions.
    - `reflection`: reflection of which policy and value are symmetric, if any.
    """

    policy: Callable[[Any], Float[Array, " outputs"]]
    log_std: Float[Array, " nu"]
    value: Callable[[Any], Float[Array, "1"]]
    levels: int = eqx.field(static=True)
    reflection: Reflection | None = None

    @staticmethod
    def create(
        inputs: AbstractInputs,
        keys: Sequence[PRNGKeyArray],
        obs: Any,
        nu: int,
        hidden: tuple[tuple[int, ...], tuple[int, ...]],
        activation: Activation,
        initial_log_std: Float[Array, ""],
        levels: int = 0,
        reflection: Reflection | None = None,
    ) -> "ActorCritic":
        """Create networks with small initial actions.

        **Arguments:**

        - `inputs`: inputs of the networks.
        - `keys`, `hidden`: random keys and hidden layer sizes of policy and value.
        - `obs`: an observation, of which shapes and types matter.
        - `nu`: number of actuators.
        - `reflection`: makes policy and value symmetric, see `SymmetricNetwork`.
        """
        dtype, function = initial_log_std.dtype, activation.function

        def policy(key, size):
            sizes = size, *hidden[0], nu * max(levels, 1)
            if reflection is None:
                return MLP.create(key, sizes, function, last_scale=0.01, dtype=dtype)
            seen, action = reflection.features(inputs.actor_parts), reflection.action
            return SymmetricNetwork.create(
                key, sizes, seen, action, function, last_scale=0.01, dtype=dtype
            )

        def value(key, size):
            sizes = size, *hidden[1], 1
            if reflection is None:
                return MLP.create(key, sizes, function, dtype=dtype)
            seen = reflection.features(inputs.critic_parts)
            return SymmetricNetwork.create(
                key, sizes, seen, None, function, dtype=dtype
            )

        critic = inputs.critic(keys[1], obs, value, dtype)
        return ActorCritic(
            inputs.actor(keys[0], obs, policy, dtype),
            jnp.zeros(0 if levels else nu, dtype) + initial_log_std,
            critic,
            levels,
            reflection,
        )

    def distribution(self, obs: Any) -> Normal | Categorical:
        """Return the distribution of actions before squashing, or of levels."""
        out = self.policy(obs)
        if self.levels:
            return Categorical(out.reshape(-1, self.levels))
        log_std = self.log_std
        if self.reflection is not None:
            other = log_std[np.array(self.reflection.action.index)]
            log_std = 0.5 * (log_std + other)
        return Normal(out, log_std)

    def with_reflections(self, obs: Any) -> Any:
        """Append reflected rows to rows of observations; without a reflection, return them
        unchanged. Normalization by statistics of both commutes with the reflection."""
        if self.reflection is None:
            return obs
        both = lambda x, y: jnp.concatenate([x, y])
        return jtu.tree_map(both, obs, self.reflection.reflect_obs(obs))

    def action(self, drawn: Shaped[Array, " nu"]) -> Float[Array, " nu"]:
        """Map a level to a number between -1 and 1; leave continuous actions unchanged."""
        if not self.levels:
            return drawn
        return 2.0 * drawn.astype(self._dtype) / (self.levels - 1) - 1.0

    def drawn(self, action: Float[Array, "*rows nu"]) -> Shaped[Array, "*rows nu"]:
        """Invert `action`."""
        if not self.levels:
            return action
        return jnp.round(0.5 * (action + 1.0) * (self.levels - 1)).astype(jnp.int32)

    def evaluate(
        self,
        obs: Any,
        action: Float[Array, " nu"],
        bounded: Bool[Array, " nu"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Compute the log-density of an action, the entropy and the value.

        **Arguments:**

        - `bounded`: true for actuators whose action is squashed by tanh; the entropy of
            those is estimated from one draw.
        """
        distribution = self.distribution(obs)
        entropy = distribution.entropy()
        if isinstance(distribution, Normal):
            entropy = entropy + squash_log_slope(bounded, distribution.sample(key))
        log_prob = distribution.log_prob(self.drawn(action))
        return log_prob, entropy, self.value(obs)[0]

    @property
    def _dtype(self):
        return self.log_std.dtype


class Actor(eqx.Module):
    """Policy of an `ActorCritic`, with actions before squashing.

    **Arguments:**

    - `networks`: policy and value networks.
    - `statistics`: running statistics of observations.
    """

    networks: ActorCritic
    statistics: ObservationStatistics | None

    def __call__(
        self, obs: Any, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        distribution = self.networks.distribution(normalize(self.statistics, obs))
        drawn = distribution.mode() if key is None else distribution.sample(key)
        return self.networks.action(drawn)
