"""What agents share that learn from recordings."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv
from eqsim.wrappers import Statistics

from ..blocks import (
    as_scalar,
    cast_floats,
    check_action_bounds,
    ChoiceCritic,
    ChoicePolicy,
    Critic,
    Ensemble,
    GaussianPolicy,
    Levels,
    MLP,
    scale,
    select_action,
    StateValue,
    static,
    StochasticPolicy,
    Transition,
)
from ..vision import (
    AbstractAugmentation,
    AbstractEncoder,
    augment,
    check_image_settings,
    encoded_size,
    EncodedNetwork,
    Encoders,
    init_observation_statistics,
    normalize_observations,
)


class AbstractOfflineAgent(AbstractAgent):
    """An agent that learns from recordings: `update` takes a `Transition` with one axis,
    of rows, in which actions are between -1 and 1.

    Observations are vectors, pictures, or both by name. Its state has the fields
    `statistics`, of the vectors of all recordings, and `bounds`, of actions.

    **Arguments:**

    - `hidden`, `layer_norm`: of the networks.
    - `normalize_observations`: whether vectors are normalized, by statistics of all the
        recordings.
    - `encoder`: of pictures. `shared_encoder`: whether actor and value see with that of
        the critic, which learns it alone; else each has its own.
    - `augmentations`: of pictures, in their order, drawn anew for each row.
    - `learning_rate`: of Adam.
    """

    hidden: tuple[int, ...] = static((256, 256))
    layer_norm: bool = static(False)
    normalize_observations: bool = static(False)
    shared_encoder: bool = static(False)
    encoder: AbstractEncoder | None = None
    augmentations: tuple[AbstractAugmentation, ...] = ()
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)

    def __check_init__(self):
        name, parts = type(self).__name__, self.augmentations
        if not isinstance(self.encoder, AbstractEncoder | None):
            raise ValueError(
                f"`{name}.encoder` is {self.encoder!r}: an encoder is expected, such as "
                "`eqsim_zoo.vision.Impala()`, or None. It is given in Python."
            )
        fine = isinstance(parts, tuple)
        if not fine or not all(isinstance(x, AbstractAugmentation) for x in parts):
            raise ValueError(
                f"`{name}.augmentations` are {parts!r}: a tuple is expected, such as "
                "`(eqsim_zoo.vision.RandomCrop(4),)`. They are given in Python."
            )

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, start: "Start") -> Any:
        """The state before anything is learned."""

    @abc.abstractmethod
    def policy(self, state: Any) -> Callable[[Any], Any]:
        """From normalized observations to what `chosen` takes."""

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        return self.create(key, *shown(self, env))

    def create(self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"]) -> Any:
        """The state before anything is learned.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `bounds`: of actions.

        **Raises:** `ValueError` if there are settings for pictures, and none is seen.
        """
        names = "encoder", "shared_encoder", "augmentations"
        settings = {name: vars(self)[name] for name in names}
        check_image_settings(type(self).__name__, obs, settings)
        agent = cast_floats(self, bounds.dtype)
        return agent.begin(key, Start(agent, obs, bounds))

    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        found = self.policy(state)(normalize_observations(state.statistics, obs))
        return scale(state.bounds, select_action(found, key))

    def seen(self, state: Any, batch: Transition, key: PRNGKeyArray) -> Transition:
        """A batch with observations as networks see them."""

        def look(obs, key):
            return augment(
                self.augmentations, normalize_observations(state.statistics, obs), key
            )

        keys = jr.split(key, (2, batch.reward.shape[0]))
        places = lambda batch: (batch.obs, batch.next_obs)
        new = [jax.vmap(look)(obs, row) for obs, row in zip(places(batch), keys)]
        return Transition(
            new[0],
            batch.action,
            batch.reward,
            new[1],
            batch.terminated,
            batch.truncated,
        )

    def optimizer(self) -> optax.GradientTransformation:
        """Of the networks."""
        return optax.adam(self.learning_rate)


class AbstractLevelAgent(AbstractOfflineAgent):
    """An agent whose actions may be finitely many.

    **Arguments:** those of `AbstractOfflineAgent`, and

    - `levels`: how many values each actuator has, evenly from the lowest to the highest;
        0 for all numbers.
    """

    levels: int = static(0)


def shown(agent: AbstractAgent, env: AbstractEnv) -> tuple[Any, Float[Array, "nu 2"]]:
    """Shapes and types of what an environment shows, and the bounds of its actions.

    **Raises:** `ValueError` if an action has no bound.
    """
    check_action_bounds(agent, env)
    _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, jr.key(0))
    return timestep.obs, jnp.array(env.action_range)


class Start:
    """What networks are made for.

    **Arguments:**

    - `agent`: whose sizes are taken.
    - `obs`: an observation, of which shapes and types matter.
    - `bounds`: of actions.
    """

    def __init__(
        self, agent: AbstractOfflineAgent, obs: Any, bounds: Float[Array, "nu 2"]
    ):
        self.agent, self.obs, self.bounds = agent, obs, bounds

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return self.bounds.shape[0]

    def statistics(self) -> dict[str, Statistics] | None:
        """Before there are any; none if observations are taken as they are."""
        if not self.agent.normalize_observations:
            return None
        return init_observation_statistics(self.obs, self.bounds.dtype)

    def network(
        self,
        key: PRNGKeyArray,
        head: Callable[[PRNGKeyArray, int], Any],
        shared: Encoders | None = None,
    ) -> EncodedNetwork:
        """A network with eyes of its own, or after those that it shares.

        **Arguments:**

        - `head`: `(key, features) -> network`.
        """
        key_eyes, key_head = jr.split(key)
        dtype = self.bounds.dtype
        if shared is not None and self.agent.shared_encoder:
            return EncodedNetwork(
                Encoders({}), head(key_head, encoded_size(shared, self.obs))
            )
        senses = Encoders.create(key_eyes, self.obs, self.agent.encoder, dtype)
        return EncodedNetwork(senses, head(key_head, encoded_size(senses, self.obs)))

    def mlp(
        self,
        key: PRNGKeyArray,
        inputs: int,
        outputs: int,
        last_scale: float = 1.0,
        plain: bool = False,
    ) -> MLP:
        """A network of the sizes of the agent; a `plain` one has no layer normalization
        in any case."""
        return MLP.create(
            key,
            (inputs, *self.agent.hidden, outputs),
            last_scale=last_scale,
            layer_norm=self.agent.layer_norm and not plain,
            dtype=self.bounds.dtype,
        )

    def critic(
        self, key: PRNGKeyArray, number: int = 2, levels: int = 0
    ) -> EncodedNetwork:
        """Values of actions, of all numbers or of some levels."""
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

    def actor(
        self, key: PRNGKeyArray, levels: int = 0, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """A policy of normal numbers, or one that chooses among levels."""
        if levels:
            table = Levels(levels, self.nu)
            head = lambda key, n: ChoicePolicy(
                self.mlp(key, n, table.count, 0.01), table
            )
            return self.network(key, head, shared)
        zeros = jnp.zeros_like(self.bounds[:, 0])
        head = lambda key, n: GaussianPolicy(self.mlp(key, n, self.nu, 0.01), zeros)
        return self.network(key, head, shared)

    def squashed(
        self, key: PRNGKeyArray, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """A policy as of soft actor-critic, without layer normalization."""
        outputs = 2 * self.nu
        head = lambda key, n: StochasticPolicy(self.mlp(key, n, outputs, 0.01, True))
        return self.network(key, head, shared)

    def value(
        self, key: PRNGKeyArray, shared: Encoders | None = None
    ) -> EncodedNetwork:
        """The value of a state."""
        return self.network(key, lambda key, n: StateValue(self.mlp(key, n, 1)), shared)


class Eyes(eqx.Module):
    """What actor and value are given: observations, or what the critic sees in them.

    **Arguments:**

    - `senses`: of the critic where they share them.
    """

    senses: Encoders | None

    def __call__(self, obs: Any) -> Any:
        return obs if self.senses is None else self.senses(obs)


def eyes(agent: AbstractOfflineAgent, critic: EncodedNetwork) -> Eyes:
    """Of the networks that are not the critic."""
    return Eyes(critic.senses if agent.shared_encoder else None)


class Through(eqx.Module):
    """A network after the eyes that it shares."""

    eyes: Eyes
    network: EncodedNetwork

    def __call__(self, obs: Any) -> Any:
        return self.network(self.eyes(obs))


def action_distance(policy: Callable[[Any], Any], obs: Any, action: Array) -> Array:
    """The mean square of what lies between recorded actions and those that a policy
    thinks best, summed over actuators."""
    best = jax.vmap(lambda obs: select_action(policy(obs), None))(obs)
    return jnp.mean(jnp.sum((best - action) ** 2, axis=1))
