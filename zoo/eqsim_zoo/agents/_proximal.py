"""Settings that `PPO` and `RecurrentPPO` share."""

import equinox as eqx
import optax
from jaxtyping import Array, Float

from eqsim import AbstractOnlineAgent

from ..blocks import (
    Activation,
    as_scalar,
    check_ranges,
    linear_schedule,
    static,
)


class AbstractProximalAgent(AbstractOnlineAgent):
    r"""Settings of proximal policy optimization.

    **Arguments:**

    - `num_epochs`: passes through a batch.
    - `num_minibatches`: minibatches of each pass.
    - `activation`: nonlinearity of the hidden layers.
    - `normalize_observations`: true if observations are normalized.
    - `learning_rate`: Adam step size.
    - `adam_epsilon`: $\epsilon$ of Adam.
    - `anneal_steps`: steps until the learning rate is zero, below $2^{31}$; 0 keeps it.
    - `discount`: discount $\gamma$.
    - `gae_decay`: decay $\lambda$ of the advantages.
    - `clip`: bound $\epsilon$ on the change of the probability ratio.
    - `value_clip`: bound on the change of values from $V_{old}$; 0 without.
    - `value_cost`: weight $c_V$ of the value loss.
    - `entropy_cost`: weight $c_H$ of the entropy.
    - `reward_scale`: factor on rewards.
    - `max_grad_norm`: largest global norm of a gradient.
    - `initial_log_std`: initial logarithm of the standard deviation.
    """

    num_epochs: int = static(4)
    num_minibatches: int = static(8)
    activation: Activation = static(Activation.SWISH)
    normalize_observations: bool = static(True)
    learning_rate: Float[Array, ""] = eqx.field(converter=as_scalar, default=3e-4)
    adam_epsilon: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-8)
    anneal_steps: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    discount: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.99)
    gae_decay: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.95)
    clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.2)
    value_clip: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.0)
    value_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    entropy_cost: Float[Array, ""] = eqx.field(converter=as_scalar, default=1e-3)
    reward_scale: Float[Array, ""] = eqx.field(converter=as_scalar, default=1.0)
    max_grad_norm: Float[Array, ""] = eqx.field(converter=as_scalar, default=0.5)
    initial_log_std: Float[Array, ""] = eqx.field(converter=as_scalar, default=-0.5)

    def __check_init__(self):
        check_ranges(self)

    def _optimizer(self, steps: Float[Array, ""]) -> optax.GradientTransformation:
        """Return Adam with the learning rate after a number of control steps."""
        rate = linear_schedule(self.learning_rate, steps, self.anneal_steps)
        return optax.adam(rate, eps=self.adam_epsilon)
