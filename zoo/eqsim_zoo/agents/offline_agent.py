"""Base classes of offline agents, their networks, and actions on levels.

`AbstractOfflineAgent` creates networks with a `NetworkMaker` and normalizes batches; an agent
creates its state (`begin`) and takes one gradient step on a batch (`learn`). Actions are
continuous, or one of the `Levels` of each actuator.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv, AbstractRecurrentAgent
from eqsim.bridges import check_count
from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import (
    as_scalar,
    cast_floats,
    check_num_levels,
    check_positive,
    check_ranges,
    same_precision,
    static,
)
from ..blocks.networks import AbstractInputs, Critic, Ensemble, MLP, Vectors
from ..blocks.observations import (
    acts_on_batches,
    init_observation_statistics,
    normalize,
)
from ..blocks.policies import (
    bounded_log_std,
    Categorical,
    check_action_bounds,
    DeterministicPolicy,
    Normal,
    scale_action,
    StochasticPolicy,
    TanhNormal,
)
from ..blocks.replay import td_target


# Actions on levels.

_MOST = 4096


class Levels(eqx.Module):
    """All combinations of the levels of all actuators, by number.

    **Arguments:**

    - `levels`: number of levels of each actuator, from -1 to 1. `nu`: number of actuators.

    **Raises:** `ValueError` if there are fewer than two levels, or more than 4,096
    combinations.
    """

    levels: int = eqx.field(static=True)
    nu: int = eqx.field(static=True)

    def __check_init__(self):
        check_count("levels", self.levels, 2)
        if self.count > _MOST:
            raise ValueError(
                f"{self.levels} levels for each of {self.nu} actuators give "
                f"{self.count:,} actions, but at most {_MOST:,} are supported. Use "
                "fewer `levels`, or an agent with continuous actions."
            )

    @property
    def count(self) -> int:
        """Number of actions."""
        return self.levels**self.nu

    def index(self, action: Float[Array, "*rows nu"]) -> Int[Array, "*rows"]:
        """Return the index of the nearest action."""
        digit = jnp.round(0.5 * (action + 1.0) * (self.levels - 1)).astype(jnp.int32)
        return digit @ jnp.asarray(self._places(), jnp.int32)

    def action(
        self, index: Int[Array, "*rows"], dtype: Any
    ) -> Float[Array, "*rows nu"]:
        """Return the action of an index."""
        return jnp.asarray(self.table(), dtype)[index]

    def table(self) -> Float[np.ndarray, "count nu"]:
        """Return all actions."""
        digits = np.arange(self.count)[:, None] // self._places()[None] % self.levels
        return 2.0 * digits / (self.levels - 1) - 1.0

    def _places(self) -> Int[np.ndarray, " nu"]:
        return self.levels ** np.arange(self.nu)


def check_levels(
    agent: eqx.Module, levels: Levels, action: Float[np.ndarray, "steps nu"]
) -> None:
    """Raise `ValueError` unless recorded actions, between -1 and 1, are among the
    levels."""
    nearest = np.round(0.5 * (action + 1.0) * (levels.levels - 1))
    off = np.abs(2.0 * nearest / (levels.levels - 1) - 1.0 - action).max(axis=1) > 1e-4
    if off.any():
        first = int(np.argmax(off))
        raise ValueError(
            f"`{type(agent).__name__}` chooses among {levels.levels} levels per "
            f"actuator, but {int(off.sum())} of {len(off)} recorded actions are not on "
            f"these levels, first in step {first}: {action[first]} (scaled to [-1, "
            "1]). Set `levels` as in the recording, or use an agent with `levels=0`."
        )


# Policies and values.


class GaussianPolicy(eqx.Module):
    r"""Normal policy whose mean is $\tanh$ of a network and whose standard deviations do
    not depend on the observation. Its density is finite at the bounds of actions too, where
    those of datasets often are.

    **Arguments:**

    - `network`: network from features to means before $\tanh$.
    - `raw`: parameters of the standard deviations, which are between $e^{-5}$ and $e^2$.

    ??? cite "Reference"
        Kostrikov, Nair, Levine, *Offline reinforcement learning with implicit Q-learning*,
        2022, appendix B.
    """

    network: MLP
    raw: Float[Array, " nu"]

    def __call__(self, features: Float[Array, " n"]) -> Normal:
        return Normal(jnp.tanh(self.network(features)), bounded_log_std(self.raw))


class Choice(eqx.Module):
    """One of finitely many actions.

    **Arguments:**

    - `logits`: logit of each action.
    - `levels`: levels of the actions.
    """

    logits: Float[Array, " count"]
    levels: Levels

    def mode(self) -> Float[Array, " nu"]:
        """Return the most likely action."""
        return self.levels.action(jnp.argmax(self.logits), self.logits.dtype)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " nu"]:
        """Draw an action."""
        return self.levels.action(jr.categorical(key, self.logits), self.logits.dtype)

    def log_prob(self, action: Float[Array, " nu"]) -> Float[Array, ""]:
        """Compute the logarithm of the probability."""
        return Categorical(self.logits[None]).log_prob(self.levels.index(action)[None])

    def entropy(self) -> Float[Array, ""]:
        """Compute the entropy in nats."""
        return Categorical(self.logits[None]).entropy()


class ChoicePolicy(eqx.Module):
    """One of finitely many actions, by what a network gives for each."""

    network: MLP
    levels: Levels

    def __call__(self, features: Float[Array, " n"]) -> Choice:
        return Choice(self.network(features), self.levels)


class ChoiceCritic(eqx.Module):
    """Values of finitely many actions, by several networks that judge on their own."""

    networks: Ensemble
    levels: Levels

    def __call__(
        self, features: Float[Array, " n"], action: Float[Array, " nu"] | None = None
    ) -> Float[Array, "number *count"]:
        """Return the values of an action, or of all actions."""
        values = self.networks(features)
        return values if action is None else values[:, self.levels.index(action)]


class StateValue(eqx.Module):
    """The value of a state."""

    network: MLP

    def __call__(self, features: Float[Array, " n"]) -> Float[Array, ""]:
        return self.network(features)[0]


def select_action(
    found: Normal | TanhNormal | Choice | Float[Array, " nu"],
    key: PRNGKeyArray | None,
) -> Float[Array, " nu"]:
    """Return an action between -1 and 1 of a policy: sampled, or the most likely
    one."""
    if isinstance(found, Normal | Choice):
        action = found.mode() if key is None else found.sample(key)
        return jnp.clip(action, -1.0, 1.0)
    if isinstance(found, TanhNormal):
        if key is None:
            return found.mode()
        return found.sample_and_log_prob(key)[0]
    return found


def action_distance(policy: Callable[[Any], Any], obs: Any, action: Array) -> Array:
    """Compute the mean squared difference between actions of the dataset and
    deterministic actions of a policy, summed over actuators."""
    best = jax.vmap(lambda obs: select_action(policy(obs), None))(obs)
    return jnp.mean(jnp.sum((best - action) ** 2, axis=1))


# Base classes.


class NetworkMaker:
    """Creates the networks of an agent.

    **Arguments:**

    - `agent`: agent with the sizes of the networks.
    - `obs`: an observation, of which shapes and types matter.
    - `bounds`: action range.
    """

    def __init__(self, agent: Any, obs: Any, bounds: Float[Array, "nu 2"]):
        self.agent, self.obs, self.bounds = agent, obs, bounds

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return self.bounds.shape[0]

    def statistics(self) -> dict[str, RunningStatistics] | None:
        """Return initial statistics; None if observations are not normalized."""
        if not self.agent.normalize_observations:
            return None
        return init_observation_statistics(self.obs, self.bounds.dtype)

    def network(
        self,
        key: PRNGKeyArray,
        head: Callable[[PRNGKeyArray, int], Any],
        critic: Any = None,
    ) -> Any:
        """Create a network of observations.

        **Arguments:**

        - `head`: `(key, number of inputs) -> network`.
        - `critic`: network of the critic, whose encoder the network may share; None for
            the critic itself.
        """
        # Half of the key, so that initial weights are those of the results in the docs.
        key = jr.split(key)[1]
        inputs, dtype = self.agent.inputs, self.bounds.dtype
        if critic is None:
            return inputs.critic(key, self.obs, head, dtype)
        return inputs.actor(key, self.obs, head, dtype, critic)

    def mlp(
        self,
        key: PRNGKeyArray,
        inputs: int,
        outputs: int,
        last_scale: float = 1.0,
        plain: bool = False,
    ) -> MLP:
        """Create a network with the layer sizes of the agent; a `plain` one never has
        layer normalization."""
        return MLP.create(
            key,
            (inputs, *self.agent.hidden, outputs),
            last_scale=last_scale,
            layer_norm=self.agent.layer_norm and not plain,
            dtype=self.bounds.dtype,
        )

    def critic(self, key: PRNGKeyArray, number: int = 2, levels: int = 0) -> Any:
        """Create a network of action values, for continuous actions or for levels."""
        if levels:
            table = Levels(levels, self.nu)
            make = lambda n: lambda key: self.mlp(key, n, table.count)
            return self.network(
                key,
                lambda key, n: ChoiceCritic(
                    Ensemble.create(key, number, make(n)), table
                ),
            )
        head = lambda key, n: Critic.create(
            key,
            n,
            self.nu,
            self.agent.hidden,
            number=number,
            layer_norm=self.agent.layer_norm,
            dtype=self.bounds.dtype,
        )
        return self.network(key, head)

    def actor(self, key: PRNGKeyArray, critic: Any, levels: int = 0) -> Any:
        """Create a normal policy, or a categorical one over levels."""
        if levels:
            table = Levels(levels, self.nu)
            head = lambda key, n: ChoicePolicy(
                self.mlp(key, n, table.count, 0.01), table
            )
            return self.network(key, head, critic)
        zeros = jnp.zeros_like(self.bounds[:, 0])
        head = lambda key, n: GaussianPolicy(self.mlp(key, n, self.nu, 0.01), zeros)
        return self.network(key, head, critic)

    def deterministic(self, key: PRNGKeyArray, critic: Any) -> Any:
        """Create a deterministic policy."""
        head = lambda key, n: DeterministicPolicy(self.mlp(key, n, self.nu, 0.01))
        return self.network(key, head, critic)

    def squashed(self, key: PRNGKeyArray, critic: Any) -> Any:
        """Create a policy like that of soft actor-critic, without layer
        normalization."""
        outputs = 2 * self.nu
        head = lambda key, n: StochasticPolicy(self.mlp(key, n, outputs, 0.01, True))
        return self.network(key, head, critic)

    def value(self, key: PRNGKeyArray, critic: Any) -> Any:
        """Create a network of state values."""
        return self.network(key, lambda key, n: StateValue(self.mlp(key, n, 1)), critic)


class AbstractOfflineAgent(AbstractAgent):
    """An agent that learns from datasets: `update` takes a `Transition` with one axis,
    of rows, in which actions are between -1 and 1.

    Observations are vectors, images, or dictionaries of both. Its state has the fields
    `statistics`, of the vectors of all recordings, and `bounds`, of actions.

    **Arguments:**

    - `hidden`: hidden layer sizes of the networks.
    - `layer_norm`: true if networks have layer normalization.
    - `normalize_observations`: true if vectors are normalized, by statistics of all the
        recordings.
    - `inputs`: inputs of the networks: `blocks.Vectors`, or `vision.Images` for images.
    - `learning_rate`: Adam step size.
    """

    hidden: tuple[int, ...] = static((256, 256))
    layer_norm: bool = static(False)
    normalize_observations: bool = static(False)
    inputs: AbstractInputs = Vectors()
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)

    def __check_init__(self):
        check_positive(self, "hidden")
        check_ranges(self)

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> Any:
        """Create the initial state."""

    @abc.abstractmethod
    def learn(
        self, state: Any, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[Any, dict[str, Array]]:
        """Take one gradient step, see `update`.

        **Arguments:**

        - `batch`: the batch, with normalized and augmented observations.
        - `keys`: two random keys.
        """

    @abc.abstractmethod
    def policy(self, state: Any) -> Callable[[Any], Any]:
        """Return the function from normalized observations to the input of
        `select_action`."""

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        return self.create(key, *shapes_of(self, env))

    def create(self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"]) -> Any:
        """Create the initial state.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `bounds`: action range.

        **Raises:** `ValueError` if the networks cannot see the observation.
        """
        self.inputs.check(type(self).__name__, obs)
        agent = cast_floats(self, bounds.dtype)
        return agent.begin(key, NetworkMaker(agent, obs, bounds))

    @acts_on_batches
    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        found = self.policy(state)(normalize(state.statistics, obs))
        return scale_action(state.bounds, select_action(found, key))

    @same_precision
    def update(
        self, state: Any, batch: Transition
    ) -> tuple[Any, dict[str, Float[Array, "..."]]]:
        """Take one gradient step on transitions with one axis, with actions between -1 and
        1.

        **Returns:** the new state, and the metrics of `learn`.
        """
        key, key_seen, *keys = jr.split(state.key, 4)
        seen = [
            self.inputs.augment(
                jax.vmap(lambda obs: normalize(state.statistics, obs))(obs), key
            )
            for obs, key in zip((batch.obs, batch.next_obs), jr.split(key_seen))
        ]
        batch = dataclasses.replace(batch, obs=seen[0], next_obs=seen[1])
        new, metrics = self.learn(state, batch, jnp.stack(keys))
        return dataclasses.replace(new, key=key), metrics

    def optimizer(self) -> optax.GradientTransformation:
        """Return the optimizer of the networks."""
        return optax.adam(self.learning_rate)


class AbstractOfflineCritic(AbstractOfflineAgent):
    r"""An agent that learns action values.

    **Arguments:** those of `AbstractOfflineAgent`, and

    - `discount`: discount $\gamma$.
    - `target_rate`: target update rate $\tau$ in
        $\bar\theta \leftarrow (1 - \tau)\,\bar\theta + \tau\,\theta$.
    - `reward_scale`: factor that multiplies rewards.
    """

    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    target_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def target(
        self, batch: Transition, next_value: Float[Array, " rows"]
    ) -> Float[Array, " rows"]:
        r"""Compute the one-step targets $y = r + \gamma_t V(o')$ of a batch."""
        reward = self.reward_scale * batch.reward
        return td_target(reward, next_value, batch.terminated, self.discount)


class AbstractLevelAgent(AbstractOfflineAgent):
    """An agent whose actions may be finitely many.

    **Arguments:** those of `AbstractOfflineAgent`, and

    - `levels`: number of values of each actuator, evenly from the lowest to the highest;
        0 for all numbers.
    """

    levels: int = static(0)

    def __check_init__(self):
        check_num_levels(self)


def shapes_of(
    agent: AbstractAgent, env: AbstractEnv
) -> tuple[Any, Float[Array, "nu 2"]]:
    """Return shapes and types of the observations of an environment, and the bounds of
    its actions.

    **Raises:** `ValueError` if an action has no bound.
    """
    check_action_bounds(agent, env)
    _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, jr.key(0))
    return timestep.obs, jnp.array(env.action_range)


def check_memoryless(holder: eqx.Module, agent: Any) -> None:
    """Raise `ValueError` if the agent that another one holds has a memory.

    The holder acts by `agent.act`, which has none, and batches of a dataset are single
    transitions in random order.
    """
    if isinstance(agent, AbstractRecurrentAgent):
        name, held = type(holder).__name__, type(agent).__name__
        raise ValueError(
            f"`{name}` learns from single transitions, but `{held}` is an agent with memory, "
            "which learns from sequences. Train it in an environment by itself: "
            "`train(agent, env)`."
        )
