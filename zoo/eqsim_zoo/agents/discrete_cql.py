""""""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..blocks.hyperparameters import as_scalar, cast_floats, check_positive, static
from ..blocks.networks import Learner, target_update
from ..blocks.replay import lowest_value, td_target, Transition
from ..vision.encoding import EncodedNetwork
from .offline_agent import AbstractLevelAgent, action_distance, Choice, Start


class DiscreteCQLState(eqx.Module):
    """State of `DiscreteCQL`: learner of the `critic`, its `target` network, `statistics`
    of observations, and action range `bounds`."""

    critic: Learner
    target: EncodedNetwork
    statistics: dict[str, Statistics] | None
    bounds: Float[Array, "nu 2"]
    key: PRNGKeyArray


class GreedyPolicy(eqx.Module):
    """Policy that is greedy in the minimum of the critics, or a softmax of it."""

    critic: EncodedNetwork
    temperature: Float[Array, ""]

    def __call__(self, obs: Any) -> Choice:
        head = self.critic.network
        q = jnp.min(head.all(self.critic.senses(obs)), axis=0)
        return Choice(q / self.temperature, head.levels)


class DiscreteCQL(AbstractLevelAgent):
    r"""Conservative Q-learning with finitely many actions.

    $$L_Q = \sum_k \mathrm{mean}\left[(Q_k(o, a) - y)^2 + \alpha' \left(T \log \sum_{\hat a}
    e^{Q_k(o, \hat a) / T} - Q_k(o, a)\right)\right], \quad
    y = r + \gamma_t \min_k \bar Q_k(o', a^*),$$

    where $a^*$ is best by the least of the present critics (double Q-learning), and
    $\gamma_t$ is zero where the task ended. The policy takes the best action, and with a key
    draws one by $\mathrm{softmax}(\min_k Q_k / T)$.

    **Arguments:** those of `AbstractLevelAgent`, and

    - `num_critics`: number of critics.
    - `discount`: discount $\gamma$.
    - `target_rate`: target update rate.
    - `reward_scale`: factor that multiplies rewards.
    - `conservative_weight`: weight $\alpha'$ of the conservative term.
    - `temperature`: temperature $T$ of the conservative term.

    ??? cite "Reference"
        Kumar, Zhou, Tucker, Levine, *Conservative Q-learning for offline reinforcement
        learning*, 2020, equation 4; van Hasselt, Guez, Silver, *Deep reinforcement learning
        with double Q-learning*, 2016, equation 4.
    """

    levels: int = static(3)
    num_critics: int = static(2)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    target_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.005)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    conservative_weight: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    temperature: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)

    def __check_init__(self):
        check_positive(self, "num_critics")
        if self.shared_encoder:
            raise ValueError(
                "`DiscreteCQL` has no networks besides its critics, so no encoder can "
                "be shared. Leave out `shared_encoder`."
            )
        if self.levels < 2:
            raise ValueError(
                f"`DiscreteCQL.levels` must be at least 2, got {self.levels}. For "
                "continuous actions, use `CQL`."
            )

    def begin(self, key: PRNGKeyArray, start: Start) -> DiscreteCQLState:
        key, key_critic = jr.split(key)
        critic = start.critic(key_critic, self.num_critics, self.levels)
        learner = Learner.create(critic, self.optimizer())
        return DiscreteCQLState(learner, critic, start.statistics(), start.bounds, key)

    def policy(self, state: DiscreteCQLState) -> Callable[[Any], Any]:
        temperature = self.temperature.astype(state.bounds.dtype)
        return GreedyPolicy(state.critic.model, temperature)

    def update(
        self, state: DiscreteCQLState, batch: Transition
    ) -> tuple[DiscreteCQLState, dict[str, Float[Array, "..."]]]:
        """Learn from a batched `Transition` with actions between -1 and 1.

        **Returns:** the new state; losses, the mean value `q`, the mean `gap` between the
        logarithm of the sum and recorded values, and the mean square `action_distance`.
        """
        self = cast_floats(self, batch.reward.dtype)
        key, key_look = jr.split(state.key)
        batch = self.seen(state, batch, key_look)
        best = jax.vmap(lambda obs: self.policy(state)(obs).mode())(batch.next_obs)
        target = td_target(
            self.reward_scale * batch.reward,
            lowest_value(state.target, batch.next_obs, best),
            batch.terminated,
            self.discount,
        )
        index = state.critic.model.network.levels.index(batch.action)

        def loss(critic):
            every = jax.vmap(lambda obs: critic.network.all(critic.senses(obs)))
            q = every(batch.obs)
            recorded = jnp.take_along_axis(q, index[:, None, None], axis=2)[:, :, 0]
            soft = self.temperature * jax.nn.logsumexp(q / self.temperature, axis=2)
            gap, off = soft - recorded, (recorded - target[:, None]) ** 2
            report = {"q": jnp.mean(recorded), "gap": jnp.mean(gap)}
            each = jnp.mean(off + self.conservative_weight * gap, axis=0)
            report |= {"td_loss": jnp.sum(jnp.mean(off, axis=0))}
            return jnp.sum(each), report

        distance = action_distance(self.policy(state), batch.obs, batch.action)
        critic, found = state.critic.apply_loss_fn(loss, self.optimizer())
        slow = target_update(critic.model, state.target, self.target_rate)
        new = dataclasses.replace(state, critic=critic, target=slow, key=key)
        names = "td_loss", "q", "gap"
        return new, {
            "critic_loss": found["loss"],
            **{name: found[name] for name in names},
            "action_distance": distance,
        }
