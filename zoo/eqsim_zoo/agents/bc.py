"""Behavior cloning: imitation of the actions in a dataset."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import static
from ..blocks.networks import check_on_policy, Learner
from .offline_agent import (
    AbstractLevelAgent,
    action_distance,
    NetworkMaker,
    select_action,
)


class BCState(eqx.Module):
    """State of `BC`: learner of the `actor`, `statistics` of observations, and action range
    `bounds`."""

    actor: Learner
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class BC(AbstractLevelAgent):
    r"""Behavior cloning: imitation of the actions in the dataset.

    $L = -\mathrm{mean} \log \pi(a|o)$ for a normal or categorical policy;
    $L = \mathrm{mean}\,|\tanh f(o) - a|^2$ for a deterministic one.

    **Arguments:** those of `AbstractLevelAgent`, and

    - `deterministic`: true if the policy returns one action and has no density.

    **Raises:** `ValueError` with `levels` and `deterministic`.

    ??? cite "Reference"
        Pomerleau, *ALVINN: an autonomous land vehicle in a neural network*, 1989.
    """

    deterministic: bool = static(False)

    def __check_init__(self):
        # A single network shares no encoder.
        check_on_policy("BC", self.inputs, "augmentations")
        if self.levels and self.deterministic:
            raise ValueError(
                f"`BC` with `levels={self.levels}` has a categorical policy. Leave out "
                "`deterministic`."
            )

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> BCState:
        key, key_actor = jr.split(key)
        actor = make.actor(key_actor, None, self.levels)
        learner = Learner.create(actor, self.optimizer())
        return BCState(learner, make.statistics(), make.bounds, key)

    def policy(self, state: BCState) -> Callable[[Any], Any]:
        actor = state.actor.model
        if self.deterministic:
            return lambda obs: select_action(actor(obs), None)
        return actor

    def learn(
        self, state: BCState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[BCState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; the loss, the mean square `action_distance`, and
        `accuracy` with levels, `entropy` of a density.
        """

        def loss(actor):
            if self.deterministic:
                return action_distance(actor, batch.obs, batch.action), {}
            found = jax.vmap(actor)(batch.obs)
            each = jax.vmap(lambda f, a: (f.log_prob(a), f.entropy()))
            log_prob, entropy = each(found, batch.action)
            return -jnp.mean(log_prob), {"entropy": jnp.mean(entropy)}

        distance = action_distance(state.actor.model, batch.obs, batch.action)
        actor, metrics = state.actor.apply_loss_fn(loss, self.optimizer())
        metrics |= {"action_distance": distance}
        if self.levels:
            same = _same(state.actor.model, batch)
            metrics |= {"accuracy": jnp.mean(same.astype(batch.reward.dtype))}
        return dataclasses.replace(state, actor=actor), metrics


def _same(actor: Callable[[Any], Any], batch: Transition) -> Array:
    """Return true for actions that equal the mode of the policy."""

    def same(obs, action):
        found = actor(obs)
        best = found.levels.index(select_action(found, None))
        return best == found.levels.index(action)

    return jax.vmap(same)(batch.obs, batch.action)
