import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim.wrappers import Statistics

from ..blocks import (
    AbstractOffPolicy,
    add_noise,
    as_scalar,
    cast_floats,
    check_positive,
    Critic,
    critic_step,
    DeterministicPolicy,
    Learner,
    Memory,
    normalize,
    scale,
    static,
    target_update,
    Transition,
)


class TD3State(eqx.Module):
    """`actor`, `critic`: learners of a `DeterministicPolicy` and a `Critic`. `targets`:
    both of them, some time ago. `updates`: how many there were. `statistics`: of
    observations. `bounds`: of actions."""

    actor: Learner
    critic: Learner
    targets: tuple[DeterministicPolicy, Critic]
    updates: Int[Array, ""]
    statistics: Statistics | None
    bounds: Float[Array, "nu 2"]
    memory: Memory | None
    key: PRNGKeyArray


class TD3(AbstractOffPolicy):
    r"""Twin delayed deep deterministic policy gradient: a policy that climbs the value of
    its actions, which two critics estimate, the lower of whom is believed.

    Of transitions $(o, a, r, o')$ out of a memory, with noise $\epsilon$ of deviation
    `target_noise`, clipped to `noise_clip`,

    $$a' = \mathrm{clip}(\bar\pi(o') + \epsilon, -1, 1), \quad
    y = r + \gamma_t \min_k \bar Q_k(o', a'), \quad
    L_Q = \sum_k \mathrm{mean}\,(Q_k(o, a) - y)^2,$$

    and, in every `policy_delay`-th update, $L_\pi = -\mathrm{mean}\,Q_1(o, \pi(o))$; then
    $\bar\pi$ and $\bar Q$ follow $\pi$ and $Q$. $\gamma_t$ is zero if the task ended and
    $\gamma$ else, also at a time limit.

    Differences from the paper: many environments side by side; policies are $\tanh$ of a
    network, scaled to the range of the actuators; observations may be normalized.

    **Arguments:** those of `AbstractOffPolicy`, and

    - `policy_delay`: updates of the critics per update of the policy.
    - `exploration_noise`: deviation of what is added to actions while collecting.
    - `target_noise`, `noise_clip`: of the actions of the target.

    ??? cite "Reference"
        Fujimoto, van Hoof, Meger, *Addressing function approximation error in actor-critic
        methods*, 2018, algorithm 1.
    """

    policy_delay: int = static(2)
    exploration_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.1)
    target_noise: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    noise_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)

    def __check_init__(self):
        check_positive(self, "policy_delay")

    def begin(
        self, key: PRNGKeyArray, memory: Memory, bounds: Float[Array, "nu 2"]
    ) -> TD3State:
        key_actor, key_critic, key = jr.split(key, 3)
        policy = DeterministicPolicy(self.create_actor(key_actor, memory, 1))
        critic, optimizer = self.create_critic(key_critic, memory), self.optimizer()
        return TD3State(
            actor=Learner.create(policy, optimizer),
            critic=Learner.create(critic, optimizer),
            targets=(policy, critic),
            updates=jnp.zeros((), jnp.int32),
            statistics=self.statistics(memory),
            bounds=bounds,
            memory=memory,
            key=key,
        )

    def explore(self, state: TD3State) -> tuple[DeterministicPolicy, Float[Array, ""]]:
        return state.actor.model, self.exploration_noise

    def act(
        self, state: TD3State, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        policy = state.actor.model
        action = policy(normalize(state.statistics, obs))
        if key is not None:
            noise = self.exploration_noise.astype(action.dtype)
            action = add_noise(action, noise, key)
        return scale(state.bounds, action)

    def update(
        self, state: TD3State, batch: Transition
    ) -> tuple[TD3State, dict[str, Float[Array, "..."]]]:
        """Learns from a `Transition` with one axis, of rows; actions are between -1
        and 1.

        **Returns:** the new state; losses, and the mean value `q`. Where the policy is not
        updated its loss is what it was before.
        """
        self = cast_floats(self, batch.reward.dtype)
        seen = jax.vmap(lambda obs: normalize(state.statistics, obs))
        obs, next_obs = seen(batch.obs), seen(batch.next_obs)
        key, key_noise = jr.split(state.key)
        slow_actor, slow_critic = state.targets

        normal = jr.normal(key_noise, batch.action.shape, batch.action.dtype)
        noise = jnp.clip(self.target_noise * normal, -self.noise_clip, self.noise_clip)
        action = jnp.clip(jax.vmap(slow_actor)(next_obs) + noise, -1.0, 1.0)
        after = jnp.min(jax.vmap(slow_critic)(next_obs, action), axis=1)
        left = jnp.where(batch.terminated, 0.0, self.discount)
        target = self.reward_scale * batch.reward + left * after

        optimizer = self.optimizer()
        critic, metrics = critic_step(
            state.critic, obs, batch.action, target, optimizer
        )

        def actor_loss(actor):
            q = jax.vmap(critic.model)(obs, jax.vmap(actor)(obs))
            return -jnp.mean(q[:, 0]), {}

        def improve():
            actor, of_actor = state.actor.apply_loss_fn(actor_loss, optimizer)
            new = target_update(
                (actor.model, critic.model), state.targets, self.target_rate
            )
            return actor, new, of_actor["loss"]

        def wait():
            return state.actor, state.targets, actor_loss(state.actor.model)[0]

        due = state.updates % self.policy_delay == 0
        actor, targets, loss = lax.cond(due, improve, wait)
        # Wraps around long before it overflows.
        count = (state.updates + 1) % (self.policy_delay * 2**20)
        learned = {"actor": actor, "critic": critic, "targets": targets}
        new = dataclasses.replace(state, **learned, updates=count, key=key)
        return new, {**metrics, "actor_loss": loss}
