"""Fine-tuning online: a soft actor-critic that starts from a trained CQL agent."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import PRNGKeyArray

from eqsim import AbstractEnv

from ..blocks import Learner
from ..data import check_fits, Dataset
from ..vision import EncodedNetwork
from ._cql import CQLState
from ._sac import SAC, SACState


def fine_tuned(
    agent: SAC,
    env: AbstractEnv,
    key: PRNGKeyArray,
    learned: CQLState,
    data: Dataset | None = None,
) -> SACState:
    """Return the initial state of a soft actor-critic that continues from conservative
    Q-learning, in place of `agent.init(key, env)`. Policy, critics, targets and temperature
    are those of the `CQL`; the states of optimizers are new.

    **Arguments:**

    - `agent`: soft actor-critic with the `actor_hidden`, `critic_hidden` and
        `layer_norm` of the `CQL`; `random_steps` may be 0.
    - `env`: training environment, see `training_env`.
    - `learned`: state that was learned from vectors, not images.
    - `data`: dataset whose first steps fill the replay buffer.

    **Raises:** `ValueError` if networks have other shapes, only one of the agents
    normalizes observations, the `CQL` learned from images, or the dataset is not from this
    environment.

    ??? cite "Reference"
        Nair et al., *AWAC: accelerating online reinforcement learning with offline
        datasets*, 2020, section 3, for the setting.
    """
    if data is not None:
        check_fits(data, env)
    state, adam = agent.init(key, env), agent.optimizer()
    actor, critic, target = map(
        _head, (learned.actor.model, learned.critic.model, learned.target)
    )
    pairs = (
        ("actor", state.actor.model, actor),
        ("critic", state.critic.model, critic),
    )
    for name, ours, theirs in pairs:
        _check_alike(name, ours, theirs)
    state = dataclasses.replace(
        state,
        actor=Learner.create(actor, adam),
        critic=Learner.create(critic, adam),
        target=target,
        temperature=Learner.create(learned.temperature.model, adam),
    )
    known = learned.statistics is not None
    if known != (state.statistics is not None):
        raise ValueError(
            f"`SAC.normalize_observations` is {not known}, but what was learned was "
            f"{'' if known else 'not '}given normalized observations: set it to {known}."
        )
    if learned.statistics is not None:  # Of vectors, see `_head`.
        state = dataclasses.replace(state, statistics=learned.statistics["obs"])
    return state if data is None else _remembering(state, data)


def _head(network: EncodedNetwork) -> Any:
    if network.senses.networks:
        raise ValueError(
            f"The pretrained network observes {sorted(network.senses.networks)}, but "
            "`SAC` takes vectors."
        )
    return network.network


def _check_alike(name: str, ours: Any, theirs: Any) -> None:
    shapes = [
        [x.shape for x in jtu.tree_leaves(eqx.filter(tree, eqx.is_array))]
        for tree in (ours, theirs)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"The {name} has layers of shapes {shapes[0]}, but the pretrained one has "
            f"{shapes[1]}. Set `{name}_hidden` and `layer_norm` to the values of `CQL`."
        )


def _remembering(state: SACState, data: Dataset) -> SACState:
    """Return the state with the first steps of a recording in its memory, in whole
    blocks."""
    memory = state.memory
    if memory is None:
        raise ValueError("The state has no replay buffer. Create it with `SAC.init`.")
    replay = memory.replay
    blocks = min(len(data), replay.capacity) // replay.block
    rows = data.rows(jnp.arange(blocks * replay.block))
    put = lambda ring, new: ring.at[: new.shape[0]].set(new.astype(ring.dtype))
    count = jnp.asarray(blocks * replay.block, replay.at.dtype)
    filled = dataclasses.replace(
        replay,
        rows=jtu.tree_map(put, replay.rows, rows),
        at=count % replay.capacity,
        size=jnp.copy(count),
    )
    return dataclasses.replace(state, memory=dataclasses.replace(memory, replay=filled))
