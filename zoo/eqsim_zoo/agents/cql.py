"""Conservative Q-learning, and fine-tuning of its policy by `SAC`.

`CQL` takes gradient steps of critics, dual variable, policy and temperature, in this order;
`fine_tuned` is the initial state of a `SAC` that continues from a trained `CQL`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from eqsim import AbstractEnv
from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, check_positive, static
from ..blocks.networks import FeaturesNetwork, Learner, target_update
from ..blocks.policies import sample_actions
from ..blocks.replay import OffPolicyState, td_loss
from ..data.dataset import Dataset
from ..data.packing import check_fits
from .offline_agent import AbstractOfflineCritic, action_distance, NetworkMaker
from .sac import SAC, soft_actor_loss, soft_value, temperature_loss


# Recorded actions at the bounds have no finite number before tanh.
_INSIDE = 1.0 - 1e-5


class CQLState(eqx.Module):
    """State of `CQL`: learners of `actor`, `critic`, `temperature` ($\\log \\alpha$) and
    `multiplier` ($\\log \\alpha'$), `target` network of the critic, `statistics` of
    observations, action range `bounds`, and number of `updates`."""

    actor: Learner
    critic: Learner
    target: Any
    temperature: Learner
    multiplier: Learner
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    updates: Int[Array, ""]
    key: PRNGKeyArray


class CQL(AbstractOfflineCritic):
    r"""Conservative Q-learning: a soft actor-critic whose critics estimate lower values
    for actions outside the dataset.

    $$L_Q = \sum_k \mathrm{mean}\left[(Q_k(o, a) - y)^2 + \alpha' (w\,g_k - \tau)\right],
    \quad g_k = \log \textstyle\int e^{Q_k(o, \hat a)} d\hat a - Q_k(o, a),$$

    with $y = r + \gamma_t \min_k \bar Q_k(o', a')$ and $a' \sim \pi(o')$. The integral is
    estimated with `num_actions` draws each of the uniform density, of $\pi(o)$ and of
    $\pi(o')$, over their densities. Without a threshold $\alpha' = 1$ and $\tau = 0$. With
    $\tau > 0$, $\alpha'$ begins at 1 and is the dual variable of the constraint
    $w\,g \le \tau$: Adam minimizes $-\alpha' \mathrm{mean}(w\,g_k - \tau)$ by
    $\log \alpha'$, with the gap of the same batch before the step of the critics. $\pi$ and
    $\alpha$ learn as those of `SAC`; in the first `warmup_steps` the policy imitates the
    dataset.

    Differences from the authors' code: the estimate of the integral is the mean of the
    paper's appendix F, and not a sum. That changes the losses by a constant: a
    threshold of the code is smaller by $w \log (3 n)$ here, with $n$ actions per density.
    `warmup_steps` is 0 by default, 40,000 there.

    **Arguments:** those of `AbstractOfflineCritic`, and

    - `num_actions`: number of draws per density.
    - `backup_entropy`: true if $-\alpha \log \pi(a'|o')$ is part of $y$.
    - `conservative_weight`: weight $w$ of the conservative term.
    - `threshold`: threshold $\tau$ of the conservative term, above which its weight grows;
        0 keeps the weight.
    - `policy_learning_rate`: Adam step size of the policy and of $\alpha$.
    - `warmup_steps`: updates in which the policy imitates the dataset.
    - `target_entropy`: $\bar H$ of SAC per actuator.
    - `initial_temperature`: first value of $\alpha$.

    ??? cite "Reference"
        Kumar, Zhou, Tucker, Levine, *Conservative Q-learning for offline reinforcement
        learning*, 2020, equation 4, appendix F.
    """

    num_actions: int = static(10)
    backup_entropy: bool = static(False)
    conservative_weight: Float[Array, ""] = eqx.field(converter=as_scalar, default=5.0)
    threshold: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    warmup_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    policy_learning_rate: Float[Array, ""] = eqx.field(
        converter=as_scalar, default=1e-4
    )
    target_entropy: Float[Array, ""] = eqx.field(converter=as_scalar, default=-1.0)
    initial_temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        check_positive(self, "num_actions")

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> CQLState:
        key, key_actor, key_critic = jr.split(key, 3)
        critic, adam = make.critic(key_critic), self.optimizer()
        actor, slow_adam = make.squashed(key_actor, critic), self.policy_optimizer()
        return CQLState(
            Learner.create(actor, slow_adam),
            Learner.create(critic, adam),
            critic,
            Learner.create(jnp.log(self.initial_temperature), slow_adam),
            Learner.create(jnp.zeros_like(self.conservative_weight), adam),
            make.statistics(),
            make.bounds,
            jnp.zeros((), jnp.int32),
            key,
        )

    def policy_optimizer(self) -> optax.GradientTransformation:
        """Return Adam with `policy_learning_rate`."""
        return optax.adam(self.policy_learning_rate)

    def policy(self, state: CQLState) -> Callable[[Any], Any]:
        return self.inputs.policy(state.actor.model, state.critic.model)

    def learn(
        self, state: CQLState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[CQLState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; losses, the mean value `q`, mean and standard deviation
        of its `target`, the mean `gap` between the
        logarithm of the integral and recorded values, `entropy`, `temperature`, the
        `conservative_weight` $\\alpha' w$ that was used, and the mean square `action_distance`.
        """
        critic, of_critic = self._criticize(state, batch, keys[0])
        multiplier = self._weigh(state, of_critic["gap"])
        actor, of_actor = self._improve(state, critic, batch, keys[1])
        entropy = of_actor["entropy"]
        aim = self.target_entropy * batch.action.shape[1]
        temperature, _ = state.temperature.apply_loss_fn(
            lambda log_alpha: temperature_loss(log_alpha, entropy, aim),
            self.policy_optimizer(),
        )
        new = dataclasses.replace(
            state,
            actor=actor,
            critic=critic,
            target=target_update(critic.model, state.target, self.target_rate),
            temperature=temperature,
            multiplier=multiplier,
            updates=jnp.minimum(state.updates + 1, 2**30),
        )
        return new, {**of_critic, **of_actor}

    def _criticize(self, state, batch, key):
        """Take a gradient step of the critics, and return its metrics."""
        key_next, key_other = jr.split(key)
        policy, alpha = self.policy(state), jnp.exp(state.temperature.model)
        entropy_weight = alpha if self.backup_entropy else jnp.zeros_like(alpha)
        next_value = soft_value(
            policy, state.target, batch.next_obs, entropy_weight, key_next
        )
        target = self.target(batch, next_value)
        others, densities = _others(policy, batch, key_other, self.num_actions)
        fixed = self.threshold <= 0.0
        multiplier = jnp.where(fixed, 1.0, jnp.exp(state.multiplier.model))
        weight = multiplier * self.conservative_weight

        def loss(critic):
            td, found = td_loss(critic, batch.obs, batch.action, target)
            q = jax.vmap(critic)(batch.obs, batch.action)
            many = jax.vmap(lambda actions: jax.vmap(critic)(batch.obs, actions))
            each = many(others) - densities[:, :, None]
            gap = jax.nn.logsumexp(each, axis=0) - jnp.log(float(len(others))) - q
            threshold = jnp.where(fixed, 0.0, self.threshold)
            regularizer = weight * jnp.mean(gap, axis=0) - multiplier * threshold
            report = {**found, "gap": jnp.mean(gap), "td": td}
            return td + jnp.sum(regularizer), report

        critic, found = state.critic.apply_loss_fn(loss, self.optimizer())
        return critic, {
            "critic_loss": found["loss"],
            "td_loss": found["td"],
            "q": found["q"],
            "target": found["target"],
            "target_std": found["target_std"],
            "gap": found["gap"],
            "conservative_weight": weight,
        }

    def _weigh(self, state, gap):
        """Take a gradient step of the dual variable; none without a threshold."""
        violation = self.conservative_weight * gap - self.threshold
        off = jnp.where(self.threshold > 0.0, violation, 0.0)
        loss = lambda log: (-jnp.exp(log) * off, {})
        new, _ = state.multiplier.apply_loss_fn(loss, self.optimizer())
        # After the step, as a limit inside the loss has no way back.
        return dataclasses.replace(new, model=jnp.clip(new.model, -20.0, 14.0))

    def _improve(self, state, critic, batch, key):
        """Take a gradient step of the policy."""
        alpha = jnp.exp(state.temperature.model)
        features = self.inputs.actor_inputs(critic.model, batch.obs)
        raw = jnp.arctanh(jnp.clip(batch.action, -_INSIDE, _INSIDE))
        early = state.updates.astype(raw.dtype) < self.warmup_steps

        def loss(actor):
            soft, found = soft_actor_loss(
                actor, critic.model, batch.obs, features, alpha, key
            )
            log_prob = jax.vmap(lambda obs, u: actor(obs).log_prob(u))(features, raw)
            cloning = -alpha * found["entropy"] - jnp.mean(log_prob)
            return jnp.where(early, cloning, soft), found

        distance = action_distance(state.actor.model, features, batch.action)
        actor, found = state.actor.apply_loss_fn(loss, self.policy_optimizer())
        return actor, {
            "actor_loss": found["loss"],
            "entropy": found["entropy"],
            "temperature": alpha,
            "action_distance": distance,
        }


def _others(policy, batch: Transition, key: PRNGKeyArray, number: int):
    """Sample actions outside the dataset, (3 number, rows, nu), and compute the
    logarithms of their densities; both are constants in derivatives."""
    key_uniform, *keys = jr.split(key, 3)
    shape = number, *batch.action.shape
    uniform = jr.uniform(key_uniform, shape, batch.action.dtype, -1.0, 1.0)
    even = jnp.full(shape[:2], -shape[2] * jnp.log(2.0), uniform.dtype)
    found = [(uniform, even)]
    for obs, key in zip((batch.obs, batch.next_obs), keys):
        several = jax.vmap(lambda key, obs=obs: sample_actions(policy, obs, key))
        found.append(several(jr.split(key, number)))
    return jtu.tree_map(lambda *x: jnp.concatenate(x), *found)


def fine_tuned(
    agent: SAC,
    env: AbstractEnv,
    key: PRNGKeyArray,
    learned: CQLState,
    data: Dataset | None = None,
) -> OffPolicyState:
    """Return the initial state of a soft actor-critic that continues from conservative
    Q-learning, in place of `agent.init(key, env)`. Policy, critics, targets and temperature
    are those of the `CQL`; the states of optimizers are new.

    **Arguments:**

    - `agent`: soft actor-critic with the `actor_hidden`, `critic_hidden`, `layer_norm`,
        `discount` and `reward_scale` of the `CQL`; `random_steps` may be 0.
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
    learner, actor, critic = state.learner, learned.actor.model, learned.critic.model
    _check_vectors(critic)
    _check_alike("actor", learner.actor.model, actor)
    _check_alike("critic", learner.critic.model, critic)
    temperature = learned.temperature.model
    learner = dataclasses.replace(
        learner,
        actor=Learner.create(actor, adam),
        critic=Learner.create(critic, adam),
        target=learned.target,
        temperature=Learner.create(temperature, agent.temperature_optimizer()),
    )
    known = learned.statistics is not None
    if known != (learner.statistics is not None):
        raise ValueError(
            f"`SAC.normalize_observations` is {not known}, but what was learned was "
            f"{'' if known else 'not '}given normalized observations: set it to {known}."
        )
    if learned.statistics is not None:
        learner = dataclasses.replace(learner, statistics=learned.statistics["obs"])
    state = OffPolicyState(learner, state.memory)
    return state if data is None else _remembering(state, data)


def _check_vectors(network: Any) -> None:
    if isinstance(network, FeaturesNetwork):
        raise ValueError(
            "The pretrained networks observe "
            f"{[name for name, _ in network.features.shapes]}, but only those of a single "
            "vector can be fine-tuned."
        )


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


def _remembering(state: OffPolicyState, data: Dataset) -> OffPolicyState:
    """Return the state with the first steps of a recording in its memory, in whole
    blocks."""
    memory = state.memory
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
