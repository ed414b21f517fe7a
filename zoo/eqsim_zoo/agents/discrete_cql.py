"""Conservative Q-learning with finitely many actions."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray

from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import Transition
from ..blocks.hyperparameters import as_scalar, check_positive, static
from ..blocks.networks import check_on_policy, Learner, target_update
from ..blocks.replay import lowest_value
from .offline_agent import (
    AbstractLevelAgent,
    AbstractOfflineCritic,
    action_distance,
    Choice,
    Levels,
    NetworkMaker,
)


class DiscreteCQLState(eqx.Module):
    """State of `DiscreteCQL`: learner of the `critic`, its `target` network, `statistics`
    of observations, and action range `bounds`."""

    critic: Learner
    target: Any
    statistics: dict[str, RunningStatistics] | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class GreedyPolicy(eqx.Module):
    """Policy that is greedy in the minimum of the critics, or a softmax of it."""

    critic: Any
    levels: Levels
    temperature: Float[Array, ""]

    def __call__(self, obs: Any) -> Choice:
        q = jnp.min(self.critic(obs), axis=0)
        return Choice(q / self.temperature, self.levels)


class DiscreteCQL(AbstractLevelAgent, AbstractOfflineCritic):
    r"""Conservative Q-learning with finitely many actions.

    $$L_Q = \sum_k \mathrm{mean}\left[(Q_k(o, a) - y)^2 + \alpha' \left(T \log \sum_{\hat a}
    e^{Q_k(o, \hat a) / T} - Q_k(o, a)\right)\right], \quad
    y = r + \gamma_t \min_k \bar Q_k(o', a^*),$$

    where $a^*$ is best by the least of the present critics (double Q-learning), and
    $\gamma_t$ is zero where the task ended. The policy takes the best action, and with a key
    draws one by $\mathrm{softmax}(\min_k Q_k / T)$.

    **Arguments:** those of `AbstractLevelAgent` and `AbstractOfflineCritic`, and

    - `num_critics`: number of critics.
    - `conservative_weight`: weight $\alpha'$ of the conservative term.
    - `temperature`: temperature $T$ of the conservative term.

    ??? cite "Reference"
        Kumar, Zhou, Tucker, Levine, *Conservative Q-learning for offline reinforcement
        learning*, 2020, equation 4; van Hasselt, Guez, Silver, *Deep reinforcement learning
        with double Q-learning*, 2016, equation 4.
    """

    levels: int = static(3)
    num_critics: int = static(2)
    conservative_weight: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        check_positive(self, "num_critics")
        # There are no networks besides the critics with which to share an encoder.
        check_on_policy("DiscreteCQL", self.inputs, "augmentations")
        if self.levels < 2:
            raise ValueError(
                f"`DiscreteCQL.levels` must be at least 2, got {self.levels}. For "
                "continuous actions, use `CQL`."
            )

    def begin(self, key: PRNGKeyArray, make: NetworkMaker) -> DiscreteCQLState:
        key, key_critic = jr.split(key)
        critic = make.critic(key_critic, self.num_critics, self.levels)
        learner = Learner.create(critic, self.optimizer())
        return DiscreteCQLState(learner, critic, make.statistics(), make.bounds, key)

    def policy(self, state: DiscreteCQLState) -> GreedyPolicy:
        levels = Levels(self.levels, state.bounds.shape[0])
        return GreedyPolicy(state.critic.model, levels, self.temperature)

    def learn(
        self, state: DiscreteCQLState, batch: Transition, keys: Key[Array, "2"]
    ) -> tuple[DiscreteCQLState, dict[str, Array]]:
        """Take one gradient step.

        **Returns:** the new state; losses, the mean value `q`, the mean `gap` between the
        logarithm of the sum and recorded values, and the mean square `action_distance`.
        """
        policy = self.policy(state)
        best = jax.vmap(lambda obs: policy(obs).mode())(batch.next_obs)
        target = self.target(batch, lowest_value(state.target, batch.next_obs, best))
        index = policy.levels.index(batch.action)

        def loss(critic):
            q = jax.vmap(critic)(batch.obs)
            recorded = jnp.take_along_axis(q, index[:, None, None], axis=2)[:, :, 0]
            soft = self.temperature * jax.nn.logsumexp(q / self.temperature, axis=2)
            gap, off = soft - recorded, (recorded - target[:, None]) ** 2
            report = {"q": jnp.mean(recorded), "gap": jnp.mean(gap)}
            each = jnp.mean(off + self.conservative_weight * gap, axis=0)
            report |= {"td_loss": jnp.sum(jnp.mean(off, axis=0))}
            return jnp.sum(each), report

        distance = action_distance(policy, batch.obs, batch.action)
        critic, found = state.critic.apply_loss_fn(loss, self.optimizer())
        slow = target_update(critic.model, state.target, self.target_rate)
        new = dataclasses.replace(state, critic=critic, target=slow)
        names = "td_loss", "q", "gap"
        return new, {
            "critic_loss": found["loss"],
            **{name: found[name] for name in names},
            "action_distance": distance,
        }
