"""Base classes of offline agents."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractAgent, AbstractEnv, AbstractRecurrentAgent

from ..blocks import (
    acts_on_batches,
    as_scalar,
    cast_floats,
    check_action_bounds,
    check_num_levels,
    check_positive,
    check_ranges,
    normalize,
    scale,
    static,
    Transition,
)
from ..blocks._encoding_agent import check_augmentations, check_encoder
from ..blocks._heads import select_action
from ..vision import (
    AbstractAugmentation,
    AbstractEncoder,
    augment,
    check_image_settings,
)
from ._offline_networks import Start


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
    - `encoder`: image encoder. `shared_encoder`: true if actor and value use that of
        the critic, which learns it alone; else each has its own.
    - `augmentations`: image augmentations in their order, drawn for each row.
    - `learning_rate`: Adam step size.
    """

    hidden: tuple[int, ...] = static((256, 256))
    layer_norm: bool = static(False)
    normalize_observations: bool = static(False)
    shared_encoder: bool = static(False)
    encoder: AbstractEncoder | None = None
    augmentations: tuple[AbstractAugmentation, ...] = ()
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)

    def __check_init__(self):
        check_positive(self, "hidden")
        check_ranges(self)
        check_encoder(type(self).__name__, self.encoder)
        check_augmentations(type(self).__name__, self.augmentations)

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, start: Start) -> Any:
        """Create the initial state from networks for these observations and bounds."""

    @abc.abstractmethod
    def policy(self, state: Any) -> Callable[[Any], Any]:
        """Return the function from normalized observations to the input of `chosen`."""

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> Any:
        return self.create(key, *shown(self, env))

    def create(self, key: PRNGKeyArray, obs: Any, bounds: Float[Array, "nu 2"]) -> Any:
        """Create the initial state.

        **Arguments:**

        - `obs`: an observation, of which shapes and types matter.
        - `bounds`: action range.

        **Raises:** `ValueError` if there are image settings, but no images in the observation.
        """
        names = "encoder", "shared_encoder", "augmentations"
        settings = {name: vars(self)[name] for name in names}
        check_image_settings(type(self).__name__, obs, settings)
        agent = cast_floats(self, bounds.dtype)
        return agent.begin(key, Start(agent, obs, bounds))

    @acts_on_batches
    def act(
        self, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        found = self.policy(state)(normalize(state.statistics, obs))
        return scale(state.bounds, select_action(found, key))

    def seen(self, state: Any, batch: Transition, key: PRNGKeyArray) -> Transition:
        """Return a batch with normalized and augmented observations, as the networks
        take them."""

        def look(obs, key):
            return augment(self.augmentations, normalize(state.statistics, obs), key)

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
        """Return the optimizer of the networks."""
        return optax.adam(self.learning_rate)


class AbstractLevelAgent(AbstractOfflineAgent):
    """An agent whose actions may be finitely many.

    **Arguments:** those of `AbstractOfflineAgent`, and

    - `levels`: number of values of each actuator, evenly from the lowest to the highest;
        0 for all numbers.
    """

    levels: int = static(0)

    def __check_init__(self):
        check_num_levels(self)


def shown(agent: AbstractAgent, env: AbstractEnv) -> tuple[Any, Float[Array, "nu 2"]]:
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
