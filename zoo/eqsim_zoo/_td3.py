from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractOnlineAgent
from eqsim.wrappers import Statistics

from ._actions import scale
from ._fields import check_positive, in_type, real, size
from ._learner import Learner
from ._networks import Critic, MLP, target_update
from ._off_policy import check_off_policy, iterate, Memory, remember
from ._policies import DeterministicPolicy, Explorer
from ._replay import Transition
from ._statistics import no_statistics, normalize


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


class TD3(AbstractOnlineAgent):
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

    **Arguments:**

    - `num_envs`, `unroll_length`: environments, and steps of each per iteration.
    - `num_updates`, `batch_size`: updates per iteration, and transitions for each.
    - `capacity`: transitions that are remembered. `random_steps`: that are taken at random
        before anything is learned.
    - `actor_hidden`, `critic_hidden`, `layer_norm`: of the networks.
    - `normalize_observations`: whether observations are normalized.
    - `policy_delay`: updates of the critics per update of the policy.
    - `learning_rate`: of Adam. `discount`, `target_rate`: $\gamma$ and $\tau$.
    - `exploration_noise`: deviation of what is added to actions while collecting.
    - `target_noise`, `noise_clip`: of the actions of the target.
    - `reward_scale`: rewards are multiplied by it.

    ??? cite "Reference"
        Fujimoto, van Hoof, Meger, *Addressing function approximation error in actor-critic
        methods*, 2018, algorithm 1.
    """

    num_envs: int = size(16)
    unroll_length: int = size(4)
    num_updates: int = size(16)
    batch_size: int = size(256)
    capacity: int = size(2**18)
    actor_hidden: tuple[int, ...] = size((256, 256))
    critic_hidden: tuple[int, ...] = size((256, 256))
    layer_norm: bool = size(False)
    normalize_observations: bool = size(False)
    policy_delay: int = size(2)
    random_steps: Float[Array, ""] = real(2000.0)
    learning_rate: Float[Array, ""] = real(3e-4)
    discount: Float[Array, ""] = real(0.99)
    target_rate: Float[Array, ""] = real(0.005)
    exploration_noise: Float[Array, ""] = real(0.1)
    target_noise: Float[Array, ""] = real(0.2)
    noise_clip: Float[Array, ""] = real(0.5)
    reward_scale: Float[Array, ""] = real(1.0)

    def __check_init__(self):
        check_off_policy(self)
        check_positive(self, "policy_delay")

    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> TD3State:
        key, key_actor, key_critic, key_envs = jr.split(key, 4)
        memory = remember(self, env, key_envs)
        obs, nu = memory.running.obs[0], env.sys.nu
        sizes = (obs.shape[0], *self.actor_hidden, nu)
        network = MLP.create(key_actor, sizes, last_scale=0.01, dtype=obs.dtype)
        actor = DeterministicPolicy(network)
        critic = Critic.create(
            key_critic,
            obs.shape[0],
            nu,
            self.critic_hidden,
            layer_norm=self.layer_norm,
            dtype=obs.dtype,
        )
        optimizer = in_type(self, obs.dtype)._optimizer()
        return TD3State(
            Learner.create(actor, optimizer),
            Learner.create(critic, optimizer),
            (actor, critic),
            jnp.zeros((), jnp.int32),
            no_statistics(obs) if self.normalize_observations else None,
            env.action_range,
            memory,
            key,
        )

    def act(
        self, state: TD3State, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        policy = state.actor.model
        if key is None:
            return scale(state.bounds, policy(normalize(state.statistics, obs)))
        noise = self.exploration_noise.astype(state.bounds.dtype)
        never = jnp.zeros((), bool)
        explorer = Explorer(policy, state.statistics, noise, never)
        return scale(state.bounds, explorer(obs, key))

    def iterate(
        self, state: TD3State, env: AbstractEnv
    ) -> tuple[TD3State, dict[str, Float[Array, "..."]]]:
        self = in_type(self, state.bounds.dtype)
        return iterate(self, state, env, state.actor.model, self.exploration_noise)

    def update(
        self, state: TD3State, batch: Transition
    ) -> tuple[TD3State, dict[str, Float[Array, "..."]]]:
        """Learns from a `Transition` with one axis, of rows; actions are between -1
        and 1.

        **Returns:** the new state; losses, and the mean value `q`. Where the policy is not
        updated its loss is what it was before.
        """
        self = in_type(self, batch.reward.dtype)
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

        def critic_loss(critic):
            q = jax.vmap(critic)(obs, batch.action)
            off = jnp.mean((q - target[:, None]) ** 2, axis=0)
            return jnp.sum(off), {"q": jnp.mean(q)}

        critic, of_critic = state.critic.apply_loss_fn(critic_loss, self._optimizer())

        def actor_loss(actor):
            q = jax.vmap(critic.model)(obs, jax.vmap(actor)(obs))
            return -jnp.mean(q[:, 0]), {}

        def improve():
            actor, of_actor = state.actor.apply_loss_fn(actor_loss, self._optimizer())
            new = target_update(
                (actor.model, critic.model), state.targets, self.target_rate
            )
            return actor, new, of_actor["loss"]

        def wait():
            return state.actor, state.targets, actor_loss(state.actor.model)[0]

        due = state.updates % self.policy_delay == 0
        actor, targets, loss = lax.cond(due, improve, wait)
        place = lambda s: (s.actor, s.critic, s.targets, s.updates, s.key)
        # Wraps around long before it overflows.
        updates = (state.updates + 1) % (self.policy_delay * 2**20)
        new = eqx.tree_at(place, state, (actor, critic, targets, updates, key))
        q, off = of_critic["q"], of_critic["loss"]
        return new, {"critic_loss": off, "actor_loss": loss, "q": q}

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)
